//! The driver calls of each step.
//!
//! If a call before it was refused, an object of a step may be missing: then the step is skipped.
//! No lock is held during a call.

pub(crate) mod aside;
mod capture;
mod graphs;
mod hosts;
mod mapped;

use std::time::Duration;

use conformance::cu;
use wm_abi::*;

use crate::host;
use crate::program::{Action, Kind, Step, Way};
use crate::running::Running;
use crate::world::STAGE;

impl Running<'_> {
    /// Makes a step.
    pub(crate) fn perform(&self, number: usize, step: &Step) {
        let (d, name) = (self.world.driver, step.action.name());
        let current = cu!(d, cuCtxSetCurrent(self.world.handle(step.current)));
        self.record_code(Some(number), "cuCtxSetCurrent", current);
        let stream =
            step.action.stream().map(|stream| self.state().streams[stream]).unwrap_or(CUstream::NULL);
        let code = match &step.action {
            Action::Allocate { block, bytes, way: Way::Mapped { parts } } => {
                Some(self.make_mapped(*block, *bytes, *parts, step.current.device()))
            }
            Action::Allocate { block, bytes, way } => self.allocate(*block, *bytes, *way, stream),
            Action::Free { block } => self
                .give_mapped_up(*block)
                .or_else(|| self.remove(*block).map(|address| cu!(d, cuMemFree_v2(address)))),
            Action::Renew { block, how } => self.renew(*block, *how),
            Action::FreeIn { block, .. } => {
                self.remove(*block).map(|address| cu!(d, cuMemFreeAsync(address, stream)))
            }
            Action::Stamp { .. } | Action::Check { .. } | Action::Copy { .. } => {
                self.access(number, step, stream)
            }
            Action::Spin { microseconds, .. } => Some(self.world.spin(step.current, stream, *microseconds)),
            Action::Close { gate, .. } => {
                self.state().gates.push(*gate);
                Some(cu!(d, cuStreamWaitValue32_v2(stream, self.world.gate(*gate), 1, 0)))
            }
            Action::Open { gate } => {
                self.world.open_gate(*gate);
                None
            }
            Action::Record { event, .. } => self.record(*event, stream),
            Action::Wait { event, .. } => {
                let event = self.state().events.get(event).copied();
                event.map(|event| cu!(d, cuStreamWaitEvent(stream, event, 0)))
            }
            Action::SyncStream { .. } => Some(cu!(d, cuStreamSynchronize(stream))),
            Action::SyncEvent { event } => {
                let event = self.state().events.get(event).copied();
                event.map(|event| cu!(d, cuEventSynchronize(event)))
            }
            Action::SyncContext => Some(cu!(d, cuCtxSynchronize())),
            Action::Idle { .. } => Some(self.until_idle(stream)),
            Action::Busy { .. } => self.while_held(number, stream),
            Action::Trim { pool } => Some(cu!(d, cuMemPoolTrimTo(self.world.pool(*pool), 0))),
            Action::Aside(aside) => self.aside(*aside),
            Action::Info => {
                let (mut free, mut total) = (0, 0);
                Some(cu!(d, cuMemGetInfo_v2(&mut free, &mut total)))
            }
            Action::Capture { graph, mode, nodes, .. } => {
                self.capture(number, step.current, *graph, stream, *mode, nodes);
                None
            }
            Action::Launch { graph, .. } => {
                let exec = self.state().graphs.get(graph).map(|made| made.exec);
                exec.map(|exec| cu!(d, cuGraphLaunch(exec, stream)))
            }
            Action::Build { graph, nodes } => self.build(number, step.current, *graph, nodes),
            Action::Retarget { graph, node, block, whole } => {
                self.retarget(number, step.current, (*graph, *node), *block, *whole)
            }
            Action::EndGraph { graph } => self.end_graph(*graph),
            Action::Destroy { .. } => Some(cu!(d, cuStreamDestroy_v2(stream))),
            Action::Create { stream } => self.come(number, *stream),
            Action::Note { .. } => Some(self.call_host(number, stream)),
            Action::Unlock { gate, .. } => {
                host::open_at(number, self.world.gate(*gate) as usize);
                Some(self.call_host(number, stream))
            }
            Action::Read { .. } | Action::Fill { .. } | Action::Set { .. } | Action::Move { .. } => {
                self.now(number, step)
            }
            Action::Write { .. } | Action::Look { .. } | Action::Upload { .. } | Action::Download { .. } => {
                self.host_step(number, step, stream)
            }
        };
        let code = code.or_else(|| self.stand_in(number, step, stream));
        self.record_code(Some(number), name, code.unwrap_or(CUresult::SUCCESS));
    }

    /// If a block or a graph for some work was refused, a substitute still orders later work, and
    /// writes the host memory that the work would have written.
    fn stand_in(&self, number: usize, step: &Step, stream: CUstream) -> Option<CUresult> {
        use Action::*;
        match &step.action {
            Stamp { .. } | Check { .. } | Fill { .. } | Set { .. } | Read { .. } | Upload { .. } => {}
            Download { host, .. } => self.bring_instead(number, *host, stream),
            Copy { to, .. } | Move { to, .. } => {
                let written = self.expected[number]?;
                self.write_instead(step, stream, *to, written);
            }
            Launch { .. } => {
                for (block, written) in &self.launched[number] {
                    self.write_instead(step, stream, *block, *written);
                }
            }
            _ => return None,
        }
        let code = self.world.spin(step.current, stream, 1);
        let waits =
            matches!(step.action, Read { .. } | Upload { waits: true, .. } | Download { waits: true, .. });
        Some(if waits { cu!(self.world.driver, cuStreamSynchronize(stream)) } else { code })
    }

    fn write_instead(&self, step: &Step, stream: CUstream, block: usize, written: usize) {
        if let Some((address, bytes)) = self.place(block) {
            let code = self.world.own(step.current, stream, address, bytes, self.owner(written));
            self.record_code(None, "stamp", code);
        }
    }

    fn allocate(&self, block: usize, bytes: u64, way: Way, stream: CUstream) -> Option<CUresult> {
        let (d, mut address, size) = (self.world.driver, 0, bytes as usize);
        let code = match way {
            Way::Plain => cu!(d, cuMemAlloc_v2(&mut address, size)),
            Way::Pitch => {
                // Rows of whole multiples of every pitch, so that no bytes lie between them.
                let (mut pitch, row) = (0, if bytes.is_multiple_of(4096) { 4096 } else { 512 });
                cu!(d, cuMemAllocPitch_v2(&mut address, &mut pitch, row, size.div_ceil(row), 4))
            }
            Way::Mapped { .. } => return None,
            Way::Async { .. } => cu!(d, cuMemAllocAsync(&mut address, size, stream)),
            Way::From { pool, .. } => {
                cu!(d, cuMemAllocFromPoolAsync(&mut address, size, self.world.pool(pool), stream))
            }
        };
        if code == CUresult::SUCCESS {
            self.state().blocks.insert(block, (address, bytes));
        }
        Some(code)
    }

    /// Removes the address of a block that is about to be freed.
    fn remove(&self, block: usize) -> Option<CUdeviceptr> {
        self.state().blocks.remove(&block).map(|(address, _)| address)
    }

    pub(super) fn place(&self, block: usize) -> Option<(CUdeviceptr, u64)> {
        self.state().blocks.get(&block).copied()
    }

    fn access(&self, number: usize, step: &Step, stream: CUstream) -> Option<CUresult> {
        let d = self.world.driver;
        match step.action {
            Action::Stamp { block, kernel, .. } => {
                let (address, bytes) = self.place(block)?;
                if kernel {
                    return Some(self.world.own(step.current, stream, address, bytes, self.owner(number)));
                }
                Some(cu!(d, cuMemsetD32Async(address, self.mark(number), bytes as usize / 4, stream)))
            }
            Action::Check { block, kernel, .. } => {
                let (address, bytes) = self.place(block)?;
                let written = self.expected[number]?;
                if !kernel && let Some(code) = self.copy_out(number, address, bytes, written, stream) {
                    return Some(code);
                }
                self.state().checks.insert(number, bytes);
                let (owner, ledger) = (self.owner(written), self.world.ledger(number));
                Some(self.world.check(step.current, stream, address, bytes, owner, ledger))
            }
            Action::Copy { from, to, .. } => {
                let ((from, bytes), (to, _)) = (self.place(from)?, self.place(to)?);
                Some(cu!(d, cuMemcpyDtoDAsync_v2(to, from, bytes as usize, stream)))
            }
            _ => None,
        }
    }

    /// Copies a block out, if the stage has room.
    fn copy_out(
        &self,
        number: usize,
        address: u64,
        bytes: u64,
        written: usize,
        stream: CUstream,
    ) -> Option<CUresult> {
        let mut state = self.state();
        let offset = state.staged;
        if offset + bytes > STAGE {
            return None;
        }
        state.staged += bytes;
        state.copies.push((number, offset, bytes, self.mark(written)));
        drop(state);
        let to = self.world.stage(offset);
        Some(cu!(self.world.driver, cuMemcpyDtoHAsync_v2(to.cast(), address, bytes as usize, stream)))
    }

    fn record(&self, number: usize, stream: CUstream) -> Option<CUresult> {
        let (d, mut event) = (self.world.driver, CUevent::NULL);
        let created = cu!(d, cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING));
        if created != CUresult::SUCCESS {
            return Some(created);
        }
        self.state().events.insert(number, event);
        Some(cu!(d, cuEventRecord(event, stream)))
    }

    fn until_idle(&self, stream: CUstream) -> CUresult {
        loop {
            match cu!(self.world.driver, cuStreamQuery(stream)) {
                CUresult::NOT_READY => std::thread::sleep(Duration::from_micros(20)),
                code => return code,
            }
        }
    }

    fn while_held(&self, number: usize, stream: CUstream) -> Option<CUresult> {
        match cu!(self.world.driver, cuStreamQuery(stream)) {
            CUresult::NOT_READY => None,
            CUresult::SUCCESS => {
                let step = &self.program.steps[number];
                self.state().early.push(format!("step {number}: {step}: the answer is that it is done"));
                None
            }
            code => Some(code),
        }
    }

    /// Creates a late stream.
    fn come(&self, number: usize, stream: usize) -> Option<CUresult> {
        match self.create(self.program.shape.streams[stream]) {
            Ok(handle) => self.state().streams[stream] = handle,
            Err(error) => {
                self.record_code(Some(number), &format!("{error:#}"), CUresult::UNKNOWN);
            }
        }
        None
    }

    pub(super) fn call_host(&self, number: usize, stream: CUstream) -> CUresult {
        let (function, data) = host::call(number);
        let code = cu!(self.world.driver, cuLaunchHostFunc(stream, function, data));
        if code == CUresult::SUCCESS {
            self.state().notes.push(number);
        }
        code
    }

    /// Copies and memsets without a stream argument, in the legacy default stream or in the
    /// thread's own.
    fn now(&self, number: usize, step: &Step) -> Option<CUresult> {
        let (d, stream) = (self.world.driver, step.action.stream()?);
        let own = matches!(self.program.shape.streams[stream].kind, Kind::PerThread(_));
        match step.action {
            Action::Read { block, .. } => self.read(number, block, own),
            Action::Fill { block, .. } => {
                let (to, bytes) = self.place(block)?;
                let mut words = vec![self.mark(number); bytes as usize / 4];
                let from = words.as_ptr().cast();
                let code = match own {
                    true => cu!(d, cuMemcpyHtoD_v2_ptds(to, from, bytes as usize)),
                    false => cu!(d, cuMemcpyHtoD_v2(to, from, bytes as usize)),
                };
                // The driver has read the source.
                words.fill(0x5a5a_5a5a);
                std::hint::black_box(&words);
                Some(code)
            }
            Action::Set { block, .. } => {
                let (to, bytes) = self.place(block)?;
                let (mark, count) = (self.mark(number), bytes as usize / 4);
                Some(match own {
                    true => cu!(d, cuMemsetD32_v2_ptds(to, mark, count)),
                    false => cu!(d, cuMemsetD32_v2(to, mark, count)),
                })
            }
            Action::Move { from, to, .. } => {
                let ((from, bytes), (to, _)) = (self.place(from)?, self.place(to)?);
                Some(match own {
                    true => cu!(d, cuMemcpyDtoD_v2_ptds(to, from, bytes as usize)),
                    false => cu!(d, cuMemcpyDtoD_v2(to, from, bytes as usize)),
                })
            }
            _ => None,
        }
    }

    fn read(&self, number: usize, block: usize, own: bool) -> Option<CUresult> {
        let (d, written) = (self.world.driver, self.expected[number]?);
        let (from, bytes) = self.place(block)?;
        let mut words = vec![0_u32; bytes as usize / 4];
        let to = words.as_mut_ptr().cast();
        let code = match own {
            true => cu!(d, cuMemcpyDtoH_v2_ptds(to, from, bytes as usize)),
            false => cu!(d, cuMemcpyDtoH_v2(to, from, bytes as usize)),
        };
        if code == CUresult::SUCCESS {
            self.compare(number, &words, self.mark(written));
        }
        Some(code)
    }

    fn compare(&self, number: usize, words: &[u32], mark: u32) {
        let mut state = self.state();
        state.read += size_of_val(words) as u64;
        let count = words.iter().filter(|word| **word != mark).count();
        if count != 0 {
            let step = &self.program.steps[number];
            state.wrong.push(format!("step {number}: {step}: {count} words wrong"));
        }
    }
}
