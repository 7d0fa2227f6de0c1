//! Hazard (out of memory): JAX, whose own allocator ends at a share of the device, does not go on
//! in host memory; or the library changes JAX's allocator against the user's will.

use std::path::Path;

use hazards::{Host, Outcome, Scratch, c, driver, places};

const BUFFER: u64 = 4 << 20;
const AUTO: (&str, &str) = ("WMSHIM_JAX_ALLOCATOR", "auto");
const OURS: &str = "cuda_async false";

/// A program that takes 32 buffers, 128 MiB, on a device of 64 MiB.
fn run(words: &[&str], variables: &[(&str, &str)]) -> Outcome {
    let scratch = Scratch::new();
    let text = |path: std::path::PathBuf| path.to_str().expect("a readable path").to_owned();
    let library = text(c::library("piece", scratch.folder("maker").join("xla_cuda_plugin.so"), &[]));
    let program = c::program(&scratch, "xla", &[&library, &text(places::shim())]);
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch)).args(words);
    let host = host.env("SIMCUDA_MEMORY", "64MiB").env("WMSHIM_HEADROOM", "0").env("SIMCUDA_RACES", "1");
    variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run()
}

fn line<'a>(outcome: &'a Outcome, when: &str) -> &'a str {
    outcome.stdout.lines().find_map(|line| line.strip_prefix(when)).expect(when)
}

/// Buffers that the program got, and bytes of pieces and blocks on the device and on the host.
fn got(outcome: &Outcome) -> (u64, [u64; 2]) {
    outcome.expect_success();
    let stats: serde_json::Value = serde_json::from_str(line(outcome, "full ")).expect("JSON");
    let of = |tier: &str| {
        let pieces = stats["devices"][0]["pieces"][format!("{tier}_bytes")].as_u64().unwrap_or(0);
        pieces + stats["devices"][0]["tiers"][tier]["live_bytes"].as_u64().expect(tier)
    };
    (line(outcome, "got ").parse().expect("a number"), [of("device"), of("host")])
}

/// The default without the library's choice.
#[test]
fn a_region_of_three_quarters_lies_on_the_device_and_is_all_that_jax_takes() {
    let (buffers, bytes) = got(&run(&["bfc", "at_once", "75", "32"], &[]));
    assert_eq!((buffers, bytes), (12, [12 * BUFFER, 0]));
}

#[test]
fn with_the_librarys_choice_buffers_go_on_in_host_memory_one_by_one() {
    for devices in ["1", "2"] {
        let (buffers, [device, host]) =
            got(&run(&["cuda_async", "-", "75", "32"], &[("SIMCUDA_DEVICES", devices)]));
        assert_eq!((buffers, device + host), (32, 32 * BUFFER));
        assert!(device >= 14 * BUFFER, "the device comes first: {device}");
    }
    let (buffers, _) = got(&run(&["cuda_async", "-", "75", "32"], &[("WMSHIM_OVERFLOW", "off")]));
    assert!(buffers <= 16, "{buffers}");
}

/// A user's larger share: each region lies in one place.
#[test]
fn regions_that_double_go_on_in_host_memory() {
    for devices in ["1", "2"] {
        let (buffers, [device, host]) =
            got(&run(&["bfc", "grows", "300", "32"], &[("SIMCUDA_DEVICES", devices)]));
        assert!(buffers == 32 && device <= 16 * BUFFER && host >= 16 * BUFFER, "{buffers} {device} {host}");
    }
    let one = got(&run(&["bfc", "at_once", "150", "24"], &[]));
    assert_eq!(one, (24, [0, 24 * BUFFER]));
    // Bare, the program ends where the device does.
    let (buffers, _) = got(&run(&["bfc", "grows", "300", "32"], &[("WMSHIM_OVERFLOW", "off")]));
    assert!(buffers <= 16, "{buffers}");
}

const SHOW: &str = "import os; print(' '.join(os.environ.get(n, '-') for n in \
    ('XLA_PYTHON_CLIENT_ALLOCATOR', 'XLA_PYTHON_CLIENT_PREALLOCATE')))";

/// Python's environment, as the code sees it.
fn python(code: &str, variables: &[(&str, &str)]) -> String {
    let scratch = Scratch::new();
    // No driver is needed: nothing here makes a CUDA call.
    let host = Host::shimmed("python3", &scratch, Path::new("/nowhere")).args(["-c", code]);
    let outcome = variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run();
    assert_eq!(outcome.stderr, "");
    outcome.expect_success().to_owned()
}

#[test]
fn jax_gets_an_allocator_without_a_limit_before_it_is_imported() {
    assert_eq!(python(SHOW, &[AUTO]), OURS);
    for off in [("WMSHIM_OVERFLOW", "off"), ("WMSHIM_STITCH", "off"), ("WMSHIM_DISABLE", "on")] {
        assert_eq!(python(SHOW, &[AUTO, off]), "- -", "{off:?}");
    }
    let off = [("WMSHIM_OVERFLOW", "off"), ("WMSHIM_JAX_ALLOCATOR", "async")];
    assert_eq!(python(SHOW, &off), OURS);
}

#[test]
fn without_the_setting_jaxs_environment_is_left_alone() {
    assert_eq!(python(SHOW, &[]), "- -");
    assert_eq!(python(SHOW, &[("WMSHIM_JAX_ALLOCATOR", "native")]), "- -");
}

#[test]
fn what_the_user_chose_stays() {
    assert_eq!(python(SHOW, &[AUTO, ("XLA_PYTHON_CLIENT_ALLOCATOR", "platform")]), "platform -");
    assert_eq!(python(SHOW, &[AUTO, ("XLA_PYTHON_CLIENT_PREALLOCATE", "true")]), "- true");
    for name in ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION", "TF_FORCE_UNIFIED_MEMORY"] {
        assert_eq!(python(SHOW, &[AUTO, (name, "0.9")]), "- -", "{name}");
    }
}

/// A child does not take the library's choice for the user's.
#[test]
fn a_child_chooses_anew() {
    let child = |change: &str| {
        let start = "subprocess.run([sys.executable, '-c', os.environ['HAZARD_SHOW']], check=True)";
        python(&format!("import os, subprocess, sys; {change}; {start}"), &[AUTO, ("HAZARD_SHOW", SHOW)])
    };
    assert_eq!(child("pass"), OURS);
    assert_eq!(child("os.environ['WMSHIM_OVERFLOW'] = 'off'"), "- -");
    assert_eq!(child("os.environ['XLA_PYTHON_CLIENT_MEM_FRACTION'] = '.5'"), "- -");
    assert_eq!(child("os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'true'"), "- true");
}
