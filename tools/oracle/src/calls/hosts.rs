//! The driver calls of copies between blocks and host memory, and the host's own accesses to that
//! memory.

use conformance::cu;
use wm_abi::*;

use super::aside::cancellable;
use crate::host::{self, Span, Task};
use crate::program::{Action, Kind, Step};
use crate::running::Running;

impl Running<'_> {
    /// Makes such a step. `None` if there is no call, or the block is missing.
    pub(super) fn host_step(&self, number: usize, step: &Step, stream: CUstream) -> Option<CUresult> {
        match step.action {
            Action::Write { host, bytes, stream: called } => {
                let span = self.span(host, bytes, number);
                self.do_or_call(number, called.map(|_| stream), Task::Write(span))
            }
            Action::Look { host, stream: called } => {
                let (written, bytes) = self.held[number]?;
                let span = self.span(host, bytes, written);
                self.do_or_call(number, called.map(|_| stream), Task::Look(span))
            }
            Action::Upload { host, block, .. } => {
                let (device, bytes) = self.place(block)?;
                Some(self.carry(step, true, (self.host(host), device, bytes), stream))
            }
            Action::Download { block, host, .. } => {
                let (device, bytes) = self.place(block)?;
                Some(self.carry(step, false, (self.host(host), device, bytes), stream))
            }
            _ => None,
        }
    }

    pub(super) fn host(&self, host: usize) -> *mut u8 {
        self.world.host(host, self.program.shape.hosts[host])
    }

    fn span(&self, host: usize, bytes: u64, written: usize) -> Span {
        Span { address: self.host(host) as usize, bytes, mark: self.mark(written) }
    }

    /// Runs a task on this thread, or in a function that a stream calls.
    fn do_or_call(&self, number: usize, stream: Option<CUstream>, task: Task) -> Option<CUresult> {
        if let Some(stream) = stream {
            host::task_at(number, task);
            return Some(self.call_host(number, stream));
        }
        match task {
            Task::Write(span) => span.write(),
            Task::Look(span) => self.found(number, span.bytes, span.wrong()),
        }
        None
    }

    /// Adds bytes that were checked, and words that were wrong.
    fn found(&self, number: usize, bytes: u64, wrong: u64) {
        let mut state = self.state();
        state.read += bytes;
        if wrong != 0 {
            state.wrong.push(format!("step {number}: {}: {wrong} words wrong", self.program.steps[number]));
        }
    }

    /// Is it a thread's default stream, whose functions have names of their own?
    fn is_own(&self, step: &Step) -> bool {
        let stream = step.action.stream().map(|stream| self.program.shape.streams[stream].kind);
        matches!(stream, Some(Kind::PerThread(_)))
    }

    /// Copies between a block and host memory, with the function for the direction, the stream and
    /// the wait.
    fn carry(
        &self,
        step: &Step,
        into: bool,
        (host, device, bytes): (*mut u8, CUdeviceptr, u64),
        stream: CUstream,
    ) -> CUresult {
        let (d, bytes, from, to) = (self.world.driver, bytes as usize, host.cast_const().cast(), host.cast());
        let waits =
            matches!(step.action, Action::Upload { waits: true, .. } | Action::Download { waits: true, .. });
        cancellable(|| match (into, waits, self.is_own(step)) {
            (true, false, _) => cu!(d, cuMemcpyHtoDAsync_v2(device, from, bytes, stream)),
            (true, true, false) => cu!(d, cuMemcpyHtoD_v2(device, from, bytes)),
            (true, true, true) => cu!(d, cuMemcpyHtoD_v2_ptds(device, from, bytes)),
            (false, false, _) => cu!(d, cuMemcpyDtoHAsync_v2(to, device, bytes, stream)),
            (false, true, false) => cu!(d, cuMemcpyDtoH_v2(to, device, bytes)),
            (false, true, true) => cu!(d, cuMemcpyDtoH_v2_ptds(to, device, bytes)),
        })
    }

    /// Writes the bytes that a copy of a refused block would have brought.
    pub(super) fn bring_instead(&self, number: usize, host: usize, stream: CUstream) {
        let Some((written, bytes)) = self.held[number] else { return };
        host::task_at(number, Task::Write(self.span(host, bytes, written)));
        let code = self.call_host(number, stream);
        self.record_code(None, "cuLaunchHostFunc", code);
    }
}
