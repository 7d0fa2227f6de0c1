//! Hazards: a table that hangs on one program, lies about its figures, or never ends.

mod support;

use serde_json::Value;
use support::{Scratch, answers, stderr, stdout, wmctl};

#[test]
fn each_device_of_each_program_has_a_line() {
    let scratch = Scratch::new("top");
    scratch.serve(41, &answers(41));
    scratch.serve(42, &answers(42));
    let output = wmctl(&scratch).args(["top", "--once", "--interval", "0.02"]).output().expect("ran");
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(text.lines().count(), 3, "nobody copies, so there is one table\n{text}");
    for (line, pid) in text.lines().skip(1).zip([" 41", " 42"]) {
        let cells: Vec<_> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        let expected = ["python3", "0", "130.0 GiB", "134.0 GiB", "140.0 GiB", "0 B", "50.0 GiB", "0"];
        assert_eq!(cells[0], pid.trim());
        assert_eq!(cells[1..], expected, "{text}");
    }
}

#[test]
fn json_is_one_line_a_table() {
    let scratch = Scratch::new("top-json");
    scratch.serve(41, &answers(41));
    let output =
        wmctl(&scratch).args(["top", "--once", "--json", "--interval", "0.02"]).output().expect("ran");
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 1, "{text}");
    let table: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(table["schema"], "wmctl-top/1");
    assert!(table["interval_s"].as_f64().expect("a time") >= 0.02);
    assert_eq!(table["processes"][0]["devices"][0]["host_bytes"], 50_u64 << 30);
}

#[test]
fn without_a_program_once_is_an_error_that_says_what_to_do() {
    let scratch = Scratch::new("top-none");
    let output = wmctl(&scratch).args(["top", "--once", "--interval", "0.02"]).output().expect("ran");
    assert!(!output.status.success());
    assert!(stderr(&output).contains("wmctl run -- COMMAND"), "{}", stderr(&output));
}
