//! Functions that are not done yet. They take no notice of their arguments, which the C calling convention permits.

use std::ffi::c_void;

use super::{answer, exports};
use crate::error::Error;

/// What a function that is not done yet answers.
pub(super) fn answer_missing(call: &'static str) -> u32 {
    answer(call, || Err(Error::NotImplemented(call)))
}

exports! {
    /// Not done yet.
    fn wholememory_load_from_hdfs_file() -> u32 { answer_missing("wholememory_load_from_hdfs_file") }
    /// Not done yet.
    fn get_device_prop() -> *mut c_void { std::ptr::null_mut() }
}
