//! What registers hold where a guard is true.
//!
//! A compiler often loads an address under a predicate, and stores through it under the same one.
//! The register may hold something else if the predicate is false, but then there is no store. So a
//! value that is written under a guard is kept beside the one that joins it with the old value, and
//! an instruction with the same guard reads it.
//!
//! It is kept until the register is written in another way, until an instruction may write the
//! predicate, and where two ways meet, if both have kept one.

use crate::sass::{File, MachineInstruction};

use super::value::{Id, Values};

/// A predicate of the thread, 0 to 6, and whether it is negated: four bits of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PredicateGuard(u32);

/// The predicate that is always true.
const ALWAYS: u32 = 7;

impl PredicateGuard {
    /// The guard of an instruction. `None`: there is none, or it is a uniform one.
    pub(super) fn of(one: &MachineInstruction) -> Option<PredicateGuard> {
        let is_uniform = one.name.starts_with('U')
            || one.name == "SYNCS"
            || one.destination.file == File::Uniform && one.destination.count > 0;
        let guard = PredicateGuard(one.fields.bits(12, 4));
        (guard.predicate() != ALWAYS && !is_uniform).then_some(guard)
    }

    fn predicate(self) -> u32 {
        self.0 & 7
    }
}

/// The values of registers where a guard is true; those that were written last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GuardedValues(Vec<(usize, PredicateGuard, Id)>);

/// How many are kept.
const MOST: usize = 64;

impl GuardedValues {
    /// Predicates may have been written that are not known.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What the place holds if the guard is true, if that is known.
    pub(super) fn value(&self, place: usize, guard: PredicateGuard) -> Option<Id> {
        self.0.iter().find(|(of, under, _)| *of == place && *under == guard).map(|(_, _, value)| *value)
    }

    /// The place is written, under a guard or in any case.
    pub(super) fn write(&mut self, place: usize, guard: Option<PredicateGuard>, value: Id) {
        self.0.retain(|(of, _, _)| *of != place);
        self.0.extend(guard.map(|guard| (place, guard, value)));
        if self.0.len() > MOST {
            self.0.remove(0);
        }
    }

    /// Adds what may come from another place, and keeps what both know; true if that changes
    /// something.
    pub(super) fn join(&mut self, other: &Self, values: &mut Values) -> bool {
        let before = self.0.clone();
        self.0.retain_mut(|(place, guard, value)| match other.value(*place, *guard) {
            Some(theirs) => {
                *value = values.join(*value, theirs);
                true
            }
            None => false,
        });
        self.0 != before
    }

    /// The instruction has ended, and may have written predicates. Those that it writes are
    /// named at two places; at them other instructions have something else, which drops a few
    /// more values.
    pub(super) fn end(&mut self, one: &MachineInstruction) {
        if one.name == "R2P" {
            return self.clear();
        }
        let written = [81, 84].map(|bit| one.fields.bits(bit, 3));
        self.0.retain(|(_, guard, _)| !written.contains(&guard.predicate()));
    }
}
