//! The language of programs: a plain value that can be drawn, saved, shrunk and read.
//!
//! A program is a list of steps. One thread of the host makes each step, and the next one begins
//! when it is over, except for *detached* waits: these are over when their thread makes its next
//! step. Blocks, events, gates and graphs are numbers that a step introduces once.

mod aside;
mod graph;
mod mapped;
mod shape;
mod told;

pub(crate) use aside::Aside;
pub(crate) use graph::Node;
pub(crate) use mapped::Renewal;
use serde::{Deserialize, Serialize};
pub(crate) use shape::{Context, Host, Kind, Pool, Rules, Shape, Stream};

/// Steps of a program, and numbers of gates, at most.
pub(crate) const STEPS: usize = 2048;
/// Pieces of host memory of a program, at most.
pub(crate) const HOSTS: usize = 4;

/// A whole program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    /// The seed that it was drawn from.
    pub(crate) seed: u64,
    pub(crate) shape: Shape,
    pub(crate) steps: Vec<Step>,
}

/// The call that allocates memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Way {
    /// `cuMemAlloc`.
    Plain,
    /// `cuMemAllocPitch`.
    Pitch,
    /// `cuMemAllocAsync`.
    Async { stream: usize },
    /// `cuMemAllocFromPoolAsync`.
    From { pool: Pool, stream: usize },
    /// `cuMemCreate` of so many pieces at most, which are mapped side by side.
    Mapped { parts: usize },
}

/// One call, or a few that form a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Action {
    Allocate {
        block: usize,
        bytes: u64,
        way: Way,
    },
    /// `cuMemFree`, or the end of each mapping and piece.
    Free {
        block: usize,
    },
    /// `cuMemFreeAsync`.
    FreeIn {
        block: usize,
        stream: usize,
    },
    /// Writes a value of its own into all of a block, by a kernel or by a memset.
    Stamp {
        block: usize,
        stream: usize,
        kernel: bool,
    },
    /// Checks all of a block for the value of the last stamp, by a kernel or by a copy to the host.
    Check {
        block: usize,
        stream: usize,
        kernel: bool,
    },
    /// Copies one block to another of its size.
    Copy {
        from: usize,
        to: usize,
        stream: usize,
    },
    /// Keeps a stream busy.
    Spin {
        stream: usize,
        microseconds: u64,
    },
    /// A stream waits until a gate is opened.
    Close {
        gate: usize,
        stream: usize,
    },
    /// The host opens a gate.
    Open {
        gate: usize,
    },
    Record {
        event: usize,
        stream: usize,
    },
    Wait {
        event: usize,
        stream: usize,
    },
    SyncStream {
        stream: usize,
    },
    SyncEvent {
        event: usize,
    },
    /// `cuCtxSynchronize` of the current context.
    SyncContext,
    /// Queries a stream until it is done.
    Idle {
        stream: usize,
    },
    /// Queries a stream that cannot be done.
    Busy {
        stream: usize,
    },
    /// `cuMemPoolTrimTo(pool, 0)`.
    Trim {
        pool: Pool,
    },
    /// `cuMemGetInfo`.
    Info,
    /// Records a stream's next work in an executable graph.
    Capture {
        graph: usize,
        stream: usize,
        mode: u32,
        nodes: Vec<Node>,
    },
    /// Makes a graph node by node, one behind the other, and instantiates it.
    Build {
        graph: usize,
        nodes: Vec<Node>,
    },
    /// A memset of a graph that was built gets another block, and writes another value.
    Retarget {
        graph: usize,
        node: usize,
        block: usize,
        /// By `cuGraphExecUpdate`, and not by the node's parameters.
        whole: bool,
    },
    /// `cuGraphExecDestroy` and `cuGraphDestroy`, also while it runs.
    EndGraph {
        graph: usize,
    },
    /// Runs a graph.
    Launch {
        graph: usize,
        stream: usize,
    },
    /// `cuStreamDestroy`, also with work in the stream.
    Destroy {
        stream: usize,
    },
    /// `cuStreamCreate`: a driver may reuse the handle of a destroyed stream.
    Create {
        stream: usize,
    },
    /// The stream calls a host function, which takes a number: ordered functions must take them in
    /// that order.
    Note {
        stream: usize,
    },
    /// The stream calls a host function, which opens a gate.
    Unlock {
        gate: usize,
        stream: usize,
    },
    /// `cuMemcpyDtoH` without a stream, which returns when the bytes are there, and checks them.
    /// Here and below, `stream` is the default stream that the function works in: the legacy one,
    /// or the thread's own (`_ptds`).
    Read {
        block: usize,
        stream: usize,
    },
    /// `cuMemcpyHtoD` without a stream argument, from pageable memory that changes as soon as it
    /// returns.
    Fill {
        block: usize,
        stream: usize,
    },
    /// `cuMemsetD32` without a stream.
    Set {
        block: usize,
        stream: usize,
    },
    /// `cuMemcpyDtoD` without a stream.
    Move {
        from: usize,
        to: usize,
        stream: usize,
    },
    /// The host writes a value of its own into some host memory, by a thread or by a function that
    /// a stream calls.
    Write {
        host: usize,
        bytes: u64,
        /// The stream that calls the function.
        stream: Option<usize>,
    },
    /// The host checks some host memory for the latest value, by a thread or by a function that a
    /// stream calls.
    Look {
        host: usize,
        stream: Option<usize>,
    },
    /// Copies host memory to a block: `cuMemcpyHtoDAsync`, or `cuMemcpyHtoD` in a default stream.
    Upload {
        host: usize,
        block: usize,
        stream: usize,
        waits: bool,
    },
    /// Copies a block to host memory: `cuMemcpyDtoHAsync`, or `cuMemcpyDtoH` in a default stream.
    Download {
        block: usize,
        host: usize,
        stream: usize,
        waits: bool,
    },
    /// Maps memory of the program's own again.
    Renew {
        block: usize,
        how: Renewal,
    },
    /// An action that must not affect copies.
    Aside(Aside),
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// The thread that makes the step.
    pub(crate) thread: usize,
    /// The current context.
    pub(crate) current: Context,
    /// A wait that ends when its thread makes its next step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) detached: bool,
    pub(crate) action: Action,
}

