//! The reasons why an image is not read, and the bound of its size.

use thiserror::Error;

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
