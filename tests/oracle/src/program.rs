//! The language of programs: a plain value that can be drawn, saved, cut down and read.
//!
//! A program is a list of steps. One thread of the host makes each step, and the next one begins when it is over, but for
//! *detached* waits: these are over when their thread makes its next step. Blocks, events, gates and graphs are numbers that a
//! step introduces once.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A whole program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    /// What it was drawn from.
    pub(crate) seed: u64,
    pub(crate) shape: Shape,
    pub(crate) steps: Vec<Step>,
}

/// What a program has from its beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Threads of the host.
    pub(crate) threads: usize,
    pub(crate) streams: Vec<Stream>,
    /// Do pools keep what is freed, over synchronisations?
    pub(crate) keep: bool,
    /// May pools make a stream wait for another to use its memory again?
    pub(crate) internal: bool,
    pub(crate) rules: Rules,
}

/// What a driver promises, where drivers might differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rules {
    /// Is an allocation in stream order an action of its stream? In the legacy default stream it never is a barrier.
    pub(crate) allocation_is_action: bool,
    /// Is a free in stream order?
    pub(crate) free_is_action: bool,
    /// Nothing is promised and nothing is kept: such programs are wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) lawless: bool,
}

/// A stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stream {
    pub(crate) context: Context,
    pub(crate) kind: Kind,
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

/// How a stream is ordered with others of its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Legacy,
    /// The default stream of a thread.
    PerThread(usize),
    Blocking,
    NonBlocking,
}

impl Kind {
    /// Does it wait for the legacy default stream, and that for it?
    pub(crate) fn is_blocking(self) -> bool {
        matches!(self, Self::PerThread(_) | Self::Blocking)
    }

    /// Is there a handle of the program's own?
    pub(crate) fn is_created(self) -> bool {
        matches!(self, Self::Blocking | Self::NonBlocking)
    }
}

/// A pool of a device: the one that came with it, or one of the program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Pool {
    pub(crate) device: usize,
    pub(crate) own: bool,
}

/// How memory is allocated.
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
}

/// One call, or a few that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Action {
    Allocate {
        block: usize,
        bytes: u64,
        way: Way,
    },
    /// `cuMemFree`.
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
    /// Looks for the value of the last stamp in all of a block, by a kernel or by a copy to the host.
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
    /// Asks a stream whether it is done until it says so.
    Idle {
        stream: usize,
    },
    /// Asks a stream that cannot be done whether it is.
    Busy {
        stream: usize,
    },
    /// `cuMemPoolTrimTo(pool, 0)`.
    Trim {
        pool: Pool,
    },
    /// `cuMemGetInfo`.
    Info,
    /// Records a stream's next work into a graph that can run.
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
    /// `cuStreamDestroy`, whatever is left to do.
    Destroy {
        stream: usize,
    },
}

/// What is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Node {
    /// A block is stamped and checked.
    Mark { block: usize },
    /// A block of the graph's own is allocated, stamped, checked and freed.
    Own { bytes: u64 },
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// Who makes it.
    pub(crate) thread: usize,
    /// The current context.
    pub(crate) current: Context,
    /// A wait that is over when its thread makes its next step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) detached: bool,
    pub(crate) action: Action,
}

