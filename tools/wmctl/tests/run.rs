//! Hazards: a preload that was there is lost, a program's exit code or arguments are changed, an error that does not
//! say what to do.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use support::{Scratch, answers, stderr, stdout, wmctl};

/// An installation with a library that does nothing but carry wmshim's mark.
fn installation(scratch: &Scratch, with_dropin: bool) -> PathBuf {
    let library = scratch.path().join("lib/libwmshim.so");
    let mark = String::from_utf8_lossy(wm_driver::search::MARKER).into_owned();
    let source = scratch.path().join("empty.c");
    fs::write(&source, format!("__attribute__((used)) static const char mark[] = \"{mark}\";\n"))
        .expect("written");
    fs::create_dir(scratch.path().join("lib")).expect("a folder");
    let compiled = Command::new("cc").args(["-shared", "-o"]).arg(&library).arg(&source).status();
    assert!(compiled.expect("a C compiler").success());
    if with_dropin {
        fs::create_dir(scratch.path().join("dropin")).expect("a folder");
        fs::copy(&library, scratch.path().join("dropin/libcuda.so.1")).expect("copied");
    }
    library
}

#[test]
fn the_program_gets_the_preload_in_front_of_what_was_there() {
    let scratch = Scratch::new("preload");
    let library = installation(&scratch, true);
    let mut command = wmctl(&scratch);
    command.env("WMSHIM_LIB", &library).env("LD_PRELOAD", "").env("LD_LIBRARY_PATH", "/opt/mine");
    let output = command.args(["run", "--set", "WMSHIM_LOG=info", "--", "env"]).output().expect("ran");
    let text = stdout(&output);
    let folder = scratch.path().display();
    assert!(text.contains(&format!("LD_PRELOAD={}\n", library.display())), "{text}");
    assert!(text.contains(&format!("LD_LIBRARY_PATH={folder}/dropin:/opt/mine\n")), "{text}");
    assert!(text.contains("WMSHIM_LOG=info\n"), "{text}");
    let said = stderr(&output);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("LD_PRELOAD=") && said.contains("WMSHIM_LOG=info"), "{said}");
}

#[test]
fn running_twice_adds_nothing_twice() {
    let scratch = Scratch::new("twice");
    let library = installation(&scratch, true);
    let own = env!("CARGO_BIN_EXE_wmctl");
    let mut command = wmctl(&scratch);
    command.env("WMSHIM_LIB", &library).args(["run", "-q", "--", own, "run", "-q", "--", "env"]);
    let text = stdout(&command.output().expect("ran"));
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("LD_")).collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| !line.contains(':')), "{lines:?}");
}

#[test]
fn code_and_arguments_are_the_programs_own() {
    let scratch = Scratch::new("code");
    let library = installation(&scratch, false);
    for extra in [&[][..], &["--stats"]] {
        let mut command = wmctl(&scratch);
        command.env("WMSHIM_LIB", &library).args(["run", "-q"]).args(extra);
        let output = command
            .args(["--", "sh", "-c", "echo \"$1\"; exit 7", "sh", "--json -- *"])
            .output()
            .expect("ran");
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(7), "--json -- *\n"));
    }
    let mut command = wmctl(&scratch);
    command.env("WMSHIM_LIB", &library).args(["run", "-q", "--stats", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(command.status().expect("ran").code(), Some(137), "as a shell says it");
}

#[test]
fn statistics_of_a_program_are_printed_after_it() {
    let scratch = Scratch::new("stats");
    let library = installation(&scratch, false);
    // The test plays the endpoint of the program, which is a shell that says its process id and waits to be asked.
    let mut command = wmctl(&scratch);
    // The program's own setting counts, not this shell's.
    let place = format!("WMSHIM_STATS_DIR={}", scratch.path().display());
    command.env("WMSHIM_LIB", &library).env("WMSHIM_STATS_DIR", "/nowhere");
    command.args(["run", "-q", "--stats", "--set", &place, "--"]);
    command.args(["sh", "-c", "echo $$; read line"]);
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("started");
    let mut pid = String::new();
    let mut said = std::io::BufReader::new(child.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut said, &mut pid).expect("the process id");
    let pid = pid.trim().parse().expect("a number");
    let asked = scratch.serve(pid, &answers(pid));
    assert_eq!(asked.recv().expect("the program is followed"), "final");
    // It ends now, and its endpoint with it.
    fs::remove_file(scratch.path().join(format!("{pid}.sock"))).expect("removed");
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("ended");
    assert!(
        stderr(&output).contains(&format!("the program at its end (process {pid})")),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_signal_to_the_waiting_parent_reaches_the_program() {
    let scratch = Scratch::new("signal");
    let library = installation(&scratch, false);
    let mut command = wmctl(&scratch);
    command.env("WMSHIM_LIB", &library).args(["run", "-q", "--stats", "--"]);
    command.args(["sh", "-c", "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.05; done"]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("started");
    let mut said = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("piped")));
    assert_eq!(said.next().expect("a line").expect("text"), "ready");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("ran").success());
    assert_eq!(said.next().expect("a line").expect("text"), "caught");
    assert_eq!(child.wait().expect("ended").code(), Some(3));
}

#[test]
fn a_program_that_is_not_there_is_a_clear_error() {
    let scratch = Scratch::new("nothing");
    let library = installation(&scratch, false);
    let plain = scratch.path().join("data.txt");
    fs::write(&plain, "x").expect("a file");
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o600)).expect("not executable");
    let cases = [
        ("no-such-command-here", "no such command in PATH"),
        ("/no/such/file", "there is no such file"),
        (plain.to_str().expect("UTF-8"), "not executable; `chmod +x` it"),
    ];
    for (program, expected) in cases {
        for extra in [&[][..], &["--stats"]] {
            let mut command = wmctl(&scratch);
            command.env("WMSHIM_LIB", &library).args(["run", "-q"]).args(extra).args(["--", program]);
            let output = command.output().expect("ran");
            assert_eq!(output.status.code(), Some(1));
            assert!(stderr(&output).contains(expected), "{program}: {}", stderr(&output));
        }
    }
}

#[test]
fn a_missing_or_foreign_library_is_a_clear_error() {
    let scratch = Scratch::new("library");
    let mut command = wmctl(&scratch);
    let output = command.env("WMSHIM_LIB", "/nowhere/libwmshim.so").args(["run", "--", "true"]).output();
    let said = stderr(&output.expect("ran"));
    assert!(said.contains("/nowhere/libwmshim.so") && said.contains("set WMSHIM_LIB"), "{said}");
    let mut command = wmctl(&scratch);
    let output = command.env("WMSHIM_LIB", "/bin/sh").args(["run", "--", "true"]).output();
    let said = stderr(&output.expect("ran"));
    assert!(said.contains("is not wmshim's library"), "{said}");
}

#[test]
fn a_setting_without_value_is_refused() {
    let scratch = Scratch::new("setting");
    let output = wmctl(&scratch).args(["run", "--set", "WMSHIM_LOG", "--", "true"]).output().expect("ran");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("write NAME=VALUE"), "{}", stderr(&output));
}
