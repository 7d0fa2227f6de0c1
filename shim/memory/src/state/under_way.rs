//! What other threads have under way between two looks at the state.
//!
//! Invariant: `generation` grows whenever something under way ends, so a thread that saw a generation can tell whether to
//! look again; `epoch` grows when the context goes, so what began in an earlier one is not committed.

#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    /// Plans and grants.
    count: usize,
    generation: u64,
    epoch: u64,
    /// Threads that need every mapping to stay.
    pins: usize,
    /// Memory of a live block is being moved.
    moving: bool,
}

impl UnderWay {
    pub(crate) fn begin(&mut self) {
        self.count += 1;
    }

    pub(crate) fn end(&mut self) {
        self.count = self.count.saturating_sub(1);
        self.generation += 1;
    }

    pub(crate) fn is_none(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The context has gone.
    pub(crate) fn end_epoch(&mut self) {
        self.epoch += 1;
    }

    /// A move begins. It needs every mapping but its own to stay.
    pub(super) fn begin_move(&mut self) {
        self.begin();
        self.pin();
        self.moving = true;
    }

    pub(super) fn end_move(&mut self) {
        self.moving = false;
        self.unpin();
        self.end();
    }

    pub(crate) fn is_moving(&self) -> bool {
        self.moving
    }

    pub(crate) fn pin(&mut self) {
        self.pins += 1;
    }

    pub(crate) fn unpin(&mut self) {
        self.pins -= 1;
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pins > 0
    }
}
