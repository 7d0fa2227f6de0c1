//! A driver library, opened and called as by any program.
//!
//! Functions are found in one of two ways that programs use: by exported name, or through
//! `cuGetProcAddress_v2` as in the CUDA runtime. If a suite passes in both ways, both lead to the
//! same functions.
//!
//! [`cu!`](crate::cu) calls a function by its documented name and yields its `CUresult`;
//! [`must!`](crate::must) is for calls that only prepare the question: every result but success
//! ends the case.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use wm_abi::symbol::{self, ProcAddressName, Symbol};
use wm_abi::{CU_GET_PROC_ADDRESS_DEFAULT, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, CUresult};

/// How functions are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Lookup {
    /// By exported name, with `dlsym`.
    Exported,
    /// Through `cuGetProcAddress_v2`.
    ProcAddress,
}

impl Lookup {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exported => "exported",
            Self::ProcAddress => "proc-address",
        }
    }
}

/// The reason why a driver library cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path is no C string.
    #[error("driver path {0:?} holds a zero byte")]
    ZeroByte(String),
    /// The loader refused it, with its message.
    #[error("cannot open the driver {name}: {message}; name one with --driver")]
    Loader {
        /// The path or name.
        name: String,
        /// The loader's message.
        message: String,
    },
}

/// An opened driver library. It stays until the process ends: drivers do not survive `dlclose`.
#[derive(Debug)]
pub struct Driver {
    library: usize,
    lookup: Lookup,
    found: Box<[AtomicPtr<c_void>]>,
}

impl Driver {
    /// Opens the library `name`: a path, or a name for the loader to search.
    ///
    /// # Errors
    /// A path that is no C string, and the loader's message.
    pub fn open(name: &str, lookup: Lookup) -> Result<&'static Self, OpenError> {
        let file = CString::new(name).map_err(|_| OpenError::ZeroByte(name.to_owned()))?;
        // SAFETY: `file` is a C string. The library's constructors run, as in any program that
        // opens a driver.
        let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(OpenError::Loader { name: name.to_owned(), message: loader_message() });
        }
        let found = (0..symbol::COUNT).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        Ok(Box::leak(Box::new(Self { library: library as usize, lookup, found })))
    }

    /// The address of an exported name, or null.
    pub fn exported(&self, name: &CStr) -> *mut c_void {
        // SAFETY: `library` came from `dlopen` and is never closed.
        unsafe { libc::dlsym(self.library as *mut c_void, name.as_ptr()) }
    }

    /// The function `S`, if the driver has it.
    pub fn find<S: Symbol>(&self) -> Option<S::Function> {
        let slot = &self.found[S::INDEX];
        let mut address = slot.load(Ordering::Relaxed);
        if address.is_null() {
            address = self.resolve(S::NAME);
            slot.store(address, Ordering::Relaxed);
        }
        // SAFETY: the address is that of the function `S` names, and a `Symbol`'s `Function` is
        // pointer-sized.
        (!address.is_null()).then(|| unsafe { std::mem::transmute_copy(&address) })
    }

    /// The function `S`.
    ///
    /// # Panics
    /// When the driver lacks it: the case then fails with the function's name.
    pub fn function<S: Symbol>(&self) -> S::Function {
        self.find::<S>().unwrap_or_else(|| panic!("the driver does not have {}", S::NAME.to_string_lossy()))
    }

    /// The functions that this process has looked up so far, by exported name: those that it calls.
    pub fn called(&self) -> Vec<&'static str> {
        let found = |slot: &AtomicPtr<c_void>| !slot.load(Ordering::Relaxed).is_null();
        let names = symbol::NAMES.iter().zip(&self.found).filter(|(_, slot)| found(slot));
        names.filter_map(|(name, _)| name.to_str().ok()).collect()
    }

    fn resolve(&self, name: &CStr) -> *mut c_void {
        match (self.lookup, known_rows().get(name)) {
            (Lookup::ProcAddress, Some(row)) => self.ask(row.base, row.version, row.flags).1,
            _ => self.exported(name),
        }
    }

    /// `cuGetProcAddress_v2`: result, address, status.
    pub fn ask(&self, base: &CStr, version: c_int, flags: u64) -> (CUresult, *mut c_void, c_uint) {
        let (mut address, mut status) = (std::ptr::null_mut(), c_uint::MAX);
        let address_of = self.exported(symbol::cuGetProcAddress_v2::NAME);
        assert!(!address_of.is_null(), "the driver does not export cuGetProcAddress_v2");
        // SAFETY: the address is that of `cuGetProcAddress_v2`; all pointers live through the call.
        let result = unsafe {
            let ask: <symbol::cuGetProcAddress_v2 as Symbol>::Function = std::mem::transmute(address_of);
            ask(base.as_ptr(), &raw mut address, version, flags, &raw mut status)
        };
        (result, address, status)
    }
}

