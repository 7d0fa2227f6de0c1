//! The thread's own memory: slots at known distances from the stack pointer, and the rest as one.

use super::forms::is_zero;
use super::state::MachineState;
use super::step::World;
use super::value::{Id, NUMBER};
use crate::sass::{Action, File, MachineInstruction, Operand, Registers};

/// The stack pointer.
const STACK: u8 = 1;

impl World {
    /// The byte of the thread's memory that an instruction uses, if it is known.
    fn local_byte(&self, one: &MachineInstruction, state: &MachineState) -> Option<i32> {
        let [base, other] = one.address;
        let stack = base.count == 1 && base.first == STACK && other.count == 0;
        let offset = one.fields.signed(40, 64) as i32;
        state.frame.filter(|_| stack).and_then(|frame| frame.checked_add(offset))
    }

    pub(super) fn local_word(&mut self, one: &MachineInstruction, word: usize, state: &MachineState) -> Id {
        if word >= usize::from(one.destination.count) {
            return NUMBER;
        }
        let byte = self.local_byte(one, state).map(|byte| (byte & !3).wrapping_add(4 * word as i32));
        if let Some(slot) = byte.and_then(|byte| self.places.slot(byte)) {
            return self.values.join(state.values[slot], self.local);
        }
        self.places.slots().fold(self.local, |all, slot| self.values.join(all, state.values[slot]))
    }

    pub(super) fn store_local(&mut self, one: &MachineInstruction, state: &mut MachineState) {
        let Operand::Registers(registers, _) = one.sources[1] else { return };
        // Less than four bytes leave the rest of the word.
        let whole = one.fields.bits(73, 3) >= 4 && !one.fields.guarded();
        let count = 1usize << one.fields.bits(73, 3).saturating_sub(4);
        for word in 0..count {
            let value = self.register(registers, word, state);
            let byte = self.local_byte(one, state);
            let byte = byte.map(|byte| (byte & !3).wrapping_add(4 * word as i32));
            match byte.and_then(|byte| self.places.slot(byte)) {
                Some(slot) if whole => state.values[slot] = value,
                Some(slot) => state.values[slot] = self.values.join(state.values[slot], value),
                None => self.local = self.values.join(self.local, value),
            }
        }
    }

    /// Follows the stack pointer.
    pub(super) fn stack(&self, one: &MachineInstruction, state: &mut MachineState) {
        let Registers { file, .. } = one.destination;
        if file != File::General || !one.destination.iter().any(|number| number == usize::from(STACK)) {
            return;
        }
        let own = Operand::Registers(Registers { file, first: STACK, count: 1 }, false);
        let first = |source: &Operand| match source {
            Operand::Constant { bank: 0, offset, index, .. } => {
                index.count == 0 && *offset < self.parameters.begin
            }
            _ => false,
        };
        let none = |source: &Operand| match source {
            Operand::None => true,
            Operand::Registers(registers, _) => registers.count == 0,
            _ => false,
        };
        state.frame = match one.sources {
            _ if one.fields.guarded() || one.destination.count != 1 => None,
            [a, _, _] if one.action == Action::Constant && first(&a) => Some(0),
            [a, b, c] if one.action == Action::Choice && none(&a) && none(&c) && first(&b) => Some(0),
            [a, b, c] if is_zero(&a) && is_zero(&b) && one.action == Action::Product && first(&c) => Some(0),
            [a, Operand::Immediate(by), c] if one.action == Action::Sum && a == own && none(&c) => {
                state.frame.and_then(|frame| frame.checked_add(by as i32))
            }
            _ => None,
        };
    }
}
