//! A Rust program on cudarc, the client that Rust programs of this field use: streams, threads,
//! kernels, and more memory than the device has. It knows nothing of wmshim.
//!
//! Each thread has a stream of its own and holds vectors until all threads together hold `SHARE`
//! times the device's memory; then it runs a kernel on each and checks every element. Prints one
//! line; ends with 1 at the first driver error.
#![allow(clippy::print_stdout, reason = "a command line tool")]

use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use wm_kernels::diagnostics::IMAGE;

const THREADS: usize = 3;
const ELEMENTS: usize = 4 << 20;
const FACTOR: f32 = 3.0;

/// The size of all threads' vectors, in parts of the device's memory: numerator and denominator.
const SHARE: (usize, usize) = (5, 4);

fn main() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    let module = context.load_module(Ptx::from_src(IMAGE.ptx.trim_end_matches('\0')))?;
    let saxpy = module.load_function("wm_saxpy_f32")?;
    let vectors = context.total_mem()? * SHARE.0 / SHARE.1 / THREADS / (ELEMENTS * size_of::<f32>());
    let (context, saxpy) = (&context, &saxpy);
    let checked: Result<Vec<_>, _> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(context, saxpy, thread, vectors))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a worker does not panic")).collect()
    });
    println!("{} vectors of {ELEMENTS} elements, all right", checked?.into_iter().sum::<usize>());
    Ok(())
}

/// Fills, holds, computes and checks this thread's vectors. Returns their number.
fn work(
    context: &Arc<CudaContext>,
    saxpy: &CudaFunction,
    thread: usize,
    count: usize,
) -> Result<usize, DriverError> {
    let stream = context.new_stream()?;
    let ones = stream.clone_htod(&vec![1.0f32; ELEMENTS])?;
    let held: Result<Vec<_>, _> =
        (0..count).map(|n| stream.clone_htod(&vec![value(thread, n); ELEMENTS])).collect();
    let mut held = held?;
    held.iter_mut().try_for_each(|vector| add(&stream, saxpy, &ones, vector))?;
    for (n, vector) in held.iter().enumerate() {
        let expected = value(thread, n) + FACTOR;
        assert!(
            stream.clone_dtoh(vector)?.iter().all(|element| *element == expected),
            "vector {n} of thread {thread}"
        );
    }
    Ok(held.len())
}

/// Small whole numbers, exact in single precision.
fn value(thread: usize, n: usize) -> f32 {
    (thread * 1000 + n) as f32
}

/// `y += FACTOR * x` on the device.
fn add(
    stream: &Arc<CudaStream>,
    saxpy: &CudaFunction,
    x: &CudaSlice<f32>,
    y: &mut CudaSlice<f32>,
) -> Result<(), DriverError> {
    let count = ELEMENTS as u64;
    let mut launch = stream.launch_builder(saxpy);
    launch.arg(&count).arg(&FACTOR).arg(x).arg(y);
    // SAFETY: the kernel's parameters (n, a, x, y), and vectors of n elements.
    unsafe { launch.launch(LaunchConfig::for_num_elems(1 << 16)) }.map(drop)
}
