//! Fills of device memory that is this library's own. Copies are a stream's
//! ([`CallerStream`](crate::stream::CallerStream)).

use wm_abi::{CUdeviceptr, CUstream};
use wm_driver::Api;

use crate::communicator::Communicator;
use crate::error::Result;

/// Fills 32-bit words, in a stream. The memory is this library's own.
pub(crate) fn fill_words(
    communicator: &Communicator,
    to: CUdeviceptr,
    words: u64,
    word: u32,
    stream: CUstream,
) -> Result {
    // SAFETY: memory of a part or of scratch, whose size the caller has from where it has the
    // address.
    Ok(unsafe { communicator.driver().memset_d32_async(to, word, words as usize, stream) }?)
}

/// Fills bytes, in a stream. The memory is this library's own.
pub(crate) fn fill_bytes(
    communicator: &Communicator,
    to: CUdeviceptr,
    bytes: u64,
    byte: u8,
    stream: CUstream,
) -> Result {
    // SAFETY: as above.
    Ok(unsafe { communicator.driver().memset_d8_async(to, byte, bytes as usize, stream) }?)
}
