//! The control flow of a kernel and of the functions that it calls, in blocks.

use std::collections::{BTreeMap, BTreeSet};

use crate::kernel::KernelCode;
use crate::sass::{self, BYTES, Fields, Flow, MachineInstruction, Unknown};
use crate::verdict::Why;

/// A run of instructions that control enters at its first and leaves at its last one.
#[derive(Debug)]
pub(super) struct BasicBlock {
    /// The first byte.
    pub(super) start: usize,
    /// The byte behind the last instruction.
    pub(super) end: usize,
    /// The numbers of the blocks that may follow, without those of joins, calls and returns.
    pub(super) next: Vec<usize>,
    /// What its last instruction does with control.
    pub(super) flow: Flow,
    /// For a call: the number of the function's first block.
    pub(super) callee: Option<usize>,
}

/// The blocks that the kernel may reach.
#[derive(Debug)]
pub(super) struct FlowGraph {
    /// In the order of their places. The kernel's own first one is `entry`.
    pub(super) blocks: Vec<BasicBlock>,
    pub(super) entry: usize,
    /// The places where threads of a barrier join: the block after each, with the barrier's number.
    pub(super) forks: Vec<Fork>,
    instructions: BTreeMap<usize, usize>,
    decoded: Vec<MachineInstruction>,
}

/// The start of a barrier at which threads join.
#[derive(Debug)]
pub(super) struct Fork {
    /// The byte of its instruction.
    pub(super) at: usize,
    /// The number of the block where control goes on.
    pub(super) block: usize,
}

/// No kernel has more instructions; the largest that is known has 120,000.
const INSTRUCTIONS: usize = 1 << 19;

impl FlowGraph {
    /// Reads the code from the kernel's first instruction on, as far as control may go.
    ///
    /// # Errors
    /// An instruction, a jump or a call is not known.
    pub(super) fn of(kernel: &KernelCode) -> Result<FlowGraph, Why> {
        let mut walk = CodeWalk { kernel, seen: BTreeMap::new(), leaders: BTreeSet::new(), open: Vec::new() };
        walk.enter(kernel.entry.start as i64, kernel.entry.start)?;
        while let Some(at) = walk.open.pop() {
            walk.visit(at)?;
        }
        walk.graph()
    }

    /// The instructions of a block with their places.
    pub(super) fn instructions(&self, block: usize) -> impl Iterator<Item = (usize, &MachineInstruction)> {
        let BasicBlock { start, end, .. } = self.blocks[block];
        let first = self.instructions[&start];
        (start..end).step_by(BYTES).zip(&self.decoded[first..])
    }
}

struct CodeWalk<'a, 'b> {
    kernel: &'a KernelCode<'b>,
    seen: BTreeMap<usize, MachineInstruction>,
    leaders: BTreeSet<usize>,
    open: Vec<usize>,
}

impl CodeWalk<'_, '_> {
    /// Control may come to `target` from the instruction at `from`.
    fn enter(&mut self, target: i64, from: usize) -> Result<(), Why> {
        let at = usize::try_from(target).map_err(|_| Why::Jump { offset: from })?;
        if at % BYTES != 0 || at >= self.kernel.text.len() {
            return Err(Why::Jump { offset: from });
        }
        self.leaders.insert(at);
        self.open.push(at);
        Ok(())
    }

    /// Reads instructions from this place to the next jump.
    fn visit(&mut self, mut at: usize) -> Result<(), Why> {
        while !self.seen.contains_key(&at) {
            if self.seen.len() >= INSTRUCTIONS {
                return Err(Why::Bounds);
            }
            let instruction = read(self.kernel, at)?;
            self.seen.insert(at, instruction);
            let flow = sass::flow(&instruction, at, self.kernel.sm);
            self.follow(at, flow)?;
            if flow != Flow::Next {
                break;
            }
            at += BYTES;
        }
        Ok(())
    }

