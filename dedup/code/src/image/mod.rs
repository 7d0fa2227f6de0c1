//! The images that a process gives to the driver: fat binaries, cubins, PTX.
//!
//! An image is hostile until it is read: offsets, counts and sizes are claims. Each is checked
//! against the bytes that are there, no allocation is larger than [`LARGEST`], and the work is
//! proportional to the bytes.

mod attributes;
mod bytes;
mod container;
mod cubin;
mod entry;
mod error;
mod library;
mod packed;

pub use cubin::Cubin;
pub use entry::{CodeForm, ImageEntry};
pub use error::{ImageError, LARGEST};
pub use library::embedded;

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
        Box::new(std::iter::once(Ok(ImageEntry::plain(CodeForm::Ptx, 0, image))))
    } else {
        Box::new(std::iter::once(Err(ImageError::Form)))
    }
}
