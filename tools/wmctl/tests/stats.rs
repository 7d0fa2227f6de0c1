//! Hazard (wrong report): a table misstates the figures it got, fails on a field that an older or
//! newer shim lacks or adds, or hangs on the socket of a dead, mute or confused process.

mod support;

use std::os::unix::net::UnixListener;
use std::process::Stdio;

use serde_json::{Value, json};
use support::{Scratch, answers, stderr, stdout, wmctl};

#[test]
fn one_program_is_shown_in_full() {
    let scratch = Scratch::new("one");
    scratch.serve(41, &answers(41));
    let output = wmctl(&scratch).arg("stats").output().expect("ran");
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    for expected in [
        "python3 (process 41), up 1 min 23 s, wmshim 0.1.0, PyTorch allocator: async",
        "driver /usr/lib/libcuda.so.580 (CUDA 13.0)",
        "Device 0 NVIDIA H200: 140.0 GiB (limit 140.0 GiB, headroom 1.0 GiB); utilization 96.7 %",
        "device  130.0 GiB  134.0 GiB  130.0 GiB      134.0 GiB",
        "host     48.0 GiB   50.0 GiB   48.0 GiB       50.0 GiB",
        "allocations 1,234,567, hits 1,200,000, overflows 96",
        "cuMemCreate      4       0  48.0 µs  12.0 µs  ≤ 64.0 µs",
        "direct  htod            3  3.0 MiB",
        "capture      1",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
    let (first, second) = (text.find("cuMemAllocAsync"), text.find("cuMemFreeAsync"));
    assert!(first < second, "the most frequent call comes first\n{text}");
}

#[test]
fn several_programs_are_a_list_and_one_can_be_picked() {
    let scratch = Scratch::new("several");
    scratch.serve(41, &answers(41));
    scratch.serve(42, &answers(42));
    let text = stdout(&wmctl(&scratch).arg("stats").output().expect("ran"));
    assert_eq!(text.lines().count(), 3, "{text}");
    let second = text.lines().nth(2).expect("a line");
    assert!(second.trim_start().starts_with("42  ") && second.ends_with("python3"), "{text}");
    let text = stdout(&wmctl(&scratch).args(["stats", "42"]).output().expect("ran"));
    assert!(text.starts_with("python3 (process 42)"), "{text}");
    let output = wmctl(&scratch).args(["stats", "--blocks"]).output().expect("ran");
    assert!(stderr(&output).contains("name one: 41, 42"), "{}", stderr(&output));
}

/// `wmctl stats --json`, and whether it succeeded.
fn document(scratch: &Scratch, arguments: &[&str]) -> (bool, Value) {
    let output = wmctl(scratch).args(["stats", "--json"]).args(arguments).output().expect("ran");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(document["schema"], "wmctl-stats/1");
    (output.status.success(), document["processes"].clone())
}

/// A script that reads the first program must go on working when a second one starts.
#[test]
fn json_has_one_shape_for_none_one_and_many() {
    let scratch = Scratch::new("json");
    assert_eq!(document(&scratch, &[]), (false, json!([])));
    assert_eq!(document(&scratch, &["999999999"]), (false, json!([])));
    scratch.serve(41, &answers(41));
    for request in ["stats", "blocks", "config"] {
        let option = format!("--{request}");
        let options: &[&str] = if request == "stats" { &[] } else { &[&option] };
        let (_, processes) = document(&scratch, options);
        assert_eq!((&processes[0]["pid"], &processes[0]["answer"]), (&json!(41), &answers(41)[request]));
    }
    scratch.serve(42, &json!({ "stats": { "error": "busy" } }));
    let (success, processes) = document(&scratch, &[]);
    assert_eq!((success, processes.as_array().map(Vec::len)), (true, Some(2)));
    assert_eq!(processes[0]["answer"], answers(41)["stats"]);
    assert!(processes[1]["error"].as_str().is_some_and(|error| error.contains("busy")), "{processes}");
    let (success, processes) = document(&scratch, &["42"]);
    assert!(!success && processes[0]["error"].is_string(), "{processes}");
}

#[test]
fn blocks_come_largest_first_and_settings_by_name() {
    let scratch = Scratch::new("blocks");
    scratch.serve(41, &answers(41));
    let text = stdout(&wmctl(&scratch).args(["stats", "--blocks"]).output().expect("ran"));
    assert!(
        text.lines().nth(1).expect("a row").contains("0x7f0040000000  3.0 GiB    1.0 GiB       0 B  2.0 GiB"),
        "{text}"
    );
    assert!(text.ends_with("2 blocks, 3.0 GiB\n"), "{text}");
    let text = stdout(&wmctl(&scratch).args(["stats", "--config"]).output().expect("ran"));
    assert!(text.contains("WMSHIM_STITCH        on\n"), "{text}");
    assert!(text.contains("WMSHIM_DEVICE_LIMIT  -\n"), "{text}");
}

#[test]
fn a_dump_names_its_file() {
    let scratch = Scratch::new("dump");
    scratch.serve(41, &answers(41));
    let output = wmctl(&scratch).args(["dump", "41"]).output().expect("ran");
    assert_eq!(stdout(&output), "/run/user/1000/wmshim/7-1.json\n");
    let output = wmctl(&scratch).args(["dump", "41", "--json"]).output().expect("ran");
    let written: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&written["schema"], &written["pid"]), (&json!("wmctl-dump/1"), &json!(41)));
}

