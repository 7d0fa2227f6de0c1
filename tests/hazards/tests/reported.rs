//! Hazard (wrong result): PyTorch's profiler loses what its allocator reports, or gets something
//! else, because the library sees the report first.

use hazards::{Host, Scratch, c, driver, places};

#[test]
fn a_report_reaches_pytorch_as_it_was_made() {
    let scratch = Scratch::new();
    let library =
        c::library("reports", scratch.folder("torch").join("libc10.so"), &["-Wl,-soname,libc10.so"]);
    let program = c::program(&scratch, "reported", &["-ldl"]);
    let bare = Host::bare(&program).args([&library]).run();
    let expected = bare.expect_success();
    assert_eq!(expected.lines().count(), 9);
    let driver = driver::simulated(&scratch);
    for sharing in ["off", "auto", "on"] {
        let host = Host::shimmed(&program, &scratch, &driver).args([&library]);
        let shimmed = host.env("WMSHIM_DEDUP", sharing).env("WMSHIM_BROKER", places::broker()).run();
        assert_eq!((shimmed.expect_success(), &*shimmed.stderr), (expected, ""), "{sharing}");
    }
}