impl Action {
    /// The stream that it is about.
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
            Capture { stream, .. } | Launch { stream, .. } => Some(*stream),
            _ => None,
        }
    }

    /// Does the host wait for a device?
    pub(crate) fn is_wait(&self) -> bool {
        matches!(self, Self::SyncStream { .. } | Self::SyncEvent { .. } | Self::SyncContext)
    }

    /// What is counted of it.
    pub(crate) fn name(&self) -> &'static str {
        use Action::*;
        match self {
            Allocate { way: Way::Plain, .. } => "cuMemAlloc",
            Allocate { way: Way::Pitch, .. } => "cuMemAllocPitch",
            Allocate { way: Way::Async { .. }, .. } => "cuMemAllocAsync",
            Allocate { way: Way::From { .. }, .. } => "cuMemAllocFromPoolAsync",
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
            Capture { .. } => "capture",
            Launch { .. } => "cuGraphLaunch",
            Destroy { .. } => "cuStreamDestroy",
        }
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.own { "own" } else { "default" };
        write!(f, "{whose} pool of device {}", self.device)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Action::*;
        let name = self.name();
        match self {
            Allocate { block, bytes, way } => {
                write!(f, "b{block} = {name}({}", size(*bytes))?;
                match way {
                    Way::Plain | Way::Pitch => f.write_str(")"),
                    Way::Async { stream } => write!(f, ", s{stream})"),
                    Way::From { pool, stream } => write!(f, ", {pool}, s{stream})"),
                }
            }
            Free { block } => write!(f, "{name}(b{block})"),
            FreeIn { block, stream } => write!(f, "{name}(b{block}, s{stream})"),
            Stamp { block, stream, kernel } => {
                write!(f, "{} b{block} in s{stream}", if *kernel { "stamp" } else { "memset" })
            }
            Check { block, stream, kernel } => {
                write!(f, "{} b{block} in s{stream}", if *kernel { "check" } else { "copy out and check" })
            }
            Copy { from, to, stream } => write!(f, "copy b{from} to b{to} in s{stream}"),
            Spin { stream, microseconds } => write!(f, "keep s{stream} busy for {microseconds} us"),
            Close { gate, stream } => write!(f, "s{stream} waits for gate {gate}"),
            Open { gate } => write!(f, "the host opens gate {gate}"),
            Record { event, stream } => write!(f, "{name}(e{event}, s{stream})"),
            Wait { event, stream } => write!(f, "{name}(s{stream}, e{event})"),
            SyncStream { stream } => write!(f, "{name}(s{stream})"),
            SyncEvent { event } => write!(f, "{name}(e{event})"),
            SyncContext | Info => write!(f, "{name}()"),
            Idle { stream } => write!(f, "cuStreamQuery(s{stream}) until it is done"),
            Busy { stream } => write!(f, "cuStreamQuery(s{stream}), which is held"),
            Trim { pool } => write!(f, "{name}({pool}, 0)"),
            Capture { graph, stream, mode, nodes } => {
                write!(f, "g{graph} = capture of s{stream}, mode {mode}:")?;
                nodes.iter().try_for_each(|node| write!(f, " {node}"))
            }
            Launch { graph, stream } => write!(f, "{name}(g{graph}, s{stream})"),
            Destroy { stream } => write!(f, "{name}(s{stream})"),
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mark { block } => write!(f, "[stamp and check b{block}]"),
            Self::Own { bytes } => write!(f, "[allocate {}, stamp, check, free]", size(*bytes)),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} in {:?}: {}", self.thread, self.current, self.action)?;
        if self.detached { f.write_str(", and goes on beside the others") } else { Ok(()) }
    }
}

impl Program {
    /// Does it use a context?
    pub(crate) fn is_in(&self, context: Context) -> bool {
        let streams = self.shape.streams.iter().map(|stream| stream.context);
        streams.chain(self.steps.iter().map(|step| step.current)).any(|other| other == context)
    }

    /// Is a stream held up anywhere?
    pub(crate) fn holds_streams(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.action, Action::Close { .. }))
    }

    fn uses(&self, stream: usize) -> bool {
        self.steps.iter().any(|step| step.action.stream() == Some(stream))
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { threads, keep, internal, .. } = self.shape;
        writeln!(
            f,
            "seed {}, {threads} threads, pools keep memory: {keep}, make streams wait: {internal}",
            self.seed
        )?;
        for (number, stream) in self.shape.streams.iter().enumerate().filter(|(number, _)| self.uses(*number))
        {
            writeln!(f, "  s{number}: {:?} of {:?}", stream.kind, stream.context)?;
        }
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "  {number:>3}  {step}")?;
        }
        Ok(())
    }
}
