//! Hazard (use after free): memory that PyTorch takes through `wmshim_torch_malloc` is reused too
//! early, is made on the wrong device or stream, breaks a graph, or is a null address in a tensor
//! after a failure.

use std::path::Path;

use hazards::{Host, Scratch, c, driver, places};

/// Runs a program on a device of 64 MiB without overflow. Returns its output.
fn run(scratch: &Scratch, program: &Path, what: &str, variables: &[(&str, &str)]) -> String {
    let host = Host::shimmed(program, scratch, &driver::simulated(scratch)).args([what]);
    let host = host.env("SIMCUDA_MEMORY", "64MiB").env("WMSHIM_OVERFLOW", "off");
    let host = host.env("LD_LIBRARY_PATH", scratch.path().join("torch"));
    let outcome = variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run();
    outcome.expect_success().to_owned()
}

/// Uses the allocator in one way, without PyTorch.
fn used(what: &str, variables: &[(&str, &str)]) {
    let scratch = Scratch::new();
    let program = c::cuda_program(&scratch, "pluggable");
    run(&scratch, &program, what, variables);
}

/// The output of a program that requests too much, with the parts of PyTorch's libraries that
/// handle a failure.
fn shortage(flags: &[&str]) -> Vec<String> {
    let scratch = Scratch::new();
    let folder = scratch.folder("torch");
    let library = |source: &str| {
        let name = format!("-Wl,-soname,lib{source}.so");
        let flags: Vec<_> = flags.iter().copied().chain([name.as_str()]).collect();
        c::library(source, folder.join(format!("lib{source}.so")), &flags)
    };
    let files = [places::shim(), library("c10"), library("c10_cuda")];
    let files = files.iter().map(|file| file.to_str().expect("a readable path"));
    // As in PyTorch, the second library is loaded even if the program uses none of its names.
    let flags: Vec<_> = flags.iter().copied().chain(["-Wl,--no-as-needed"]).chain(files).collect();
    let program = c::program(&scratch, "shortage", &flags);
    run(&scratch, &program, "", &[]).lines().map(str::to_owned).collect()
}

#[test]
fn memory_is_given_counted_kept_and_given_back() {
    used("plain", &[]);
}

#[test]
fn the_named_device_is_used_whatever_the_threads_is() {
    used("threads", &[("SIMCUDA_DEVICES", "2")]);
}

#[test]
fn memory_that_another_stream_uses_is_not_reused() {
    used("streams", &[]);
}

#[test]
fn memory_that_a_stream_of_another_device_uses_is_not_reused() {
    used("elsewhere", &[("SIMCUDA_DEVICES", "2")]);
}

#[test]
fn a_capture_owns_its_memory_and_no_other() {
    used("capture", &[]);
}

#[test]
fn without_the_memory_manager_the_driver_serves() {
    used("plain", &[("WMSHIM_STITCH", "off")]);
    used("threads", &[("WMSHIM_DISABLE", "1"), ("SIMCUDA_DEVICES", "2")]);
}

#[test]
fn a_device_that_was_reset_gives_memory_again() {
    used("reset", &[]);
}

#[test]
fn a_forked_child_drops_what_it_inherited() {
    used("child", &[]);
}

#[test]
fn without_pytorch_a_failure_is_null() {
    used("shortage", &[]);
}

#[test]
fn a_shortage_is_pytorchs_own_exception_with_a_remedy() {
    const PLACE: &str = "wmshim_torch_malloc of libwmshim.so";
    let [shortage, nonsense] = &shortage(&[])[..] else { panic!("two lines") };
    let beginning = format!(
        "out of memory: {PLACE}: CUDA out of memory. Tried to allocate 1024.00 GiB. GPU 0 has 0.03 GiB free of 0.06"
    );
    assert!(shortage.starts_with(&beginning) && shortage.contains("WMSHIM_OVERFLOW"), "{shortage}");
    assert!(
        nonsense.starts_with(&format!("error: {PLACE}: CUDA error: CUDA_ERROR_INVALID_VALUE")),
        "{nonsense}"
    );
}

#[test]
fn with_an_older_pytorch_it_is_an_error_of_the_same_text() {
    let lines = shortage(&["-D_GLIBCXX_USE_CXX11_ABI=0"]);
    assert!(
        lines[0].starts_with("error: wmshim_torch_malloc of libwmshim.so: CUDA out of memory."),
        "{lines:?}"
    );
}
