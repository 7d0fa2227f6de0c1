//! Forms of instructions and operands that mean more than their opcode says.

use crate::sass::{MachineInstruction, Operand};

pub(super) fn is_one(source: &Operand) -> bool {
    *source == Operand::Immediate(1)
}

pub(super) fn is_zero(source: &Operand) -> bool {
    match source {
        Operand::Registers(registers, _) => registers.count == 0,
        Operand::Immediate(number) => *number == 0,
        _ => false,
    }
}

/// A mask of few low bits: what remains is less than the distance between two allocations, so that
/// it is no base, nor does the base depend on it.
pub(super) fn is_small(one: &MachineInstruction) -> bool {
    let and = one.fields.bits(72, 8) == 0xc0;
    and && matches!(one.sources[1], Operand::Immediate(mask) if mask < 512)
}

/// One byte at a computed place among the constants. As with a small mask, it is no base.
pub(super) fn is_byte_of_table(one: &MachineInstruction) -> bool {
    let is_indexed = matches!(one.sources[0], Operand::Constant { index, .. } if index.count > 0);
    is_indexed && one.fields.bits(73, 3) == 0
}

/// A special register with the place of the block's or the thread's memory.
pub(super) fn is_window(one: &MachineInstruction) -> bool {
    let register = one.fields.bits(72, 8);
    matches!(one.name, "S2R" | "S2UR" | "CS2R") && matches!(register, 0x2e..=0x30 | 0x34)
}

/// Of the driver's constants before the parameters: the sizes of block and grid, the first stack
/// pointer, and the descriptor of global memory. Others may be places of memory.
pub(super) fn is_size(begin: u32, offset: u32) -> bool {
    match begin {
        0x380.. => (0x358..0x380).contains(&offset),
        0x210.. => offset < 0x18 || matches!(offset, 0x28 | 0x208 | 0x20c),
        _ => offset < 0x18 || matches!(offset, 0x28 | 0x118 | 0x11c),
    }
}
