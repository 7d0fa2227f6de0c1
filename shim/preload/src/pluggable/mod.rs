//! The functions of a `CUDAPluggableAllocator`, for PyTorch programs that cannot have the
//! `cudaMallocAsync` back end.
//!
//! They stand on the program's side and call the driver through our exports, so that an allocation
//! here is the `cuMemAllocAsync` that the other back end would have made, with every hook and
//! setting in force. Where PyTorch's interface leaves a choice to an allocator, the choice is that
//! back end's:
//!
//! * a device's primary context is used whatever the calling thread's device is, and made where
//!   there is none yet;
//! * the pool retains its free memory when the host waits;
//! * memory that other streams have used, of whatever device, is not reused before they are past
//!   it;
//! * memory of a stream under capture is the graph's, by the driver's rules;
//! * an allocation that fails ends in PyTorch's own exception ([`torch_exception`]): a null would
//!   become a tensor's address.

mod device_guard;
mod fraction;
mod pool;
mod torch_exception;
mod users;

use std::arch::naked_asm;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use wm_abi::{CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CUdevice, CUdeviceptr, CUresult, CUstream, symbol};

use crate::entry::trampolines::exported;
use crate::process::{self, preserve_errno, streams};
use crate::subsystems::PROCESS;
use crate::{black_box, hooks, registry};
use device_guard::DeviceGuard;
use pool::pool;
use torch_exception::TailCall;

/// `void *(ssize_t size, int device, cudaStream_t stream)`.
///
/// On failure it does not return: it jumps to the function that throws, so that the exception
/// leaves from the caller's own call and no frame of ours is unwound. Unwinding ours would take a
/// C++ runtime, and this library has none.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn wmshim_torch_malloc(size: isize, device: c_int, stream: CUstream) -> CUdeviceptr {
    naked_asm!(
        ".cfi_startproc",
        "sub rsp, 40",
        ".cfi_adjust_cfa_offset 40",
        "mov rcx, rsp",
        "call {serve}",
        "mov r11, [rsp]",
        "mov rdi, [rsp + 8]",
        "mov rsi, [rsp + 16]",
        "mov rdx, [rsp + 24]",
        "mov rcx, [rsp + 32]",
        "add rsp, 40",
        ".cfi_adjust_cfa_offset -40",
        "test r11, r11",
        "jne 2f",
        "ret",
        "2:",
        "jmp r11",
        ".cfi_endproc",
        serve = sym serve,
    )
}

/// `tail_call` is always written: where to go with a failure, or nowhere.
extern "C" fn serve(
    size: isize,
    device: CUdevice,
    stream: CUstream,
    tail_call: &mut TailCall,
) -> CUdeviceptr {
    *tail_call = TailCall::NONE;
    let served = safely(|| allocate(size, device, stream)).unwrap_or(Err(CUresult::UNKNOWN));
    served.unwrap_or_else(|code| {
        *tail_call = safely(|| torch_exception::tail_call(code, size, device)).unwrap_or(TailCall::NONE);
        0
    })
}

fn allocate(size: isize, device: CUdevice, stream: CUstream) -> Result<CUdeviceptr, CUresult> {
    let bytes = usize::try_from(size).map_err(|_| CUresult::INVALID_VALUE)?;
    if bytes == 0 {
        return Ok(0);
    }
    if process::forked() {
        return Err(CUresult::NOT_INITIALIZED);
    }
    let _guard = DeviceGuard::on(device)?;
    retain_freed_memory(device);
    fraction::admit(device, bytes)?;
    let mut address = 0;
    // SAFETY: the out-pointer is to a live local; the driver checks the stream.
    unsafe { exported::<symbol::cuMemAllocAsync>()(&mut address, bytes, stream) }.ok()?;
    Ok(address)
}

/// `void(void *ptr, ssize_t size, int device, cudaStream_t stream)`.
#[unsafe(no_mangle)]
extern "C" fn wmshim_torch_free(address: CUdeviceptr, _size: isize, device: c_int, stream: CUstream) {
    if address != 0 && !is_over() {
        let freed = safely(|| free(address, device, stream)).unwrap_or(Err(CUresult::UNKNOWN));
        if let Err(code) = freed {
            log::debug!("a tensor's memory was not freed: {code}");
        }
    }
}

