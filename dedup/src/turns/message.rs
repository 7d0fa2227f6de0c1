//! What members and the broker tell each other about turns.
//!
//! A report is the whole state of a member, and an order is the broker's last word, so none of them
//! has to be kept in a queue.

use std::time::Duration;

/// A GPU, by its UUID.
pub type GpuId = [u8; 16];

/// GPUs of one member that take part in turns. More are not told.
pub const GPUS: usize = 16;

/// Where a member is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TurnPhase {
    /// Its calls go on.
    #[default]
    Running,
    /// Its memory leaves.
    Leaving,
    /// Its calls wait until it comes back.
    Away,
    /// Its memory comes back.
    Coming,
}

/// A member's memory on one GPU, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuUse {
    /// Which.
    pub gpu: GpuId,
    /// On it, and able to leave.
    pub present: u64,
    /// Not on it, and needed for what the member asks.
    pub missing: u64,
    /// What the GPU has free for the member.
    pub free: u64,
    /// Given to the driver for the order that [`TurnReport::giving`] names.
    pub given: u64,
}

/// A member's state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnReport {
    /// The last order to report, to give way or to stay that was carried out as far as it can be.
    pub done: u64,
    /// The last order to give way; 0 before the first.
    pub giving: u64,
    /// The number of its ask, which is greater than those before; 0: it asks for nothing.
    pub ask: u64,
    /// See there.
    pub phase: TurnPhase,
    /// Since its last launch.
    pub idle: Duration,
    /// How long its memory has been moving for the last ask or order.
    pub moved: Duration,
    /// The order to come after which it has taken what is free, and lacks more; 0: it does not.
    pub short: u64,
    /// At most [`GPUS`].
    pub gpus: Vec<GpuUse>,
}

/// What the broker wants of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnTask {
    /// Nothing: its ask is known, and waits for others.
    Wait,
    /// To say how it is.
    Report,
    /// To give so much of some GPUs to the driver: at once if it does not launch, else after some
    /// time.
    GiveWay {
        /// The rest of its turn.
        after: Duration,
        /// Bytes of each GPU, at most [`GPUS`].
        bytes: Vec<(GpuId, u64)>,
    },
    /// To forget the last order to give way, unless its memory leaves already.
    Stay,
    /// To take what is free, and to say so if that is too little.
    Come {
        /// The ask that this answers; 0: none, there is room for what lies on the host.
        ask: u64,
        /// No more will be free.
        is_last: bool,
    },
}

/// An order of the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnOrder {
    /// Greater than those of the member's orders before.
    pub number: u64,
    /// See there.
    pub task: TurnTask,
}
