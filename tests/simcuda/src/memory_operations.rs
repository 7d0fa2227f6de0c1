//! Stream memory operations: a stream writes a word, or waits for one.
//!
//! Anything may write the word that is waited for, so the worker has to look again and again, as the device does.

use std::ffi::c_uint;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use wm_abi::{CUdeviceptr, CUresult, CUstream};

use crate::entry::{Call, Outcome, exports, require};
use crate::graph::Kind;
use crate::memory::Want;
use crate::state::driver;

/// How wide the word is.
#[derive(Debug, Clone, Copy)]
enum Width {
    Four,
    Eight,
}

impl Width {
    fn bytes(self) -> u64 {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    /// Reads the word, if it may still be read.
    fn load(self, address: u64, device: usize) -> Outcome<u64> {
        let memory = driver().memory();
        memory
            .check_moving(address, self.bytes(), Want::Read, device)
            .map_err(|_| CUresult::ILLEGAL_ADDRESS)?;
        // SAFETY: checked under the lock, aligned, and accessed as an atomic by everybody.
        Ok(unsafe {
            match self {
                Self::Four => AtomicU32::from_ptr(address as *mut u32).load(Ordering::Acquire).into(),
                Self::Eight => AtomicU64::from_ptr(address as *mut u64).load(Ordering::Acquire),
            }
        })
    }

    fn store(self, address: u64, value: u64, device: usize) -> Outcome {
        let memory = driver().memory();
        memory
            .check_moving(address, self.bytes(), Want::Write, device)
            .map_err(|_| CUresult::ILLEGAL_ADDRESS)?;
        // SAFETY: as for `load`.
        unsafe {
            match self {
                Self::Four => AtomicU32::from_ptr(address as *mut u32).store(value as u32, Ordering::Release),
                Self::Eight => AtomicU64::from_ptr(address as *mut u64).store(value, Ordering::Release),
            }
        }
        Ok(())
    }

    /// Does a word satisfy a wait (`CUstreamWaitValue_flags`)?
    fn satisfies(self, word: u64, value: u64, condition: c_uint) -> bool {
        match (condition, self) {
            (0, Self::Four) => (word as u32).wrapping_sub(value as u32) as i32 >= 0,
            (0, Self::Eight) => word.wrapping_sub(value) as i64 >= 0,
            (1, _) => word == value,
            (2, _) => word & value != 0,
            (_, Self::Four) => !(word as u32 | value as u32) != 0,
            (_, Self::Eight) => !(word | value) != 0,
        }
    }
}

/// `CU_STREAM_WAIT_VALUE_FLUSH`: nothing to flush here.
const FLUSH: c_uint = 1 << 30;

fn wait(
    call: &Call,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    flags: c_uint,
    width: Width,
) -> Outcome {
    let (stream, condition) = (call.stream(stream)?, flags & !FLUSH);
    let context = stream.context()?;
    require(condition <= 3 && address.is_multiple_of(width.bytes()), CUresult::INVALID_VALUE)?;
    driver().memory().check(address, width.bytes(), Want::Read, context.device)?;
    let (device, fault) = (context.device, Arc::clone(&context.fault));
    let work = move || {
        while !width.satisfies(width.load(address, device)?, value, condition) {
            fault.check()?;
            std::thread::yield_now();
        }
        Ok(())
    };
    stream.submit(Kind::MEMORY_OPERATION, Arc::new(work)).map(drop)
}

fn write(
    call: &Call,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    flags: c_uint,
    width: Width,
) -> Outcome {
    let stream = call.stream(stream)?;
    let device = stream.context()?.device;
    require(flags <= 1 && address.is_multiple_of(width.bytes()), CUresult::INVALID_VALUE)?;
    driver().memory().check(address, width.bytes(), Want::Write, device)?;
    let work = move || width.store(address, value, device);
    stream.submit(Kind::MEMORY_OPERATION, Arc::new(work)).map(drop)
}

exports! {
    fn cuStreamWaitValue32_v2 + cuStreamWaitValue32_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) |call| {
        wait(call, stream, addr, value.into(), flags, Width::Four)
    }

    fn cuStreamWaitValue64_v2 + cuStreamWaitValue64_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) |call| {
        wait(call, stream, addr, value, flags, Width::Eight)
    }

    fn cuStreamWriteValue32_v2 + cuStreamWriteValue32_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) |call| {
        write(call, stream, addr, value.into(), flags, Width::Four)
    }

    fn cuStreamWriteValue64_v2 + cuStreamWriteValue64_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) |call| {
        write(call, stream, addr, value, flags, Width::Eight)
    }
}
