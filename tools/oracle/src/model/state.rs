//! The state of a program after some steps, as far as the rules need it: its streams, blocks,
//! gates, graphs and host memory.

use std::collections::BTreeMap;

use crate::clock::{Before, Clock, Place, Stamp};
use crate::program::{Context, Host, Node, Shape, Step, Way};

/// The reason why a step is not legal.
pub(crate) type Refusal = &'static str;
pub(super) type Verdict<T = ()> = Result<T, Refusal>;

/// The state after some steps.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(super) shape: Shape,
    pub(super) lanes: Vec<Lane>,
    /// The work that the host has seen done.
    pub(super) host: Clock,
    /// Waits that are not over yet, by thread.
    pub(super) waiting: Vec<Option<Waiting>>,
    pub(super) gates: BTreeMap<usize, Gate>,
    pub(super) events: BTreeMap<usize, Stamp>,
    pub(super) blocks: BTreeMap<usize, Block>,
    /// All work that the stream-ordered frees so far may wait for.
    pub(super) freed: Clock,
    pub(super) graphs: BTreeMap<usize, Graph>,
    /// Host memory.
    pub(super) buffers: Vec<Buffer>,
    /// Host functions that streams call, by step.
    pub(super) notes: Vec<(usize, Stamp)>,
    /// Steps so far: the number of the next one.
    pub(super) steps: usize,
}

/// A wait of a thread beside the others.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) step: Step,
    /// The places that it certainly waits for: those that existed when it was called.
    pub(super) stamps: Vec<Stamp>,
}

/// The work of a stream so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Lane {
    pub(super) last: u32,
    pub(super) before: Before,
    /// The work that the streams waiting for this one certainly wait for.
    pub(super) told: Clock,
    /// Has a device worked for it?
    pub(super) worked: bool,
    pub(super) unborn: bool,
    pub(super) destroyed: bool,
}

impl Lane {
    pub(super) fn is_there(&self) -> bool {
        !self.unborn && !self.destroyed
    }
}

/// Does a place in a stream take part in the order between the default stream and the blocking
/// ones?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Barrier {
    Sure,
    Possible,
    None,
}

pub(super) fn require(holds: bool, refusal: Refusal) -> Verdict {
    if holds { Ok(()) } else { Err(refusal) }
}

impl Model {
    /// The state before the first step.
    pub(crate) fn new(shape: &Shape) -> Self {
        Self {
            shape: shape.clone(),
            lanes: shape
                .streams
                .iter()
                .map(|stream| Lane { unborn: stream.late, ..Lane::default() })
                .collect(),
            host: Clock::default(),
            waiting: vec![None; shape.threads],
            gates: BTreeMap::new(),
            events: BTreeMap::new(),
            blocks: BTreeMap::new(),
            freed: Clock::default(),
            graphs: BTreeMap::new(),
            buffers: shape.hosts.iter().map(|host| Buffer::new(*host)).collect(),
            notes: Vec::new(),
            steps: 0,
        }
    }
}

/// A block of memory.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) way: Way,
    pub(crate) bytes: u64,
    /// The context that was current when it was allocated.
    pub(super) context: Context,
    /// The device that it lies on.
    pub(super) device: usize,
    /// Its allocation in a stream's order.
    pub(super) born: Option<Stamp>,
    pub(super) accesses: Vec<(Stamp, bool)>,
    /// The step whose value it holds.
    pub(crate) content: Option<usize>,
    pub(crate) freed: bool,
}

impl Block {
    /// Is it memory of a pool?
    pub(crate) fn is_pooled(&self) -> bool {
        matches!(self.way, Way::Async { .. } | Way::From { .. })
    }

    /// Does a free by `cuMemFree` wait for work?
    pub(crate) fn is_waited_for(&self) -> bool {
        matches!(self.way, Way::Plain | Way::Pitch)
    }

    /// Is it memory of the program's own?
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.way, Way::Mapped { .. })
    }

    /// The stream of its last access, or of its allocation.
    pub(crate) fn last_stream(&self) -> Option<usize> {
        self.accesses.last().map(|(stamp, _)| stamp).or(self.born.as_ref()).map(|stamp| stamp.place.stream)
    }
}

/// A place in a stream's work that waits for a word.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    pub(super) place: Place,
    pub(super) open: bool,
    /// Another stream's host function opens it.
    pub(super) opener: Option<Stamp>,
}

/// A graph.
#[derive(Debug, Clone)]
pub(super) struct Graph {
    pub(super) context: Context,
    /// Each with the step whose value it writes.
    pub(super) nodes: Vec<(Node, usize)>,
    /// Was it built node by node?
    pub(super) is_built: bool,
    /// Its latest run: runs of one graph are ordered by the driver.
    pub(super) latest: Option<Stamp>,
}

/// Bytes of one piece of host memory. Larger blocks are not copied.
pub(crate) const BUFFER: u64 = 24 << 20;

/// Some host memory.
#[derive(Debug, Clone)]
pub(super) struct Buffer {
    pub(super) kind: Host,
    /// The step whose value it holds, and the number of bytes.
    pub(super) content: Option<(usize, u64)>,
    /// The accesses of streams, and whether they write.
    pub(super) accesses: Vec<(Stamp, bool)>,
}

impl Buffer {
    pub(super) fn new(kind: Host) -> Self {
        Self { kind, content: None, accesses: Vec::new() }
    }
}
