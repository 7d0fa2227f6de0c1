//! Hazard (error handling): the machine has no driver, an old one, or another file in its place.
//!
//! A preload often reaches machines without a GPU: login nodes, build servers, children of a job.
//! Programs that use CUDA get the driver's own error, once with a line that lists the searched
//! places; all other programs are unaffected.

use std::path::Path;

use hazards::{Host, Outcome, Scratch, c, driver, shim};

/// `lacking` under the shim with this driver.
fn lacking(scratch: &Scratch, driver: &Path) -> Outcome {
    Host::shimmed(c::program(scratch, "lacking", &[]), scratch, driver).run()
}

#[test]
fn without_a_driver_cuinit_says_no_device() {
    let scratch = Scratch::new();
    let outcome = lacking(&scratch, &scratch.path().join("nowhere"));
    let words = "cuInit 100\ncuDriverGetVersion 3\ncuDeviceGetCount 3\ncuMemAlloc_v2 3\ncuGetProcAddress_v2 3\n\
                 CUDA_ERROR_NO_DEVICE 0 1";
    assert_eq!(outcome.expect_success(), words);
}

#[test]
fn without_a_driver_one_line_names_the_places() {
    let scratch = Scratch::new();
    let nowhere = scratch.path().join("nowhere");
    let outcome = lacking(&scratch, &nowhere);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains(nowhere.to_str().expect("readable")), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("WMSHIM_DRIVER"), "the remedy is named: {}", outcome.stderr);
}

/// Also beside a folder of that name, which is unrelated.
#[test]
fn the_simulated_driver_has_a_word() {
    let scratch = Scratch::new();
    let simulated = driver::simulated(&scratch).join(driver::FULL_NAME);
    let beside = shim::alone(&scratch).with_file_name("libsimcuda.so");
    std::fs::copy(simulated, beside).expect("copied");
    let program = c::cuda_program(&scratch, "life");
    let script = format!("mkdir sim && exec '{}' closed", program.display());
    let host = Host::shimmed("sh", &scratch, Path::new("sim")).args(["-c", &script]);
    let outcome = host.within(scratch.path()).run();
    outcome.expect_success();
    assert_eq!(outcome.stderr, "");
}

#[test]
fn without_any_setting_the_usual_places_are_searched() {
    let scratch = Scratch::new();
    let folder = scratch.folder("empty");
    let program = c::program(&scratch, "lacking", &[]);
    let outcome = Host::shimmed(program, &scratch, Path::new("")).env("LD_LIBRARY_PATH", &folder).run();
    // A machine with a driver finds it: then there is no line, and the test ends here.
    if outcome.stdout.starts_with("cuInit 100\n") {
        for place in [folder.to_str().expect("readable"), "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"] {
            assert!(outcome.stderr.contains(place), "{place} is not in: {}", outcome.stderr);
        }
    }
}

#[test]
fn a_driver_on_the_library_path_is_found_without_a_setting() {
    let scratch = Scratch::new();
    let driver = driver::small(&scratch);
    let program = c::program(&scratch, "lacking", &[]);
    let outcome = Host::shimmed(program, &scratch, Path::new("")).env("LD_LIBRARY_PATH", &driver).run();
    assert!(outcome.expect_success().starts_with("cuInit 0\ncuDriverGetVersion 0\n"), "{}", outcome.stdout);
    assert_eq!(outcome.stderr, "");
}

#[test]
fn a_non_cuda_program_without_a_driver_is_untouched_and_silent() {
    let scratch = Scratch::new();
    let outcome = Host::shimmed("/bin/echo", &scratch, &scratch.path().join("nowhere")).args(["hello"]).run();
    assert_eq!(outcome.expect_success(), "hello");
    assert_eq!(outcome.stderr, "");
}

#[test]
fn an_old_driver_lacks_functions_and_says_so() {
    let scratch = Scratch::new();
    let outcome = lacking(&scratch, &driver::small(&scratch));
    let words =
        "cuInit 0\ncuDriverGetVersion 0\ncuDeviceGetCount 0\ncuMemAlloc_v2 801\ncuGetProcAddress_v2 801";
    assert_eq!(outcome.expect_success(), words);
    assert_eq!(outcome.stderr, "");
}

#[test]
fn the_shim_never_takes_itself_for_the_driver() {
    let scratch = Scratch::new();
    let another = shim::drop_in(&scratch);
    let outcome = lacking(&scratch, &another);
    assert!(outcome.expect_success().starts_with("cuInit 100\n"), "{}", outcome.stdout);
    assert!(outcome.stderr.contains("wmshim itself"), "{}", outcome.stderr);
}

#[test]
fn a_file_that_is_no_driver_is_named_with_the_reason() {
    let scratch = Scratch::new();
    for (name, content) in [("text.so", "not a library".as_bytes()), ("empty.so", &[])] {
        let file = scratch.file(name, content);
        let outcome = lacking(&scratch, &file);
        assert!(outcome.expect_success().starts_with("cuInit 100\n"), "{}", outcome.stdout);
        assert!(outcome.stderr.contains(name), "{}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    }
}

#[test]
fn a_library_that_is_no_driver_is_named_with_the_reason() {
    let scratch = Scratch::new();
    let asker = c::library("asker", scratch.path().join("other.so"), &[]);
    let outcome = lacking(&scratch, &asker);
    assert!(outcome.expect_success().starts_with("cuInit 100\n"), "{}", outcome.stdout);
    assert!(outcome.stderr.contains("no cuInit in it"), "{}", outcome.stderr);
}
