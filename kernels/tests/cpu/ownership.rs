//! Hazard (vacuous test): a check of ownership misses a byte, or a mark is written past the end of
//! its block.

use wm_kernels::ownership::{CheckBlock, OwnBlock};

use crate::support::{for_each_case, run, written};

const OWNER: u64 = 0x0102_0304_0506_0708;

/// A ledger after a look at `bytes` bytes of `memory`.
fn looked(memory: &mut [u64], bytes: u64, shape: (u32, u32)) -> [u64; 6] {
    let mut ledger = [0; 6];
    let block = written(memory);
    run(shape, &CheckBlock { block, bytes, owner: OWNER, ledger: written(&mut ledger) });
    ledger
}

#[test]
fn an_owner_marks_each_byte_and_none_beyond() {
    for_each_case(|words, shape| {
        for rest in [0, 1, 7] {
            let (mut memory, bytes) = (vec![0u64; words + 1], words as u64 * 8 + rest);
            run(shape, &OwnBlock { block: written(&mut memory), bytes, owner: OWNER });
            assert!(memory[..words].iter().all(|word| *word == OWNER), "{words} words, shape {shape:?}");
            assert_eq!(memory[words], OWNER & ((1 << (8 * rest)) - 1), "{words} words and {rest} bytes");
            assert_eq!(looked(&mut memory, bytes, shape)[..2], [bytes, 0]);
        }
    });
}

#[test]
fn each_foreign_byte_is_found_and_the_first_is_named() {
    for_each_case(|words, shape| {
        let bytes = words as u64 * 8 + 3;
        for wrong in [0, words * 8 / 2, words * 8 + 2] {
            let mut memory = vec![OWNER; words + 1];
            memory[wrong / 8] ^= 0xff << (8 * (wrong % 8));
            let address = written(&mut memory);
            let [checked, found, at, block, owner, content] = looked(&mut memory, bytes, shape);
            let expected = (bytes, 1, address + (wrong / 8 * 8) as u64, address, OWNER);
            assert_eq!((checked, found, at, block, owner), expected, "byte {wrong}, shape {shape:?}");
            assert_ne!(content, OWNER);
        }
    });
}

#[test]
fn what_lies_behind_the_block_is_nobodys_business() {
    let mut memory = [OWNER, 0];
    let ledger = looked(&mut memory, 8, (1, 32));
    assert_eq!(ledger[..2], [8, 0]);
}