impl Action {
    /// The stream that it uses.
    pub(crate) fn stream(&self) -> Option<usize> {
        use Action::*;
        match self {
            Allocate { way: Way::Async { stream } | Way::From { stream, .. }, .. } => Some(*stream),
            FreeIn { stream, .. } | Stamp { stream, .. } | Check { stream, .. } | Copy { stream, .. } => {
                Some(*stream)
            }
            Spin { stream, .. } | Close { stream, .. } | Record { stream, .. } | Wait { stream, .. } => {
                Some(*stream)
            }
            SyncStream { stream } | Idle { stream } | Busy { stream } | Destroy { stream } => Some(*stream),
            Capture { stream, .. } | Launch { stream, .. } | Create { stream } => Some(*stream),
            Note { stream } | Unlock { stream, .. } => Some(*stream),
            Read { stream, .. } | Fill { stream, .. } | Set { stream, .. } | Move { stream, .. } => {
                Some(*stream)
            }
            Upload { stream, .. } | Download { stream, .. } => Some(*stream),
            Write { stream, .. } | Look { stream, .. } => *stream,
            Allocate { .. }
            | Free { .. }
            | Open { .. }
            | SyncEvent { .. }
            | SyncContext
            | Trim { .. }
            | Renew { .. }
            | Build { .. }
            | Retarget { .. }
            | EndGraph { .. }
            | Aside(_)
            | Info => None,
        }
    }

    /// Does the host wait for a device?
    pub(crate) fn is_wait(&self) -> bool {
        matches!(self, Self::SyncStream { .. } | Self::SyncEvent { .. } | Self::SyncContext)
    }

