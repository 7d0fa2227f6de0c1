//! The driver calls of the program, looked up by name as CUDA's runtime does, each with its outcome
//! checked.

use std::fmt;

use wm_abi::CUresult;
use wm_abi::symbol::Symbol;
use wm_driver::api::Failed;
use wm_driver::{Api, Table};

/// A call that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    what: String,
    code: CUresult,
}

impl Failure {
    /// Something that is wrong although every call succeeded.
    pub(crate) fn of(what: String) -> Self {
        Self { what, code: CUresult::SUCCESS }
    }

    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.code == CUresult::OUT_OF_MEMORY
    }
}

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Self {
        Self { what: failed.to_string(), code: failed.code }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// Outcome of a call.
pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

/// The driver, started.
pub(crate) struct Driver(Table);

impl Api for Driver {
    type Error = Failure;

    fn call<S: Symbol>(&self, call: impl FnOnce(S::Function) -> CUresult) -> CUresult {
        self.0.call::<S>(call)
    }
}

impl Driver {
    /// Loads `libcuda.so.1` from wherever the loader finds it, and starts it.
    pub(crate) fn open() -> Result<Self> {
        let driver = Self(Table::of_process().map_err(|error| Failure::of(error.to_string()))?);
        driver.init()?;
        Ok(driver)
    }
}
