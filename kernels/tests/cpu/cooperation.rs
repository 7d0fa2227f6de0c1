//! Hazard (data race): a barrier or a shuffle lets a thread pass early, and the thread reads its
//! neighbour's old value. Integer results are exact.

use wm_kernels::diagnostics::{ReduceSumF32, ScanTilesU32, ShuffleU32};

use crate::support::{for_each_case, launch, numbers, read, run, words, written};

#[test]
fn reduction_of_whole_numbers_is_exact() {
    for_each_case(|n, shape| {
        // Sums stay below 2^24 in size, so that every order of additions is exact.
        let x: Vec<f32> = numbers(n, 6).iter().map(|value| value % 64.0).collect();
        let mut out = [0f32];
        run(shape, &ReduceSumF32 { x: read(&x), n: n as u64, out: written(&mut out) });
        assert_eq!(f64::from(out[0]), x.iter().copied().map(f64::from).sum::<f64>(), "{n}, shape {shape:?}");
    });
}

#[test]
fn reduction_of_fractions_is_near() {
    let x: Vec<f32> = numbers(100_003, 7).iter().map(|value| value / 7.0).collect();
    let exact: f64 = x.iter().copied().map(f64::from).sum();
    let size: f64 = x.iter().map(|value| f64::from(value.abs())).sum();
    let mut out = [0f32];
    run((17, 250), &ReduceSumF32 { x: read(&x), n: x.len() as u64, out: written(&mut out) });
    assert!((f64::from(out[0]) - exact).abs() < size * 1e-6, "{} for {exact}", out[0]);
}

#[test]
fn tile_scan_passes_its_barriers_exactly() {
    for_each_case(|n, shape| {
        let (x, mut out) = (words(n, 8), vec![0u32; n + 1]);
        run(shape, &ScanTilesU32 { out: written(&mut out), x: read(&x), n: n as u64 });
        for (tile, sums) in x.chunks(shape.1 as usize).zip(out.chunks(shape.1 as usize)) {
            let mut total = 0u32;
            let expected = tile.iter().map(|word| {
                total = total.wrapping_add(*word);
                total
            });
            assert!(expected.eq(sums[..tile.len()].iter().copied()), "{n} words, shape {shape:?}");
        }
        assert_eq!(out[n], 0);
    });
}

#[test]
fn barriers_hold_in_three_dimensional_blocks() {
    let (x, mut out) = (words(999, 9), vec![0u32; 999]);
    let arguments = ScanTilesU32 { out: written(&mut out), x: read(&x), n: 999 };
    launch([1, 2, 2], [5, 6, 7], &arguments).expect("the kernel runs");
    let tile = 5 * 6 * 7;
    let sum_to = |i: usize| x[i / tile * tile..=i].iter().fold(0u32, |sum, word| sum.wrapping_add(*word));
    assert!((0..999).all(|i| out[i] == sum_to(i)));
}

/// Which lane a shuffle reads, by CUDA's definition: a lane outside the warp leaves the value
/// alone.
fn source(operation: u32, operand: u32, lane: u32) -> u32 {
    match operation {
        0 => operand % 32,
        1 => lane.checked_sub(operand).unwrap_or(lane),
        2 if lane + operand < 32 => lane + operand,
        2 => lane,
        _ => lane ^ operand,
    }
}

#[test]
fn shuffles_read_the_lane_that_cuda_says() {
    for operation in 0..4 {
        for operand in 0..32 {
            let (x, mut out) = (words(192, 10), vec![0u32; 192]);
            run((2, 96), &ShuffleU32 { out: written(&mut out), x: read(&x), operation, operand });
            for thread in 0..192u32 {
                let from = thread / 32 * 32 + source(operation, operand, thread % 32);
                assert_eq!(
                    out[thread as usize], x[from as usize],
                    "operation {operation} by {operand}, thread {thread}"
                );
            }
        }
    }
}
