//! Hazard (source drift): an example that users copy does not compile, or prints other words than
//! its page.

use std::process::Command;

use hazards::{Host, Outcome, Scratch, driver, places};

/// Runs a program of the examples under the library, on a simulated device of 256 MiB.
fn run(program: Host) -> Outcome {
    program.env("SIMCUDA_MEMORY", "256MiB").run()
}

/// A Python program under the library, with the package of this source tree.
fn python(scratch: &Scratch, arguments: &[&str]) -> Host {
    Host::shimmed("python3", scratch, &driver::simulated(scratch))
        .env("PYTHONPATH", places::workspace("tools/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(arguments)
}

/// Compiles a program with wmshim.h, and runs it.
fn c(name: &str, migrate: &str) -> Outcome {
    let scratch = Scratch::new();
    let program = scratch.path().join(name);
    let mut gcc = Command::new("gcc");
    gcc.arg(places::workspace(&format!("examples/c/{name}.c")))
        .arg("-I")
        .arg(places::workspace("shim/preload/include"));
    gcc.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(places::shim());
    gcc.env_remove("LD_LIBRARY_PATH").env_remove("LD_PRELOAD");
    assert!(gcc.status().expect("gcc").success(), "examples/c/{name}.c does not compile");
    run(Host::shimmed(&program, &scratch, &driver::simulated(&scratch)).env("WMSHIM_MIGRATE", migrate))
}

#[test]
fn c_uses_one_pointer_on_both_processors() {
    let expected = "the CPU reads 7\nthe first word is 8, the others are 9";
    assert_eq!(c("unified", "off").expect_success(), expected);
}

#[test]
fn python_uses_one_address_on_both_processors() {
    let scratch = Scratch::new();
    let page = places::workspace("examples/python/unified.py");
    let outcome = run(python(&scratch, &[page.to_str().expect("a path")]));
    assert_eq!(outcome.expect_success(), "the CPU reads 7\nword 9");
}

#[test]
fn c_advises() {
    let outcome = c("advise", "on");
    let expected = "on the host, at the same address\non the device again\nthe last word is 7";
    assert_eq!(outcome.expect_success(), expected);
}

/// Compiles a program with the shipped headers, and runs it on two simulated devices.
fn linked_with_wholememory(name: &str) -> String {
    let (scratch, library) = (Scratch::new(), places::built("libwholegraph.so"));
    let program = scratch.path().join(name);
    let mut gcc = Command::new("gcc");
    gcc.arg(places::workspace(&format!("examples/c/{name}.c"))).arg("-I");
    gcc.arg(places::workspace("shim/wholegraph/include"));
    gcc.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&library).arg(places::shim());
    gcc.arg("-lpthread").env_remove("LD_LIBRARY_PATH").env_remove("LD_PRELOAD");
    assert!(gcc.status().expect("gcc").success(), "examples/c/{name}.c does not compile");
    let folder = library.parent().expect("a folder");
    let host = Host::shimmed(&program, &scratch, &driver::simulated(&scratch));
    let outcome = run(host.env("LD_LIBRARY_PATH", folder).env("SIMCUDA_DEVICES", "2"));
    outcome.expect_success().to_owned()
}

#[test]
fn c_makes_a_table_of_two_ranks() {
    let said = linked_with_wholememory("wholememory");
    assert_eq!(said, "rows 0, 999 and 499 are of ranks 0, 1 and 0");
}

#[test]
fn c_has_memory_of_two_gpus_in_one_thread() {
    let said = linked_with_wholememory("one_thread");
    let lines = [
        "GPU 0 has 32 MiB from byte 0 on, and reads 40",
        "GPU 1 has 32 MiB from byte 33554432 on, and reads 41",
    ];
    assert_eq!(said, lines.join("\n"));
}

#[test]
fn rust_needs_more_than_the_device() {
    let scratch = Scratch::new();
    let host = Host::shimmed(env!("CARGO_BIN_EXE_example-spill"), &scratch, &driver::simulated(&scratch));
    let outcome = run(host);
    assert_eq!(outcome.expect_success(), "24 vectors of 16 MiB, each as written");
}

#[test]
fn python_reads_its_statistics() {
    let scratch = Scratch::new();
    let page = places::workspace("examples/python/statistics.py");
    let outcome = run(python(&scratch, &[page.to_str().expect("a path")]));
    let said = outcome.expect_success();
    assert!(said.starts_with("device: ") && said.ends_with("\n6 blocks"), "{said}");
    let held: u64 = said.lines().filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok()).sum();
    assert_eq!(held, 384, "MiB on both tiers: {said}");
}

#[test]
fn wholememory_runs_without_a_gpu() {
    let scratch = Scratch::new();
    let library = places::built("libwholegraph.so");
    let host = python(&scratch, &["-m", "wmshim.wholememory.demo"]).env("WHOLEMEMORY_LIBRARY", library);
    let outcome = run(host);
    let (said, page) =
        (outcome.expect_success(), std::fs::read_to_string(places::workspace("docs/wholememory.md")));
    assert!(page.expect("the page").contains(said), "docs/wholememory.md has another output:\n{said}");
}
