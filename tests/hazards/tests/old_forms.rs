//! Hazard (out-of-bounds access): an old form of a call passes a shorter description than today's,
//! or a count exceeds the array, and the library reads bytes that the driver does not.

use hazards::{Host, Scratch, c, driver};

#[test]
fn nothing_is_read_behind_an_old_description_or_a_wrong_count() {
    let scratch = Scratch::new();
    let (program, driver) = (c::cuda_program(&scratch, "old_forms"), driver::simulated(&scratch));
    let bare = Host::bare(&program).env("LD_LIBRARY_PATH", &driver).env("SIMCUDA_DEVICES", "2").run();
    let answers = bare.expect_success();
    assert!(answers.lines().count() >= 15 && answers.ends_with("it lives"), "{answers}");
    for variables in [
        &[][..],
        &[("WMSHIM_DEDUP", "on")],
        &[("WMSHIM_MIGRATE", "on")],
        &[("WMSHIM_DEDUP", "on"), ("WMSHIM_MIGRATE", "on")],
        &[("WMSHIM_GUARD", "canary")],
    ] {
        for devices in ["1", "2"] {
            let host = Host::shimmed(&program, &scratch, &driver).env("SIMCUDA_DEVICES", devices);
            let ours = variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run();
            assert_eq!(ours.expect_success(), answers, "{variables:?}, {devices} devices");
        }
    }
}
