//! Runs kernels on the CPU, on the calling thread.
//!
//! The grid's blocks run one after another; inside a block barriers and shuffles are real (each
//! CUDA thread that has to wait gets a stack of its own). A kernel without them is a plain loop.
//! Launches on several threads at once are independent of each other. A kernel's bad memory access
//! ends its launch with [`Fault::IllegalAddress`], not the process: the first launch installs
//! handlers for SIGSEGV and SIGBUS, which pass on the faults that are not a running kernel's.
//!
//! Limits: no dynamic shared memory (no kernel here takes any; `shared_bytes` is only checked), and
//! a thread may wait for its siblings at barriers and in shuffles only, never in a loop of its own.

#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::fmt;

/// A kernel that can run on the CPU.
#[derive(Debug)]
pub struct CpuKernel {
    /// The name that it has in a GPU module.
    pub name: &'static str,
    /// Size in bytes of each parameter, in order.
    pub parameters: &'static [usize],
    /// Alignment of each parameter in bytes, in order.
    pub alignments: &'static [usize],
    /// Each address and each number of 8 bytes: its parameter, and its offset in bytes there.
    pub words: &'static [(usize, usize)],
    pub(crate) thunk: Thunk,
}

/// One launch, in the terms of `cuLaunchKernel`.
#[derive(Clone, Copy, Debug)]
pub struct CpuLaunch {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads a block in x, y, z; 1024 in all at most.
    pub block: [u32; 3],
    /// Dynamic shared memory a block, in bytes.
    pub shared_bytes: usize,
    /// One pointer a parameter, as `kernelParams`.
    pub arguments: *const *const c_void,
}

/// Why a launch did not run, or did not run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The kernel accessed memory that it must not. The address is 0 where the processor does not
    /// tell it (an address that no process can have). A driver reports
    /// `CUDA_ERROR_ILLEGAL_ADDRESS`.
    IllegalAddress(u64),
    /// Grid, block or shared memory outside CUDA's limits; nothing ran. A driver reports
    /// `CUDA_ERROR_INVALID_VALUE`.
    InvalidConfiguration,
    /// Threads of a block, or lanes of a warp, wait for each other at different places. A GPU would
    /// hang.
    Divergence,
    /// No memory for a stack. A driver reports `CUDA_ERROR_OUT_OF_MEMORY`.
    OutOfMemory,
    /// The kernel ended itself. A driver reports `CUDA_ERROR_LAUNCH_FAILED`.
    Trap,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IllegalAddress(address) => write!(f, "the kernel accessed illegal address {address:#x}"),
            Self::InvalidConfiguration => f.write_str("grid, block or shared memory outside CUDA's limits"),
            Self::Divergence => f.write_str("threads of the kernel wait for each other at different places"),
            Self::OutOfMemory => f.write_str("no memory for a CUDA thread's stack"),
            Self::Trap => f.write_str("the kernel ended itself"),
        }
    }
}

impl std::error::Error for Fault {}

/// The kernel called `name`, of any image.
pub fn find(name: &str) -> Option<&'static CpuKernel> {
    all().iter().find(|kernel| kernel.name == name)
}

/// Every kernel.
pub fn all() -> &'static [CpuKernel] {
    crate::CPU_KERNELS
}

impl CpuKernel {
    /// Runs the grid; returns when all of it has run or a fault ended it. The words that a faulting
    /// grid wrote stay written.
    ///
    /// # Errors
    /// See [`Fault`].
    ///
    /// # Safety
    /// `launch.arguments` holds one pointer for each of `parameters`, each to a value of that size.
    /// Memory that the kernel writes is not used by Rust code meanwhile. The kernel may access no
    /// memory of the process but its own arguments' (a wrong address is caught only if it is not
    /// mapped).
    pub unsafe fn run(&self, launch: &CpuLaunch) -> Result<(), Fault> {
        launch.check()?;
        let native = NativeLaunch { grid: launch.grid, block: launch.block, arguments: launch.arguments };
        // SAFETY: the thunk was generated for this kernel's parameters; the caller vouches for the
        // arguments.
        unsafe { wm_cpu_run(self.thunk, &native) }.into_result()
    }
}

impl CpuLaunch {
    /// CUDA's limits for every compute capability from 8.0 on; those of shared memory are the
    /// largest of them (9.0).
    fn check(&self) -> Result<(), Fault> {
        let within = |value: [u32; 3], limit: [u32; 3]| (0..3).all(|i| (1..=limit[i]).contains(&value[i]));
        let fits = within(self.grid, [i32::MAX as u32, 65_535, 65_535])
            && within(self.block, [1024, 1024, 64])
            && self.block.iter().product::<u32>() <= 1024
            && self.shared_bytes <= 227 * 1024;
        if fits { Ok(()) } else { Err(Fault::InvalidConfiguration) }
    }
}

/// Calls a kernel once with arguments from an array of pointers; generated by the build script.
pub(crate) type Thunk = unsafe extern "C" fn(*const *const c_void);

/// `wm_cpu::Launch` of `cuda/cpu/engine.hpp`.
#[repr(C)]
struct NativeLaunch {
    grid: [u32; 3],
    block: [u32; 3],
    arguments: *const *const c_void,
}

/// `wm_cpu::Fault` of `cuda/cpu/engine.hpp`.
#[repr(C)]
struct NativeFault {
    kind: u32,
    address: u64,
}

impl NativeFault {
    fn into_result(self) -> Result<(), Fault> {
        match self.kind {
            0 => Ok(()),
            1 => Err(Fault::IllegalAddress(self.address)),
            2 => Err(Fault::Divergence),
            4 => Err(Fault::Trap),
            _ => Err(Fault::OutOfMemory),
        }
    }
}

unsafe extern "C" {
    fn wm_cpu_run(thunk: Thunk, launch: *const NativeLaunch) -> NativeFault;
}
