//! The words of machine code: registers, operands, actions, and the places of operands.

use super::fields::Fields;

/// One decoded instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineInstruction {
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

#[cfg(test)]
impl MachineInstruction {
    /// One without operands, with these bits.
    pub(crate) fn without_operands(name: &'static str, bits: u128) -> Self {
        MachineInstruction {
            fields: Fields::at(&bits.to_le_bytes(), 0).expect("16 bytes"),
            name,
            action: Action::Number,
            destination: Registers::NONE,
            sources: [Operand::None; 3],
            address: [Registers::NONE; 2],
            others: [Registers::NONE; 2],
        }
    }
}

/// The reason that an instruction is not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// The table has no such opcode.
    Opcode,
    /// The opcode is known, but not in this form.
    Form,
}

/// What an instruction does with the values of its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The result is the sum of A, B and C.
    Sum,
    /// The result is A times B, plus C.
    Product,
    /// The result is the upper half of A times B, plus C.
    UpperProduct,
    /// The result is A (with C above it) shifted by B.
    Shift,
    /// The result is A (with C above it) shifted, plus B.
    ShiftedSum,
    /// The result is A and B and C by a table of bits.
    Bits,
    /// The result is one of the sources.
    Choice,
    /// The result is a function of the sources.
    Mix,
    /// The result is a function of the sources in floating point, or made from such a number. No
    /// compiler carries an address through one, so it is none, and no part of one.
    Float,
    /// The result is no address, and no part of one.
    Number,
    /// No register is written but predicates.
    Nothing,
    /// A value is loaded from a bank of constants.
    Constant,
    /// A value is loaded.
    Load(Space),
    /// A value is stored.
    Store(Space),
    /// A value in memory is changed; the result is the old one.
    Atomic(Space),
    /// Bytes go from global memory to the block's.
    ToShared,
    /// Bytes go from the block's memory to global memory, by a descriptor of a tensor.
    TensorStore,
    /// Bytes come from global memory, by a descriptor of a tensor.
    TensorLoad,
    /// Control goes elsewhere: see [`super::flow`].
    Jump,
}

/// A kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// What all kernels see.
    Global,
    /// Any, told by the address.
    Generic,
    /// The block's, or the cluster's.
    Shared,
    /// The thread's.
    Local,
}

/// A file of registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum File {
    /// The registers of each thread.
    General,
    /// The registers of a warp.
    Uniform,
}

/// Registers in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    /// Their file.
    pub file: File,
    /// The number of the first one.
    pub first: u8,
    /// None: the instruction names no register, or the one that is always zero.
    pub count: u8,
}

impl Registers {
    /// No register.
    pub const NONE: Registers = Registers { file: File::General, first: 0, count: 0 };

    /// The number of each register in its file.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..usize::from(self.count)).map(move |at| usize::from(self.first) + at)
    }
}

/// A source of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// The opcode has no such operand.
    None,
    /// Registers, and whether the value is negated or inverted.
    Registers(Registers, bool),
    /// Words of a bank of constants.
    Constant {
        /// The bank's number.
        bank: u8,
        /// The first byte.
        offset: u32,
        /// The number of words of four bytes, or 1 for less than four bytes.
        words: u8,
        /// The place is the sum of `offset` and of these registers.
        index: Registers,
        /// The value is negated or inverted.
        negated: bool,
    },
    /// A number of 32 bits that stands in the code.
    Immediate(u32),
    /// A number of 64 bits that stands in the code.
    Wide,
}

/// Where the operands of an opcode lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Arithmetic over the registers of a thread. `d`, `A`, `B`, `C`: the destination and the
    /// sources, one register each. `D`, `a`, `b`, `c`: two registers.
    General(&'static str),
    /// The same over uniform registers.
    Uniform(&'static str),
    /// A shifted sum; true: over uniform registers.
    Lea(bool),
    /// Arithmetic with a form for 64 bits, which this bit states; `true`: there is no other.
    Wider(&'static str, u32, bool),
    /// Moves, which have a form for 64 bits.
    Move(File),
    /// Pairs of numbers, or the lesser or greater of two uniform numbers.
    Packed,
    /// A sum of A and a second source that lies at B as a register and at C else.
    Second,
    /// Two registers that get a number in the code, and one of two pairs of registers.
    WideNumber(File),
    WidePair(File),
    /// The same as `Second` without a destination.
    SecondOnly,
    /// A store to the memory of another block of the cluster.
    Remote,
    /// Conversions from or to 64 bits.
    Convert,
    /// Products of matrices.
    Matrix,
    /// The same by four warps together.
    Warpgroup,
    /// A register of a thread as a uniform one.
    ToUniform,
    /// The same, in the form of sm_80.
    ToUniformOld,
    /// A special register, or a flag.
    Flag,
    UniformFlag,
    /// A special register of two words.
    Special,
    /// Two registers that hold an address of code.
    Wide,
    Predicates,
    FromPredicates,
    UniformPredicates,
    Vote,
    UniformVote,
    Elect,
    /// A load or a store.
    Memory(Space),
    /// An atomic operation; true: it compares first.
    Atomic(Space, bool),
    /// An atomic operation without a result.
    Reduction,
    /// A barrier in the block's memory.
    Barrier,
    UniformBarrier,
    Arrive,
    BlockBarrier,
    /// A copy from global to the block's memory.
    Copy,
    /// Rows of matrices from the block's memory, and to it.
    Rows,
    RowsStore,
    Shuffle,
    /// A load from a bank of constants; true: into uniform registers.
    Constant(bool),
    /// A transfer that a descriptor in memory describes.
    Tensor,
    /// A jump; the register of an indirect one is A.
    Target,
    /// An operation on caches.
    Cache,
    /// No registers.
    Bare,
    /// A known opcode that is not followed.
    Refused,
}
