//! The ways through the dynamic loader past our SONAME: absolute paths, `libcuda.so`, and
//! `dlmopen`.
//!
//! `dlopen` and `dlmopen` are exported. Asked for a driver library under any path, they answer with
//! the handle of this library; for everything else they *jump* to glibc with the arguments and the
//! return address untouched. A wrapper that calls instead would make this library the caller, and
//! glibc resolves RUNPATH, `$ORIGIN` and namespaces by caller.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};

use wm_driver::loader::{Dlopen, next};

use crate::process::preserve_errno;

static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static DLMOPEN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        "push rdi", "push rsi", "sub rsp, 8",
        "call {answer}",
        "add rsp, 8", "pop rsi", "pop rdi",
        "test rax, rax",
        "jne 2f",
        "jmp qword ptr [rip + {real}]",
        "2:", "ret",
        answer = sym answer,
        real = sym DLOPEN,
    )
}

#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlmopen(namespace: libc::Lmid_t, name: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        "push rdi", "push rsi", "push rdx",
        "mov rdi, rsi", "mov esi, edx",
        "call {answer}",
        "pop rdx", "pop rsi", "pop rdi",
        "test rax, rax",
        "jne 2f",
        "jmp qword ptr [rip + {real}]",
        "2:", "ret",
        answer = sym answer,
        real = sym DLMOPEN,
    )
}

/// Our own handle for a request that names a driver library; null to let glibc answer.
extern "C" fn answer(name: *const c_char, flags: c_int) -> *mut c_void {
    preserve_errno(prepare);
    if name.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller hands glibc a NUL-terminated name, and us the same.
    if names_driver(unsafe { CStr::from_ptr(name) }) { own_handle(flags) } else { std::ptr::null_mut() }
}

/// `libcuda.so`, or that with a version, at the end of any path.
fn names_driver(name: &CStr) -> bool {
    let name = name.to_bytes();
    let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    let Some(version) = file.strip_prefix(b"libcuda.so") else { return false };
    version.is_empty()
        || (version[0] == b'.' && version[1..].iter().all(|b| b.is_ascii_digit() || *b == b'.'))
}

/// A counted reference to this library, through its SONAME. A deep binding would only bind us to
/// ourselves.
fn own_handle(flags: c_int) -> *mut c_void {
    open(c"libcuda.so.1", flags & !libc::RTLD_DEEPBIND)
}

fn open(name: &CStr, flags: c_int) -> *mut c_void {
    prepare();
    let real = DLOPEN.load(Ordering::Acquire);
    // SAFETY: `prepare` stored glibc's dlopen, of this type.
    let real = unsafe { std::mem::transmute::<*mut c_void, Dlopen>(real) };
    // SAFETY: a NUL-terminated name.
    unsafe { real(name.as_ptr(), flags) }
}

/// Finds glibc's own functions. Called at load; also at each call, because constructors of other
/// libraries may run before ours.
pub(super) fn prepare() {
    for (slot, name) in [(&DLOPEN, c"dlopen"), (&DLMOPEN, c"dlmopen")] {
        if slot.load(Ordering::Acquire).is_null() {
            slot.store(next(name).unwrap_or(no_loader as *mut c_void), Ordering::Release);
        }
    }
}

/// Stands in where glibc's function cannot be found: every open fails, as the C interface says it
/// may.
extern "C" fn no_loader() -> *mut c_void {
    std::ptr::null_mut()
}

/// Makes the loader know this library as `libcuda.so` too, for libraries whose `dlopen` is bound
/// past ours.
///
/// Only where a link of that name lies beside us: the loader finds it through our RPATH, sees our
/// own inode, and adds the name to the library it has. Anything else at that place is left alone.
pub(super) fn register_name(own: &Path) {
    let link = own.with_file_name("libcuda.so");
    let same = |a: std::fs::Metadata, b: std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let ours = std::fs::metadata(own).ok().zip(std::fs::metadata(link).ok()).is_some_and(|(a, b)| same(a, b));
    if ours {
        open(c"libcuda.so", libc::RTLD_LAZY);
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (symbol interposition): a library with a similar name is taken for the driver.
    use super::*;

    #[test]
    fn driver_names_are_told_from_others() {
        for name in [c"libcuda.so", c"libcuda.so.1", c"/usr/lib/libcuda.so.580.159.04", c"./libcuda.so.1"] {
            assert!(names_driver(name), "{name:?}");
        }
        for name in [
            c"libcudart.so.13",
            c"libcuda.sox",
            c"libcuda.so.1.txt",
            c"libcuda.so/x",
            c"",
            c"libcudadebugger.so",
        ] {
            assert!(!names_driver(name), "{name:?}");
        }
    }
}
