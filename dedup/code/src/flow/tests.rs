//! Hazard (wrong result): a store that the code makes by a descriptor, or a parameter that it
//! stores, is in no verdict. Hazard (silent degradation): a matrix product counts as a kernel that
//! writes all that it reads, and no memory is shared.
//!
//! Instructions of sm_90 as the assembler has them, two words each.

use super::*;
use crate::kernel::{ParameterBank, Relocation, Target};
use crate::verdict::Effects;

/// Bytes of the parameters.
const PARAMETERS: u32 = 1024;

const EXIT: [u64; 2] = [0x0000_0000_0000_794d, 0x000f_ea00_0380_0000];
/// `ULDC.64 UR22, c[0x0][0xc0]`.
const FIRST_CONSTANT: [u64; 2] = [0x0000_3000_0016_7ab9, 0x000f_e400_0000_0a00];
/// `UIADD3.64 UR22, UR22, 0x440, URZ`.
const PLUS_440: [u64; 2] = [0x0000_0440_1616_7897, 0x000f_e200_0fff_e03f];
/// `UIADD3 UR22, UR22, 0x40, URZ`.
const PLUS_40: [u64; 2] = [0x0000_0040_1616_7890, 0x000f_ea00_0fff_e03f];
/// `UTMASTG.3D [UR32], [UR22]`.
const STORE_TENSOR: [u64; 2] = [0x0000_0020_1600_73b5, 0x0001_e200_0801_0000];
/// `LDC.64 R2, c[0x0][0x210]` and `LDC.64 R4, c[0x0][0x218]`.
const POINTER: [u64; 2] = [0x0000_8400_ff02_7b82, 0x000e_6200_0000_0a00];
const TWO_NUMBERS: [u64; 2] = [0x0000_8600_ff04_7b82, 0x000e_2200_0000_0a00];
/// `FADD R5, R4, R5`.
const SUM: [u64; 2] = [0x0000_0005_0405_7221, 0x001f_ca00_0000_0000];
/// `STG.E desc[UR4][R2.64], R5`.
const STORE: [u64; 2] = [0x0000_0005_0200_7986, 0x002f_e200_0c10_1904];
/// `ULDC.U8 UR5, c[0x0][UR5+0x240]`, with 4 in place of 0 as its size a word.
const BYTE_OF_TABLE: [u64; 2] = [0x0000_9000_0505_7abb, 0x004f_e200_0800_0000];
const WORD_OF_TABLE: [u64; 2] = [0x0000_9000_0505_7abb, 0x004f_e200_0800_0800];
/// `S2R R5, SR_TID.X` and `LDC R5, c[0x0][0x218]`.
const THREAD: [u64; 2] = [0x0000_0000_0005_7919, 0x000e_2200_0000_2100];
const NUMBER_IN_5: [u64; 2] = [0x0000_8600_ff05_7b82, 0x000e_2200_0000_0800];
/// `ULDC UR4, c[0x0][0x218]`, `IMAD R7, R5, UR4, RZ` and `SHF.R.U32.HI R7, RZ, UR4, R5`.
const UNIFORM_NUMBER: [u64; 2] = [0x0000_8600_0004_7ab9, 0x000f_e400_0000_0800];
const TIMES_NUMBER: [u64; 2] = [0x0000_0004_0507_7c24, 0x001f_e200_0f8e_02ff];
const SHIFTED_BY_NUMBER: [u64; 2] = [0x0000_0004_ff07_7c19, 0x001f_e200_0801_1605];
/// `IADD3 R2, P0, R7, R2, RZ` and `IADD3.X R3, RZ, R3, RZ, P0, !PT`.
const ADD_TO_POINTER: [[u64; 2]; 2] =
    [[0x0000_0002_0702_7210, 0x002f_c800_07f1_e0ff], [0x0000_0003_ff03_7210, 0x000f_ca00_007f_e4ff]];
/// `ULDC.64 UR4, c[0x0][0x208]`.
const DESCRIPTOR: [u64; 2] = [0x0000_8200_0004_7ab9, 0x000f_c800_0000_0a00];
/// `IMAD.WIDE.U32 R2, R5, 0x4, R2`.
const TIMES_4: [u64; 2] = [0x0000_0004_0502_7825, 0x001f_ca00_078e_0002];
/// `MOV R5, UR5`.
const FROM_UNIFORM: [u64; 2] = [0x0000_0005_0005_7c02, 0x000f_ca00_0800_0f00];

