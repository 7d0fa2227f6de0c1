//! Launching by typed arguments, and the launch shapes that every kernel must survive.

use wm_abi::CUdeviceptr;
use wm_kernels::Arguments;
use wm_kernels::cpu::{self, CpuLaunch, Fault};

/// Element counts around the edges of warps and blocks, and one that no grid below covers in one
/// step.
pub(crate) const SIZES: [usize; 8] = [0, 1, 31, 33, 256, 1023, 1025, 100_003];

/// (blocks, threads a block): one thread, partial warps, the largest block, more threads than
/// elements.
pub(crate) const SHAPES: [(u32, u32); 6] = [(1, 1), (3, 7), (2, 40), (5, 100), (1, 1024), (17, 256)];

/// Runs `arguments`' kernel on a grid of the given shape.
pub(crate) fn launch<A: Arguments>(blocks: [u32; 3], threads: [u32; 3], arguments: &A) -> Result<(), Fault> {
    let kernel = cpu::find(A::KERNEL.name).expect("every kernel of an image is in the CPU registry");
    let pointers = arguments.pointers();
    let launch =
        CpuLaunch { grid: blocks, block: threads, shared_bytes: 0, arguments: pointers.as_ref().as_ptr() };
    // SAFETY: the typed structure matches the kernel; each test passes pointers to live memory of
    // the sizes it names, or to memory that is not mapped.
    unsafe { kernel.run(&launch) }
}

/// Runs a one-dimensional launch that must succeed.
pub(crate) fn run<A: Arguments>((blocks, threads): (u32, u32), arguments: &A) {
    launch([blocks, 1, 1], [threads, 1, 1], arguments).expect("the kernel runs");
}

/// A pointer to memory that a kernel writes.
pub(crate) fn written<T>(memory: &mut [T]) -> CUdeviceptr {
    memory.as_mut_ptr().expose_provenance() as CUdeviceptr
}

/// A pointer to memory that a kernel reads.
pub(crate) fn read<T>(memory: &[T]) -> CUdeviceptr {
    memory.as_ptr().expose_provenance() as CUdeviceptr
}

/// Calls `test` with every size and every shape.
pub(crate) fn for_each_case(test: impl Fn(usize, (u32, u32))) {
    for n in SIZES {
        for shape in SHAPES {
            test(n, shape);
        }
    }
}

/// Small whole numbers, exact as floats, that look random.
pub(crate) fn numbers(n: usize, seed: u64) -> Vec<f32> {
    (0..n as u64).map(|i| (wm_kernels::pattern(seed, i) % 2001) as f32 - 1000.0).collect()
}

/// Words that look random.
pub(crate) fn words(n: usize, seed: u64) -> Vec<u32> {
    (0..n as u64).map(|i| wm_kernels::pattern(seed, i) as u32).collect()
}
