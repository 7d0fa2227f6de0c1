//! Hazard (wrong result): memory that the program has written counts as clean when it leaves the
//! device, and the old bytes come back; or a copy is made although the host still has the bytes.

use hazards::{Host, Outcome, Scratch, c, driver, places, skip};

/// Bytes of a block of `clean`.
const BLOCK: u64 = 16 << 20;

/// Runs `clean` on the simulated driver, which ends the process at a race.
fn clean(seed: &str, rounds: &str, variables: &[(&str, &str)]) -> Outcome {
    clean_without(None, seed, rounds, variables)
}

/// The same where a system call is refused.
fn clean_without(
    call: Option<libc::c_long>,
    seed: &str,
    rounds: &str,
    variables: &[(&str, &str)],
) -> Outcome {
    let scratch = Scratch::new();
    let text = |path: std::path::PathBuf| path.to_str().expect("a readable path").to_owned();
    let include = c::flag("-I", &places::workspace("shim/preload/include"));
    let program = c::program(&scratch, "clean", &[&include, &text(places::shim())]);
    let image = text(places::workspace("kernels/compiled/diagnostics.ptx"));
    let host = match call {
        Some(call) => {
            let filter = c::program(&scratch, "denied", &[]);
            let host = Host::shimmed(filter, &scratch, &driver::simulated(&scratch));
            host.args([call.to_string()]).args([&program])
        }
        None => Host::shimmed(program, &scratch, &driver::simulated(&scratch)),
    };
    let host = host.args([image.as_str(), seed, rounds]).env("SIMCUDA_RACES", "1").env("SIMCUDA_SEED", seed);
    let host =
        host.env("WMSHIM_MIGRATE", "on").env("WMSHIM_KEPT_COPIES", "on").env("SIMCUDA_MEMORY", "256MiB");
    variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run()
}

/// The bytes that were to be copied, and those that left the device with and without a copy.
fn bytes(outcome: &Outcome) -> [u64; 3] {
    let Left { due, copied, clean, .. } = left(outcome);
    [due, copied, clean]
}

/// What left the device, in bytes.
struct Left {
    due: u64,
    copied: u64,
    clean: u64,
    /// Chunks that may be copied although they were not written: no fingerprint of them was taken,
    /// or their kept copy went with a copy that took too long.
    excused: u64,
}

fn left(outcome: &Outcome) -> Left {
    let lines: Vec<_> = outcome.expect_success().lines().collect();
    let figures: serde_json::Value = serde_json::from_str(lines[1]).expect("JSON");
    let moves = &figures["devices"][0]["moves"];
    let names = ["out_bytes", "clean_bytes", "unprinted_bytes"];
    let [out, clean, unprinted] = names.map(|name| moves[name].as_u64().expect("bytes"));
    let refused = moves["refused"].as_array().expect("a list");
    let slow = refused.iter().filter(|row| row["reason"] == "the copy takes too long");
    let slow: u64 = slow.map(|row| row["count"].as_u64().expect("a count")).sum();
    let due = lines[0].parse().expect("a number");
    Left { due, copied: out - clean, clean, excused: unprinted + slow * BLOCK }
}

#[test]
fn exactly_the_chunks_that_were_written_are_copied_out() {
    for seed in ["1", "2"] {
        let Left { due, copied, clean, excused } = left(&clean(seed, "8", &[]));
        assert!(copied >= due, "seed {seed}: {copied} copied of {due}");
        assert!(
            copied - due <= excused,
            "seed {seed}: {copied} copied of {due}, {excused} without a fingerprint"
        );
        assert!(clean > 0, "seed {seed}: nothing was clean");
    }
}

/// Without fingerprints all is copied, and the bytes are the same.
#[test]
fn where_the_driver_refuses_the_kernel_all_is_copied() {
    let refused = ["cuModuleLoadData:2+", "cuModuleGetFunction:2+", "cuMemHostAlloc:1+", "cuMemAlloc_v2:1+"];
    for function in refused {
        let [_, copied, clean] = bytes(&clean("5", "3", &[("SIMCUDA_FAIL", function)]));
        assert!(clean == 0 && copied > 0, "{function}: {clean} clean, {copied} copied");
    }
}

/// A launch that fails, for good or once; later launches are the program's own, too. Fingerprints
/// are given up after eight failures.
#[test]
fn where_the_launch_fails_all_is_copied() {
    let launches: Vec<String> = (1..=8).map(|count| format!("cuLaunchKernel:{count}")).collect();
    let [_, copied, clean_bytes] = bytes(&clean("5", "3", &[("SIMCUDA_FAIL", &launches.join(","))]));
    assert!(clean_bytes == 0 && copied > 0, "{clean_bytes} clean, {copied} copied");
    let [due, copied, clean_bytes] = bytes(&clean("6", "4", &[("SIMCUDA_FAIL", &launches[0])]));
    assert!(clean_bytes > 0 && copied >= due, "{clean_bytes} clean, {copied} copied of {due}");
}

/// Without a key there is no fingerprint.
#[test]
fn where_the_system_gives_no_random_numbers_all_is_copied() {
    let outcome = clean_without(Some(libc::SYS_getrandom), "5", "3", &[]);
    if outcome.status.code() == Some(77) {
        return skip("needs filters of system calls");
    }
    let [_, copied, clean] = bytes(&outcome);
    assert!(clean == 0 && copied > 0, "{clean} clean, {copied} copied");
}

/// Over a link that is slow beside the simulated GPU fingerprints pay, and over a fast one they may
/// not. What was written is copied over each.
#[test]
fn with_auto_fingerprints_are_taken_over_a_slow_link() {
    for (link, pays) in [("pcie=100MB/s,nvlink=1GB/s", true), ("pcie=100GB/s,nvlink=100GB/s", false)] {
        let variables = [("WMSHIM_KEPT_COPIES", "auto"), ("SIMCUDA_LINKS", link)];
        let [due, copied, clean] = bytes(&clean("7", "3", &variables));
        assert!(copied >= due && (clean > 0 || !pays), "{link}: {clean} clean, {copied} copied of {due}");
    }
}

/// All that is clean is compared, and nothing differs.
#[test]
fn what_is_verified_is_clean() {
    let outcome = clean("8", "4", &[("WMSHIM_VERIFY", "moves")]);
    let [due, copied, clean] = bytes(&outcome);
    assert!(copied >= due && clean > 0, "{clean} clean, {copied} copied of {due}");
    assert!(!outcome.stderr.contains("WMSHIM_VERIFY"), "{}", outcome.stderr);
}

/// Without the setting no fingerprint is taken.
#[test]
fn without_the_setting_all_is_copied() {
    let [_, copied, clean] = bytes(&clean("5", "3", &[("WMSHIM_KEPT_COPIES", "off")]));
    assert!(clean == 0 && copied > 0, "{clean} clean, {copied} copied");
}

/// A refusal that passes, as for lack of memory, is not the last word.
#[test]
fn a_kernel_that_is_refused_once_is_loaded_later() {
    for function in ["cuModuleLoadData:2", "cuModuleGetFunction:2", "cuMemHostAlloc:1", "cuMemAlloc_v2:1"] {
        let [due, copied, clean] = bytes(&clean("6", "4", &[("SIMCUDA_FAIL", function)]));
        assert!(clean > 0 && copied >= due, "{function}: {clean} clean, {copied} copied of {due}");
    }
}
