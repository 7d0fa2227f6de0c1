//! A running program: the state that its steps share, and the results so far.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use conformance::cu;
use wm_abi::*;

use crate::advice::Advice;
use crate::mapped::MappedBlock;
use crate::outcome::{Refused, Stay};
use crate::pauses::Pauses;
use crate::program::{Kind, Program, Stream};
use crate::world::{World, ready};

/// The number of marks that programs of one process have used, so that all marks differ.
#[derive(Debug, Default)]
pub(crate) struct Marks(pub(crate) u32);

/// What is done beside steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beside {
    /// Blocks are advised about.
    pub(crate) advice: Option<Advice>,
    /// The process is paused and resumed.
    pub(crate) pauses: Option<Pauses>,
}

/// A running program.
pub(crate) struct Running<'a> {
    pub(crate) world: &'a World,
    pub(crate) program: &'a Program,
    /// By step, the step whose mark it checks for, or copies.
    pub(crate) expected: Vec<Option<usize>>,
    /// By step, the step whose mark is in host memory after it, and the number of bytes.
    pub(crate) held: Vec<Option<(usize, u64)>>,
    /// By step, the blocks that the graph writes which it launches, and the steps whose marks they
    /// have then.
    pub(crate) launched: Vec<Vec<(usize, usize)>>,
    /// Pairs of steps whose host functions are called in this order.
    pub(crate) ordered: Vec<(usize, usize)>,
    pub(crate) base: u32,
    pub(crate) beside: Beside,
    pub(crate) state: Mutex<State>,
}

/// A graph, executable.
#[derive(Debug, Clone)]
pub(crate) struct MadeGraph {
    pub(crate) graph: CUgraph,
    pub(crate) exec: CUgraphExec,
    /// Its nodes, if it was built node by node.
    pub(crate) nodes: Vec<CUgraphNode>,
}

/// The objects of a program, and the results.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) streams: Vec<CUstream>,
    pub(crate) blocks: BTreeMap<usize, (CUdeviceptr, u64)>,
    /// Those of them that the program makes itself.
    pub(crate) mapped: BTreeMap<usize, MappedBlock>,
    pub(crate) events: BTreeMap<usize, CUevent>,
    pub(crate) graphs: BTreeMap<usize, MadeGraph>,
    pub(crate) gates: Vec<usize>,
    /// Checks that were launched, by step: bytes.
    pub(crate) checks: BTreeMap<usize, u64>,
    /// Checks by copy: step, offset, bytes, mark.
    pub(crate) copies: Vec<(usize, u64, u64, u32)>,
    pub(crate) staged: u64,
    /// Bytes that were checked at once.
    pub(crate) read: u64,
    /// Steps whose copies went through other devices.
    pub(crate) relayed: Vec<usize>,
    /// The time that each step took.
    pub(crate) times: BTreeMap<usize, Duration>,
    /// Steps whose host function a stream was told to call.
    pub(crate) notes: Vec<usize>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) wrong: Vec<String>,
    pub(crate) early: Vec<String>,
    pub(crate) hang: Option<Stay>,
    /// The present call, after the last step.
    pub(crate) ending: &'static str,
}

impl Running<'_> {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mark that a step writes.
    pub(crate) fn mark(&self, step: usize) -> u32 {
        (self.base + step as u32 + 1).wrapping_mul(0x9e37_79b1) | 1
    }

    pub(crate) fn owner(&self, step: usize) -> u64 {
        let mark = u64::from(self.mark(step));
        mark << 32 | mark
    }

    pub(crate) fn create(&self, stream: Stream) -> Result<CUstream> {
        let (d, mut handle) = (self.world.driver, CUstream::NULL);
        let blocking = stream.kind == Kind::Blocking;
        let flags = if blocking { CU_STREAM_DEFAULT } else { CU_STREAM_NON_BLOCKING };
        ready!(d, cuCtxSetCurrent(self.world.handle(stream.context)))?;
        if stream.context.is_green() {
            return self.world.green_stream(stream.context);
        }
        cu!(d, cuStreamCreate(&mut handle, flags)).ok().context("a stream")?;
        Ok(handle)
    }

    pub(crate) fn record_code(&self, step: Option<usize>, call: &str, code: CUresult) -> bool {
        if code != CUresult::SUCCESS {
            let refused = Refused { step, call: call.to_owned(), code: code.0 };
            self.state().refused.push(refused);
        }
        code == CUresult::SUCCESS
    }
}
