//! Functions of `wholememory.h` on files.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::call::answer;
use super::exports::exports;
use super::names::{ErrorCode, MemoryHandle};
use super::registry::MEMORIES;
use crate::error::{Error, Result};
use crate::files::load::{LoadRequest, load};
use crate::files::place::EntryShape;
use crate::files::settings::ReadSettings;
use crate::files::store::{StoreRequest, store};

/// The name of a file.
///
/// # Safety
/// Null, or terminated.
unsafe fn path(name: *const c_char) -> Result<PathBuf> {
    if name.is_null() {
        return Err(Error::Input("the name of a file is null".to_owned()));
    }
    // SAFETY: the caller's word.
    let name = unsafe { CStr::from_ptr(name) };
    Ok(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// HDFS is not read, as by the library that this one stands in for. These functions take no notice
/// of their arguments, which the C calling convention permits.
fn no_hdfs(call: &'static str) -> u32 {
    answer(call, || Err(Error::NotImplemented("files of HDFS")))
}

/// The names of files.
///
/// # Safety
/// Null, or so many names.
unsafe fn paths(names: *const *const c_char, count: c_int) -> Result<Vec<PathBuf>> {
    let all = usize::try_from(count).ok().filter(|count| *count > 0 && !names.is_null());
    let all = all.ok_or_else(|| Error::Input(format!("a list of {count} files at {names:p}")))?;
    // SAFETY: the caller's word.
    unsafe { std::slice::from_raw_parts(names, all) }.iter().map(|name| unsafe { path(*name) }).collect()
}

fn shape(offset: usize, stride: usize, bytes: usize) -> EntryShape {
    EntryShape { stride: stride as u64, offset: offset as u64, bytes: bytes as u64 }
}

exports! {
    // wholememory.h: Files.
    // wholememory.h: Files.
    // wholememory.h: Files.
    /// Reads a list of files, one behind the other, into the memory. A file has packed entries of
    /// `file_entry_size` bytes; each goes to the next `memory_entry_size` bytes of the memory, from
    /// byte `memory_offset` of them on. With `round_robin_size` n above 0, chunk c of n entries
    /// goes to rank c modulo the number of ranks. Fewer entries than the memory has are allowed;
    /// the rest keeps its bytes. Each rank reads the entries of its own part.
    ///
    /// * Collective: all arguments but the names are the same on all ranks.
    /// * Waits until the bytes are in the memory. Copies of these rows in a cache are dropped.
    /// * Errors: `INVALID_INPUT` for a file that is missing or has no whole number of entries, for
    ///   more entries than the memory has, and for sizes that do not fit a row; `SYSTEM_ERROR` for
    ///   a file that cannot be read to its end.
    fn wholememory_load_from_file(
        handle: MemoryHandle, memory_offset: usize, memory_entry_size: usize,
        file_entry_size: usize, file_names: *mut *const c_char, file_count: c_int,
        round_robin_size: c_int,
    ) -> ErrorCode {
        answer("wholememory_load_from_file", || {
            let memory = MEMORIES.get(handle)?;
            // SAFETY: the caller's word.
            let request = unsafe { paths(file_names, file_count) }.and_then(|files| {
                let round_robin = u64::try_from(round_robin_size);
                let round_robin = round_robin.map_err(|_| Error::Input(format!("chunks of {round_robin_size} entries")))?;
                Ok(LoadRequest { shape: shape(memory_offset, memory_entry_size, file_entry_size), files, round_robin })
            });
            load(&memory, request, ReadSettings::of_environment())
        })
    }

    /// Writes this rank's part to a file, as packed entries of `file_entry_size` bytes: those from
    /// byte `memory_offset` of each `memory_entry_stride` bytes. The file gets its name when all
    /// ranks have written theirs to the disk, so a store that fails leaves the old files.
    ///
    /// * Collective: each rank has a file of its own.
    /// * Waits for the work on the rank's GPU and for the disk.
    /// * Errors: `INVALID_INPUT` for sizes that do not fit a row; `SYSTEM_ERROR` for a file that
    ///   cannot be written.
    fn wholememory_store_to_file(
        handle: MemoryHandle, memory_offset: usize, memory_entry_stride: usize,
        file_entry_size: usize, local_file_name: *const c_char,
    ) -> ErrorCode {
        answer("wholememory_store_to_file", || {
            let memory = MEMORIES.get(handle)?;
            let shape = shape(memory_offset, memory_entry_stride, file_entry_size);
            // SAFETY: the caller's word.
            let request = unsafe { path(local_file_name) }.map(|file| StoreRequest { shape, file });
            store(&memory, request)
        })
    }

    /// Is always refused: files of HDFS are not read.
    ///
    /// * Errors: `NOT_IMPLEMENTED`.
    fn wholememory_load_hdfs_support() -> ErrorCode {
        no_hdfs("wholememory_load_hdfs_support")
    }

    /// Is always refused: files of HDFS are not read.
    ///
    /// * Errors: `NOT_IMPLEMENTED`.
    fn wholememory_load_from_hdfs_file() -> ErrorCode {
        no_hdfs("wholememory_load_from_hdfs_file")
    }
}
