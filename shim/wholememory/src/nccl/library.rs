//! NCCL's functions, found once for the process.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::abi::{
    AllGather, ErrorText, GetAsyncError, GetUniqueId, GetVersion, Group, InitRankConfig, LastError, NcclId,
    OLDEST, OfCommunicator, Receive, SUCCESS, Send,
};
use crate::error::{Error, Result};

pub use super::abi::{ID_BYTES, NcclId as UniqueId};

const NAME: &CStr = c"libnccl.so.2";

/// Its place beside this library, where pip has installed both.
const IN_PACKAGES: &str = "nvidia/nccl/lib/libnccl.so.2";

/// The functions.
#[derive(Debug)]
pub struct Nccl {
    get_unique_id: GetUniqueId,
    pub(super) init: InitRankConfig,
    pub(super) async_error: GetAsyncError,
    pub(super) finalize: OfCommunicator,
    pub(super) destroy: OfCommunicator,
    pub(super) abort: OfCommunicator,
    pub(super) group_start: Group,
    pub(super) group_end: Group,
    pub(super) send: Send,
    pub(super) receive: Receive,
    pub(super) all_gather: AllGather,
    error_text: ErrorText,
    last_error: LastError,
}

impl Nccl {
    /// The process's NCCL, opened by the first call.
    ///
    /// # Errors
    /// [`Error::NotSupported`], the same by every call, where there is none, or none that is new
    /// enough. The text names the package.
    pub fn of_process() -> Result<&'static Self> {
        static FOUND: OnceLock<Result<Nccl>> = OnceLock::new();
        FOUND.get_or_init(Self::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Self> {
        let library = loaded().or_else(|| opened(NAME)).or_else(beside);
        let library = library.ok_or_else(|| lacking(&format!("libnccl.so.2 is not found ({})", reason())))?;
        let version: GetVersion = library.function(c"ncclGetVersion")?;
        let mut number: c_int = 0;
        // SAFETY: the place is a live local.
        let code = unsafe { version(&mut number) };
        if code != SUCCESS || number < OLDEST {
            return Err(lacking(&format!("the NCCL of this process has version {number}")));
        }
        Ok(Self {
            get_unique_id: library.function(c"ncclGetUniqueId")?,
            init: library.function(c"ncclCommInitRankConfig")?,
            async_error: library.function(c"ncclCommGetAsyncError")?,
            finalize: library.function(c"ncclCommFinalize")?,
            destroy: library.function(c"ncclCommDestroy")?,
            abort: library.function(c"ncclCommAbort")?,
            group_start: library.function(c"ncclGroupStart")?,
            group_end: library.function(c"ncclGroupEnd")?,
            send: library.function(c"ncclSend")?,
            receive: library.function(c"ncclRecv")?,
            all_gather: library.function(c"ncclAllGather")?,
            error_text: library.function(c"ncclGetErrorString")?,
            last_error: library.function(c"ncclGetLastError")?,
        })
    }

    /// A name for a communicator, which one rank tells the others.
    ///
    /// # Errors
    /// NCCL's.
    pub fn unique_id(&self) -> Result<NcclId> {
        let mut id = NcclId([0; ID_BYTES]);
        // SAFETY: the place is a live local.
        let code = unsafe { (self.get_unique_id)(&mut id) };
        if code == SUCCESS { Ok(id) } else { Err(self.error("ncclGetUniqueId", code)) }
    }

    /// The error of a code that a function gave.
    pub(super) fn error(&self, function: &str, code: c_int) -> Error {
        // SAFETY: NCCL returns a terminated text for every code.
        let text = unsafe { text_at((self.error_text)(code)) };
        // SAFETY: a null communicator stands for any; the text is copied before the next call.
        let last = unsafe { text_at((self.last_error)(super::abi::NcclHandle(0))) };
        let last = if last.is_empty() { last } else { format!(" ({})", last.trim()) };
        Error::Communication(format!("{function}: {text}{last}"))
    }
}

fn lacking(problem: &str) -> Error {
    Error::NotSupported(format!(
        "{problem}: memory that spans machines, or GPUs without peer access, needs NCCL 2.19 or newer: install the \
         package nvidia-nccl-cu12 (pip) or libnccl2 (apt)"
    ))
}

/// An opened library, which is never closed.
struct NcclFile(*mut c_void);

impl NcclFile {
    /// A function of it. `F` is the type of a function pointer.
    fn function<F: Copy>(&self, name: &CStr) -> Result<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a pointer to a function") };
        // SAFETY: an open library and a terminated name.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if found.is_null() {
            return Err(lacking(&format!("the NCCL of this process has no {}", name.to_string_lossy())));
        }
        // SAFETY: of the size of a pointer; `F` is the type that NCCL's header has for the name.
        Ok(unsafe { std::mem::transmute_copy(&found) })
    }
}

fn loaded() -> Option<NcclFile> {
    // SAFETY: a terminated name; no library is loaded by this call.
    let library = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    (!library.is_null()).then_some(NcclFile(library))
}

fn opened(path: &CStr) -> Option<NcclFile> {
    // SAFETY: a terminated path. The library's constructors run, as for any program that uses it.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    (!library.is_null()).then_some(NcclFile(library))
}

/// That of a wheel in the folder of packages that this library lies in.
fn beside() -> Option<NcclFile> {
    let own = own_path()?;
    let found = own.ancestors().map(|folder| folder.join(IN_PACKAGES)).find(|path| path.exists())?;
    opened(&CString::new(found.as_os_str().as_bytes()).ok()?)
}

fn own_path() -> Option<PathBuf> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let place = (beside as fn() -> Option<NcclFile>) as *const c_void;
    // SAFETY: an address of this library, and a live local.
    let known = unsafe { libc::dladdr(place, found.as_mut_ptr()) };
    // SAFETY: zeroed, and all fields are pointers.
    let name = unsafe { found.assume_init() }.dli_fname;
    if known == 0 || name.is_null() {
        return None;
    }
    // SAFETY: a terminated path, which lives as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())).to_owned())
}

/// Why the loader opened nothing.
fn reason() -> String {
    // SAFETY: null or a terminated text, copied at once.
    let text = unsafe { text_at(libc::dlerror()) };
    if text.is_empty() { "it is beside no package".to_owned() } else { text }
}

/// # Safety
/// Null or a terminated text.
unsafe fn text_at(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null; the caller's word for the rest.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