fn effects_of(instructions: &[[u64; 2]]) -> Result<Effects, Why> {
    effects_with(instructions, Vec::new())
}

fn effects_with(instructions: &[[u64; 2]], relocations: Vec<Relocation<'_>>) -> Result<Effects, Why> {
    let words = instructions.iter().chain([&EXIT]).flatten();
    let text: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
    super::effects(&KernelCode {
        name: "kernel",
        sm: 90,
        text: &text,
        entry: 0..text.len(),
        functions: Vec::new(),
        parameters: Some(ParameterBank { begin: 0x210, bytes: PARAMETERS, parameters: Vec::new() }),
        relocations,
        addresses: Vec::new(),
        indirect_branches: Vec::new(),
        constants: Vec::new(),
    })
}

fn words_of(sources: &[AddressSource]) -> Vec<u32> {
    sources.iter().flat_map(|source| source.words.iter()).collect()
}

/// The descriptor is where the code says, and its first word is the address of the tensor.
#[test]
fn a_tensor_is_stored_through_the_first_word_of_its_descriptor() {
    let one = effects_of(&[FIRST_CONSTANT, PLUS_440, STORE_TENSOR]).expect("decided");
    let first = (0x440 - 0x210) / 8;
    assert_eq!(words_of(&one.stores), [first]);
    assert!(one.escapes.is_empty());
    let next = effects_of(&[FIRST_CONSTANT, PLUS_440, PLUS_40, STORE_TENSOR]).expect("decided");
    assert_eq!(words_of(&next.stores), [first + 8]);
}

#[test]
fn a_tensor_is_stored_to_an_unknown_place_without_its_descriptor() {
    for before in [vec![], vec![FIRST_CONSTANT], vec![PLUS_440]] {
        let stored: Vec<_> = before.into_iter().chain([STORE_TENSOR]).collect();
        assert!(matches!(effects_of(&stored), Err(Why::Address { .. })), "{stored:x?}");
    }
}

/// The number in the code is not the one that is added.
#[test]
fn a_number_that_the_loader_changes_leads_to_no_descriptor() {
    let relocation = Relocation { at: 16, symbol: "", of: Target::Variable, kind: 0 };
    let stored = effects_with(&[FIRST_CONSTANT, PLUS_440, STORE_TENSOR], vec![relocation]);
    assert!(matches!(stored, Err(Why::Address { .. })), "{stored:?}");
}

#[test]
fn a_parameter_is_stored_as_it_is_and_not_as_a_summand_of_a_float() {
    let stored = effects_of(&[POINTER, TWO_NUMBERS, STORE]).expect("decided");
    assert_eq!((words_of(&stored.stores), stored.escapes.iter().collect()), (vec![0], vec![1]));
    let sum = effects_of(&[POINTER, TWO_NUMBERS, SUM, STORE]).expect("decided");
    assert_eq!((words_of(&sum.stores), sum.escapes.is_empty()), (vec![0], true));
}

#[test]
fn a_word_at_a_computed_place_may_be_any_and_a_byte_is_none() {
    let word = effects_of(&[POINTER, WORD_OF_TABLE, FROM_UNIFORM, STORE]).expect("decided");
    assert_eq!(word.escapes.len(), PARAMETERS as usize / 8);
    let byte = effects_of(&[POINTER, BYTE_OF_TABLE, FROM_UNIFORM, STORE]).expect("decided");
    assert!(byte.escapes.is_empty());
}

/// Sizes of tensors, and what a caller left beside them, look like addresses by chance.
#[test]
fn a_size_that_an_index_is_multiplied_or_shifted_by_is_no_part_of_an_address() {
    for computed in [TIMES_NUMBER, SHIFTED_BY_NUMBER] {
        let [low, high] = ADD_TO_POINTER;
        let code = [THREAD, POINTER, UNIFORM_NUMBER, computed, low, high, DESCRIPTOR, STORE];
        let one = effects_of(&code).expect("decided");
        assert_eq!((words_of(&one.stores), one.stores[0].offsets.is_empty()), (vec![0], true));
    }
}

/// It may be the distance to an address, in elements.
#[test]
fn an_index_that_the_code_multiplies_by_a_number_of_its_own_is_a_part_of_the_address() {
    let one = effects_of(&[NUMBER_IN_5, POINTER, TIMES_4, STORE]).expect("decided");
    assert_eq!(words_of(&one.stores), [0, 1]);
    assert_eq!(one.stores[0].offsets.iter().collect::<Vec<_>>(), [1]);
}
