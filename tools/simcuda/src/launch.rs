//! Launches: a kernel's arguments, copied at the call, and the grid, run by the stream's worker.
//!
//! A kernel's bad access is the context's sticky error. Pages have one protection for the whole
//! process, so memory that only *another* device may access is found by a check of the pointers
//! among the parameters.

use std::ffi::{c_uint, c_void};
use std::sync::{Arc, PoisonError};

use wm_abi::{
    CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END, CUfunction, CUkernel,
    CUlaunchConfig, CUlibrary, CUresult, CUstream,
};
use wm_kernels::cpu::{self, Fault};

use crate::context::Context;
use crate::entry::{Call, Outcome, exports, get, require};
use crate::footprint;
use crate::graph_form::{Form, KernelForm};
use crate::lane::Work;
use crate::memory::{Owner, Place};
use crate::module::Function;
use crate::races;
use crate::state::driver;

/// The number of threads, and their arrangement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub(crate) shared: u32,
}

impl Grid {
    fn check(&self) -> Outcome {
        let threads = self.block.iter().map(|n| u64::from(*n)).product::<u64>();
        let within = self.grid.iter().all(|n| *n > 0) && (1..=1024).contains(&threads) && self.block[2] <= 64;
        let small = self.grid[0] <= i32::MAX as u32 && self.grid[1] <= 65_535 && self.grid[2] <= 65_535;
        require(within && small && self.shared <= 232_448, CUresult::INVALID_VALUE)
    }
}

/// Offset and size of a parameter in the buffer form.
///
/// # Errors
/// `INVALID_VALUE` if there is no such parameter.
pub(crate) fn parameter(kernel: &cpu::CpuKernel, index: usize) -> Outcome<(usize, usize)> {
    require(index < kernel.parameters.len(), CUresult::INVALID_VALUE)?;
    Ok(layout(kernel).swap_remove(index))
}

fn layout(kernel: &cpu::CpuKernel) -> Vec<(usize, usize)> {
    let mut end = 0_usize;
    let place = |(size, alignment): (&usize, &usize)| {
        let offset = end.next_multiple_of(*alignment);
        end = offset + size;
        (offset, *size)
    };
    kernel.parameters.iter().zip(kernel.alignments).map(place).collect()
}

/// The arguments of a launch, in the buffer form.
#[derive(Debug, Clone)]
pub(crate) struct Arguments {
    /// Words, so that every parameter is aligned.
    words: Vec<u128>,
    layout: Vec<(usize, usize)>,
}

impl Arguments {
    /// Copies the arguments from the caller's form.
    ///
    /// # Safety
    /// The arrays are valid arguments of the driver's launch functions.
    ///
    /// # Errors
    /// `INVALID_VALUE` for both forms, neither, or too small a buffer.
    pub(crate) unsafe fn read(
        function: &Function,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Outcome<Self> {
        let layout = layout(function.kernel);
        let bytes = layout.last().map_or(0, |(offset, size)| offset + size);
        let mut arguments = Self { words: vec![0; bytes.div_ceil(16)], layout };
        require(parameters.is_null() || extra.is_null(), CUresult::INVALID_VALUE)?;
        // SAFETY: by contract.
        unsafe {
            match (parameters.is_null(), extra.is_null()) {
                (false, _) => arguments.take_each(parameters)?,
                (_, false) => arguments.take_buffer(extra, bytes)?,
                _ => require(bytes == 0, CUresult::INVALID_VALUE)?,
            }
        }
        Ok(arguments)
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.words.as_ptr().cast::<u8>().cast_mut().wrapping_add(offset)
    }

    unsafe fn take_each(&mut self, parameters: *mut *mut c_void) -> Outcome {
        for (i, (offset, size)) in self.layout.clone().into_iter().enumerate() {
            // SAFETY: one pointer for each parameter.
            let from = unsafe { get(parameters.wrapping_add(i))? };
            require(!from.is_null(), CUresult::INVALID_VALUE)?;
            // SAFETY: `size` bytes there, and room for them here.
            unsafe { std::ptr::copy_nonoverlapping(from.cast(), self.at_mut(offset), size) };
        }
        Ok(())
    }

    /// A parameter as a number.
    fn number(&self, index: usize) -> u64 {
        let (offset, size) = self.layout[index];
        let mut bytes = [0_u8; 8];
        let count = size.min(bytes.len());
        // SAFETY: the parameter lies in the words with all its bytes.
        unsafe { std::ptr::copy_nonoverlapping(self.at(offset), bytes.as_mut_ptr(), count) };
        u64::from_ne_bytes(bytes)
    }

    fn at_mut(&mut self, offset: usize) -> *mut u8 {
        self.words.as_mut_ptr().cast::<u8>().wrapping_add(offset)
    }

    unsafe fn take_buffer(&mut self, extra: *mut *mut c_void, bytes: usize) -> Outcome {
        // SAFETY: by the contract of `read`.
        let (buffer, size) = unsafe { buffer(extra)? };
        require(!buffer.is_null() && size >= bytes, CUresult::INVALID_VALUE)?;
        // SAFETY: the caller guarantees `size` bytes in the buffer; `bytes` fit here.
        unsafe { std::ptr::copy_nonoverlapping(buffer.cast(), self.at_mut(0), bytes) };
        Ok(())
    }

    /// Each parameter.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = *const c_void> {
        self.layout.iter().map(|(offset, _)| self.at(*offset).cast_const().cast())
    }

