//! Hazard (API conformance): a copy that belongs to the driver alone takes several links, or a
//! program that removes relays loses its copy.

use std::time::Duration;

use wm_abi::*;

use super::support::{BYTES, Program, alone, calls, cu, form, is_active, is_touched, on_machine, relayed};

/// Both ways, waiting.
fn there_and_back(p: &Program) {
    cu!(cuMemcpyHtoD_v2(p.device, p.from as *const _, BYTES));
    cu!(cuMemcpyDtoH_v2(p.to as *mut _, p.device, BYTES));
}

#[test]
fn off_means_off() {
    alone("fallback::off_means_off", "off", &[], || {
        let p = &Program::new();
        let through = form(p, "linear", 5, |p| {
            cu!(cuMemcpyHtoD_v2(p.device, p.from as *const _, BYTES));
            cu!(cuMemcpyDtoH_v2(p.to as *mut _, p.device, BYTES));
        });
        assert_eq!(through, 0);
        assert!(!is_touched(), "the sibling is not touched");
    });
}

#[test]
fn a_capture_is_the_drivers() {
    alone("fallback::a_capture_is_the_drivers", "0,1", &[], || {
        let p = &Program::warm();
        let mut graph = CUgraph::NULL;
        cu!(cuStreamBeginCapture_v2(p.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        cu!(cuMemcpyHtoDAsync_v2(p.device, p.from as *const _, BYTES, p.stream));
        cu!(cuStreamEndCapture(p.stream, &mut graph));
        assert_eq!(relayed(), 0);
    });
}

#[test]
fn a_program_may_reset_and_release_a_relay() {
    alone("fallback::a_program_may_reset_and_release_a_relay", "0,1", &[], || {
        let p = &Program::warm();
        let both = |p: &Program| {
            cu!(cuMemcpyHtoDAsync_v2(p.device, p.from as *const _, BYTES, p.stream));
            cu!(cuMemcpyDtoHAsync_v2(p.to as *mut _, p.device, BYTES, p.stream));
        };
        assert_eq!(form(p, "before", 3, both), 2);
        cu!(cuDevicePrimaryCtxReset_v2(1));
        assert_eq!(form(p, "after a reset", 5, both), 2);
        let mut context = CUcontext::NULL;
        cu!(cuDevicePrimaryCtxRetain(&mut context, 1));
        cu!(cuDevicePrimaryCtxRelease_v2(1));
        assert!(!is_active(1), "the program's last claim ended its context");
        assert_eq!(form(p, "after a release", 7, both), 2);
    });
}

#[test]
fn devices_that_are_shared_through_mps_are_left_alone() {
    let name = "fallback::devices_that_are_shared_through_mps_are_left_alone";
    alone(name, "auto", &[("SIMCUDA_MPS", "1")], || {
        let p = &Program::new();
        assert_eq!(form(p, "linear", 5, there_and_back), 0);
        assert!(!is_touched(), "the sibling is not touched");
    });
}

/// A context on that device would keep out the process for which it is reserved.
#[test]
fn devices_for_one_process_each_are_left_alone() {
    let name = "fallback::devices_for_one_process_each_are_left_alone";
    for links in ["auto", "0,1"] {
        alone(name, links, &[("SIMCUDA_EXCLUSIVE", "1")], || {
            let p = &Program::new();
            // More bytes than the amount after which the library looks for relays.
            for _ in 0..(1 << 30) / BYTES + 2 {
                there_and_back(p);
            }
            assert_eq!((relayed(), calls("cuCtxCreate")), (0, 0));
            assert!(!is_touched() && !is_active(1), "the sibling is not touched");
        });
    }
}

/// Like slices of one GPU (MIG), and machines without NVLink.
#[test]
fn devices_that_do_not_reach_each_other_are_no_relays() {
    let name = "fallback::devices_that_do_not_reach_each_other_are_no_relays";
    alone(name, "0,1", &[("SIMCUDA_PEERS", "0")], || {
        let p = &Program::new();
        assert_eq!(form(p, "linear", 5, there_and_back), 0);
        assert!(!is_touched(), "the sibling is not touched");
    });
}

#[test]
fn one_device_costs_nothing() {
    alone("fallback::one_device_costs_nothing", "auto", &[("SIMCUDA_DEVICES", "1")], || {
        let p = &Program::new();
        let threads = || std::fs::read_dir("/proc/self/task").expect("this process").count();
        assert_eq!(form(p, "linear", 5, there_and_back), 0);
        let before = threads();
        (0..3).for_each(|_| cu!(cuMemcpy(p.device, p.from, BYTES)));
        assert_eq!(calls("cuMemcpy"), 0, "it is not intercepted any more");
        assert_eq!(threads(), before);
    });
}

/// A context whose copies are over when their call returns, as `SYNC_MEMOPS` requires.
#[test]
fn a_context_with_synchronous_copies_is_left_alone() {
    let name = "fallback::a_context_with_synchronous_copies_is_left_alone";
    alone(name, "0,1", &[], || {
        let p = &Program::new();
        cu!(cuCtxSetFlags(CU_CTX_SYNC_MEMOPS));
        assert_eq!(form(p, "linear", 5, there_and_back), 0);
    });
}

/// A thread of ours measures the links meanwhile.
#[test]
fn a_process_that_ends_at_once_ends_well() {
    let name = "fallback::a_process_that_ends_at_once_ends_well";
    for links in ["pcie=50MB/s,nvlink=1GB/s", "pcie=2GB/s,nvlink=20GB/s"] {
        on_machine(name, "0,1", None, &[("SIMCUDA_LINKS", links)], || {
            let p = &Program::new();
            cu!(cuMemcpyHtoDAsync_v2(p.device, p.from as *const _, BYTES, p.stream));
        });
    }
}

/// Any driver function fails at any time: the program's bytes arrive, and its calls succeed.
#[test]
fn any_call_of_ours_may_fail_once_or_for_good() {
    const STEPS: [&str; 9] = [
        "cuStreamWaitEvent",
        "cuEventRecord",
        "cuMemcpyDtoDAsync",
        "cuEventCreate",
        "cuMemSetAccess",
        "cuMemMap",
        "cuMemAddressReserve",
        "cuMemCreate",
        "cuEventQuery",
    ];
    let name = "fallback::any_call_of_ours_may_fail_once_or_for_good";
    for (index, function) in STEPS.into_iter().enumerate() {
        // The failing call differs between functions; half of them fail from then on.
        let failures = [(1 + index % 4, ["", "+"][index % 2]), (5 + index % 3, ["+", ""][index % 2])];
        for failure in failures.map(|(at, rest)| format!("{function}:{at}{rest}")) {
            let variables = [("SIMCUDA_FAIL", failure.as_str()), ("WMSHIM_STITCH", "off")];
            alone(name, "0,1", &variables, || {
                let p = &Program::new();
                // A function that always fails leaves no relay.
                p.warm_within(Duration::from_secs(1));
                p.fill(9);
                cu!(cuMemcpyHtoDAsync_v2(p.device, p.from as *const _, BYTES, p.stream));
                cu!(cuMemcpyDtoH_v2(p.to as *mut _, p.device, BYTES));
                p.verify("one copy each way");
            });
        }
    }
}
