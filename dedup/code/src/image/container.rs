//! Fat binaries: containers that follow each other, each with variants of one module's code.
//!
//! | bytes of a container | |
//! |---|---|
//! | 0..4 | magic |
//! | 4..6 | version |
//! | 6..8 | bytes of this head |
//! | 8..16 | bytes of the entries behind it |
//!
//! | bytes of an entry's head | |
//! |---|---|
//! | 0..2 | kind: 1 PTX, 2 cubin |
//! | 4..8 | bytes of the head |
//! | 8..16 | bytes of the content behind it, with padding |
//! | 16..20 | bytes of the content if it is packed |
//! | 28..32 | architecture |
//! | 40..48 | flags: 0x2000 LZ4, 0x8000 zstd |
//! | 56..64 | bytes of the unpacked content |

use super::bytes::{size, u16, u32, u64};
use super::entry::{CodeForm, ImageEntry};
use super::error::ImageError;
use super::packed::Packing;

const HEAD: usize = 16;

/// The magic, the version and the size of the head.
pub(super) const FIRST_BYTES: [u8; 8] = [0x50, 0xed, 0x55, 0xba, 1, 0, HEAD as u8, 0];
const ENTRY_HEAD: usize = 64;

const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;

/// Is there a container at the start?
pub(super) fn begins(image: &[u8]) -> bool {
    image.starts_with(&FIRST_BYTES)
}

/// The stated bytes of the container at the start. `None`: the statement is no size.
pub(super) fn length(image: &[u8]) -> Option<usize> {
    size(image, 8)?.checked_add(HEAD)
}

/// The entries of all containers in a row. An entry of a kind that is not known is an error, and
/// the next ones follow; after an error of a size there are none.
pub(super) fn entries(image: &[u8]) -> impl Iterator<Item = Result<ImageEntry<'_>, ImageError>> {
    let mut rest = UnreadEntries { outside: image, inside: &[] };
    std::iter::from_fn(move || rest.next())
}

/// The bytes that are not read yet: those of the container that is being read, and those behind it.
struct UnreadEntries<'a> {
    outside: &'a [u8],
    inside: &'a [u8],
}

impl<'a> UnreadEntries<'a> {
    fn next(&mut self) -> Option<Result<ImageEntry<'a>, ImageError>> {
        while self.inside.is_empty() {
            self.outside = after_padding(self.outside);
            if self.outside.is_empty() {
                return None;
            }
            if self.enter().is_none() {
                return Some(Err(self.end()));
            }
        }
        match split(self.inside) {
            Some((head, content, rest)) => {
                self.inside = rest;
                Some(entry(head, content))
            }
            None => Some(Err(self.end())),
        }
    }

    /// Goes to the next container.
    fn enter(&mut self) -> Option<()> {
        if !begins(self.outside) {
            return None;
        }
        let (container, outside) = self.outside.split_at_checked(length(self.outside)?)?;
        (self.inside, self.outside) = (&container[HEAD..], outside);
        Some(())
    }

    /// Nothing more is read: there is no telling where the next entry begins.
    fn end(&mut self) -> ImageError {
        (self.outside, self.inside) = (&[], &[]);
        ImageError::Short
    }
}

/// Sections align containers to 8 bytes, and fill with zeros.
fn after_padding(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    &bytes[zeros..]
}

/// The head of the first entry, its content, and the bytes behind it.
fn split(entries: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let head_bytes = usize::try_from(u32(entries, 4)?).ok().filter(|bytes| *bytes >= ENTRY_HEAD)?;
    let (head, rest) = entries.split_at_checked(head_bytes)?;
    let (content, rest) = rest.split_at_checked(size(head, 8)?)?;
    Some((head, content, rest))
}

fn entry<'a>(head: &[u8], content: &'a [u8]) -> Result<ImageEntry<'a>, ImageError> {
    let kind = match u16(head, 0) {
        Some(1) => CodeForm::Ptx,
        Some(2) => CodeForm::Cubin,
        _ => return Err(ImageError::CodeForm),
    };
    let sm = u32(head, 28).ok_or(ImageError::Short)?;
    let flags = u64(head, 40).ok_or(ImageError::Short)?;
    let bytes = size(head, 56).ok_or(ImageError::Short)?;
    let packing = match (flags & LZ4 != 0, flags & ZSTD != 0) {
        (false, false) => return Ok(ImageEntry::plain(kind, sm, content)),
        (true, false) => Packing::Lz4 { bytes },
        (false, true) => Packing::Zstd { bytes },
        (true, true) => return Err(ImageError::CodeForm),
    };
    let packed = usize::try_from(u32(head, 16).unwrap_or(0)).ok();
    let content = packed.and_then(|bytes| content.get(..bytes)).ok_or(ImageError::Short)?;
    Ok(ImageEntry { kind, sm, content, packing })
}
