//! Hazard (symbol interposition): the library breaks another library of the process that is
//! unrelated to the driver.
//!
//! The shim exports `dlopen` and `dlmopen`. Every library of the process then calls these, and each
//! must get exactly glibc's result for it: by its own RUNPATH, in its own namespace, with its own
//! error.

use hazards::{Host, Outcome, Scratch, c, driver, shim};

#[test]
fn a_library_finds_its_sibling_through_its_own_runpath() {
    let scratch = Scratch::new();
    let driver = driver::small(&scratch);
    let folder = scratch.folder("plugins");
    // `opener` distinguishes libraries by their cuInit, so the sibling has one. No other library
    // has its name.
    let sibling = c::library("small_driver", folder.join("libsibling.so"), &[]);
    let asker = c::library("asker", folder.join("asker.so"), &["-Wl,--enable-new-dtags,-rpath,$ORIGIN"]);
    let host = Host::shimmed(c::program(&scratch, "opener", &[]), &scratch, &driver)
        .env("HAZARD_DRIVER", sibling)
        .env("HAZARD_SHIM", shim::alone(&scratch));
    let asker = asker.to_str().expect("a readable path");
    assert_eq!(host.args(["asked", asker, "now", "libsibling.so"]).run().expect_success(), "driver");
}

#[test]
fn the_loader_answers_everything_else_as_glibc_does() {
    let scratch = Scratch::new();
    let driver = driver::small(&scratch);
    let outcome = Host::shimmed(c::program(&scratch, "manners", &[]), &scratch, &driver).run();
    outcome.expect_success();
    assert_eq!(outcome.stderr, "");
}

#[test]
fn another_preload_before_the_shim_reaches_it_with_rtld_next() {
    let outcome = with_wrapper(|wrapper, shim| format!("{wrapper}:{shim}"));
    assert_eq!(outcome.expect_success(), "shim");
    assert_eq!(outcome.stderr, "wrapper: 1\n", "the program's dlopen goes through the wrapper, ours do not");
}

#[test]
fn another_preload_behind_the_shim_is_left_alone() {
    let outcome = with_wrapper(|wrapper, shim| format!("{shim}:{wrapper}"));
    assert_eq!(outcome.expect_success(), "shim");
}

#[test]
fn a_profiler_before_the_shim_wraps_its_calls() {
    let scratch = Scratch::new();
    let driver = driver::small(&scratch);
    let profiler = c::library("profiler", scratch.path().join("profiler.so"), &[]);
    let preload = format!("{}:{}", profiler.display(), shim::alone(&scratch).display());
    let program = c::program(&scratch, "linked", &[&c::flag("-L", &driver), "-lcuda"]);
    let outcome = Host::shimmed(program, &scratch, &driver).env("LD_PRELOAD", preload).run();
    outcome.expect_success();
    assert_eq!(outcome.stderr, "profiler: cuInit\n");
}

#[test]
fn a_second_copy_of_the_shim_stays_idle() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let preload = format!("{}:{}", shim::alone(&scratch).display(), shim::installed(&scratch).display());
    let program = c::cuda_program(&scratch, "life");
    let outcome = Host::shimmed(program, &scratch, &driver).args(["closed"]).env("LD_PRELOAD", preload).run();
    assert_eq!((outcome.expect_success(), outcome.stderr.as_str()), ("", ""));
}

/// Opens the driver and calls it with another preload that wraps `dlopen` and `dlsym`. If our
/// look-up of the driver's functions went through its `dlsym`, each would resolve to our own, and
/// the call would never end.
fn with_wrapper(order: fn(&str, &str) -> String) -> Outcome {
    let scratch = Scratch::new();
    let driver = driver::small(&scratch);
    let wrapper = c::library("wrapper", scratch.path().join("wrapper.so"), &[]);
    let shim = shim::alone(&scratch);
    let preload = order(wrapper.to_str().expect("a readable path"), shim.to_str().expect("a readable path"));
    Host::shimmed(c::program(&scratch, "opener", &[]), &scratch, &driver)
        .env("LD_PRELOAD", preload)
        .env("HAZARD_SHIM", shim)
        .args(["open", "libcuda.so.1", "now"])
        .run()
}