    fn follow(&mut self, at: usize, flow: Flow) -> Result<(), Why> {
        let after = (at + BYTES) as i64;
        match flow {
            Flow::Next => return Ok(()),
            Flow::To { target, .. } | Flow::Fork { target, .. } | Flow::Call { target } => {
                self.enter(target, at)?;
            }
            Flow::Register { .. } => {
                for target in indirect(self.kernel, at)? {
                    self.enter(*target as i64, at)?;
                }
            }
            _ => {}
        }
        match flow {
            Flow::To { next: false, .. } | Flow::End { next: false } => Ok(()),
            Flow::Return { next: false } | Flow::Register { next: false } => Ok(()),
            _ => self.enter(after, at),
        }
    }

    fn graph(self) -> Result<FlowGraph, Why> {
        let starts: Vec<usize> =
            self.leaders.iter().copied().filter(|at| self.seen.contains_key(at)).collect();
        let number = |at: usize| starts.binary_search(&at).ok();
        let (mut blocks, mut forks) = (Vec::with_capacity(starts.len()), Vec::new());
        for (index, &start) in starts.iter().enumerate() {
            let limit = starts.get(index + 1).copied().unwrap_or(usize::MAX);
            let (last, instruction) = self.last(start, limit);
            let flow = sass::flow(instruction, last, self.kernel.sm);
            let block = self.block(start, last, flow, &number)?;
            if let (Flow::Fork { .. }, Some(&target)) = (flow, block.next.first()) {
                forks.push(Fork { at: last, block: target });
            }
            blocks.push(block);
        }
        let entry = number(self.kernel.entry.start).ok_or(Why::Image)?;
        let instructions = self.seen.keys().copied().zip(0..).collect();
        Ok(FlowGraph { blocks, entry, forks, instructions, decoded: self.seen.into_values().collect() })
    }

    /// The last instruction of the block from `start` on, which ends before `limit`.
    fn last(&self, start: usize, limit: usize) -> (usize, &MachineInstruction) {
        let mut last = (start, &self.seen[&start]);
        for (&at, instruction) in self.seen.range(start..limit) {
            if at > last.0 + BYTES {
                break;
            }
            last = (at, instruction);
            if sass::flow(instruction, at, self.kernel.sm) != Flow::Next {
                break;
            }
        }
        last
    }

    fn block(
        &self,
        start: usize,
        last: usize,
        flow: Flow,
        number: &dyn Fn(usize) -> Option<usize>,
    ) -> Result<BasicBlock, Why> {
        let at =
            |target: i64| usize::try_from(target).ok().and_then(number).ok_or(Why::Jump { offset: last });
        let after = (last + BYTES) as i64;
        let (mut next, mut callee) = (Vec::new(), None);
        match flow {
            Flow::To { target, next: further } => {
                next.push(at(target)?);
                if further {
                    next.push(at(after)?);
                }
            }
            // The first one is where the threads join; only the second one follows at once.
            Flow::Fork { target, .. } => next.extend([at(target)?, at(after)?]),
            Flow::Call { target } => {
                callee = Some(at(target)?);
                next.push(at(after)?);
            }
            Flow::Register { next: further } => {
                for target in indirect(self.kernel, last)? {
                    next.push(at(*target as i64)?);
                }
                if further {
                    next.push(at(after)?);
                }
            }
            Flow::End { next: true } | Flow::Return { next: true } => next.push(at(after)?),
            Flow::Next | Flow::Join { .. } | Flow::CallRegister => next.push(at(after)?),
            Flow::End { next: false } | Flow::Return { next: false } => {}
        }
        Ok(BasicBlock { start, end: last + BYTES, next, flow, callee })
    }
}

/// The instruction at this byte.
fn read(kernel: &KernelCode, offset: usize) -> Result<MachineInstruction, Why> {
    let fields = Fields::at(kernel.text, offset).ok_or(Why::Jump { offset })?;
    sass::decode(fields, kernel.sm).map_err(|unknown| match unknown {
        Unknown::Opcode => Why::Opcode { offset, code: fields.code() },
        Unknown::Form => Why::Form { offset, code: fields.code() },
    })
}

/// The targets that the image states for a jump through a register.
fn indirect<'a>(kernel: &'a KernelCode, offset: usize) -> Result<&'a [usize], Why> {
    let stated = kernel.indirect_branches.iter().find(|branch| branch.at == offset);
    match stated {
        Some(branch) if !branch.targets.is_empty() => Ok(&branch.targets),
        _ => Err(Why::Jump { offset }),
    }
}
