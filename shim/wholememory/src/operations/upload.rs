//! Copies and fills of device memory that this library answers for: the one place where addresses are followed without a kernel.

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
    // SAFETY: memory of a part or of scratch, whose size the caller has from where it has the address.
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

/// Copies bytes of a tensor to memory of this library's own, in a stream.
pub(crate) fn copy(
    communicator: &Communicator,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: u64,
    stream: CUstream,
) -> Result {
    // SAFETY: the tensor's owner answers for its address, as in any copy; the other side is ours and large enough.
    Ok(unsafe { communicator.driver().memcpy_dtod_async(to, from, bytes as usize, stream) }?)
}

/// Reads a 32-bit number that the stream writes; waits for the stream.
pub(crate) fn read_number(communicator: &Communicator, from: CUdeviceptr, stream: CUstream) -> Result<u32> {
    communicator.driver().stream_synchronize(stream)?;
    let mut bytes = [0; 4];
    // SAFETY: a word of scratch, and a live local; the call returns when the bytes are there.
    unsafe { communicator.driver().memcpy_dtoh(bytes.as_mut_ptr().cast(), from, bytes.len()) }?;
    Ok(u32::from_le_bytes(bytes))
}
