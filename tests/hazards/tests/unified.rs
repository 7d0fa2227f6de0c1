//! Hazard (data race): the CPU and the GPU use a block at the same time, one of them
//! does not see what the other wrote, or a call that fails leaves a block that neither can use.

use hazards::{Host, Outcome, Scratch, c, driver, places};

/// Runs `unified` on the simulated driver, which delays all work at random and ends the process at
/// a race.
fn unified(arguments: &[&str], variables: &[(&str, &str)]) -> Outcome {
    let scratch = Scratch::new();
    let text = |path: std::path::PathBuf| path.to_str().expect("a readable path").to_owned();
    let include = c::flag("-I", &places::workspace("shim/preload/include"));
    let program = c::program(&scratch, "unified", &[&include, &text(places::shim())]);
    let image = text(places::workspace("kernels/compiled/diagnostics.ptx"));
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch));
    let host = host.args([image.as_str()]).args(arguments).env("SIMCUDA_RACES", "1").env("SIMCUDA_SEED", "3");
    variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run()
}

const ON: (&str, &str) = ("WMSHIM_MIGRATE", "on");

fn devices(line: &str) -> serde_json::Value {
    serde_json::from_str::<serde_json::Value>(line).expect("JSON")["devices"].clone()
}

/// The numbers that a program told, in its order.
fn told(outcome: &Outcome) -> Vec<i64> {
    let lines = outcome.expect_success().lines().filter(|line| !line.starts_with('{'));
    lines.map(|line| line.rsplit(' ').next().and_then(|code| code.parse().ok()).expect("a code")).collect()
}

#[test]
fn each_processor_reads_what_the_other_wrote_in_threads_with_and_without_moves() {
    for (seed, variables) in [
        ("1", &[][..]),
        ("2", &[ON][..]),
        ("3", &[("SIMCUDA_MEMORY", "64MiB"), ("WMSHIM_HEADROOM", "0")][..]),
        ("4", &[ON, ("SIMCUDA_MEMORY", "64MiB"), ("WMSHIM_HEADROOM", "0")][..]),
    ] {
        let outcome = unified(&["rounds", seed, "3", "6"], variables);
        let figures = devices(outcome.expect_success().lines().last().expect("a line"));
        let moved = figures[0]["moves"]["out_bytes"].as_u64().expect("bytes");
        assert!(moved > 0, "{variables:?}: nothing went to the CPU: {figures}");
    }
}

#[test]
fn wrong_calls_are_errors_and_change_nothing() {
    for variables in [&[][..], &[ON][..]] {
        let outcome = unified(&["calls"], variables);
        let wrong = [1; 12];
        let right = [0, 0, 0, 1, 1, 0, 0, 0, 0, 1];
        assert_eq!(told(&outcome), [&wrong[..], &right[..]].concat(), "{}", outcome.stderr);
    }
    let off = unified(&["quarrel"], &[("WMSHIM_OVERFLOW", "off")]);
    assert!(off.stderr.contains("800"), "a unified block needs host memory: {}", off.stderr);
}

/// Each call of the driver that an exchange makes fails once, or from then on.
#[test]
fn a_driver_that_fails_leaves_the_block_with_its_bytes() {
    let calls =
        ["cuMemSetAccess", "cuMemMap", "cuMemUnmap", "cuMemCreate", "cuMemcpyDtoDAsync", "cuCtxRecordEvent"];
    let mut failures = 0;
    for call in calls {
        for nth in [3, 6, 9, 13] {
            let rule: Vec<String> = (0..3).map(|more| format!("{call}:{}", nth + 2 * more)).collect();
            let outcome =
                unified(&["fails", "4"], &[("SIMCUDA_FAIL", &rule.join(",")), ("SIMCUDA_SEED", "")]);
            let line = outcome.expect_success().to_owned();
            let numbers: Vec<u32> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
            assert!(numbers[0] == 0 && numbers[2] > 0, "{call}, {nth}: {line}");
            failures += numbers[1];
        }
    }
    assert!(failures > 0, "no call of the program failed");
}

