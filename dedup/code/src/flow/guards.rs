//! What registers hold where a guard is true.
//!
//! A compiler often loads an address under a predicate, and stores through it under the same one.
//! The register may hold something else if the predicate is false, but then there is no store. So a
//! value that is written under a guard is kept beside the one that joins it with the old value, and
//! an instruction with the same guard reads it.
//!
//! It is kept until the register is written in another way, until an instruction may write the
//! predicate, and where two ways meet, if both have kept one.

use crate::sass::{File, MachineInstruction, predicates_written};

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

    /// The instruction has ended, and may have written predicates.
    pub(super) fn end(&mut self, one: &MachineInstruction) {
        let written = predicates_written(one);
        self.0.retain(|(_, guard, _)| written >> guard.predicate() & 1 == 0);
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a register is taken for what it holds under another predicate, or
    //! under one that has changed since.
    use super::super::value::{MEMORY, NUMBER, VARIABLE};
    use super::*;

    /// An instruction with this guard that may write these predicates; 7 is none.
    fn instruction(name: &'static str, guard: u32, written: [u32; 2]) -> MachineInstruction {
        let bits = u128::from(guard) << 12 | u128::from(written[0]) << 81 | u128::from(written[1]) << 84;
        MachineInstruction::without_operands(name, bits)
    }

    fn guard(bits: u32) -> PredicateGuard {
        PredicateGuard::of(&instruction("MOV", bits, [7; 2])).expect("a guard")
    }

    #[test]
    fn a_value_is_read_under_its_own_guard_only() {
        let mut guards = GuardedValues::default();
        guards.write(4, Some(guard(0)), MEMORY);
        let read =
            |guards: &GuardedValues| [guard(0), guard(8), guard(1)].map(|guard| guards.value(4, guard));
        assert_eq!(read(&guards), [Some(MEMORY), None, None]);
        assert_eq!(guards.value(5, guard(0)), None);
        guards.write(4, Some(guard(8)), VARIABLE);
        assert_eq!(read(&guards), [None, Some(VARIABLE), None], "the register has one");
        guards.write(4, None, NUMBER);
        assert_eq!(read(&guards), [None; 3]);
    }

    #[test]
    fn a_predicate_that_is_written_guards_nothing_of_before() {
        for (name, written, kept) in [
            ("ISETP", [0, 7], [false, true]),
            ("IADD3", [7, 1], [true, false]),
            ("ISETP", [2, 7], [true, true]),
            ("R2P", [7, 7], [false, false]),
        ] {
            let mut guards = GuardedValues::default();
            guards.write(4, Some(guard(8)), MEMORY);
            guards.write(5, Some(guard(1)), MEMORY);
            guards.end(&instruction(name, 7, written));
            let found =
                [(4, guard(8)), (5, guard(1))].map(|(place, guard)| guards.value(place, guard).is_some());
            assert_eq!(found, kept, "{name} {written:?}");
        }
    }

    #[test]
    fn no_guard_is_one_of_another_file() {
        assert_eq!(PredicateGuard::of(&instruction("MOV", 7, [7; 2])), None);
        assert_eq!(PredicateGuard::of(&instruction("MOV", 15, [7; 2])), None);
        assert_eq!(PredicateGuard::of(&instruction("UMOV", 0, [7; 2])), None);
        assert_eq!(PredicateGuard::of(&instruction("SYNCS", 0, [7; 2])), None);
    }

    #[test]
    fn where_ways_meet_both_must_know_it() {
        let mut values = Values::new();
        let (mut one, mut other) = (GuardedValues::default(), GuardedValues::default());
        one.write(4, Some(guard(0)), MEMORY);
        one.write(5, Some(guard(0)), MEMORY);
        other.write(4, Some(guard(0)), VARIABLE);
        other.write(5, Some(guard(8)), MEMORY);
        assert!(one.join(&other, &mut values));
        let both = values.join(MEMORY, VARIABLE);
        assert_eq!((one.value(4, guard(0)), one.value(5, guard(0))), (Some(both), None));
        assert!(!one.join(&other, &mut values), "nothing changes any more");
    }
}