    /// Values that may be addresses.
    fn addresses(&self, kernel: &cpu::CpuKernel) -> impl Iterator<Item = u64> {
        let offsets = kernel.words.iter().map(|(index, offset)| self.layout[*index].0 + offset);
        // SAFETY: the parameter lies in the words with all its bytes.
        offsets.map(|offset| unsafe { self.at(offset).cast::<u64>().read_unaligned() })
    }
}

/// Reads a list of keys and values that ends with [`CU_LAUNCH_PARAM_END`].
///
/// # Safety
/// The list has this form.
unsafe fn buffer(extra: *mut *mut c_void) -> Outcome<(*const c_void, usize)> {
    let (mut buffer, mut size, mut at) = (std::ptr::null(), 0, extra);
    loop {
        // SAFETY: the list ends with the key that ends the loop.
        let key = unsafe { get(at)? as usize };
        if key == CU_LAUNCH_PARAM_END {
            return Ok((buffer, size));
        }
        // SAFETY: every other key has a value behind it.
        let value = unsafe { get(at.wrapping_add(1))? };
        match key {
            CU_LAUNCH_PARAM_BUFFER_POINTER => buffer = value.cast_const(),
            // SAFETY: this key's value points to the size.
            CU_LAUNCH_PARAM_BUFFER_SIZE => size = unsafe { get(value.cast::<usize>())? },
            _ => return Err(CUresult::INVALID_VALUE),
        }
        at = at.wrapping_add(2);
    }
}

/// A function by its handle, or by that of a library's kernel, and its context.
///
/// # Errors
/// `INVALID_HANDLE`, and those of the context.
pub(crate) fn function(call: &Call, handle: CUfunction) -> Outcome<(Arc<Function>, Arc<Context>)> {
    let context = call.context()?;
    if let Some(function) = driver().functions.get(handle.0) {
        return Ok((function, context));
    }
    let kernel = driver().kernels.get(CUkernel(handle.0).0).ok_or(CUresult::INVALID_HANDLE)?;
    let library = driver().libraries.get(CUlibrary(kernel.library).0).ok_or(CUresult::INVALID_HANDLE)?;
    let handle = library.module(&context)?.function(kernel.name.to_str().unwrap_or_default())?;
    Ok((driver().functions.get(handle).ok_or(CUresult::INVALID_HANDLE)?, context))
}

/// The launch as work.
///
/// # Errors
/// `INVALID_VALUE` for a grid beyond the device's limits.
pub(crate) fn work(
    context: &Arc<Context>,
    function: &Function,
    grid: Grid,
    arguments: Arc<Arguments>,
) -> Outcome<Work> {
    grid.check()?;
    let (kernel, context) = (function.kernel, Arc::downgrade(context));
    let used = Arc::clone(&arguments);
    let work = move || {
        let context = context.upgrade().ok_or(CUresult::CONTEXT_IS_DESTROYED)?;
        arguments.addresses(kernel).try_for_each(|address| reachable(&context, address))?;
        run(kernel, grid, &arguments)
    };
    Ok(races::declare(Arc::new(work), || footprint::of(kernel.name, |index| used.number(index))))
}

