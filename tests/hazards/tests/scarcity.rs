//! Guards programs on a device that is full: against unused memory of ours in the way of memory which is the driver's to give,
//! and against memory of the host for who relies on the device's.

use hazards::{Host, Scratch, c, driver, places};

#[test]
fn a_pool_of_the_programs_own_gets_what_we_do_not_use() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "own_pool");
    // More than is given back at once, so that all of it must be.
    let host = Host::shimmed(program, &scratch, &driver).env("SIMCUDA_MEMORY", "1GiB");
    assert_eq!(host.run().expect_success(), "0");
}

/// What a program gets that has a library of this name take twelve blocks of 4 MiB, on a device of 26 MiB, and what is said.
fn twelve_blocks(library: &str) -> (String, String) {
    let scratch = Scratch::new();
    let folder = scratch.folder("libraries");
    let text = |path: std::path::PathBuf| path.to_str().expect("a readable path").to_owned();
    let runtime = text(c::library("block", folder.join("libcudart.so.12"), &[]));
    let library = text(c::library("through", folder.join(library), &[&runtime]));
    let program = c::program(&scratch, "filled", &[&library, &runtime, &text(places::shim())]);
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch)).args(["12"]);
    let outcome = host.env("SIMCUDA_MEMORY", "26MiB").run();
    (outcome.expect_success().to_owned(), outcome.stderr.clone())
}

#[test]
fn a_library_that_others_write_into_gets_no_memory_of_the_host() {
    assert_eq!(twelve_blocks("libsome.so.1").0, "12 0");
    for library in ["libnccl.so.2", "libnvshmem_host.so.3", "libuct_cuda.so.0"] {
        let (answer, said) = twelve_blocks(library);
        assert!(answer.ends_with(" 2") && !answer.starts_with("12"), "{library}: {answer}");
        assert!(said.contains("needs memory of the device itself"), "{said}");
    }
}
