//! Hazard (silent degradation): a program runs slowly because its memory spilled, and no line says
//! so at the start, during growth or at exit; or a refusal does not name the setting that would
//! help.

use std::collections::BTreeMap;

use hazards::{Host, Outcome, Scratch, c, driver};

/// The program on devices of 64 MiB, without headroom.
fn run(arguments: &str, variables: &[(&str, &str)]) -> Outcome {
    let scratch = Scratch::new();
    let program = c::cuda_program(&scratch, "spilled");
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch)).args(arguments.split(' '));
    let host = host.env("SIMCUDA_MEMORY", "64MiB").env("WMSHIM_HEADROOM", "0");
    let outcome = host.env("WMSHIM_HOST_LIMIT", "off");
    variables.iter().fold(outcome, |host, (name, value)| host.env(name, value)).run()
}

/// The lines about memory that is elsewhere now, and those about all memory that was there.
fn said(outcome: &Outcome) -> [Vec<&str>; 2] {
    let of = |words: &str| outcome.log().into_iter().filter(|line| line.contains(words)).collect();
    [of("memory lies elsewhere"), of("memory lay elsewhere")]
}

/// The figure in MiB before these words.
fn mib_before(line: &str, words: &str) -> f64 {
    let (before, _) = line.split_once(words).unwrap_or_else(|| panic!("{words:?} is not in {line}"));
    before.rsplit(' ').next().expect("a figure").parse().expect("a number")
}

/// Hazard: a program runs at the speed of the link, and no line reports it.
#[test]
fn a_block_that_goes_to_the_host_is_said_at_once_and_at_the_end() {
    for kind in ["a", "s", "p"] {
        let steps: Vec<String> = (0..24).map(|_| format!("{kind}8")).collect();
        let outcome = run(&steps.join(" "), &[]);
        assert!(outcome.expect_success().lines().all(|answer| answer == "0"), "{kind}: {}", outcome.stdout);
        let [now, end] = said(&outcome);
        let amounts: Vec<f64> = now.iter().map(|line| mib_before(line, " MiB on the host")).collect();
        assert_eq!(amounts, [8.0], "{kind}: {}", outcome.stderr);
        assert!(now[0].contains("of device 0") && now[0].contains("WMSHIM_OVERFLOW=off"), "{}", now[0]);
        assert_eq!(end.len(), 1, "{kind}: {}", outcome.stderr);
        for words in ["16 times", "64.0 MiB on it", "128.0 MiB on the host", "needs 192.0 MiB on device 0"] {
            assert!(end[0].contains(words), "{kind}: {words:?} is not in {}", end[0]);
        }
        assert_eq!(outcome.log().len(), 2, "{kind}: nothing else is said: {}", outcome.stderr);
    }
}

#[test]
fn from_a_gibibyte_on_each_doubling_is_said() {
    let outcome = run("a64 a2 a4 a8 a16 a32 a64 a128 a256 a512 a2 a256 p256 s512", &[]);
    let [now, end] = said(&outcome);
    for (line, place) in
        now.iter().zip(["2.0 MiB on the host", "1.00 GiB on the host", "2.00 GiB on the host"])
    {
        assert!(line.contains(place), "{place:?} is not in {line}");
    }
    assert_eq!((now.len(), end.len()), (3, 1), "{}", outcome.stderr);
    assert!(end[0].contains("2.00 GiB on the host"), "{}", end[0]);
}

/// The lines by process. `each` runs in the background, eight times.
fn of_eight(each: &str) -> Vec<Vec<String>> {
    let scratch = Scratch::new();
    let program = c::cuda_program(&scratch, "spilled");
    let script = format!("for i in 1 2 3 4 5 6 7 8; do {each} & done; wait");
    let host = Host::shimmed("sh", &scratch, &driver::simulated(&scratch)).args(["-c", &script]);
    let host = host.env("PROGRAM", program).env("SIMCUDA_MEMORY", "64MiB").env("WMSHIM_HEADROOM", "0");
    let outcome = host.env("WMSHIM_HOST_LIMIT", "off").run();
    outcome.expect_success();
    let mut by_process: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for line in outcome.log() {
        let (process, said) = line.split_once("] ").expect("a process");
        by_process.entry(process).or_default().push(said.to_owned());
    }
    by_process.into_values().collect()
}

/// Hazard: the workers of one program fill the terminal.
#[test]
fn of_a_tree_of_processes_each_says_it_once() {
    let all = of_eight("\"$PROGRAM\" a64 a8 a8 a8");
    assert_eq!(all.len(), 8, "{all:#?}");
    for lines in all {
        let of = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
        assert_eq!(
            (lines.len(), of("memory lies elsewhere"), of("memory lay elsewhere")),
            (2, 1, 1),
            "{lines:?}"
        );
    }
    assert_eq!(of_eight("\"$PROGRAM\" a32 a8"), Vec::<Vec<String>>::new());
}

/// Hazard (wrong report): the size of the GPU that a program needs is reported too small.
#[test]
fn what_would_have_been_enough_is() {
    let steps = "a8 s24 p16 a40 f a32 p8 s8";
    let spilled = run(steps, &[]);
    let needed = mib_before(said(&spilled)[1][0].split_once("needs ").expect("a need").1, " MiB");
    let on = |mib: f64| run(steps, &[("SIMCUDA_MEMORY", &format!("{mib}MiB"))]);
    assert_eq!(said(&on(needed)), [vec![""; 0], vec![]], "{needed} MiB are enough");
    assert_eq!(said(&on(needed - 8.0))[1].len(), 1, "and less is not");
}

