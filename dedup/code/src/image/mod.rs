//! The images that a process gives to the driver: fat binaries, cubins, PTX.
//!
//! An image is hostile until it is read: offsets, counts and sizes are claims. Each is checked
//! against the bytes that are there, no allocation is larger than [`LARGEST`], and the work is
//! proportional to the bytes.

mod attributes;
mod bytes;
mod container;
mod cubin;
mod library;
mod packed;

use std::borrow::Cow;

use thiserror::Error;

use packed::Packing;

pub use cubin::Cubin;
pub use library::embedded;

/// No entry unpacks to more bytes. The largest that is known, of PyTorch 2.15, has 13 MiB.
pub const LARGEST: usize = 256 << 20;

/// A reason why an image, or a part of it, is not read.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum ImageError {
    /// The first bytes are those of no form of image.
    #[error("its form is not known")]
    Form,
    /// A size or an offset leads out of the bytes that are there.
    #[error("the image is cut short")]
    Short,
    /// The entry has a kind or a compression that is not known.
    #[error("the kind of an entry is not known")]
    CodeForm,
    /// The entry's content does not unpack to the stated size.
    #[error("an entry does not unpack")]
    Packed,
    /// The entry claims more than [`LARGEST`].
    #[error("an entry is too large")]
    Large,
    /// The ELF file of an entry is damaged, or is not one of a GPU.
    #[error("an entry is no cubin")]
    Elf,
    /// The text of an entry is not PTX that is understood.
    #[error("an entry is no PTX that is understood")]
    Text,
}

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
    content: &'a [u8],
    packing: Packing,
}

impl<'a> ImageEntry<'a> {
    /// The entry's bytes, unpacked if need be: an ELF file, or a text without its final zero.
    ///
    /// # Errors
    /// The content does not unpack to the size that the image states.
    pub fn open(&self) -> Result<Cow<'a, [u8]>, ImageError> {
        self.packing.unpack(self.content)
    }

    fn plain(kind: CodeForm, sm: u32, content: &'a [u8]) -> Self {
        Self { kind, sm, content, packing: Packing::None }
    }
}

/// The entries of an image: of one fat binary or many in a row, of a cubin or a PTX text alone.
/// After an error whose place is not bounded there are no more.
pub fn entries(image: &[u8]) -> Box<dyn Iterator<Item = Result<ImageEntry<'_>, ImageError>> + '_> {
    if container::begins(image) {
        Box::new(container::entries(image))
    } else if image.starts_with(b"\x7fELF") {
        Box::new(std::iter::once(
            Cubin::parse(image).map(|cubin| ImageEntry::plain(CodeForm::Cubin, cubin.sm(), image)),
        ))
    } else if image.first().is_some_and(|byte| matches!(byte, b'\t'..=b'~')) {
        Box::new(std::iter::once(Ok(ImageEntry::plain(CodeForm::Ptx, 0, packed::text(image)))))
    } else {
        Box::new(std::iter::once(Err(ImageError::Form)))
    }
}