/// May kernels of this context access the memory at an address? The check covers rights that page
/// protection cannot express.
///
/// # Errors
/// `ILLEGAL_ADDRESS` if they may not.
pub(crate) fn reachable(context: &Context, address: u64) -> Outcome {
    let (memory, own) = (driver().memory(), Place::Device(context.device));
    let Some(area) = memory.find(address) else { return Ok(()) };
    let allowed = match &area.owner {
        Owner::Reserved(_) => area.mapping(address).is_none_or(|(_, mapping)| mapping.rights.of(own) != 0),
        Owner::Linear { physical, context: owner } if physical.place != own => {
            context.peers.lock().unwrap_or_else(PoisonError::into_inner).contains(owner)
        }
        // Peer access to the opener's context does not help.
        Owner::Imported { context: owner, .. } => {
            driver().contexts.get(*owner).is_none_or(|owner| owner.device == context.device)
        }
        Owner::Pool { pool, .. } => {
            driver().pools.get(*pool).is_none_or(|pool| pool.state().rights.of(own) != 0)
        }
        _ => true,
    };
    require(allowed, CUresult::ILLEGAL_ADDRESS)
}

fn run(kernel: &cpu::CpuKernel, grid: Grid, arguments: &Arguments) -> Outcome {
    let pointers: Vec<*const c_void> = arguments.pointers().collect();
    let launch = cpu::CpuLaunch {
        grid: grid.grid,
        block: grid.block,
        shared_bytes: grid.shared as usize,
        arguments: pointers.as_ptr(),
    };
    // SAFETY: one pointer for each parameter, to as many bytes as it has.
    unsafe { kernel.run(&launch) }.map_err(|fault| match fault {
        Fault::IllegalAddress(_) => CUresult::ILLEGAL_ADDRESS,
        Fault::OutOfMemory => CUresult::OUT_OF_MEMORY,
        Fault::InvalidConfiguration | Fault::Divergence | Fault::Trap => CUresult::LAUNCH_FAILED,
    })
}

/// # Safety
/// As for `cuLaunchKernel`.
unsafe fn start(
    call: &Call,
    f: CUfunction,
    grid: Grid,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Outcome {
    let (function, context) = function(call, f)?;
    let stream = call.stream(stream)?;
    // SAFETY: by contract.
    let arguments = Arc::new(unsafe { Arguments::read(&function, parameters, extra)? });
    let form = KernelForm::new(f, context.handle, grid, Arc::clone(&arguments));
    stream.submit(Form::Kernel(Arc::new(form)), work(&context, &function, grid, arguments)?).map(drop)
}

exports! {
    fn cuLaunchKernel + cuLaunchKernel_ptsz(f: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream, kernelParams: *mut *mut c_void, extra: *mut *mut c_void) |call| {
        let grid = Grid { grid: [gridDimX, gridDimY, gridDimZ], block: [blockDimX, blockDimY, blockDimZ], shared: sharedMemBytes };
        start(call, f, grid, hStream, kernelParams, extra)
    }

    fn cuLaunchKernelEx + cuLaunchKernelEx_ptsz(config: *const CUlaunchConfig, f: CUfunction, kernelParams: *mut *mut c_void, extra: *mut *mut c_void) |call| {
        let c = get(config)?;
        let grid = Grid { grid: [c.gridDimX, c.gridDimY, c.gridDimZ], block: [c.blockDimX, c.blockDimY, c.blockDimZ], shared: c.sharedMemBytes };
        start(call, f, grid, c.hStream, kernelParams, extra)
    }

    fn cuLaunchCooperativeKernel + cuLaunchCooperativeKernel_ptsz(f: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream, kernelParams: *mut *mut c_void) |call| {
        let grid = Grid { grid: [gridDimX, gridDimY, gridDimZ], block: [blockDimX, blockDimY, blockDimZ], shared: sharedMemBytes };
        start(call, f, grid, hStream, kernelParams, std::ptr::null_mut())
    }
}