#[test]
fn who_fits_or_wants_no_warnings_reads_nothing() {
    assert_eq!(run("a32 s16 p16", &[]).stderr, "");
    assert_eq!(run("a64 a8 s8 p8", &[("WMSHIM_LOG", "error")]).stderr, "");
}

/// Hazard: each worker that a data loader forks prints a line.
#[test]
fn a_forked_child_says_nothing_of_its_parent() {
    let outcome = run("a64 a8 k k k k k k k k", &[]);
    outcome.expect_success();
    assert_eq!(said(&outcome).map(|lines| lines.len()), [1, 1], "{}", outcome.stderr);
}

#[test]
fn each_device_is_told_apart_and_another_device_is_named() {
    let two = ("SIMCUDA_DEVICES", "2");
    let outcome = run("a64 p8 d1 a80 p8 p1000", &[two]);
    let [now, end] = said(&outcome);
    let last = now.last().expect("a line");
    assert!(last.contains("of device 0 8.0 MiB on the host; of device 1 "), "{}", outcome.stderr);
    for words in ["needs 72.0 MiB on device 0", "needs 1.06 GiB on device 1"] {
        assert!(end[0].contains(words), "{words:?} is not in {}", end[0]);
    }
    let outcome = run("a64 a16", &[two, ("WMSHIM_OVERFLOW", "peer,host")]);
    let [now, end] = said(&outcome);
    assert!(now[0].contains("of device 0 16.0 MiB on device 1"), "{}", outcome.stderr);
    assert!(end[0].contains("16.0 MiB on other devices"), "{}", outcome.stderr);
}

/// Hazard: a program that resets its device, or its peaks, before it ends, as many do, gets the
/// report that it needed no memory.
#[test]
fn a_device_that_was_reset_counts() {
    let outcome = run("a64 a8 p8 r", &[]);
    let end = &said(&outcome)[1];
    assert!(end.len() == 1 && end[0].contains("needs 80.0 MiB on device 0"), "{}", outcome.stderr);
}

/// The one line about a refusal.
fn refusal(outcome: &Outcome) -> &str {
    let lines: Vec<&str> = outcome.log().into_iter().filter(|line| line.contains("out of memory")).collect();
    assert_eq!(lines.len(), 1, "{}", outcome.stderr);
    lines[0]
}

/// Hazard (wrong report): a refusal says "out of memory" without a remedy.
#[test]
fn a_refusal_names_what_may_be_raised_with_its_value() {
    let off = ("WMSHIM_OVERFLOW", "off");
    for kind in ["a", "s", "p"] {
        let steps = format!("{kind}16 {kind}16 {kind}16 {kind}16 {kind}16");
        let line = |variables: &[(&str, &str)]| {
            let outcome = run(&steps, variables);
            assert!(outcome.expect_success().ends_with('2'), "{kind}: {}", outcome.stdout);
            refusal(&outcome).to_owned()
        };
        let held = line(&[off, ("WMSHIM_DEVICE_LIMIT", "70MiB"), ("SIMCUDA_MEMORY", "1GiB")]);
        assert!(
            held.contains("WMSHIM_DEVICE_LIMIT=70.0 MiB") && held.contains("WMSHIM_OVERFLOW=off"),
            "{held}"
        );
        let full = line(&[("WMSHIM_HOST_LIMIT", "8MiB")]);
        assert!(full.contains("WMSHIM_HOST_LIMIT=8.0 MiB"), "{full}");
        assert!(!full.contains("WMSHIM_DEVICE_LIMIT") && !full.contains("WMSHIM_HEADROOM"), "{full}");
    }
    let headroom = [("WMSHIM_HEADROOM", "16MiB"), ("WMSHIM_HOST_LIMIT", "0")];
    let outcome = run("a16 a16 a16 a16", &headroom);
    let line = refusal(&outcome);
    assert!(
        line.contains("WMSHIM_HEADROOM=16.0 MiB") && line.contains("WMSHIM_HOST_LIMIT=0.0 MiB"),
        "{line}"
    );
    let peers = [("SIMCUDA_DEVICES", "2"), ("WMSHIM_OVERFLOW", "peer"), ("WMSHIM_PEER_LIMIT", "8MiB")];
    let outcome = run("a64 a16", &peers);
    let line = refusal(&outcome);
    assert!(line.contains("WMSHIM_PEER_LIMIT=8.0 MiB") && line.contains("WMSHIM_OVERFLOW"), "{line}");
}

/// Hazard: a program is refused memory, and its statistics do not show it.
#[test]
fn a_refused_piece_is_counted() {
    let scratch = Scratch::new();
    let statistics = scratch.path().join("end.json");
    let path = statistics.to_str().expect("a readable path");
    let outcome = run("p32 p32 p32 p32", &[("WMSHIM_OVERFLOW", "off"), ("WMSHIM_STATS_AT_EXIT", path)]);
    assert_eq!(outcome.expect_success(), "0\n0\n2\n2");
    let text = std::fs::read_to_string(statistics).expect("the last statistics");
    let stats: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(stats["devices"][0]["counters"]["out_of_memory"], 2, "{text}");
    assert_eq!(stats["devices"][0]["pieces"]["peak_device_bytes"], 64 << 20, "{text}");
}
