//! A driver library's functions, by position.
//!
//! Filled once when the library is opened; afterwards a look-up is one array read. An absent
//! function is an address of ours that returns `NOT_SUPPORTED`, so that callers need no branch and
//! no call jumps to null.

use std::ffi::c_void;
use std::mem::{size_of, transmute_copy};
use std::path::{Path, PathBuf};

use wm_abi::CUresult;
use wm_abi::symbol::{NAMES, Symbol};

use crate::loader::{Loader, NotADriver};

/// Stands in for a function that the driver lacks. It ignores its arguments, as the C ABI permits.
unsafe extern "C" fn not_supported() -> CUresult {
    CUresult::NOT_SUPPORTED
}

/// The functions of one opened driver library.
#[derive(Debug)]
pub struct Table {
    path: PathBuf,
    addresses: Box<[usize]>,
}

impl Table {
    /// Opens the library at `path` and looks every function up.
    ///
    /// # Errors
    /// The loader does not open it, or it exports no `cuInit`.
    pub fn open(loader: &Loader, path: &Path) -> Result<Self, NotADriver> {
        let library = loader.open(path)?;
        if loader.symbol(library, c"cuInit").is_null() {
            return Err(NotADriver::NoCuInit(path.to_owned()));
        }
        let addresses = NAMES.iter().map(|name| loader.symbol(library, name) as usize).collect();
        Ok(Self { path: path.to_owned(), addresses })
    }

    /// The driver as a program gets it that opens `libcuda.so.1`: the library that the loader
    /// returns, a real driver or an interposer.
    ///
    /// # Errors
    /// There is none.
    pub fn of_process() -> Result<Self, NotADriver> {
        Self::open(&Loader::of_process(), Path::new("libcuda.so.1"))
            .map_err(|reason| NotADriver::NotInstalled(Box::new(reason)))
    }

    /// A driver that lacks every function.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        Self { path: PathBuf::new(), addresses: vec![0; NAMES.len()].into() }
    }

    /// Where the library was found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The driver's own address of a function, or `None` if it has none.
    pub fn address(&self, index: usize) -> Option<*const c_void> {
        let address = self.addresses[index];
        (address != 0).then_some(address as *const c_void)
    }

    /// Does this driver have the function?
    pub fn has<S: Symbol>(&self) -> bool {
        self.addresses[S::INDEX] != 0
    }

    /// The function, callable. One that the driver lacks returns `NOT_SUPPORTED`.
    pub fn get<S: Symbol>(&self) -> S::Function {
        let address = match self.addresses[S::INDEX] {
            0 => not_supported as *const () as usize,
            found => found,
        };
        const { assert!(size_of::<S::Function>() == size_of::<usize>()) };
        // SAFETY: `Symbol` promises that `Function` is the pointer type of the function that the
        // driver exports under `NAME`, and sizes are equal. The stand-in ignores its arguments,
        // which the C calling convention permits.
        unsafe { transmute_copy(&address) }
    }
}
