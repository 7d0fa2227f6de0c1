//! A Rust program on cudarc that needs one and a half times the device's memory. Alone it ends with
//! out of memory. Under `wmshim-run` the rest of its memory lies on the host; the program cannot
//! tell the addresses apart.
//!
//! ```toml
//! [dependencies.cudarc]
//! version = "0.19"
//! default-features = false
//! features = ["std", "driver", "nvrtc", "dynamic-loading", "cuda-13000"]
//! ```
#![allow(clippy::print_stdout, reason = "a command line tool")]

use cudarc::driver::{CudaContext, CudaSlice, DriverError};

/// Bytes of one vector.
const BYTES: usize = 16 << 20;

fn main() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let count = context.total_mem()? * 3 / 2 / BYTES;
    let vectors: Result<Vec<CudaSlice<u8>>, _> =
        (0..count).map(|number| stream.clone_htod(&vec![number as u8; BYTES])).collect();
    for (number, vector) in vectors?.iter().enumerate() {
        assert!(stream.clone_dtoh(vector)?.iter().all(|byte| *byte == number as u8), "vector {number}");
    }
    println!("{count} vectors of 16 MiB, each as written");
    Ok(())
}
