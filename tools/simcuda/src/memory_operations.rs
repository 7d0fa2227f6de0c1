//! Stream memory operations: a stream writes a word, or waits for one.
//!
//! Any code may write the awaited word, so the worker polls, as the device does.

use std::ffi::c_uint;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use wm_abi::{CUdeviceptr, CUresult, CUstream};

use crate::entry::{Call, Outcome, exports, require};
use crate::graph::Kind;
use crate::lane::Work;
use crate::memory::Want;
use crate::races;
use crate::state::driver;
use crate::stream::Stream;

/// The width of the word.
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
        // SAFETY: checked under the lock, aligned, and every access is atomic.
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

/// `CU_STREAM_WAIT_VALUE_FLUSH`, which has no effect here.
const FLUSH: c_uint = 1 << 30;

/// A word in memory that an operation of a stream is about to access.
#[derive(Clone, Copy)]
struct Word {
    address: CUdeviceptr,
    width: Width,
}

impl Word {
    /// Passes an operation to the stream, if the word is aligned and the stream's device has this
    /// right.
    fn submit(&self, stream: &Stream, want: Want, work: Work) -> Outcome {
        let (bytes, device) = (self.width.bytes(), stream.context()?.device);
        require(self.address.is_multiple_of(bytes), CUresult::INVALID_VALUE)?;
        driver().memory().check(self.address, bytes, want, device)?;
        let point = stream.submit(Kind::MEMORY_OPERATION, work)?;
        if want == Want::Write {
            point.iter().for_each(|point| races::signal(point, self.address));
        }
        Ok(())
    }
}

/// The pause between two polls, short at first. A stream that waits long must not keep a processor
/// busy.
fn rest(looks: u32) {
    if looks < 100 { std::thread::yield_now() } else { std::thread::sleep(Duration::from_micros(50)) }
}

fn wait(call: &Call, stream: CUstream, word: Word, value: u64, flags: c_uint) -> Outcome {
    let (stream, condition) = (call.stream(stream)?, flags & !FLUSH);
    require(condition <= 3, CUresult::INVALID_VALUE)?;
    let context = stream.context()?;
    let (device, fault, Word { address, width }) = (context.device, Arc::clone(&context.fault), word);
    let work = move || {
        let mut looks = 0_u32;
        while !width.satisfies(width.load(address, device)?, value, condition) {
            fault.check()?;
            rest(looks);
            looks = looks.saturating_add(1);
        }
        Ok(())
    };
    races::await_signal(address);
    word.submit(&stream, Want::Read, Arc::new(work))
}

fn write(call: &Call, stream: CUstream, word: Word, value: u64, flags: c_uint) -> Outcome {
    let stream = call.stream(stream)?;
    require(flags <= 1, CUresult::INVALID_VALUE)?;
    let (device, Word { address, width }) = (stream.context()?.device, word);
    word.submit(&stream, Want::Write, Arc::new(move || width.store(address, value, device)))
}

exports! {
    fn cuStreamWaitValue32_v2 + cuStreamWaitValue32_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) |call| {
        wait(call, stream, Word { address: addr, width: Width::Four }, value.into(), flags)
    }

    fn cuStreamWaitValue64_v2 + cuStreamWaitValue64_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) |call| {
        wait(call, stream, Word { address: addr, width: Width::Eight }, value, flags)
    }

    fn cuStreamWriteValue32_v2 + cuStreamWriteValue32_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) |call| {
        write(call, stream, Word { address: addr, width: Width::Four }, value.into(), flags)
    }

    fn cuStreamWriteValue64_v2 + cuStreamWriteValue64_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) |call| {
        write(call, stream, Word { address: addr, width: Width::Eight }, value, flags)
    }
}