    /// The name under which it is counted.
    pub(crate) fn name(&self) -> &'static str {
        use Action::*;
        match self {
            Allocate { way: Way::Plain, .. } => "cuMemAlloc",
            Allocate { way: Way::Pitch, .. } => "cuMemAllocPitch",
            Allocate { way: Way::Async { .. }, .. } => "cuMemAllocAsync",
            Allocate { way: Way::From { .. }, .. } => "cuMemAllocFromPoolAsync",
            Allocate { way: Way::Mapped { .. }, .. } => "cuMemCreate",
            Renew { how, .. } => how.name(),
            Free { .. } => "cuMemFree",
            FreeIn { .. } => "cuMemFreeAsync",
            Stamp { .. } => "stamp",
            Check { .. } => "check",
            Copy { .. } => "copy",
            Spin { .. } => "spin",
            Close { .. } => "close a gate",
            Open { .. } => "open a gate",
            Record { .. } => "cuEventRecord",
            Wait { .. } => "cuStreamWaitEvent",
            SyncStream { .. } => "cuStreamSynchronize",
            SyncEvent { .. } => "cuEventSynchronize",
            SyncContext => "cuCtxSynchronize",
            Idle { .. } => "cuStreamQuery until done",
            Busy { .. } => "cuStreamQuery while held",
            Trim { .. } => "cuMemPoolTrimTo",
            Info => "cuMemGetInfo",
            Aside(aside) => aside.name(),
            Capture { nodes, .. } if nodes.iter().any(|node| node.branch().is_some()) => {
                "capture of two streams"
            }
            Capture { .. } => "capture",
            Build { .. } => "cuGraphAddMemsetNode, cuGraphAddMemcpyNode",
            Retarget { whole: true, .. } => "cuGraphExecUpdate",
            Retarget { .. } => "cuGraphExecMemsetNodeSetParams",
            EndGraph { .. } => "cuGraphExecDestroy",
            Launch { .. } => "cuGraphLaunch",
            Destroy { .. } => "cuStreamDestroy",
            Create { .. } => "cuStreamCreate",
            Note { .. } => "cuLaunchHostFunc that takes a number",
            Unlock { .. } => "cuLaunchHostFunc that opens a gate",
            Read { .. } => "cuMemcpyDtoH",
            Fill { .. } => "cuMemcpyHtoD",
            Set { .. } => "cuMemsetD32",
            Move { .. } => "cuMemcpyDtoD",
            Write { stream: None, .. } => "write host memory",
            Write { .. } => "cuLaunchHostFunc that writes host memory",
            Look { stream: None, .. } => "look at host memory",
            Look { .. } => "cuLaunchHostFunc that looks at host memory",
            Upload { waits: true, .. } => "cuMemcpyHtoD of host memory",
            Upload { .. } => "cuMemcpyHtoDAsync of host memory",
            Download { waits: true, .. } => "cuMemcpyDtoH to host memory",
            Download { .. } => "cuMemcpyDtoHAsync to host memory",
        }
    }
}

impl Program {
    /// Does it use a context?
    pub(crate) fn is_in(&self, context: Context) -> bool {
        let streams = self.shape.streams.iter().map(|stream| stream.context);
        streams.chain(self.steps.iter().map(|step| step.current)).any(|other| other == context)
    }

    /// The name under which a step is counted: its action's name, and for a copy the kind of host
    /// memory.
    pub(crate) fn name_of(&self, step: &Step) -> String {
        let name = step.action.name();
        match step.action {
            Action::Upload { host, .. } | Action::Download { host, .. } => {
                let kind = self.shape.hosts.get(host).copied().unwrap_or(Host::Pageable);
                name.replace(
                    "host memory",
                    if kind == Host::Pinned { "pinned memory" } else { "pageable memory" },
                )
            }
            _ => name.to_owned(),
        }
    }

    /// Does a gate hold a stream anywhere?
    pub(crate) fn holds_streams(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.action, Action::Close { .. }))
    }

    fn uses(&self, stream: usize) -> bool {
        self.steps.iter().any(|step| step.action.stream() == Some(stream))
    }
}
