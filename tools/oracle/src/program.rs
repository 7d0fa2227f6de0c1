//! The language of programs: a plain value that can be drawn, saved, shrunk and read.
//!
//! A program is a list of steps. One thread of the host makes each step, and the next one begins
//! when it is over, except for *detached* waits: these are over when their thread makes its next
//! step. Blocks, events, gates and graphs are numbers that a step introduces once.

mod aside;
mod mapped;
mod told;

pub(crate) use aside::Aside;
pub(crate) use mapped::Renewal;
use serde::{Deserialize, Serialize};

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

/// The objects that a program has from its beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Threads of the host.
    pub(crate) threads: usize,
    pub(crate) streams: Vec<Stream>,
    /// Do pools keep freed memory over synchronisations?
    pub(crate) keep: bool,
    /// May pools make a stream wait for another one to reuse its memory?
    pub(crate) internal: bool,
    pub(crate) rules: Rules,
    /// Host memory for copies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hosts: Vec<Host>,
}

/// The kind of host memory, as the driver sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Host {
    /// `cuMemHostAlloc`.
    Pinned,
    Pageable,
}

/// The driver's promises, where drivers might differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rules {
    /// Is a stream-ordered allocation an action of its stream? In the legacy default stream it
    /// never is a barrier.
    pub(crate) allocation_is_action: bool,
    /// Is a stream-ordered free one?
    pub(crate) free_is_action: bool,
    /// Memory may be scarce, and an allocation may wait for any earlier free, if the pools allow
    /// that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) short: bool,
    /// No order is promised or kept: such programs are wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) lawless: bool,
}

/// A stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stream {
    pub(crate) context: Context,
    pub(crate) kind: Kind,
    /// A step makes it, and not the beginning of the program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) late: bool,
}

/// A context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Context {
    /// The first device's primary context.
    First,
    /// Another context of the first device.
    Second,
    /// The second device's primary context.
    Other,
    /// Two green contexts of the first device.
    GreenOne,
    GreenTwo,
}

impl Context {
    /// Its device's ordinal.
    pub(crate) fn device(self) -> usize {
        usize::from(self == Self::Other)
    }

    /// A part of the first device, in whose memory it is the primary context.
    pub(crate) fn is_green(self) -> bool {
        matches!(self, Self::GreenOne | Self::GreenTwo)
    }
}

/// The order of a stream with others of its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Legacy,
    /// The default stream of a thread.
    PerThread(usize),
    Blocking,
    NonBlocking,
}

impl Kind {
    /// Do it and the legacy default stream wait for each other?
    pub(crate) fn is_blocking(self) -> bool {
        matches!(self, Self::PerThread(_) | Self::Blocking)
    }

    /// Has it a handle of the program's own?
    pub(crate) fn is_created(self) -> bool {
        matches!(self, Self::Blocking | Self::NonBlocking)
    }
}

/// A pool of a device: the default one, or one of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Pool {
    pub(crate) device: usize,
    pub(crate) own: bool,
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

/// The work in a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Node {
    /// A block is stamped and checked.
    Mark { block: usize },
    /// A block of the graph's own is allocated, stamped, checked and freed.
    Own { bytes: u64 },
    /// Another stream joins by an event, and leaves by another one: each stream stamps and checks a
    /// block beside the other.
    Fork { stream: usize, here: usize, there: usize },
    /// A block of the graph's own is used and freed in another stream, which joins and leaves.
    Lend { stream: usize, bytes: u64 },
    /// Pinned host memory is copied to a block.
    Load { host: usize, block: usize },
    /// A block is copied to pinned host memory.
    Save { block: usize, host: usize },
}

impl Node {
    /// The program's blocks into which it writes values of its own.
    pub(crate) fn blocks(&self) -> Vec<usize> {
        match self {
            Self::Mark { block } => vec![*block],
            Self::Fork { here, there, .. } => vec![*here, *there],
            Self::Own { .. } | Self::Lend { .. } | Self::Load { .. } | Self::Save { .. } => Vec::new(),
        }
    }

    /// A block and host memory, the ends of a copy.
    pub(crate) fn ends(&self) -> Option<(usize, usize)> {
        match self {
            Self::Load { host, block } | Self::Save { block, host } => Some((*block, *host)),
            _ => None,
        }
    }

    /// The second captured stream.
    pub(crate) fn branch(&self) -> Option<usize> {
        match self {
            Self::Fork { stream, .. } | Self::Lend { stream, .. } => Some(*stream),
            Self::Mark { .. } | Self::Own { .. } | Self::Load { .. } | Self::Save { .. } => None,
        }
    }
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
