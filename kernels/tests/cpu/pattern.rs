//! Hazard (vacuous test): a checker looks at too few words and finds no mismatch, or a filler
//! writes past its end.

use wm_kernels::diagnostics::{CheckStampU64, FillPatternU64, FillU32, StampU64, VerifyPatternU64};

use crate::support::{for_each_case, read, run, written};

#[test]
fn fill_writes_each_word_and_none_beyond() {
    for_each_case(|n, shape| {
        let mut memory = vec![7u32; n + 1];
        run(shape, &FillU32 { dst: written(&mut memory), n: n as u64, value: 0xdead_beef });
        assert!(memory[..n].iter().all(|word| *word == 0xdead_beef), "{n} words, shape {shape:?}");
        assert_eq!(memory[n], 7, "{n} words, shape {shape:?}");
    });
}

#[test]
fn pattern_is_the_hosts_pattern() {
    for_each_case(|n, shape| {
        let mut memory = vec![0u64; n + 1];
        run(shape, &FillPatternU64 { dst: written(&mut memory), n: n as u64, seed: 99 });
        assert!((0..n).all(|i| memory[i] == wm_kernels::pattern(99, i as u64)), "{n} words, shape {shape:?}");
        assert_eq!(memory[n], 0);
    });
}

#[test]
fn verify_counts_every_mismatch() {
    for_each_case(|n, shape| {
        let mut memory: Vec<u64> = (0..n as u64).map(|i| wm_kernels::pattern(5, i)).collect();
        let wrong = (0..n).step_by(3).map(|i| memory[i] ^= 1 << (i % 64)).count();
        let mut mismatches = [1u64];
        let arguments = VerifyPatternU64 {
            src: read(&memory),
            n: n as u64,
            seed: 5,
            mismatches: written(&mut mismatches),
        };
        run(shape, &arguments);
        assert_eq!(mismatches[0], 1 + wrong as u64, "{n} words, shape {shape:?}");
    });
}

#[test]
fn stamps_are_written_and_foreign_ones_counted() {
    for_each_case(|n, shape| {
        let (mut memory, mut errors) = (vec![0u64; n + 1], [0u64]);
        run(shape, &StampU64 { dst: written(&mut memory), n: n as u64, stamp: u64::MAX - 3 });
        assert_eq!(memory[n], 0);
        let check = |memory: &[u64], errors: &mut [u64]| {
            let (src, errors) = (read(memory), written(errors));
            run(shape, &CheckStampU64 { src, n: n as u64, stamp: u64::MAX - 3, errors });
        };
        check(&memory, &mut errors);
        assert_eq!(errors[0], 0, "{n} words, shape {shape:?}");
        memory[n / 2..].fill(1);
        check(&memory, &mut errors);
        assert_eq!(errors[0], (n - n / 2) as u64, "{n} words, shape {shape:?}");
    });
}
