//! The error of a driver call: the function and its code.

use std::ffi::CStr;
use std::fmt;

use wm_abi::CUresult;
use wm_abi::symbol::Symbol;

/// A call that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// The function's exported name.
    pub function: &'static CStr,
    /// Its result.
    pub code: CUresult,
}

impl Failed {
    #[inline]
    pub(super) fn check<S: Symbol>(code: CUresult) -> Result<(), Self> {
        code.ok().map_err(|code| Self { function: S::NAME, code })
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.function.to_string_lossy(), self.code)
    }
}

impl std::error::Error for Failed {}

impl From<Failed> for CUresult {
    fn from(failed: Failed) -> Self {
        failed.code
    }
}