/// The arguments of `cuGetProcAddress` for an exported function.
#[derive(Debug, Clone, Copy)]
pub struct ProcAddressRow {
    /// The name without version suffix.
    pub base: &'static CStr,
    /// The first CUDA version that has this function, as 1000 × major + 10 × minor.
    pub version: c_int,
    /// `CU_GET_PROC_ADDRESS_*`.
    pub flags: u64,
    /// The exported name.
    pub exported: &'static CStr,
}

/// The arguments for every function of `cuGetProcAddress`.
pub fn rows() -> &'static [ProcAddressRow] {
    static ROWS: OnceLock<Vec<ProcAddressRow>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let names = symbol::NAMES.iter().zip(&symbol::LOOKUPS);
        names.filter_map(|(exported, lookup)| lookup.map(|lookup| row(exported, lookup))).collect()
    })
}

fn row(exported: &'static CStr, lookup: ProcAddressName) -> ProcAddressRow {
    let flags = match lookup.is_per_thread {
        false => CU_GET_PROC_ADDRESS_DEFAULT,
        true => CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
    };
    ProcAddressRow { base: leak(lookup.name), version: lookup.version, flags: flags.into(), exported }
}

fn leak(text: &str) -> &'static CStr {
    Box::leak(CString::new(text).expect("C identifiers hold no zero byte").into_boxed_c_str())
}

fn known_rows() -> &'static HashMap<&'static CStr, ProcAddressRow> {
    static KNOWN: OnceLock<HashMap<&'static CStr, ProcAddressRow>> = OnceLock::new();
    KNOWN.get_or_init(|| rows().iter().map(|row| (row.exported, *row)).collect())
}

fn loader_message() -> String {
    // SAFETY: `dlerror` returns null or a C string that lives until the next loader call of this
    // thread.
    unsafe {
        let message = libc::dlerror();
        if message.is_null() {
            return "no reason given".into();
        }
        CStr::from_ptr(message).to_string_lossy().into_owned()
    }
}

/// Calls a driver function by its exported name: `cu!(driver, cuMemFree_v2(address))`. Yields its
/// `CUresult`.
#[macro_export]
macro_rules! cu {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let function = $driver.function::<wm_abi::symbol::$name>();
        // SAFETY: the signature is the driver's own. Pointers among the arguments live through the
        // call, or are deliberately wrong ones that a driver must refuse with an error code.
        #[allow(clippy::macro_metavars_in_unsafe, reason = "arguments need the parameter's type to coerce")]
        let result: wm_abi::CUresult = unsafe { function($($argument),*) };
        result
    }};
}

/// Like [`must!`](crate::must), but if the driver answers `NOT_SUPPORTED` the case is skipped with
/// that reason. Only for functions that the simulated driver leaves out on purpose: elsewhere such
/// an answer is a failure.
#[macro_export]
macro_rules! supported {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $crate::cu!($driver, $name($($argument),*)).ok().map_err(|code| match code {
            wm_abi::CUresult::NOT_SUPPORTED => $crate::verdict::Halt::Skipped(format!("needs {}", stringify!($name))),
            _ => $crate::verdict::Halt::Failed(format!("{} returned {code}", stringify!($name))),
        })?
    };
}

/// Like [`cu!`](crate::cu), for a call that has to succeed before the case can ask its question.
#[macro_export]
macro_rules! must {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $crate::cu!($driver, $name($($argument),*))
            .ok()
            .map_err(|code| $crate::verdict::Halt::Failed(format!("{} returned {code}", stringify!($name))))?
    };
}
