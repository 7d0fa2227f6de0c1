//! Hazard (silent degradation): what was allocated first has the device, and what is used most is
//! read from the host in each step. Hazard (thrashing): blocks change places again and again.

use hazards::{Host, Scratch, c, driver, places};

#[test]
fn what_is_used_most_comes_to_the_device_once_at_the_programs_own_waits() {
    let scratch = Scratch::new();
    let text = |path: std::path::PathBuf| path.to_str().expect("a readable path").to_owned();
    let include = c::flag("-I", &places::workspace("shim/preload/include"));
    let program = c::program(&scratch, "arranged", &[&include, &text(places::shim())]);
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch));
    let host = host.args([text(places::workspace("kernels/compiled/diagnostics.ptx"))]);
    let host = host.env("WMSHIM_MIGRATE", "auto").env("WMSHIM_DEVICE_LIMIT", "256MiB");
    let outcome = host.env("WMSHIM_HEADROOM", "0").run();
    let numbers = outcome.expect_success().split_whitespace().map(|word| word.parse().expect("MiB"));
    let [came, moved] = numbers.collect::<Vec<u64>>()[..] else { panic!("{}", outcome.stdout) };
    // One trial has the blocks where they were allocated.
    assert!(came == 64 && moved <= 3 * 128, "{came}, {moved} {}", outcome.stderr);
}
