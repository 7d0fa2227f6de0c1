//! Hazard (wrong result): the wrong program is limited, or by the wrong amount. Hazard (silent
//! degradation): memory stays beyond the limit, and the command succeeds.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::process::Output;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use serde_json::{Value, json};
use support::{Scratch, stderr, stdout, wmctl};

/// A program that answers with one of these after the other, and the requests that it got.
fn answering(scratch: &Scratch, pid: u32, answers: Vec<Value>) -> Receiver<Value> {
    let listener = UnixListener::bind(scratch.path().join(format!("{pid}.sock"))).expect("bound");
    let (sender, asked) = mpsc::channel();
    thread::spawn(move || {
        let mut answers = answers.into_iter();
        for stream in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            let mut reader = BufReader::new(stream);
            if reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                let _ = sender.send(serde_json::from_str(&line).expect("JSON"));
                let answer = answers.next().unwrap_or_else(|| json!({ "error": "no more" }));
                let _ = writeln!(reader.get_mut(), "{answer}");
            }
        }
    });
    asked
}

const GIB: u64 = 1 << 30;

fn change(out: u64, beyond: u64, goes_on: bool) -> Value {
    json!({ "schema": "wmshim-change/1", "pid": 41, "goes_on": goes_on, "remains": ["calls pass through"], "devices": [{
        "ordinal": 0, "limit_bytes": 40 * GIB, "limit_source": "asked", "held_bytes": 40 * GIB + beyond,
        "beyond_bytes": beyond, "out_bytes": out, "given_bytes": out,
        "stays": [{ "reason": "a graph names a block there", "bytes": beyond }],
    }]})
}

fn run(scratch: &Scratch, words: &[&str]) -> Output {
    wmctl(scratch).args(words).output().expect("ran")
}

#[test]
fn the_limit_is_asked_for_once_and_steps_follow_until_the_program_has_done_all() {
    let scratch = Scratch::new("steps");
    let steps = vec![change(GIB, 2 * GIB, true), change(0, 2 * GIB, true), change(2 * GIB, 0, false)];
    let asked = answering(&scratch, 41, steps);
    let output = run(&scratch, &["limit", "41", "40GiB"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        stdout(&output),
        "Device 0: limit 40.0 GiB (asked), holds 40.0 GiB\n  moved    3.0 GiB out, 0 B back\n"
    );
    let asked: Vec<Value> = asked.try_iter().collect();
    let first = json!({ "request": "limit", "bytes": 40 * GIB, "device": null });
    assert_eq!(asked, [first, json!({ "request": "limit" }), json!({ "request": "limit" })]);
}

#[test]
fn what_stays_beyond_the_limit_is_said_and_is_an_error() {
    let scratch = Scratch::new("beyond");
    let asked = answering(&scratch, 41, vec![change(GIB, 2 * GIB, false)]);
    let output = run(&scratch, &["limit", "41", "none", "--device", "3"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("stays    2.0 GiB: a graph names a block there"), "{}", stdout(&output));
    assert!(stderr(&output).contains("2.0 GiB stay beyond the limit"), "{}", stderr(&output));
    assert_eq!(asked.recv(), Ok(json!({ "request": "limit", "bytes": "none", "device": 3 })));
}

/// A busy GPU: the command ends in the time that it was given.
#[test]
fn a_program_that_never_gets_there_is_left_when_the_time_is_over() {
    let scratch = Scratch::new("wait");
    answering(&scratch, 41, vec![change(0, GIB, true); 100]);
    let begin = std::time::Instant::now();
    let output = run(&scratch, &["limit", "41", "40GiB", "--wait", "0.3", "--json"]);
    assert!(begin.elapsed() < std::time::Duration::from_secs(4));
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(
        (&answer["schema"], &answer["devices"][0]["beyond_bytes"]),
        (&json!("wmshim-change/1"), &json!(GIB))
    );
}

#[test]
fn a_size_without_a_unit_and_an_unknown_name_ask_no_program() {
    let scratch = Scratch::new("unit");
    let asked = answering(&scratch, 41, vec![change(0, 0, false)]);
    let output = run(&scratch, &["limit", "41", "48"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("such as 40GiB"), "{}", stderr(&output));
    let output = run(&scratch, &["trim", "no-such-program"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("no program under the shim is named no-such-program"),
        "{}",
        stderr(&output)
    );
    assert_eq!(asked.try_iter().count(), 0);
}

#[test]
fn trim_detach_and_attach_say_what_they_did() {
    let scratch = Scratch::new("others");
    let asked = answering(&scratch, 41, vec![change(GIB, 0, false); 3]);
    let trimmed = stdout(&run(&scratch, &["trim", "41"]));
    assert_eq!(trimmed.lines().next(), Some("Device 0: 1.0 GiB given back, holds 40.0 GiB"));
    let detached = stdout(&run(&scratch, &["detach", "41"]));
    assert!(detached.starts_with("Detached: new memory of process 41 is the driver's"), "{detached}");
    assert!(detached.ends_with("  remains  calls pass through\n"), "{detached}");
    let attached = stdout(&run(&scratch, &["attach", "41"]));
    assert!(attached.starts_with("Attached: "), "{attached}");
    let words: Vec<Value> = asked.try_iter().map(|one| one["request"].clone()).collect();
    assert_eq!(words, ["trim", "detach", "attach"]);
}
