//! One variant of a module's code inside of an image.

use std::borrow::Cow;

use super::error::ImageError;
use super::packed::{self, Packing};

/// The form of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeForm {
    /// Text that the driver compiles.
    Ptx,
    /// An ELF file with machine code.
    Cubin,
}

/// One variant of a module's code inside of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageEntry<'a> {
    /// Its form.
    pub kind: CodeForm,
    /// The architecture that it was made for. 0: not stated outside of it, as of a PTX text alone.
    pub sm: u32,
    pub(super) content: &'a [u8],
    pub(super) packing: Packing,
}

impl<'a> ImageEntry<'a> {
    /// The entry's bytes, unpacked if need be: an ELF file, or a text without its final zero.
    ///
    /// # Errors
    /// The content does not unpack to the size that the image states.
    pub fn open(&self) -> Result<Cow<'a, [u8]>, ImageError> {
        let content = self.packing.unpack(self.content)?;
        Ok(match (self.kind, content) {
            (CodeForm::Ptx, Cow::Borrowed(text)) => Cow::Borrowed(packed::text(text)),
            (CodeForm::Ptx, Cow::Owned(mut text)) => {
                text.truncate(packed::text(&text).len());
                Cow::Owned(text)
            }
            (CodeForm::Cubin, content) => content,
        })
    }

    pub(super) fn plain(kind: CodeForm, sm: u32, content: &'a [u8]) -> Self {
        Self { kind, sm, content, packing: Packing::None }
    }
}
