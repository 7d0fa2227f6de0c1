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
    fn wholememory_gather() -> u32 { answer_missing("wholememory_gather") }
    /// Not done yet.
    fn wholememory_scatter() -> u32 { answer_missing("wholememory_scatter") }
    /// Not done yet.
    fn wholememory_env_test_op() -> u32 { answer_missing("wholememory_env_test_op") }
    /// Not done yet.
    fn wholememory_create_embedding_optimizer() -> u32 { answer_missing("wholememory_create_embedding_optimizer") }
    /// Not done yet.
    fn wholememory_optimizer_set_parameter() -> u32 { answer_missing("wholememory_optimizer_set_parameter") }
    /// Not done yet.
    fn wholememory_destroy_embedding_optimizer() {}
    /// Not done yet.
    fn wholememory_create_embedding_cache_policy() -> u32 { answer_missing("wholememory_create_embedding_cache_policy") }
    /// Not done yet.
    fn wholememory_destroy_embedding_cache_policy() -> u32 { answer_missing("wholememory_destroy_embedding_cache_policy") }
    /// Not done yet.
    fn wholememory_create_embedding() -> u32 { answer_missing("wholememory_create_embedding") }
    /// Not done yet.
    fn wholememory_destroy_embedding() -> u32 { answer_missing("wholememory_destroy_embedding") }
    /// Not done yet.
    fn wholememory_embedding_get_embedding_tensor() -> *mut c_void { std::ptr::null_mut() }
    /// Not done yet.
    fn wholememory_embedding_set_optimizer() -> u32 { answer_missing("wholememory_embedding_set_optimizer") }
    /// Not done yet.
    fn wholememory_embedding_gather() -> u32 { answer_missing("wholememory_embedding_gather") }
    /// Not done yet.
    fn wholememory_embedding_gather_gradient_apply() -> u32 { answer_missing("wholememory_embedding_gather_gradient_apply") }
    /// Not done yet.
    fn wholememory_embedding_get_optimizer_state_names() -> *const c_void { std::ptr::null() }
    /// Not done yet.
    fn wholememory_embedding_get_optimizer_state() -> *mut c_void { std::ptr::null_mut() }
    /// Not done yet.
    fn wholememory_embedding_writeback_cache() -> u32 { answer_missing("wholememory_embedding_writeback_cache") }
    /// Not done yet.
    fn wholememory_embedding_drop_all_cache() -> u32 { answer_missing("wholememory_embedding_drop_all_cache") }
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
