//! The optimum, which knows the future: what is used last leaves, what is used again later than all others stays where it is, and what
//! nothing uses any more is not copied.
//!
//! For blocks of whole chunks no policy has fewer bytes to the device, and it never has more to the host than to the device, so no
//! policy takes less time. With blocks of odd sizes it is that but for rounding.

use std::collections::BTreeSet;

use super::board::Board;
use super::policies::Placement;
use super::story::{Story, StoryStep};

/// Not used again.
const NEVER: usize = usize::MAX;

pub(super) struct Belady {
    /// What nothing uses any more is not copied.
    discards: bool,
    /// Of each block, the steps that use it, nearest last.
    uses: Vec<Vec<u32>>,
    /// Blocks with chunks on the device, by their next use.
    residents: BTreeSet<(usize, u32)>,
}

impl Belady {
    pub(super) fn new(story: &Story, discards: bool) -> Self {
        let mut uses = vec![Vec::new(); story.sizes.len()];
        for (now, step) in story.steps.iter().enumerate().rev() {
            if let StoryStep::Launch { set } = step {
                story.sets[*set as usize].iter().for_each(|block| uses[*block as usize].push(now as u32));
            }
        }
        Self { discards, uses, residents: BTreeSet::new() }
    }

    fn next_use(&self, block: u32) -> usize {
        self.uses[block as usize].last().map_or(NEVER, |next| *next as usize)
    }

    /// Room for so many bytes that are used next at `next`, as far as what is used later makes it.
    fn make_room(&mut self, board: &mut Board, bytes: u64, next: usize) {
        while board.room() < bytes {
            let Some(&(latest, block)) = self.residents.last().filter(|(latest, _)| *latest > next) else {
                return;
            };
            let missing = bytes - board.room();
            if latest == NEVER && self.discards {
                board.discard(block, missing);
            } else {
                board.leave(block, missing);
            }
            if board.on_device(block) == 0 {
                self.residents.remove(&(latest, block));
            }
        }
    }
}

impl Placement for Belady {
    fn allocate(&mut self, board: &mut Board, _now: usize, block: u32) {
        let (bytes, next) = (board.bytes(block), self.next_use(block));
        self.make_room(board, bytes, next);
        if board.place(block, bytes) > 0 {
            self.residents.insert((next, block));
        }
    }

    fn touch(&mut self, board: &mut Board, _now: usize, block: u32) {
        self.residents.remove(&(self.next_use(block), block));
        self.uses[block as usize].pop();
        let (missing, next) = (board.elsewhere(block), self.next_use(block));
        self.make_room(board, missing, next);
        if next != NEVER {
            board.come(block, missing);
        }
        if board.on_device(block) > 0 {
            self.residents.insert((next, block));
        }
    }

    fn free(&mut self, _board: &mut Board, block: u32) {
        self.residents.remove(&(self.next_use(block), block));
    }
}
