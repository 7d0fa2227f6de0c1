//! Hazard (out-of-bounds access): a guard misses an overrun, reports one that did not happen, or
//! changes a program's answers.

use hazards::{Host, Outcome, Scratch, c, driver, places};

const MIB: usize = 1 << 20;

const PAGE: [(&str, &str); 1] = [("WMSHIM_GUARD", "page")];

/// Runs `overrun` on the simulated driver, which delays all work at random.
fn run(settings: &[(&str, &str)], words: &[&str]) -> Outcome {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "overrun");
    let image = places::workspace("kernels/compiled/diagnostics.ptx");
    let host = Host::shimmed(program, &scratch, &driver).env("SIMCUDA_SEED", "7");
    let host = host.env("WMSHIM_STATS_SOCKET", "off").args([image]).args(words);
    let set = settings.iter().filter(|(_, value)| !value.is_empty());
    set.fold(host, |host, (name, value)| host.env(name, value)).run()
}

fn overrun(guard: &str, by: &str, lane: &str, bytes: usize, past: usize, end: &str) -> Outcome {
    run(&[("WMSHIM_GUARD", guard)], &[by, lane, &bytes.to_string(), &past.to_string(), end])
}

/// The report of one overrun: it names the block, its size, the call that allocated it and that
/// call's origin.
fn expect_named(outcome: &Outcome, bytes: usize, call: &str) {
    outcome.expect_success();
    let lines: Vec<_> = outcome.log().into_iter().filter(|line| line.contains(" error: guard: ")).collect();
    let named = format!("of {bytes} bytes at 0x");
    let of_block: Vec<_> = lines.iter().filter(|line| line.contains(&named)).collect();
    assert_eq!(of_block.len(), 1, "named once:\n{}", outcome.stderr);
    let caller = format!("allocated by {call} from overrun+0x");
    assert!(of_block[0].contains(&caller), "no «{caller}»:\n{}", outcome.stderr);
}

#[test]
fn page_stops_a_kernel_at_the_first_word_past_the_end() {
    for (lane, call) in
        [("plain", "cuMemAlloc"), ("stream", "cuMemAllocAsync"), ("thread", "cuMemAllocAsync")]
    {
        let outcome = overrun("page", "kernel", lane, 3 * MIB, 4, "context");
        expect_named(&outcome, 3 * MIB, call);
        assert!(outcome.stdout.contains("cuCtxSynchronize() 700"), "{}", outcome.stdout);
        assert!(outcome.stderr.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("compute-sanitizer"), "the way on is named: {}", outcome.stderr);
    }
}

#[test]
fn page_lets_a_memset_past_the_end_fail_at_the_call() {
    let outcome = overrun("page", "memset", "stream", 3 * MIB, 1, "wait");
    outcome.expect_success();
    assert!(outcome.stdout.contains("stream) 1\n"), "INVALID_VALUE at the call: {}", outcome.stdout);
    assert!(
        outcome.stdout.contains("cuStreamSynchronize(stream) 0"),
        "the context lives on: {}",
        outcome.stdout
    );
}

#[test]
fn page_keeps_a_block_the_programs_to_its_last_byte_and_answers_for_it() {
    for bytes in [MIB, 3 * MIB, 3 * MIB + 100] {
        let outcome = run(&PAGE, &["about", "stream", &bytes.to_string()]);
        let text = outcome.expect_success();
        assert!(text.contains(&format!("base 1 size {bytes} start 1 length {bytes}")), "{text}");
        let rest = bytes.next_multiple_of(256) - bytes;
        let unmapped = if rest == 0 { 2 * MIB } else { rest };
        assert!(text.contains(&format!("aligned 1, end to unmapped {unmapped}")), "{text}");
        assert!(text.contains("256 * 256) 500"), "nothing is there: {text}");
        assert!(text.contains("cuMemsetD8_v2(block, 1, bytes) 0"), "{text}");
        assert_eq!(outcome.log(), Vec::<&str>::new());
    }
}

#[test]
fn page_stops_a_kernel_that_writes_to_a_block_that_is_gone() {
    for lane in ["plain", "stream"] {
        let outcome = run(&PAGE, &["late", lane, "4000000"]);
        assert!(outcome.expect_success().contains("cuCtxSynchronize() 700"), "{lane}: {}", outcome.stdout);
    }
}

#[test]
fn canary_finds_an_overrun_when_the_block_is_freed() {
    for (lane, call) in
        [("plain", "cuMemAlloc"), ("stream", "cuMemAllocAsync"), ("thread", "cuMemAllocAsync")]
    {
        for bytes in [1000, 3 * MIB + 100] {
            let outcome = overrun("canary", "kernel", lane, bytes, 8, "free");
            expect_named(&outcome, bytes, call);
            assert!(outcome.stderr.contains("0 to 7 bytes past it, now 04 03 02 01"), "{}", outcome.stderr);
            assert!(outcome.stderr.contains("found by cuMemFree"), "{}", outcome.stderr);
            assert!(
                outcome.stdout.contains("cuCtxSynchronize() 0"),
                "the program goes on: {}",
                outcome.stdout
            );
        }
    }
}

