//! glibc's own `dlopen` and `dlsym`, past every interposer, this library included.
//!
//! The preloaded library exports a `dlopen` of its own, and other preloads may export a `dlsym`. A
//! versioned look-up behind ourselves (`dlvsym(RTLD_NEXT, ...)`) finds glibc's for every order of
//! preloads.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The signature of `dlopen`.
pub type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Versions under which x86-64 and aarch64 glibc export the loader's functions, newest first.
const VERSIONS: [&CStr; 3] = [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"];

/// The dynamic loader's own entry points.
#[derive(Debug, Clone, Copy)]
pub struct Loader {
    dlopen: Dlopen,
    dlsym: Dlsym,
}

/// Why a file is not opened as a driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotADriver {
    /// There is no such file.
    #[error("not there")]
    Missing,
    /// The file is this library, perhaps under another name.
    #[error("is wmshim itself")]
    Interposer,
    /// No file has such a path.
    #[error("a path with a NUL byte")]
    NulByte,
    /// The loader's sentence.
    #[error("{0}")]
    Loader(String),
    /// A library of another kind.
    #[error("{}: no cuInit in it, so this is not a CUDA driver", .0.display())]
    NoCuInit(PathBuf),
    /// The loader finds no driver for a program that asks for one by name.
    #[error("{0}: is a CUDA driver installed?")]
    NotInstalled(Box<NotADriver>),
}

impl Loader {
    /// glibc's functions, found behind this library in the loader's order.
    pub fn system() -> Self {
        // SAFETY: both names have had these signatures in every version of glibc.
        unsafe {
            Self {
                dlopen: next(c"dlopen")
                    .map_or(libc::dlopen as Dlopen, |f| transmute::<*mut c_void, Dlopen>(f)),
                dlsym: next(c"dlsym").map_or(libc::dlsym as Dlsym, |f| transmute::<*mut c_void, Dlsym>(f)),
            }
        }
    }

    /// The functions of the process, which another interposer may have replaced.
    pub(crate) fn of_process() -> Self {
        Self { dlopen: libc::dlopen, dlsym: libc::dlsym }
    }

    /// Opens a library by path for the life of the process.
    pub(crate) fn open(&self, path: &Path) -> Result<*mut c_void, NotADriver> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| NotADriver::NulByte)?;
        // SAFETY: a NUL-terminated path. Constructors of the library run, as they must to open a
        // driver.
        let library = unsafe { (self.dlopen)(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() { Err(NotADriver::Loader(last_error())) } else { Ok(library) }
    }

    /// The address of a symbol in a library that the process has loaded, in any scope.
    pub fn find(&self, library: &CStr, name: &CStr) -> Option<*const c_void> {
        // SAFETY: a NUL-terminated name; the call loads no new library.
        let library = unsafe { (self.dlopen)(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        let found = if library.is_null() { library } else { self.symbol(library, name) };
        (!found.is_null()).then_some(found.cast_const())
    }

    /// A symbol's address in an opened library; null if it has none.
    pub(crate) fn symbol(&self, library: *mut c_void, name: &CStr) -> *mut c_void {
        // SAFETY: `library` came from one of our opens and is never closed; the name is
        // NUL-terminated.
        unsafe { (self.dlsym)(library, name.as_ptr()) }
    }
}

/// The next definition of `name` behind this library, at the first version that has it.
pub fn next(name: &CStr) -> Option<*mut c_void> {
    VERSIONS.iter().find_map(|version| {
        // SAFETY: NUL-terminated strings; RTLD_NEXT is relative to this library.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) };
        (!found.is_null()).then_some(found)
    })
}

fn last_error() -> String {
    // SAFETY: dlerror returns null or a string that is valid until the next loader call of this
    // thread.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "the loader gave no reason".into();
    }
    // SAFETY: not null, NUL-terminated, copied at once.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}
