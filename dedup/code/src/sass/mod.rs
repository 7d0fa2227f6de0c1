//! Machine code of sm_80 to sm_120: instructions of 16 bytes, and of each the registers that it
//! reads and writes, its constants, its memory and its targets.
//!
//! An instruction that the table does not have is not decoded. A test compares each instruction of
//! real images with the text and the live registers that the vendor's disassembler prints.

mod branch;
mod fields;
mod operand;
mod table;

pub use branch::{Flow, flow};
pub use fields::Fields;
pub use operand::{File, Operand, Registers};
pub use table::{Action, Space};

use operand::{Layout, layout};
use table::Row;

/// The bytes of one instruction.
pub const BYTES: usize = 16;

/// One decoded instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Its fields as the text has them.
    pub fields: Fields,
    /// The name of its opcode, without modifiers.
    pub name: &'static str,
    /// What it does with values.
    pub action: Action,
    /// The registers that it writes.
    pub destination: Registers,
    /// Its operands A, B and C; of a store, B is the data.
    pub sources: [Operand; 3],
    /// The registers that an address in memory is computed from.
    pub address: [Registers; 2],
    /// Further registers that it reads, which never carry an address into its result.
    pub others: [Registers; 2],
}

/// The reason that an instruction is not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// The table has no such opcode.
    Opcode,
    /// The opcode is known, but not in this form.
    Form,
}

/// The instruction in these 16 bytes, for the architecture `sm`.
///
/// # Errors
/// The opcode or its form is not known.
pub fn decode(fields: Fields, sm: u32) -> Result<Instruction, Unknown> {
    let row = table::row(fields.code(), sm).ok_or(Unknown::Opcode)?;
    let Layout { destination, sources, address, others } = layout(row, fields, sm)?;
    let Row { name, action, .. } = *row;
    Ok(Instruction { fields, name, action, destination, sources, address, others })
}