#[test]
fn canary_finds_an_overrun_when_the_host_waits() {
    for (end, found) in [("wait", "a wait for a stream"), ("context", "a wait for the device")] {
        let outcome = overrun("canary", "kernel", "stream", 5000, 4, end);
        expect_named(&outcome, 5000, "cuMemAllocAsync");
        assert!(outcome.stderr.contains(&format!("found by {found}")), "{end}: {}", outcome.stderr);
    }
}

/// A memset past the end is refused as without a guard, and there is no overrun to find.
#[test]
fn canary_lets_a_memset_past_the_end_fail_at_the_call() {
    let outcome = overrun("canary", "memset", "stream", 5000, 4, "wait");
    outcome.expect_success();
    assert!(outcome.stdout.contains("stream) 1\n"), "INVALID_VALUE at the call: {}", outcome.stdout);
    assert_eq!(outcome.log(), Vec::<&str>::new(), "nothing was written past the end");
}

#[test]
fn canary_looks_when_the_host_waits_for_an_event() {
    let outcome = overrun("canary", "memset", "stream", 5000, 0, "event");
    outcome.expect_success();
    assert_eq!(outcome.log(), Vec::<&str>::new(), "nothing was written past the end");
    let outcome = overrun("canary", "kernel", "plain", 5000, 4, "event");
    expect_named(&outcome, 5000, "cuMemAlloc");
}

#[test]
fn canary_tells_at_the_end_what_had_arrived_by_then() {
    let outcome = overrun("canary", "kernel", "stream", 5000, 4, "exit");
    expect_named(&outcome, 5000, "cuMemAllocAsync");
}

/// Runs a program without a fault, whose figures count the checks.
fn legal(guard: &str, seed: &str, fail: &str) -> (Outcome, serde_json::Value) {
    let outcome = run(&[("WMSHIM_GUARD", guard), ("SIMCUDA_FAIL", fail)], &["legal", seed, "3", "100"]);
    let figures: serde_json::Value = serde_json::from_str(outcome.expect_success()).expect("figures");
    let guard = figures["guard"].clone();
    (outcome, guard)
}

#[test]
fn a_program_without_a_fault_is_not_accused() {
    for guard in ["page", "canary"] {
        for seed in ["1", "2"] {
            let (outcome, figures) = legal(guard, seed, "");
            assert_eq!(outcome.log(), Vec::<&str>::new(), "{guard}, seed {seed}");
            let count = |name: &str| figures[name].as_u64().expect("a count");
            assert_eq!((figures["mode"].as_str(), count("overrun"), count("unwatched")), (Some(guard), 0, 0));
            assert!(count("guarded") > 20, "{figures}");
            assert!(guard == "page" || count("looks") > count("guarded"), "{figures}");
        }
    }
}

/// A block is free when its free has returned, also while another thread checks it: the next block
/// needs its memory.
#[test]
fn what_is_freed_during_a_look_is_free() {
    for lane in ["plain", "stream"] {
        let bytes = (640 * MIB).to_string();
        let settings = [("WMSHIM_GUARD", "canary"), ("SIMCUDA_MEMORY", "1GiB"), ("WMSHIM_OVERFLOW", "off")];
        let outcome = run(&settings, &["contended", lane, &bytes, "400"]);
        assert_eq!(outcome.expect_success(), "refused 0", "{lane}");
    }
}

#[test]
fn a_driver_that_refuses_what_a_canary_needs_is_said_once_and_the_program_runs() {
    for fail in ["cuMemHostRegister:1+", "cuMemcpyHtoDAsync:3+"] {
        let (outcome, figures) = legal("canary", "3", fail);
        assert_eq!(outcome.log().len(), 1, "{fail}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("not watched"), "{fail}: {}", outcome.stderr);
        assert!(figures["unwatched"].as_u64() > Some(0), "{fail}: {figures}");
        assert_eq!(figures["overrun"], 0, "{fail}");
    }
}

#[test]
fn a_guard_without_blocks_to_guard_is_said() {
    let words = ["legal", "1", "1", "4"];
    let outcome = run(&[("WMSHIM_GUARD", "page"), ("WMSHIM_STITCH", "off")], &words);
    outcome.expect_success();
    assert!(
        outcome.stderr.contains("WMSHIM_GUARD has no effect with WMSHIM_STITCH=off"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn off_writes_nothing_and_sees_nothing() {
    let outcome = overrun("off", "kernel", "stream", 5000, 8, "free");
    outcome.expect_success();
    assert_eq!(outcome.log(), Vec::<&str>::new());
}
