//! The work that other threads have under way between two looks at the state.
//!
//! Invariant: `generation` grows whenever something under way ends, so a thread that saw a
//! generation can tell whether to look again; `epoch` grows when the context goes, so a plan that
//! began in an earlier one is not committed.

#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    /// Plans and grants.
    count: usize,
    generation: u64,
    epoch: u64,
    /// Threads that need every mapping to stay.
    pins: usize,
    /// Moves of live memory. Each counts as a plan and as a pin, too.
    moves: usize,
    /// Callers that use memory by its address, though its blocks may be freed meanwhile.
    borrows: usize,
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
        self.moves += 1;
    }

    pub(super) fn end_move(&mut self) {
        self.moves = self.moves.saturating_sub(1);
        self.unpin();
        self.end();
    }

    pub(crate) fn is_moving(&self) -> bool {
        self.moves > 0
    }

    /// Is nothing under way but so many moves, which are the caller's?
    pub(super) fn is_none_but(&self, moves: usize) -> bool {
        [self.count, self.pins, self.moves] == [moves; 3]
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

    pub(crate) fn begin_borrow(&mut self) {
        self.borrows += 1;
    }

    pub(crate) fn end_borrow(&mut self) {
        self.borrows -= 1;
    }

    /// Does idle memory stay where it is mapped?
    pub(crate) fn is_borrowed(&self) -> bool {
        self.borrows > 0
    }
}
