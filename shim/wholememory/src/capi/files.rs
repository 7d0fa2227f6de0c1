//! Functions of `wholememory.h` on files.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::call::answer;
use super::exports::exports;
use super::registry::{MEMORIES, ObjectHandle};
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
    /// Reads files, one after the other, into the memory of all ranks. A collective call.
    fn wholememory_load_from_file(
        handle: ObjectHandle, memory_offset: usize, memory_entry_size: usize, file_entry_size: usize, file_names: *const *const c_char,
        file_count: c_int, round_robin_size: c_int,
    ) -> u32 {
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

    /// Writes this rank's part to a file. All ranks make the call, each for a file of its own.
    fn wholememory_store_to_file(
        handle: ObjectHandle, memory_offset: usize, memory_entry_stride: usize, file_entry_size: usize, local_file_name: *const c_char,
    ) -> u32 {
        answer("wholememory_store_to_file", || {
            let memory = MEMORIES.get(handle)?;
            let shape = shape(memory_offset, memory_entry_stride, file_entry_size);
            // SAFETY: the caller's word.
            let request = unsafe { path(local_file_name) }.map(|file| StoreRequest { shape, file });
            store(&memory, request)
        })
    }

    /// HDFS is not built in.
    fn wholememory_load_hdfs_support() -> u32 {
        no_hdfs("wholememory_load_hdfs_support")
    }

    /// HDFS is not built in.
    fn wholememory_load_from_hdfs_file() -> u32 {
        no_hdfs("wholememory_load_from_hdfs_file")
    }
}
