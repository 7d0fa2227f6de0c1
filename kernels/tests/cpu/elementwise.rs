//! Hazard (wrong result): an index wraps or is used twice. Results are compared bit by bit.

use wm_kernels::diagnostics::{CopyU32, FillU32, GatherRowsF32, SaxpyF32, VerifyPatternU64};

use crate::support::{for_each_case, launch, numbers, read, run, words, written};

#[test]
fn copy_copies() {
    for_each_case(|n, shape| {
        let (src, mut dst) = (words(n, 1), vec![0u32; n + 1]);
        run(shape, &CopyU32 { dst: written(&mut dst), src: read(&src), n: n as u64 });
        assert_eq!(dst[..n], src[..], "shape {shape:?}");
        assert_eq!(dst[n], 0);
    });
}

#[test]
fn saxpy_rounds_once() {
    for_each_case(|n, shape| {
        let x: Vec<f32> = numbers(n, 2).iter().map(|value| value / 3.0).collect();
        let before = numbers(n, 3);
        let mut y = before.clone();
        run(shape, &SaxpyF32 { n: n as u64, a: 0.1, x: read(&x), y: written(&mut y) });
        let expected: Vec<f32> = (0..n).map(|i| 0.1f32.mul_add(x[i], before[i])).collect();
        assert_eq!(y, expected, "shape {shape:?}");
    });
}

#[test]
fn gather_takes_the_named_rows() {
    for width in [1usize, 3, 32, 129] {
        let (table, index) = (numbers(500 * width, 4), words(301, 5));
        let index: Vec<i64> = index.iter().map(|word| i64::from(word % 500)).collect();
        let mut out = vec![0f32; index.len() * width];
        let (rows, columns) = (index.len() as u64, width as u64);
        let (out_pointer, table_pointer) = (written(&mut out), read(&table));
        let arguments = GatherRowsF32 {
            out: out_pointer,
            table: table_pointer,
            index: read(&index),
            rows,
            width: columns,
        };
        run((4, 96), &arguments);
        for (row, from) in index.iter().enumerate() {
            let from = *from as usize * width;
            assert_eq!(out[row * width..][..width], table[from..][..width], "row {row} of width {width}");
        }
    }
}

#[test]
fn three_dimensional_launches_do_each_index_once() {
    let memory: Vec<u64> = vec![0; 10_001];
    let mut mismatches = [0u64];
    let arguments =
        VerifyPatternU64 { src: read(&memory), n: 10_001, seed: 1, mismatches: written(&mut mismatches) };
    launch([3, 2, 5], [8, 4, 3], &arguments).expect("the kernel runs");
    assert_eq!(mismatches[0], 10_001);
}

#[test]
fn a_large_fill_is_a_plain_loop() {
    let mut memory = vec![0u32; 16 << 20];
    let started = std::time::Instant::now();
    run((1024, 256), &FillU32 { dst: written(&mut memory), n: 16 << 20, value: 3 });
    let took = started.elapsed();
    assert!(memory.iter().all(|word| *word == 3));
    assert!(
        took.as_secs_f64() < 2.0,
        "64 MiB took {took:?}: threads without barriers must not change stacks"
    );
}
