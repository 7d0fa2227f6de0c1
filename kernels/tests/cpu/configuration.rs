//! Hazard (API conformance): a launch outside CUDA's limits runs anyway, or the registry of
//! kernels differs from the images.

use wm_kernels::cpu::{self, Fault};
use wm_kernels::diagnostics::{FillU32, ShuffleU32};

use crate::support::{launch, words, written};

#[test]
fn shapes_outside_cudas_limits_are_refused() {
    let mut memory = [0u32];
    let arguments = FillU32 { dst: written(&mut memory), n: 1, value: 1 };
    let shapes = [
        ([0, 1, 1], [1, 1, 1]),
        ([1, 1, 1], [1, 0, 1]),
        ([1, 65_536, 1], [1, 1, 1]),
        ([1, 1, 1], [1025, 1, 1]),
        ([1, 1, 1], [32, 32, 2]),
        ([1, 1, 1], [1, 1, 65]),
    ];
    for (grid, block) in shapes {
        assert_eq!(launch(grid, block, &arguments), Err(Fault::InvalidConfiguration), "{grid:?} {block:?}");
    }
    assert_eq!(memory[0], 0);
}

#[test]
fn the_largest_block_runs_with_a_stack_for_every_thread() {
    let (mut x, mut out) = (words(1024, 11), vec![0u32; 1024]);
    let arguments = ShuffleU32 { out: written(&mut out), x: written(&mut x), operation: 3, operand: 1 };
    launch([1; 3], [16, 8, 8], &arguments).expect("the kernel runs");
    assert!((0..1024).all(|i| out[i] == x[i ^ 1]));
}

#[test]
fn the_registry_is_the_images_tables() {
    let listed: Vec<_> = wm_kernels::IMAGES.iter().flat_map(|image| image.kernels).collect();
    assert_eq!(listed.len(), cpu::all().len());
    for kernel in listed {
        let on_cpu = cpu::find(kernel.name).expect("every kernel is registered");
        let sizes: Vec<usize> = kernel.parameters.iter().map(|parameter| parameter.size).collect();
        assert_eq!(on_cpu.parameters, sizes, "{}", kernel.name);
    }
    assert!(cpu::find("wm_no_such_kernel").is_none());
}

/// A library that is opened late gets its thread-local memory from a reserve of about 1600 bytes,
/// for all such libraries. Shared arrays of kernels are thread-local on the CPU: a large one there
/// makes a simulated driver that cannot be opened.
#[test]
fn a_library_with_these_kernels_can_be_opened_late() {
    let file = std::fs::read("/proc/self/exe").expect("a test can read itself");
    let number = |at: usize, size: usize| {
        file[at..at + size].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
    };
    let (headers, size, count) = (number(32, 8) as usize, number(54, 2) as usize, number(56, 2) as usize);
    let segment = (0..count).map(|i| headers + i * size).find(|at| number(*at, 4) == 7);
    let thread_local = number(segment.expect("the engine has thread-local variables") + 40, 8);
    assert!(thread_local < 1200, "{thread_local} bytes of thread-local variables: use WM_SHARED_ARRAY");
}
