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
    fn wholememory_load_from_file() -> u32 { answer_missing("wholememory_load_from_file") }
    /// Not done yet.
    fn wholememory_load_from_hdfs_file() -> u32 { answer_missing("wholememory_load_from_hdfs_file") }
    /// Not done yet.
    fn wholememory_store_to_file() -> u32 { answer_missing("wholememory_store_to_file") }
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
    fn generate_random_positive_int_cpu() -> u32 { answer_missing("generate_random_positive_int_cpu") }
    /// Not done yet.
    fn generate_exponential_distribution_negative_float_cpu() -> u32 { answer_missing("generate_exponential_distribution_negative_float_cpu") }
    /// Not done yet.
    fn get_device_prop() -> *mut c_void { std::ptr::null_mut() }
}
