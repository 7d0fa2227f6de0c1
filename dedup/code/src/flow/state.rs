//! What is known at one place of the code: a value for each register and each slot of the thread's
//! own memory.

use std::collections::HashMap;

use super::guards::GuardedValues;
use super::value::{Id, NUMBER, Values};
use crate::sass::{File, MachineInstruction, Operand, Registers};

/// Words of the thread's memory that are told apart.
const SLOTS: usize = 256;

/// The barriers at which threads join.
pub(super) const BARRIERS: usize = 16;

/// Where each register and slot lies in a [`MachineState`].
#[derive(Debug)]
pub(super) struct StatePlaces {
    general: usize,
    uniform: usize,
    slots: HashMap<i32, usize>,
    room: usize,
}

impl StatePlaces {
    /// Room for the registers that these instructions name.
    pub(super) fn of<'a>(instructions: impl Iterator<Item = &'a MachineInstruction>) -> StatePlaces {
        let (mut general, mut uniform, mut locals) = (16, 0, 0);
        for instruction in instructions {
            locals += usize::from(matches!(instruction.name, "STL" | "LDL"));
            for registers in named(instruction) {
                let end = usize::from(registers.first) + usize::from(registers.count);
                match registers.file {
                    File::General => general = general.max(end),
                    File::Uniform => uniform = uniform.max(end),
                }
            }
        }
        StatePlaces { general, uniform, slots: HashMap::new(), room: SLOTS.min(locals * 4) }
    }

    /// The number of places.
    pub(super) fn len(&self) -> usize {
        self.general + self.uniform + BARRIERS + self.room
    }

    pub(super) fn register(&self, file: File, number: usize) -> usize {
        match file {
            File::General => number,
            File::Uniform => self.general + number,
        }
    }

    pub(super) fn barrier(&self, number: u8) -> usize {
        self.general + self.uniform + usize::from(number)
    }

    /// The places of all slots.
    pub(super) fn slots(&self) -> std::ops::Range<usize> {
        let first = self.general + self.uniform + BARRIERS;
        first..first + self.slots.len()
    }

    /// The place of the word at this byte of the thread's memory, counted from where the kernel's
    /// own part ends. `None`: there are too many.
    pub(super) fn slot(&mut self, byte: i32) -> Option<usize> {
        let first = self.general + self.uniform + BARRIERS;
        let used = self.slots.len();
        if let Some(&slot) = self.slots.get(&byte) {
            return Some(first + slot);
        }
        if used == self.room {
            return None;
        }
        self.slots.insert(byte, used);
        Some(first + used)
    }
}

fn named(instruction: &MachineInstruction) -> impl Iterator<Item = Registers> {
    let sources = instruction.sources.iter().map(|source| match source {
        Operand::Registers(registers, _) => *registers,
        Operand::Constant { index, .. } => *index,
        _ => Registers::NONE,
    });
    sources.chain(instruction.address).chain(instruction.others).chain([instruction.destination])
}

/// The values at one place of the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MachineState {
    pub(super) values: Vec<Id>,
    /// How far the stack pointer is from its first value, in bytes. `None`: not known.
    pub(super) frame: Option<i32>,
    pub(super) guards: GuardedValues,
}

impl MachineState {
    /// No register has been written.
    pub(super) fn new(places: &StatePlaces) -> MachineState {
        MachineState { values: vec![NUMBER; places.len()], frame: None, guards: GuardedValues::default() }
    }

    /// Adds what may come from another place; true if that changes something.
    pub(super) fn join(&mut self, other: &MachineState, values: &mut Values) -> bool {
        let mut changed = false;
        for (mine, &theirs) in self.values.iter_mut().zip(&other.values) {
            if *mine != theirs {
                let both = values.join(*mine, theirs);
                changed |= both != *mine;
                *mine = both;
            }
        }
        if self.frame.is_some() && self.frame != other.frame {
            self.frame = None;
            changed = true;
        }
        changed | self.guards.join(&other.guards, values)
    }
}
