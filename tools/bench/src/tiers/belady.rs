//! Policies that know the future (Belady): they evict the block with the furthest next use.
//!
//! The *optimum* does not copy contents that no later launch reads. For blocks of whole chunks no
//! policy moves fewer bytes to the device, and the optimum never moves more to the host than to the
//! device, so no policy takes less time. Blocks of odd sizes add a rounding error. No driver can
//! reach the optimum, because it does not know that a live block is never read again.
//!
//! All other variants copy a victim while it is live, as a driver has to. They differ in the weight
//! of a block whose next event is its free, since evicting it costs only one direction of the link,
//! and in how much later a victim's next use must be.

use std::collections::BTreeSet;

use super::board::Board;
use super::policies::Placement;
use super::story::{Story, StoryStep};

/// Not used again, or not freed.
const NEVER: u32 = u32::MAX;

/// The choice of a victim, by its next use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Foresight {
    /// Contents that no later launch reads are not copied.
    pub(super) discards: bool,
    /// Factor on the distance to a block's free, compared with a use; `None` is infinite.
    pub(super) free_weight: Option<f64>,
    /// A block is fetched if its next use is this many times sooner than the victim's.
    pub(super) gain: f64,
}

impl Foresight {
    pub(super) const OPTIMUM: Self = Self { discards: true, free_weight: None, gain: 1.0 };
    pub(super) const COPIES: Self = Self::copies(None, 1.0);

    const fn copies(free_weight: Option<f64>, gain: f64) -> Self {
        Self { discards: false, free_weight, gain }
    }

    /// The best of these is the best feasible policy. Finer steps of either figure were no better
    /// on recorded programs.
    pub(super) const VARIANTS: [Self; 8] = [
        Self::copies(None, 1.0),
        Self::copies(None, 4.0),
        Self::copies(Some(4.0), 1.0),
        Self::copies(Some(4.0), 4.0),
        Self::copies(Some(1.0), 1.0),
        Self::copies(Some(1.0), 4.0),
        Self::copies(Some(0.25), 1.0),
        Self::copies(Some(0.25), 4.0),
    ];
}

pub(super) struct Belady {
    foresight: Foresight,
    /// Of each block, the steps that use it, nearest last, and the one that frees it.
    uses: Vec<Vec<u32>>,
    frees: Vec<u32>,
    /// Blocks with chunks on the device, by their next use; those without one by their free.
    residents: BTreeSet<(u32, u32)>,
    done: BTreeSet<(u32, u32)>,
}

impl Belady {
    pub(super) fn new(story: &Story, foresight: Foresight) -> Self {
        let mut uses = vec![Vec::new(); story.sizes.len()];
        let mut frees = vec![NEVER; story.sizes.len()];
        for (now, step) in story.steps.iter().enumerate().rev() {
            match *step {
                StoryStep::Launch { .. } => {
                    story.used(now).for_each(|block| uses[block as usize].push(now as u32));
                }
                StoryStep::Free { block } => frees[block as usize] = now as u32,
                StoryStep::Allocate { .. } | StoryStep::Wait => {}
            }
        }
        Self { foresight, uses, frees, residents: BTreeSet::new(), done: BTreeSet::new() }
    }

    fn next_use(&self, block: u32) -> u32 {
        self.uses[block as usize].last().copied().unwrap_or(NEVER)
    }

    /// The block is on the device, or no longer.
    fn list(&mut self, block: u32, is_in: bool) {
        let next = self.next_use(block);
        let (list, key) = match next {
            NEVER => (&mut self.done, (self.frees[block as usize], block)),
            _ => (&mut self.residents, (next, block)),
        };
        if is_in {
            list.insert(key);
        } else {
            list.remove(&key);
        }
    }

    /// How far away a step is.
    fn distance(next: u32, now: usize) -> f64 {
        if next == NEVER { f64::INFINITY } else { f64::from(next) - now as f64 }
    }

    /// How far away the block is needed, and which it is; nothing leaves for one that is not.
    fn needed(&self, block: u32, now: usize, gain: f64) -> (f64, u32) {
        let next = self.next_use(block);
        (Self::distance(next, now) * gain, if next == NEVER { u32::MAX } else { block })
    }

    /// The victim, and the distance of its next use.
    fn victim(&self, now: usize) -> Option<(f64, u32)> {
        let weight = self.foresight.free_weight.unwrap_or(f64::INFINITY);
        let used = self.residents.last().map(|(next, block)| (Self::distance(*next, now), *block));
        let done = self.done.last().map(|(free, block)| (Self::distance(*free, now) * weight, *block));
        match (used, done) {
            (Some(used), Some(done)) => Some(if done.0 >= used.0 { done } else { used }),
            (used, done) => used.or(done),
        }
    }

    /// Evicts blocks whose next use is farther away than `needed`, until `bytes` fit. Of two blocks
    /// of one launch the one with the larger number is used last.
    fn make_room(&mut self, board: &mut Board, now: usize, bytes: u64, needed: (f64, u32)) {
        while board.room() < bytes {
            let Some((_, block)) = self.victim(now).filter(|victim| *victim > needed) else {
                return;
            };
            let missing = bytes - board.room();
            if self.foresight.discards && self.next_use(block) == NEVER {
                board.discard(block, missing);
            } else {
                board.leave(block, missing);
            }
            if board.on_device(block) == 0 {
                self.list(block, false);
            }
        }
    }
}

impl Placement for Belady {
    fn allocate(&mut self, board: &mut Board, now: usize, block: u32) {
        let bytes = board.bytes(block);
        self.make_room(board, now, bytes, self.needed(block, now, 1.0));
        if board.place(block, bytes) > 0 {
            self.list(block, true);
        }
    }

    fn touch(&mut self, board: &mut Board, now: usize, block: u32) {
        self.list(block, false);
        self.uses[block as usize].pop();
        let (missing, next) = (board.elsewhere(block), self.next_use(block));
        self.make_room(board, now, missing, self.needed(block, now, self.foresight.gain));
        if next != NEVER {
            board.come(block, missing);
        }
        if board.on_device(block) > 0 {
            self.list(block, true);
        }
    }

    fn free(&mut self, _board: &mut Board, block: u32) {
        self.list(block, false);
    }
}