fn free(address: CUdeviceptr, device: CUdevice, stream: CUstream) -> Result<(), CUresult> {
    let users = PROCESS.torch.users.remove(address);
    let _guard = DeviceGuard::on(device)?;
    if hooks::is_captured(stream) {
        if let Some(freed) = free_beside_capture(address, stream) {
            return freed;
        }
    } else {
        users.iter().try_for_each(|user| users::wait_for(stream, user))?;
    }
    // SAFETY: the driver checks address and stream.
    unsafe { exported::<symbol::cuMemFreeAsync>()(address, stream) }.ok()
}

/// Memory of ours that is freed while its stream is captured was not allocated in the capture, and
/// is no part of the graph. It is the stream's again, for work after the capture.
fn free_beside_capture(address: CUdeviceptr, stream: CUstream) -> Option<Result<(), CUresult>> {
    let manager = registry::owner(address)?;
    let (_, named) = registry::site_of_stream(stream, CUstream::LEGACY)?;
    Some(manager.free(address, named.order()).map_err(|_| CUresult::INVALID_VALUE))
}

/// Tensors are dropped in a forked child and at the end of the process too. Nothing is left to be
/// freed then, and in a child a lock may belong to a thread that is no more.
fn is_over() -> bool {
    process::forked() || process::exiting()
}

/// `void(void *ptr, cudaStream_t stream)`: the tensor is used in this stream too
/// (`Tensor.record_stream`).
#[unsafe(no_mangle)]
extern "C" fn wmshim_torch_record_stream(address: CUdeviceptr, stream: CUstream) {
    safely(|| {
        if address != 0 && !is_over() && !is_of(address, stream) {
            PROCESS.torch.users.insert(address, users::of_handle(stream));
        }
    });
}

/// Is this the stream that the memory was allocated in? `false` also where that is not known.
fn is_of(address: CUdeviceptr, stream: CUstream) -> bool {
    let block = registry::owner(address).and_then(|manager| manager.block(address));
    block.is_some_and(|block| {
        registry::site_of_stream(stream, CUstream::LEGACY)
            .is_some_and(|(_, named)| named.order() == block.order)
    })
}

/// By the driver's rule a pool gives its free memory back whenever the host waits, unless told
/// otherwise.
fn retain_freed_memory(device: CUdevice) {
    if PROCESS.torch.keeping.insert(device) {
        black_box::set_allocator(PROCESS.torch.back_end());
        let mut all = u64::MAX;
        let told = pool(device).map(|pool| {
            // SAFETY: this attribute is a 64-bit count, read from a live local.
            unsafe {
                exported::<symbol::cuMemPoolSetAttribute>()(
                    pool,
                    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                    (&raw mut all).cast(),
                )
            }
        });
        log::debug!("device {device}: its pool keeps freed memory: {told:?}");
    }
}

/// `void(void)`: gives all unused memory back (`torch.cuda.empty_cache`).
#[unsafe(no_mangle)]
extern "C" fn wmshim_torch_empty_cache() {
    safely(|| {
        if is_over() {
            return;
        }
        for device in PROCESS.torch.keeping.iter() {
            let emptied = empty(device);
            log::debug!("device {device}: its pool gave its unused memory back: {emptied:?}");
        }
    });
}

/// Our pool gives back only memory that no work of the device uses, and tensors were freed a moment
/// ago: so the device is waited for first.
///
/// # Errors
/// The driver's; `STREAM_CAPTURE_UNSUPPORTED` during a capture, which the wait, and the driver's
/// own trimming, would end.
fn empty(device: CUdevice) -> Result<(), CUresult> {
    if streams().capturing() {
        return Err(CUresult::STREAM_CAPTURE_UNSUPPORTED);
    }
    let _guard = DeviceGuard::on(device)?;
    if registry::existing(device).is_some() {
        // SAFETY: a function without arguments.
        unsafe { exported::<symbol::cuCtxSynchronize>()() }.ok()?;
    }
    // SAFETY: a function without pointers but the handle.
    unsafe { exported::<symbol::cuMemPoolTrimTo>()(pool(device)?, 0) }.ok()
}

/// `void(double fraction, int device)`: `torch.cuda.set_per_process_memory_fraction`.
#[unsafe(no_mangle)]
extern "C" fn wmshim_torch_memory_fraction(fraction: f64, device: c_int) {
    safely(|| fraction::set(device, fraction));
}

/// A panic stops here, and `errno` is as it was.
fn safely<T>(body: impl FnOnce() -> T) -> Option<T> {
    preserve_errno(|| catch_unwind(AssertUnwindSafe(body)).ok())
}
