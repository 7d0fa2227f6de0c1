//! The objects that a program has from its beginning, and the driver's promises.

use serde::{Deserialize, Serialize};

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
