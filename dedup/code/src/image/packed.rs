//! The compression of entries: LZ4 of older compilers, zstd of newer ones.
//!
//! The stated size bounds the memory, and memory grows only as bytes arrive: a size that lies costs
//! nothing. A frame that unpacks to another size is refused.

use std::borrow::Cow;
use std::io::Read;

use ruzstd::decoding::StreamingDecoder;

use super::error::{ImageError, LARGEST};

/// How the content of an entry is packed, and to how many bytes it unpacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    None,
    Lz4 { bytes: usize },
    Zstd { bytes: usize },
}

impl Packing {
    pub(super) fn unpack(self, content: &[u8]) -> Result<Cow<'_, [u8]>, ImageError> {
        let unpacked = match self {
            Self::None => return Ok(Cow::Borrowed(content)),
            Self::Lz4 { bytes } => lz4(content, bounded(bytes)?)?,
            Self::Zstd { bytes } => zstd(content, bounded(bytes)?)?,
        };
        Ok(Cow::Owned(unpacked))
    }
}

fn bounded(bytes: usize) -> Result<usize, ImageError> {
    if bytes <= LARGEST { Ok(bytes) } else { Err(ImageError::Large) }
}

/// A block of LZ4 unpacks to at most 255 times its size, so a larger claim needs no memory to be
/// refused.
fn lz4(content: &[u8], bytes: usize) -> Result<Vec<u8>, ImageError> {
    if bytes / 255 > content.len() {
        return Err(ImageError::Packed);
    }
    let mut unpacked = vec![0; bytes];
    match lz4_flex::block::decompress_into(content, &mut unpacked) {
        Ok(written) if written == bytes => Ok(unpacked),
        _ => Err(ImageError::Packed),
    }
}

fn zstd(content: &[u8], bytes: usize) -> Result<Vec<u8>, ImageError> {
    let refused = |_| ImageError::Packed;
    let frame = StreamingDecoder::new_with_max_window_size(content, LARGEST as u64);
    let frame = frame.map_err(|_| ImageError::Packed)?;
    let mut unpacked = Vec::new();
    // One byte more than is stated shows a frame that does not end there.
    frame.take(bytes as u64 + 1).read_to_end(&mut unpacked).map_err(refused)?;
    if unpacked.len() == bytes { Ok(unpacked) } else { Err(ImageError::Packed) }
}

/// A text up to its zero, or all of it.
pub(super) fn text(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    &bytes[..end]
}
