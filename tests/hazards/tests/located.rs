//! Hazard (out of memory): a device's limit holds only for requests that are made while the device
//! is current, although the call names the device.

use hazards::{Host, Outcome, Scratch, c, driver, places};

const PIECE: u64 = 4 << 20;

fn start(library: &str, words: &[&str], variables: &[(&str, &str)]) -> Outcome {
    let scratch = Scratch::new();
    let text = |path: std::path::PathBuf| path.to_str().expect("a readable path").to_owned();
    let library = text(c::library("piece", scratch.folder("maker").join(library), &[]));
    let program = c::program(&scratch, "located", &[&library, &text(places::shim())]);
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch)).args(words);
    let host = host.env("SIMCUDA_DEVICES", "2").env("SIMCUDA_MEMORY", "128MiB").env("WMSHIM_HEADROOM", "0");
    variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run()
}

/// The number of pieces, the code that ended them, and the bytes of the second device and of the
/// host.
fn made(outcome: &Outcome) -> (String, [u64; 2]) {
    outcome.expect_success();
    let after = |when: &str| outcome.stdout.lines().find_map(|line| line.strip_prefix(when)).expect(when);
    let stats: serde_json::Value = serde_json::from_str(after("full ")).expect("JSON");
    let devices = stats["devices"].as_array().expect("devices");
    let pieces = devices.iter().find(|device| device["ordinal"] == 1).map(|device| device["pieces"].clone());
    let pieces = pieces.unwrap_or_default();
    let bytes = ["device_bytes", "host_bytes"].map(|field| pieces[field].as_u64().unwrap_or(0));
    (after("made ").to_owned(), bytes)
}

#[test]
fn a_limit_holds_for_a_device_that_is_not_current() {
    for words in [&["20"][..], &["20", "used"]] {
        let limit = [("WMSHIM_DEVICE_LIMIT", "40MiB")];
        let needs_device = made(&start("libnccl.so.2", words, &limit));
        assert_eq!(needs_device, ("10 2".into(), [10 * PIECE, 0]), "{words:?}");
        let others = made(&start("libsome.so", words, &limit));
        assert_eq!(others, ("20 0".into(), [10 * PIECE, 10 * PIECE]), "{words:?}");
        let off = [limit[0], ("WMSHIM_OVERFLOW", "off")];
        assert_eq!(
            made(&start("libc10_cuda.so", words, &off)),
            ("10 2".into(), [10 * PIECE, 0]),
            "{words:?}"
        );
    }
}

#[test]
fn what_has_no_room_on_a_device_that_is_not_current_goes_to_the_host() {
    for words in [&["40"][..], &["40", "used"]] {
        let all = made(&start("libc10_cuda.so", words, &[("SIMCUDA_RACES", "1")]));
        assert_eq!(all, ("40 0".into(), [32 * PIECE, 8 * PIECE]), "{words:?}");
        let limited = made(&start("libc10_cuda.so", words, &[("WMSHIM_DEVICE_LIMIT", "40MiB")]));
        assert_eq!(limited, ("40 0".into(), [10 * PIECE, 30 * PIECE]), "{words:?}");
        let ends = made(&start("libc10_cuda.so", words, &[("WMSHIM_HOST_LIMIT", "10MiB")]));
        assert_eq!(ends, ("34 2".into(), [32 * PIECE, 2 * PIECE]), "{words:?}");
    }
}

/// For a missing device the driver's answer is returned, without a log line.
#[test]
fn others_get_the_drivers_answer() {
    let outcome = start("libsome.so", &["2"], &[("SIMCUDA_DEVICES", "1")]);
    assert_eq!(outcome.status.code(), Some(80), "no piece is there to be given access");
    assert!(!outcome.stderr.contains("wmshim"), "{}", outcome.stderr);
}
