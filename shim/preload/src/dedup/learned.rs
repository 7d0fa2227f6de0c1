//! Who only reads, as this process has learned.
//!
//! A kernel is known by its handle: another one after code was unloaded, which may have had the handle before.

use std::sync::OnceLock;

use wm_abi::CUfunction;
use wm_dedup::readers::{FunctionKey, ParameterKey, Readers};

use crate::{launches, settings};

/// All verdicts.
pub(super) fn readers() -> &'static Readers {
    static READERS: OnceLock<Readers> = OnceLock::new();
    READERS.get_or_init(|| Readers::new(settings::load().dedup_proof))
}

/// The parameter at an offset of a kernel's parameters, in bytes.
#[inline]
pub(super) fn parameter(function: CUfunction, offset: u32) -> ParameterKey {
    let (life, handle) = launches::identity(function);
    ParameterKey { function: FunctionKey(u128::from(life) << 64 | handle as u128), offset }
}