/// Hazard: a driver of before CUDA 12.2 gives the CPU no access, and the block is of neither.
#[test]
fn a_driver_without_access_for_the_cpu_is_told_once() {
    let outcome = unified(&["fails", "3"], &[("SIMCUDA_CPU_ACCESS", "0"), ("SIMCUDA_SEED", "")]);
    assert_eq!(outcome.expect_success(), "0 3 0");
    assert_eq!(outcome.stderr.matches("wmshim_access").count(), 1, "{}", outcome.stderr);
}

#[test]
fn threads_that_want_one_block_get_it_one_after_the_other() {
    unified(&["quarrel"], &[]).expect_success();
    unified(&["quarrel"], &[ON]).expect_success();
}

#[test]
fn what_others_rely_on_stays_and_what_the_cpu_has_comes_back() {
    let kept = |what: &str, variables: &[(&str, &str)]| told(&unified(&["kept", what], variables));
    for on in [&[][..], &[ON][..]] {
        assert_eq!(kept("nothing", on), [0, 0, 0, 0]);
        assert_eq!(kept("capture", on), [900, 900, 800, 0, 0, 0]);
    }
    let two = ("SIMCUDA_DEVICES", "2");
    for (what, variables) in [("context", vec![]), ("peer", vec![two])] {
        let off = [&[("WMSHIM_MIGRATE", "off")], &variables[..]].concat();
        assert_eq!(kept(what, &off), [800, 0, 0, 0], "{what}: contexts are not known");
        assert_eq!(kept(what, &[&[ON], &variables[..]].concat()), [0, 0, 0, 0], "{what}");
    }
    assert_eq!(kept("cpus", &[]), [0, 0, 0, 0]);
    assert_eq!(kept("pinned", &[ON]), [800, 0, 0, 0]);
}

/// Hazard: the call waits for as long as a stream that waits for the calling thread.
#[test]
fn a_call_waits_two_seconds_for_work_that_does_not_end() {
    let outcome = unified(&["held"], &[("SIMCUDA_SEED", "")]);
    let words: Vec<f64> =
        outcome.expect_success().split(' ').map(|word| word.parse().expect("a number")).collect();
    assert!(words[0] == 600.0 && (1.9..4.0).contains(&words[1]) && words[2] == 0.0, "{words:?}");
}

#[test]
fn a_block_without_room_on_the_device_is_the_gpus_on_the_host() {
    let outcome =
        unified(&["full"], &[("SIMCUDA_MEMORY", "64MiB"), ("WMSHIM_HEADROOM", "0"), ("SIMCUDA_SEED", "")]);
    let tiers: Vec<[u64; 2]> = outcome
        .expect_success()
        .lines()
        .map(|line| {
            let live =
                |tier: &str| devices(line)[0]["tiers"][tier]["live_bytes"].as_u64().expect("bytes") >> 20;
            [live("device"), live("host")]
        })
        .collect();
    assert!(tiers[0] == [0, 24] && tiers[1][1] >= 4 && tiers[2] == [24, 0], "{tiers:?}");
}

#[test]
fn each_device_has_its_own() {
    unified(&["two"], &[("SIMCUDA_DEVICES", "2")]).expect_success();
}

#[test]
fn a_forked_child_is_refused_and_its_parent_goes_on() {
    assert_eq!(unified(&["fork"], &[]).expect_success(), "33");
}

#[test]
fn blocks_of_the_cpu_end_with_their_context_and_their_memory_serves_others() {
    let outcome = unified(&["ends"], &[("WMSHIM_KEEP_IDLE", "0")]);
    assert_eq!(told(&outcome), [1, 0], "{}", outcome.stderr);
    let device = devices(outcome.expect_success().lines().last().expect("a line"))[0].clone();
    assert_eq!(device["tiers"]["host"]["live_bytes"], 0, "{device}");
}

/// Hazard (process lifecycle): a process does not end, or crashes, while a block is the CPU's.
#[test]
fn a_process_exits_with_blocks_of_the_cpu() {
    for exit in ["answer", "crash"] {
        let outcome = unified(&["exit"], &[("SIMCUDA_EXIT", exit), ("SIMCUDA_SEED", "")]);
        assert_eq!(outcome.expect_success(), "left", "{exit}");
    }
}
