//! How a failed allocation reaches the program: as the C++ exception that PyTorch throws in that
//! case itself.
//!
//! PyTorch takes whatever address an allocator of this kind returns, null too, for a tensor's
//! memory, and offers no way to report a failure. But it catches exceptions:
//! `c10::OutOfMemoryError` becomes `torch.OutOfMemoryError`. One is put together from what the
//! loaded libraries export, whose names hold their types: a PyTorch of another C++ ABI has no such
//! names. There, the function behind `TORCH_CHECK` serves, which takes plain C arguments: a
//! `RuntimeError` with the same text. Without PyTorch no code would catch an exception, and the
//! answer is null.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;

use wm_abi::{CUdevice, CUresult, symbol};
use wm_driver::Loader;

use super::device_guard::DeviceGuard;
use crate::entry::trampolines::exported;
use crate::registry;

/// A function to go on in, and its arguments.
#[repr(C)]
pub(super) struct TailCall {
    function: usize,
    arguments: [usize; 4],
}

impl TailCall {
    /// Return to the caller instead.
    pub(super) const NONE: Self = Self { function: 0, arguments: [0; 4] };
}

/// `c10::Error::Error(c10::SourceLocation, std::string)`.
const CONSTRUCTOR: &CStr =
    c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";

/// The virtual table of `c10::OutOfMemoryError`, which adds nothing to `c10::Error` but its type.
const TABLE: &CStr = c"_ZTVN3c1016OutOfMemoryErrorE";

/// `c10::detail::torchCheckFail`, of (`const char *function`, `const char *file`, `uint32_t line`,
/// `const char *text`).
const CHECK: &CStr = c"_ZN3c106detail14torchCheckFailEPKcS2_jS2_";

/// Room for a `c10::Error`: several times its size.
const OBJECT: usize = 1024;

const FUNCTION: &CStr = c"wmshim_torch_malloc";
const FILE: &CStr = c"libwmshim.so";

/// `c10::SourceLocation`.
#[repr(C)]
struct Location {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

/// `std::string` of libstdc++, with its characters outside the object.
#[repr(C)]
struct Text {
    characters: *mut c_char,
    length: usize,
    capacity: usize,
    rest: usize,
}

type Allocate = unsafe extern "C" fn(usize) -> *mut c_void;
type Construct = unsafe extern "C" fn(*mut c_void, Location, *mut Text);

/// Where to go after `code`, for a request of `size` bytes on `device`.
pub(super) fn tail_call(code: CUresult, size: isize, device: CUdevice) -> TailCall {
    let text = describe(code, size, device);
    let is_shortage = code == CUresult::OUT_OF_MEMORY;
    let typed = is_shortage.then(|| out_of_memory(&text)).flatten();
    typed.or_else(|| failed_check(&text)).unwrap_or_else(|| {
        log::error!("{text} There is no PyTorch here that could be told: the answer is null");
        TailCall::NONE
    })
}

/// PyTorch's own first words: programs look for them.
fn describe(code: CUresult, size: isize, device: CUdevice) -> String {
    if code != CUresult::OUT_OF_MEMORY {
        return format!("CUDA error: {code}, when {size} bytes were asked for on GPU {device}.");
    }
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let (mut free, mut total) = (0, 0);
    let _guard = DeviceGuard::on(device);
    // SAFETY: out-pointers to live locals.
    let _ = unsafe { exported::<symbol::cuMemGetInfo_v2>()(&mut free, &mut total) };
    let live = registry::existing(device).map(|manager| manager.usage().live).unwrap_or_default();
    format!(
        "CUDA out of memory. Tried to allocate {:.2} GiB. GPU {device} has {:.2} GiB free of {:.2} GiB; wmshim holds \
         {:.2} GiB in use, {:.2} GiB of it not on the device. Raise WMSHIM_DEVICE_LIMIT, WMSHIM_HOST_LIMIT or the memory \
         fraction if one is set, or allow WMSHIM_OVERFLOW.",
        gib(size as u64),
        gib(free as u64),
        gib(total as u64),
        gib(live.total()),
        gib(live.elsewhere()),
    )
}

/// `throw c10::OutOfMemoryError(...)`.
fn out_of_memory(text: &str) -> Option<TailCall> {
    let construct = find(c"libc10.so", CONSTRUCTOR)?;
    let table = find(c"libc10_cuda.so", TABLE)? as *const usize;
    let runtime = |name| find(c"libstdc++.so.6", name);
    let (object, new, throw) =
        (runtime(c"__cxa_allocate_exception")?, runtime(c"_Znwm")?, runtime(c"__cxa_throw")?);
    // SAFETY: functions of these types, by the names under which they were found. The constructor
    // takes the characters over, which the C++ heap gave. A virtual table starts with an offset and
    // the type; an object points behind them, at the destructor.
    unsafe {
        let (object, new) = (transmute::<usize, Allocate>(object), transmute::<usize, Allocate>(new));
        let (object, mut text) = (object(OBJECT), string(new, text));
        let location = Location { function: FUNCTION.as_ptr(), file: FILE.as_ptr(), line: 0 };
        transmute::<usize, Construct>(construct)(object, location, &mut text);
        object.cast::<*const usize>().write(table.add(2));
        Some(TailCall { function: throw, arguments: [object as usize, *table.add(1), *table.add(2), 0] })
    }
}

/// # Safety
/// `new` is the C++ heap's.
unsafe fn string(new: Allocate, text: &str) -> Text {
    // SAFETY: by this function's contract, room for the text and its end; the heap throws rather
    // than answer null.
    unsafe {
        let characters = new(text.len() + 1).cast::<c_char>();
        text.as_ptr().copy_to_nonoverlapping(characters.cast(), text.len());
        characters.add(text.len()).write(0);
        Text { characters, length: text.len(), capacity: text.len(), rest: 0 }
    }
}

/// `TORCH_CHECK(false, ...)`. The text is leaked: no code of ours runs after the exception.
fn failed_check(text: &str) -> Option<TailCall> {
    let function = find(c"libc10.so", CHECK)?;
    let text = CString::new(text).ok()?.into_raw();
    let line: c_int = 0;
    let arguments = [FUNCTION.as_ptr() as usize, FILE.as_ptr() as usize, line as usize, text as usize];
    Some(TailCall { function, arguments })
}

/// The address of a symbol in a library that is loaded.
fn find(library: &CStr, name: &CStr) -> Option<usize> {
    Loader::system().find(library, name).map(|found| found as usize)
}
