//! A group's operations on one communicator, in the order of a stream.
//!
//! In the stream stand, one behind the other: copies from the device into pinned memory, a host
//! function that waits while the communicator's thread exchanges the messages, copies to the
//! device, and a host function that ends the job. The driver orders and checks every access to the
//! program's memory; a host function may not call the driver, and none does.

use std::ffi::c_void;
use std::sync::Arc;

use wm_abi::CUstream;

use crate::abi::{Code, Outcome};
use crate::driver::Driver;
use crate::operation::{Plan, Staged};
use crate::process::PROCESS;
use crate::report::error;
use crate::staging::Block;
use crate::state::{Stage, State};
use crate::transport::{End, Transport};

/// See the file's text. The block goes back to the pool with the last reference: the streams hold
/// one until they are past the job.
#[derive(Debug)]
pub(crate) struct Job {
    plan: Plan,
    block: Option<Block>,
    state: Arc<State<Self>>,
    /// Does `SIMNCCL_FAIL` make it fail?
    fails: bool,
    stage: Stage,
}

impl AsRef<Stage> for Job {
    fn as_ref(&self) -> &Stage {
        &self.stage
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            PROCESS.pool.put(block);
        }
    }
}

extern "C" fn reached(job: *mut c_void) {
    // SAFETY: a reference that the launch made for this call.
    let job = unsafe { Arc::from_raw(job.cast_const().cast::<Job>()) };
    job.state.pass(&job);
}

extern "C" fn passed(job: *mut c_void) {
    // SAFETY: as above.
    drop(unsafe { Arc::from_raw(job.cast_const().cast::<Job>()) });
}

impl Job {
    pub(crate) fn new(
        plan: Plan,
        fails: bool,
        state: Arc<State<Self>>,
        driver: &Driver,
    ) -> Outcome<Arc<Self>> {
        let block = Some(PROCESS.pool.get(driver, plan.out + plan.into)?);
        Ok(Arc::new(Self { plan, block, state, fails, stage: Stage::default() }))
    }

    fn block(&self) -> Outcome<&Block> {
        let large_enough = |block: &&Block| block.size() >= self.plan.out + self.plan.into;
        self.block.as_ref().filter(large_enough).ok_or(Code::INTERNAL)
    }

    /// Puts the job into the streams of its operations. The first one carries it; the others wait
    /// for the first one and are waited for.
    pub(crate) fn launch(self: &Arc<Self>, driver: &Driver, streams: &[CUstream]) -> Outcome {
        let Some((first, others)) = streams.split_first() else { return Ok(()) };
        for stream in streams {
            if driver.is_capturing(*stream)? {
                return Err(error(Code::INVALID_USAGE, "the simulated NCCL is not captured into graphs"));
            }
        }
        others.iter().try_for_each(|other| driver.order(*other, *first))?;
        let launched = self.queue(driver, *first);
        if launched.is_err() {
            // Copies into the block may be on their way: it stays allocated.
            std::mem::forget(Arc::clone(self));
        }
        launched?;
        others.iter().try_for_each(|other| driver.order(*first, *other))
    }

    fn queue(self: &Arc<Self>, driver: &Driver, stream: CUstream) -> Outcome {
        let block = self.block()?;
        for Staged { device, bytes } in self.plan.downloads.iter().filter(|it| !it.bytes.is_empty()) {
            // SAFETY: a part of the block that nothing else uses before the stream is past it.
            unsafe { driver.download(block.at(bytes.start), *device, bytes.len(), stream)? };
        }
        self.state.push(Arc::clone(self));
        self.call(driver, stream, reached)?;
        for Staged { device, bytes } in self.plan.uploads.iter().filter(|it| !it.bytes.is_empty()) {
            // SAFETY: as above, of the part behind the bytes that leave.
            unsafe { driver.upload(*device, block.at(self.plan.out + bytes.start), bytes.len(), stream)? };
        }
        self.call(driver, stream, passed)
    }

    /// Queues a host function that takes a reference of the job.
    fn call(
        self: &Arc<Self>,
        driver: &Driver,
        stream: CUstream,
        function: extern "C" fn(*mut c_void),
    ) -> Outcome {
        let reference = Arc::into_raw(Arc::clone(self));
        // SAFETY: the reference is for this call.
        unsafe { driver.call(stream, function, reference.cast_mut().cast()) }
    }

    /// Exchanges the messages. `false`: the communicator was stopped.
    pub(crate) fn exchange(&self, transport: &mut Transport, size: usize) -> Outcome<bool> {
        if self.fails {
            return Err(error(Code::SYSTEM, "SIMNCCL_FAIL: an operation of this group fails"));
        }
        let block = self.block()?;
        // SAFETY: both parts lie in the block and do not overlap; the streams use them before they
        // reach the job and after they have passed it only.
        let (out, into) = unsafe {
            (
                std::slice::from_raw_parts(block.at(0), self.plan.out),
                std::slice::from_raw_parts_mut(block.at(self.plan.out), self.plan.into),
            )
        };
        self.plan.copy_local(out, into);
        let stop = || self.state.is_stopped();
        let end = transport.exchange(&self.plan.sends, &self.plan.receives, out, into, &stop)?;
        if end == End::Complete {
            self.plan.reduce(into, size);
        }
        Ok(end == End::Complete)
    }
}
