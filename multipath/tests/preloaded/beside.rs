//! Hazard (latency): the call that starts the measurement of links waits for it, or the
//! measurement invalidates another thread's capture.

use std::time::{Duration, Instant};

use wm_abi::*;

use super::support::{BYTES, Program, cu, on_machine, relayed, threads_called};

/// Links on which a measurement takes many times as long as a copy.
const LINKS: (&str, &str) = ("SIMCUDA_LINKS", "pcie=300MB/s,nvlink=2GB/s");

fn measured_beside() {
    let p = &Program::new();
    cu!(cuMemcpyHtoDAsync_v2(p.device, p.from as *const _, BYTES, p.stream));
    assert_eq!(relayed(), 0, "nothing is known yet");
    // A thread has its name from its start.
    let start = Instant::now();
    let measuring = loop {
        assert!(start.elapsed() < Duration::from_secs(120), "no other process measures");
        // A thread that it starts has its name for a moment.
        if let Some(first) = threads_called("wm-links").first() {
            break first.clone();
        }
    };
    let (mut captured, mut captures) = (CUstream::NULL, 0);
    cu!(cuStreamCreate(&mut captured, CU_STREAM_NON_BLOCKING));
    while measuring.exists() {
        let mut graph = CUgraph::NULL;
        cu!(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
        cu!(cuMemsetD8Async(p.device, 1, BYTES, captured));
        // Calls of a measurement come in between.
        std::thread::sleep(Duration::from_millis(3));
        cu!(cuStreamEndCapture(captured, &mut graph));
        cu!(cuGraphDestroy(graph));
        captures += 1;
    }
    assert!(captures > 10, "the measurement was over after {captures}");
}

#[test]
fn the_links_are_measured_beside_the_program_and_its_captures() {
    let name = "beside::the_links_are_measured_beside_the_program_and_its_captures";
    on_machine(name, "0,1", None, &[LINKS], measured_beside);
}
