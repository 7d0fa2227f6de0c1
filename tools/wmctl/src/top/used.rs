//! The memory that everything on a GPU uses, other programs' too, by NVIDIA's library for
//! management. It makes no context and uses no memory of the GPU.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// A function's success.
const SUCCESS: c_int = 0;

/// A GPU, or a part of one.
type DeviceHandle = *mut c_void;

/// `nvmlMemory_t`.
#[derive(Debug, Default)]
#[repr(C)]
struct MemoryInfo {
    total: u64,
    free: u64,
    used: u64,
}

type Begin = unsafe extern "C" fn() -> c_int;
type FindDevice = unsafe extern "C" fn(*const c_char, *mut DeviceHandle) -> c_int;
type AskMemory = unsafe extern "C" fn(DeviceHandle, *mut MemoryInfo) -> c_int;

/// The library, ready for questions. It is never closed.
#[derive(Debug)]
pub(super) struct UsedMemory {
    handle: FindDevice,
    memory: AskMemory,
}

impl UsedMemory {
    /// `None`: the machine has no such library, or no driver that it could ask.
    pub(super) fn open() -> Option<Self> {
        // SAFETY: a valid C string; the library's constructors do nothing to this process.
        let library =
            unsafe { libc::dlopen(c"libnvidia-ml.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: an open library and a valid C string.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        let begin = symbol(c"nvmlInit_v2")?;
        let handle = symbol(c"nvmlDeviceGetHandleByUUID")?;
        let memory = symbol(c"nvmlDeviceGetMemoryInfo")?;
        // SAFETY: the types that nvml.h gives these functions.
        let (begin, opened) = unsafe {
            let handle = std::mem::transmute::<*mut c_void, FindDevice>(handle);
            let memory = std::mem::transmute::<*mut c_void, AskMemory>(memory);
            (std::mem::transmute::<*mut c_void, Begin>(begin), Self { handle, memory })
        };
        // SAFETY: takes nothing.
        (unsafe { begin() } == SUCCESS).then_some(opened)
    }

    /// The bytes in use on each of these devices that the library knows.
    pub(super) fn of<'a>(&self, uuids: impl Iterator<Item = &'a str>) -> BTreeMap<String, u64> {
        uuids.filter_map(|uuid| Some((uuid.to_owned(), self.used(uuid)?))).collect()
    }

    fn used(&self, uuid: &str) -> Option<u64> {
        let name = CString::new(uuid).ok()?;
        let (mut device, mut memory) = (std::ptr::null_mut(), MemoryInfo::default());
        // SAFETY: a valid C string, and a place for the answer.
        let found = unsafe { (self.handle)(name.as_ptr(), &raw mut device) };
        // SAFETY: a device of the library, and a place for the answer.
        (found == SUCCESS && unsafe { (self.memory)(device, &raw mut memory) } == SUCCESS)
            .then_some(memory.used)
    }
}
