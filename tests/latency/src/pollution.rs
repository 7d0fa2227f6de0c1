//! The effect of a program's work between two calls on these: it evicts their code and data from
//! the caches.

use std::ffi::c_void;
use std::io::Error;

const LINE: usize = 64;

/// `ret` of x86-64.
const RETURN: u8 = 0xC3;

/// Memory that is read between calls: half of it as data, half as code.
pub(crate) struct Pollution {
    data: Vec<u8>,
    code: *mut c_void,
    bytes: usize,
}

impl Pollution {
    /// With `bytes` in all; with 0, there is no work between calls.
    pub(crate) fn new(bytes: usize) -> Result<Self, Error> {
        let bytes = bytes / 2;
        Ok(Self {
            data: vec![1; bytes],
            code: if bytes == 0 { std::ptr::null_mut() } else { code(bytes)? },
            bytes,
        })
    }

    /// Reads a byte of every line of data, and runs an instruction of every line of code.
    pub(crate) fn spread(&self) {
        let sum = self.data.iter().step_by(LINE).fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        std::hint::black_box(sum);
        for offset in (0..self.bytes).step_by(LINE) {
            // SAFETY: each line of the mapping begins with a return instruction, which is a
            // function without arguments or result.
            unsafe { std::mem::transmute::<*mut c_void, extern "C" fn()>(self.code.byte_add(offset))() };
        }
    }
}

impl Drop for Pollution {
    fn drop(&mut self) {
        if !self.code.is_null() {
            // SAFETY: the mapping made in `code`, of that length.
            unsafe { libc::munmap(self.code, self.bytes) };
        }
    }
}

/// A mapping full of return instructions.
fn code(bytes: usize) -> Result<*mut c_void, Error> {
    let (write, run) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ | libc::PROT_EXEC);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a mapping at an address that the system chooses, filled before it may be run.
    unsafe {
        let code = libc::mmap(std::ptr::null_mut(), bytes, write, flags, -1, 0);
        if code == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        code.cast::<u8>().write_bytes(RETURN, bytes);
        if libc::mprotect(code, bytes, run) == 0 { Ok(code) } else { Err(Error::last_os_error()) }
    }
}
