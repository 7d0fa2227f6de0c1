//! A trace as a list of steps on blocks that have one number each: a slot of the trace serves many
//! blocks.

use wmctl::trace::{Trace, TraceEvent};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoryStep {
    Allocate { block: u32 },
    Free { block: u32 },
    Launch { set: u32 },
    Wait,
}

/// The steps of a program that matter for placement.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) steps: Vec<StoryStep>,
    /// By block.
    pub(super) sizes: Vec<u64>,
    /// Blocks that launches use, in ascending order.
    pub(super) sets: Vec<Box<[u32]>>,
    /// Launches of which nothing is known.
    pub(super) unknown: u64,
    pub(super) launches: u64,
    pub(super) peak: u64,
}

impl Story {
    pub(super) fn of(trace: &Trace) -> Self {
        let mut story = Self { launches: trace.launches, peak: trace.peak_live, ..Self::default() };
        story.sets = vec![Box::default(); trace.sets.len()];
        // Of each slot, the block that it serves now.
        let mut serves = vec![0_u32; trace.slots];
        let mut piece_serves = vec![0_u32; trace.piece_slots];
        for event in &trace.events {
            match *event {
                TraceEvent::Allocate { slot, bytes, .. } => {
                    serves[slot as usize] = story.sizes.len() as u32;
                    story.sizes.push(bytes);
                    story.steps.push(StoryStep::Allocate { block: serves[slot as usize] });
                }
                TraceEvent::Free { slot, .. } => {
                    story.steps.push(StoryStep::Free { block: serves[slot as usize] });
                }
                // A block that no launch names: a recording has no pieces in its sets.
                TraceEvent::MakePiece { slot, bytes } => {
                    piece_serves[slot as usize] = story.sizes.len() as u32;
                    story.sizes.push(bytes);
                    story.steps.push(StoryStep::Allocate { block: piece_serves[slot as usize] });
                }
                TraceEvent::EndPiece { slot } => {
                    story.steps.push(StoryStep::Free { block: piece_serves[slot as usize] });
                }
                TraceEvent::KeepPiece => {}
                TraceEvent::Wait { .. } => story.steps.push(StoryStep::Wait),
                TraceEvent::Launch { set: None } => story.unknown += 1,
                TraceEvent::Launch { set: Some(set) } => {
                    // All of a set's blocks live as long as it is used, so it is of the same blocks
                    // each time.
                    let slots = &trace.sets[set as usize];
                    let mut blocks: Box<[_]> = slots.iter().map(|slot| serves[*slot as usize]).collect();
                    blocks.sort_unstable();
                    story.sets[set as usize] = blocks;
                    story.steps.push(StoryStep::Launch { set });
                }
            }
        }
        story
    }

    /// The blocks that a launch uses. One that has the blocks of the step before is a part of the
    /// same operation, which uses its largest block once.
    pub(super) fn used(&self, step: usize) -> impl Iterator<Item = u32> {
        let set_of = |step: &StoryStep| match step {
            StoryStep::Launch { set } => Some(*set),
            _ => None,
        };
        let set = self.steps.get(step).and_then(set_of);
        let goes_on =
            set.is_some() && step.checked_sub(1).and_then(|before| set_of(&self.steps[before])) == set;
        let blocks = set.map_or(&[][..], |set| &self.sets[set as usize]);
        let largest = blocks.iter().max_by_key(|block| self.sizes[**block as usize]).filter(|_| goes_on);
        blocks.iter().filter(move |block| Some(*block) != largest).copied()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): memory that the program made itself takes no room on the device that
    //! is simulated, or is taken for a block that lives in a slot of the same number.
    use super::*;

    #[test]
    fn a_piece_is_a_block_of_its_own() {
        let events = vec![
            TraceEvent::MakePiece { slot: 0, bytes: 100 },
            TraceEvent::Allocate { slot: 0, bytes: 50, stream: None },
            TraceEvent::KeepPiece,
            TraceEvent::Launch { set: Some(0) },
            TraceEvent::EndPiece { slot: 0 },
            TraceEvent::Free { slot: 0, stream: None },
        ];
        let sets = vec![[0].into()];
        let story = Story::of(&Trace { events, sets, slots: 1, piece_slots: 1, ..Trace::default() });
        assert_eq!((&story.sizes[..], &*story.sets[0]), (&[100, 50][..], &[1][..]));
        let steps = [
            StoryStep::Allocate { block: 0 },
            StoryStep::Allocate { block: 1 },
            StoryStep::Launch { set: 0 },
            StoryStep::Free { block: 0 },
            StoryStep::Free { block: 1 },
        ];
        assert_eq!(story.steps, steps);
    }
}
