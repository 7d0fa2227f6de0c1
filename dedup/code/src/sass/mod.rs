//! Machine code of sm_80 to sm_120: instructions of 16 bytes, and of each the registers that it
//! reads and writes, its constants, its memory and its targets.
//!
//! An instruction that the table does not have is not decoded. A test compares each instruction of
//! real images with the text and the live registers that the vendor's disassembler prints.

mod branch;
mod fields;
mod layout;
mod predicates;
mod table;
mod vocabulary;

pub use branch::{Flow, flow};
pub use fields::{BYTES, Fields};
pub use predicates::predicates_written;
pub use vocabulary::{Action, File, MachineInstruction, Operand, Registers, Space, Unknown};

use layout::{OperandLayout, layout};
use table::OpcodeRow;

/// The instruction in these 16 bytes, for the architecture `sm`.
///
/// # Errors
/// The opcode or its form is not known.
pub fn decode(fields: Fields, sm: u32) -> Result<MachineInstruction, Unknown> {
    let row = table::row(fields.code(), sm).ok_or(Unknown::Opcode)?;
    let OperandLayout { destination, sources, address, others } = layout(row, fields, sm)?;
    let OpcodeRow { name, action, .. } = *row;
    Ok(MachineInstruction { fields, name, action, destination, sources, address, others })
}
