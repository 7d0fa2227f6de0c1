//! Where control goes after an instruction.

use super::fields::BYTES;
use super::vocabulary::MachineInstruction;

/// What follows an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The next one.
    Next,
    /// Another place.
    To {
        /// A byte of the section; it may lie outside.
        target: i64,
        /// Also to the next instruction.
        next: bool,
    },
    /// The end of the thread.
    End {
        /// Also to the next instruction.
        next: bool,
    },
    /// A function at this byte, then the next instruction.
    Call {
        /// A byte of the section; it may lie outside.
        target: i64,
    },
    /// A function at the address in a register, then the next instruction.
    CallRegister,
    /// The caller.
    Return {
        /// Also to the next instruction.
        next: bool,
    },
    /// A place that a register names.
    Register {
        /// Also to the next instruction.
        next: bool,
    },
    /// The threads wait for each other, then go where the barrier's start says, or on.
    Join {
        /// The barrier's number.
        barrier: u8,
    },
    /// The place where the threads of a barrier join.
    Fork {
        /// The barrier's number.
        barrier: u8,
        /// A byte of the section; it may lie outside.
        target: i64,
    },
}

/// What follows the instruction at this byte of its section.
pub fn flow(instruction: &MachineInstruction, at: usize, sm: u32) -> Flow {
    let fields = instruction.fields;
    let guarded = fields.guarded();
    match fields.code() {
        // Whatever the other operands of a jump say: where it is not certain that control goes
        // there, it may also go on.
        0x547 | 0x947 => Flow::To { target: target(instruction, at, sm), next: !certain(instruction) },
        0x348 => Flow::To { target: target(instruction, at, sm), next: true },
        0x343 => Flow::CallRegister,
        0x944 => Flow::Call { target: target(instruction, at, sm) },
        0x950 => Flow::Return { next: guarded },
        0x949 => Flow::Register { next: guarded },
        0x94d | 0x95b => Flow::End { next: !certain(instruction) },
        0x95c => Flow::End { next: true },
        0x941 => Flow::Join { barrier: fields.bits(16, 4) as u8 },
        0x945 => Flow::Fork { barrier: fields.bits(16, 4) as u8, target: near(instruction, at) },
        _ => Flow::Next,
    }
}

/// A jump without a condition: neither its guard nor its second predicate is one.
fn certain(instruction: &MachineInstruction) -> bool {
    let fields = instruction.fields;
    !fields.guarded() && fields.bits(87, 4) == 7 && fields.code() != 0x547 && !fields.bit(91)
}

fn target(instruction: &MachineInstruction, at: usize, sm: u32) -> i64 {
    let fields = instruction.fields;
    let high = fields.signed(34, 82);
    let words = if sm >= 90 { high << 8 | i64::from(fields.byte(16)) } else { high };
    at as i64 + BYTES as i64 + words * 4
}

/// The target of a form with a shorter field.
fn near(instruction: &MachineInstruction, at: usize) -> i64 {
    at as i64 + BYTES as i64 + instruction.fields.signed(34, 64) * 4
}
