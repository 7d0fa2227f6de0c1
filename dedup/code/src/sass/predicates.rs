//! The predicates of a thread that an instruction may write.
//!
//! An opcode names those that it writes at two places. Opcodes that write fewer have other things
//! at these places.

use super::MachineInstruction;

/// The places of the numbers of predicates that are written; 7 is none.
const FIRST: u32 = 81;
const SECOND: u32 = 84;

/// All predicates.
const ALL: u8 = 0x7f;

/// Opcodes that write no predicate.
const NONE: &[&str] = &[
    "BAR",
    "BRA",
    "BSSY",
    "BSYNC",
    "CCTL",
    "CS2R",
    "DADD",
    "DEPBAR",
    "DFMA",
    "DMUL",
    "ERRBAR",
    "EXIT",
    "F2F",
    "F2FP",
    "F2I",
    "FADD",
    "FFMA",
    "FMUL",
    "FRND",
    "FSEL",
    "HADD2",
    "HFMA2",
    "HMMA",
    "HMUL2",
    "I2F",
    "I2FP",
    "IABS",
    "LDC",
    "LDGDEPBAR",
    "LDL",
    "LDS",
    "LDSM",
    "MEMBAR",
    "MOV",
    "MUFU",
    "NOP",
    "POPC",
    "PRMT",
    "RED",
    "S2R",
    "SEL",
    "SHF",
    "STG",
    "STL",
    "STS",
    "STSM",
    "WARPSYNC",
    "YIELD",
];

/// Opcodes that write one predicate at most, at the first place.
const ONE: &[&str] = &["IMAD", "LD", "LDG", "LEA", "LOP3", "SHFL", "VIADD", "ATOMS"];

/// Bit `n`: the instruction may write predicate `n`.
pub fn predicates_written(one: &MachineInstruction) -> u8 {
    let at = |bit: u32| (1_u8 << one.fields.bits(bit, 3)) & ALL;
    match one.name {
        "R2P" | "CALL" | "LDGSTS" => ALL,
        name if NONE.contains(&name) => 0,
        name if ONE.contains(&name) => at(FIRST),
        _ => at(FIRST) | at(SECOND),
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a predicate is written, and what a register holds under its old value
    //! passes for what it holds now.
    use super::*;

    fn written(name: &'static str, first: u32, second: u32) -> u8 {
        let bits = u128::from(first) << FIRST | u128::from(second) << SECOND;
        predicates_written(&MachineInstruction::without_operands(name, bits))
    }

    #[test]
    fn opcodes_write_predicates_at_two_places_one_or_none() {
        assert_eq!((written("ISETP", 0, 3), written("ISETP", 7, 7)), (0b1001, 0));
        assert_eq!((written("IMAD", 2, 0), written("IMAD", 7, 0)), (0b100, 0));
        assert_eq!((written("CS2R", 0, 0), written("R2P", 7, 7)), (0, ALL));
        assert_eq!(written("UNKNOWN", 1, 2), 0b110);
    }
}
