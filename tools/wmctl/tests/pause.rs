//! Hazard (wrong report): a program is said to be paused that is not, or a refusal is no error.
//! Hazard (deadlock): the command waits for a program that has ended.

mod support;

use std::path::Path;
use std::process::Output;

use hazards::resident::Resident;
use serde_json::Value;
use support::{stderr, stdout, wmctl};

const ON: (&str, &str) = ("WMSHIM_PAUSE", "on");
/// Its calls are not counted.
const NEVER: (&str, &str) = ("WMSHIM_MIGRATE", "off");

/// A program on the simulated driver, which holds 8 MiB.
fn program(scratch: &hazards::Scratch, variables: &[(&str, &str)]) -> Resident {
    let mut program = Resident::start_with(scratch, variables);
    program.say("begin");
    program
}

fn run(program: &Resident, arguments: &[&str]) -> Output {
    run_in(program.statistics(), arguments)
}

fn run_in(folder: &Path, arguments: &[&str]) -> Output {
    let own = support::Scratch::new("pause");
    let mut command = wmctl(&own);
    command.args(arguments).env("WMSHIM_STATS_DIR", folder);
    command.output().expect("it ran")
}

fn said(program: &Resident, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    assert!(output.status.success(), "{arguments:?}: {}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

#[test]
fn a_program_is_paused_and_resumed_by_its_number() {
    let scratch = hazards::Scratch::new();
    let program = program(&scratch, &[ON]);
    let pid = program.id().to_string();
    let text = said(&program, &["pause", &pid]);
    assert!(text.starts_with(&format!("process {pid} is paused: 8.0 MiB to the host in ")), "{text}");
    assert!(said(&program, &["pause", &pid]).contains("paused already"));
    let top = said(&program, &["top", "--once"]);
    assert!(top.contains("(paused)") && top.contains("8.0 MiB"), "{top}");
    assert!(said(&program, &["stats", &pid]).contains("\npaused: 8.0 MiB to the host in "));
    assert!(said(&program, &["resume", &pid]).contains("runs: 8.0 MiB back in "));
    assert_eq!(said(&program, &["resume", &pid]), format!("process {pid} runs\n"));
    let top = said(&program, &["top", "--once"]);
    assert!(!top.contains("paused"), "{top}");
    assert_eq!(program.end("exit"), "");
}

/// A relative folder is the caller's, and the program has another one.
#[test]
fn a_program_is_paused_to_a_folder_of_the_callers() {
    let scratch = hazards::Scratch::new();
    let program = program(&scratch, &[ON]);
    let pid = program.id().to_string();
    let own = support::Scratch::new("pause-to");
    let in_folder = |arguments: &[&str]| {
        let mut command = wmctl(&own);
        command.args(arguments).env("WMSHIM_STATS_DIR", program.statistics()).current_dir(scratch.path());
        command.output().expect("it ran")
    };
    let output = in_folder(&["pause", &pid, "--to", "missing"]);
    let text = stderr(&output);
    assert!(output.status.code() == Some(1) && text.contains("files in the folder"), "{text}");
    scratch.folder("away");
    let output = in_folder(&["pause", &pid, "--to", "away"]);
    let text = stdout(&output);
    assert!(text.starts_with(&format!("process {pid} is paused: 8.0 MiB to files in ")), "{text}");
    assert!(said(&program, &["stats", &pid]).contains("8.0 MiB to files"));
    assert!(said(&program, &["resume", &pid]).contains("runs: 8.0 MiB back in "));
    assert_eq!(program.end("exit"), "");
}

#[test]
fn a_name_stands_for_all_programs_of_that_name() {
    let scratches = [(); 3].map(|()| hazards::Scratch::new());
    let folder = scratches[0].path().join("all");
    let place = ("WMSHIM_STATS_DIR", folder.to_str().expect("a readable path"));
    let variables = [&[ON, place][..], &[place], &[NEVER, place]];
    let programs: Vec<Resident> =
        scratches.iter().zip(variables).map(|(scratch, variables)| program(scratch, variables)).collect();
    let output = run_in(&folder, &["pause", "resident", "--deadline", "5", "--json"]);
    assert_eq!(output.status.code(), Some(1), "one of them cannot be paused");
    let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(document["schema"], "wmctl-pause/1");
    for program in &programs {
        let told = document["processes"].as_array().expect("processes").iter();
        let told = told.clone().find(|one| one["pid"] == program.id()).expect("it was asked");
        let is_refused = program.id() == programs[2].id();
        assert_eq!(told["pause"]["state"], if is_refused { "off" } else { "paused" }, "{document}");
        let error = told["error"].as_str().unwrap_or_default();
        assert_eq!(error.contains("WMSHIM_PAUSE=on"), is_refused, "{document}");
    }
    let resumed = run_in(&folder, &["resume", &programs[0].id().to_string()]);
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    programs.into_iter().for_each(|program| drop(program.end("exit")));
}

#[test]
fn what_cannot_be_paused_is_an_error_that_says_why() {
    let scratch = hazards::Scratch::new();
    let program = program(&scratch, &[NEVER]);
    let pid = program.id().to_string();
    for (arguments, part) in [
        (["pause", &pid], "set WMSHIM_PAUSE=on"),
        (["pause", "no-such-program"], "no program of the name no-such-program"),
        (["resume", "4000000"], "there is no process 4000000"),
    ] {
        let output = run(&program, &arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    }
    let wrong = run(&program, &["pause", &pid, "--deadline", "moon"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", stderr(&wrong));
    drop(program.end("exit"));
}
