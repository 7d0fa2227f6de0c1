//! Pieces of a recording: physical memory that the program made itself, with `cuMemCreate`.
//!
//! | line | meaning |
//! |---|---|
//! | `c ID BYTES` | the program made a piece, and holds it |
//! | `m ID` | there is one more mapping of it |
//! | `u ID` | there is one less |
//! | `r ID` | the program holds it no more |
//! | `h ID` | the program holds it again |
//!
//! A piece's memory is there until it is neither held nor mapped, as the driver has it. `u` and `r`
//! are written before the driver is called. If it refuses, `m` or `h` follows, and the memory is
//! there again.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};

/// What a line did to a piece's memory. Slots are the pieces' own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PieceMemory {
    Came { slot: u32, bytes: u64 },
    Went { slot: u32, bytes: u64 },
    Stayed,
}

/// A piece of the recording.
#[derive(Debug)]
struct RecordedPiece {
    /// `None`: its memory is gone.
    slot: Option<u32>,
    bytes: u64,
    is_held: bool,
    mappings: u64,
}

/// The pieces by name. Those that are gone may come back.
#[derive(Debug, Default)]
pub(super) struct RecordedPieces {
    all: HashMap<u64, RecordedPiece>,
    /// Slots of pieces that are gone.
    idle: Vec<u32>,
    live: usize,
    slots: usize,
}

impl RecordedPieces {
    /// The program made a piece.
    pub(super) fn make(&mut self, id: u64, bytes: u64) -> Result<PieceMemory> {
        let piece = RecordedPiece { slot: None, bytes, is_held: true, mappings: 0 };
        if self.all.insert(id, piece).is_some() {
            bail!("piece {id} is made twice: the trace is damaged, record it again");
        }
        Ok(self.settle(id))
    }

    /// Something became of a piece.
    pub(super) fn change(&mut self, step: &str, id: u64) -> Result<PieceMemory> {
        let damaged = || format!("no piece {id} that this could be: the trace is damaged, record it again");
        let piece = self.all.get_mut(&id).with_context(damaged)?;
        let follows = match step {
            "m" => true,
            "u" => piece.mappings > 0,
            "r" => piece.is_held,
            _ => !piece.is_held,
        };
        if !follows {
            bail!(damaged());
        }
        match step {
            "m" => piece.mappings += 1,
            "u" => piece.mappings -= 1,
            step => piece.is_held = step == "h",
        }
        Ok(self.settle(id))
    }

    /// Whether a piece's memory came or went with its last change.
    fn settle(&mut self, id: u64) -> PieceMemory {
        let Some(piece) = self.all.get_mut(&id) else { return PieceMemory::Stayed };
        let (is_there, bytes) = (piece.is_held || piece.mappings > 0, piece.bytes);
        match piece.slot {
            None if is_there => {
                let slot = self.idle.pop().unwrap_or(self.live as u32);
                piece.slot = Some(slot);
                self.live += 1;
                self.slots = self.slots.max(self.live);
                PieceMemory::Came { slot, bytes }
            }
            Some(slot) if !is_there => {
                piece.slot = None;
                self.live -= 1;
                self.idle.push(slot);
                PieceMemory::Went { slot, bytes }
            }
            _ => PieceMemory::Stayed,
        }
    }

    /// Most pieces that were there at once.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): memory that the program had still is taken for gone, or the other way
    //! round.
    use super::*;

    const MADE: PieceMemory = PieceMemory::Came { slot: 0, bytes: 100 };
    const GONE: PieceMemory = PieceMemory::Went { slot: 0, bytes: 100 };
    const KEPT: PieceMemory = PieceMemory::Stayed;

    fn one() -> RecordedPieces {
        let mut pieces = RecordedPieces::default();
        assert_eq!(pieces.make(7, 100).expect("a new name"), MADE);
        pieces
    }

    fn events(steps: &[&str]) -> Vec<PieceMemory> {
        let mut pieces = one();
        steps.iter().map(|step| pieces.change(step, 7).expect("a step that follows")).collect()
    }

    #[test]
    fn a_piece_is_there_until_it_is_neither_held_nor_mapped() {
        assert_eq!(events(&["m", "u", "r"]), [KEPT, KEPT, GONE]);
        assert_eq!(events(&["m", "m", "r", "u", "u"]), [KEPT, KEPT, KEPT, KEPT, GONE]);
        assert_eq!(events(&["m", "r", "h", "u", "r"]), [KEPT, KEPT, KEPT, KEPT, GONE]);
        assert_eq!(events(&["r"]), [GONE]);
    }

    #[test]
    fn what_the_driver_refused_to_take_is_there_again() {
        assert_eq!(events(&["r", "h", "r"]), [GONE, MADE, GONE]);
        assert_eq!(events(&["m", "r", "u", "m", "u"]), [KEPT, KEPT, GONE, MADE, GONE]);
    }

    #[test]
    fn what_does_not_follow_is_an_error() {
        for (before, step) in [(&[][..], "u"), (&[], "h"), (&["m", "r"], "r"), (&["r"], "u")] {
            let mut pieces = one();
            for step in before {
                pieces.change(step, 7).expect("a step that follows");
            }
            assert!(pieces.change(step, 7).is_err(), "{step} after {before:?}");
            assert!(pieces.change("m", 8).is_err() && pieces.make(7, 100).is_err());
        }
    }

    #[test]
    fn slots_are_used_again() {
        let mut pieces = one();
        assert_eq!(pieces.make(2, 5).expect("new"), PieceMemory::Came { slot: 1, bytes: 5 });
        assert_eq!(pieces.change("r", 7).expect("it is held"), GONE);
        assert_eq!(pieces.make(3, 9).expect("new"), PieceMemory::Came { slot: 0, bytes: 9 });
        assert_eq!(pieces.slots(), 2);
    }
}