#[test]
fn missing_fields_are_survived() {
    let scratch = Scratch::new("sparse");
    scratch.serve(
        41,
        &json!({ "stats": { "devices": [{ "tiers": { "host": {} } }] }, "blocks": {}, "config": {} }),
    );
    for arguments in [&["stats"][..], &["stats", "--blocks"], &["stats", "--config"]] {
        let output = wmctl(&scratch).args(arguments).output().expect("ran");
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn an_answer_of_another_form_is_an_error() {
    let scratch = Scratch::new("form");
    scratch.serve(41, &json!({ "stats": { "devices": [{ "limit_bytes": -5 }] }, "blocks": 3 }));
    for (arguments, field) in [(&["stats"][..], "-5"), (&["stats", "--blocks"], "BlockList")] {
        let output = wmctl(&scratch).args(arguments).output().expect("ran");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let error = stderr(&output);
        assert!(error.contains("another form") && error.contains(field), "{arguments:?}: {error}");
    }
    let output = wmctl(&scratch).args(["stats", "--json"]).output().expect("ran");
    assert!(output.status.success(), "JSON is passed on as it came: {}", stderr(&output));
}

#[test]
fn a_socket_of_the_dead_is_reported_and_skipped() {
    let scratch = Scratch::new("stale");
    drop(UnixListener::bind(scratch.path().join("999999999.sock")).expect("bound"));
    scratch.serve(41, &answers(41));
    let output = wmctl(&scratch).arg("stats").output().expect("ran");
    assert!(stdout(&output).contains("process 41"));
    assert!(
        stderr(&output).contains("999999999.sock is left over from a program that was killed; `wmctl clean`")
    );
    let output = wmctl(&scratch).args(["stats", "999999999"]).output().expect("ran");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("process 999999999 has ended"), "{}", stderr(&output));
}

#[test]
fn errors_name_the_reason_and_the_remedy() {
    let scratch = Scratch::new("errors");
    let without = stderr(&wmctl(&scratch).arg("stats").output().expect("ran"));
    assert!(without.contains("start one with `wmctl run -- COMMAND`"), "{without}");
    let own = std::process::id().to_string();
    let bare = stderr(&wmctl(&scratch).args(["stats", &own]).output().expect("ran"));
    assert!(bare.contains("does not run under the shim"), "{bare}");
    scratch.serve(41, &json!({ "stats": { "error": "internal failure" } }));
    let failing = stderr(&wmctl(&scratch).args(["stats", "41"]).output().expect("ran"));
    assert!(failing.contains("the program answered: internal failure"), "{failing}");
}

#[test]
fn a_watch_ends_with_its_program() {
    let scratch = Scratch::new("watch");
    let socket = scratch.path().join("41.sock");
    scratch.serve(41, &answers(41));
    let mut command = wmctl(&scratch);
    let mut child =
        command.args(["stats", "--json", "--watch", "0.05"]).stdout(Stdio::piped()).spawn().expect("started");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("piped")));
    for _ in 0..3 {
        let line = lines.next().expect("a reading").expect("text");
        assert_eq!(serde_json::from_str::<Value>(&line).expect("JSON")["processes"][0]["pid"], 41);
    }
    std::fs::remove_file(socket).expect("the program ends");
    assert!(child.wait().expect("ended").success());
}
