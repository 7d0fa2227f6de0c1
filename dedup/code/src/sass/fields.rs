//! The fields of an instruction that all forms have in common.

/// The bytes of one instruction.
pub const BYTES: usize = 16;

/// The 128 bits of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields(u128);

impl Fields {
    /// The instruction at this byte of the text, if all of it is there.
    pub fn at(text: &[u8], offset: usize) -> Option<Fields> {
        let bytes = text.get(offset..offset.checked_add(16)?)?;
        Some(Fields(u128::from_le_bytes(bytes.try_into().ok()?)))
    }

    /// The bits from `first` on, `count` of them; at most 32.
    pub fn bits(self, first: u32, count: u32) -> u32 {
        ((self.0 >> first) & ((1u128 << count) - 1)) as u32
    }

    /// Whether the bit is set.
    pub fn bit(self, at: u32) -> bool {
        self.bits(at, 1) == 1
    }

    /// The eight bits from `first` on.
    pub fn byte(self, first: u32) -> u8 {
        self.bits(first, 8) as u8
    }

    /// The signed number in the bits from `first` up to `end`, which is excluded.
    pub fn signed(self, first: u32, end: u32) -> i64 {
        ((self.0 << (128 - end)) as i128 >> (128 - end + first)) as i64
    }

    /// The opcode with the form of its operands.
    pub fn code(self) -> u16 {
        self.bits(0, 12) as u16
    }

    /// Which operands are registers, constants and numbers, for arithmetic.
    pub fn form(self) -> u32 {
        self.bits(9, 3)
    }

    /// The 32 bits of a number.
    pub fn immediate(self) -> u32 {
        self.bits(32, 32)
    }

    /// The instruction has a predicate other than *true*, so that it may have no effect.
    pub fn guarded(self) -> bool {
        self.bits(12, 4) != 7
    }
}
