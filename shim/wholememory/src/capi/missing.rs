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
    /// Not done yet.
    fn wholememory_env_test_op() -> u32 { answer_missing("wholememory_env_test_op") }
    /// Not done yet.
    fn wholegraph_csr_unweighted_sample_without_replacement() -> u32 { answer_missing("wholegraph_csr_unweighted_sample_without_replacement") }
    /// Not done yet.
    fn wholegraph_csr_weighted_sample_without_replacement() -> u32 { answer_missing("wholegraph_csr_weighted_sample_without_replacement") }
    /// Not done yet.
    fn graph_append_unique() -> u32 { answer_missing("graph_append_unique") }
    /// Not done yet.
    fn csr_add_self_loop() -> u32 { answer_missing("csr_add_self_loop") }
    /// Not done yet.
    fn get_device_prop() -> *mut c_void { std::ptr::null_mut() }
}
