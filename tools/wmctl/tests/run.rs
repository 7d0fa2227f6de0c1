//! Hazard (process lifecycle): `wmctl run` loses an existing preload, changes a program's exit
//! code or arguments, or reports an error without a remedy.

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use hazards::places;
use support::{Scratch, installation, installation_in, stderr, stdout, wmctl};

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

/// A shell plays the program: it writes its last words where the library would.
#[test]
fn last_words_are_printed_however_short_the_program_was() {
    let scratch = Scratch::new("words");
    let library = installation(&scratch, false);
    let words = r#"echo '{"pid":'$$',"program":"short"}' > "$(echo "$WMSHIM_STATS_AT_EXIT" | sed s/%p/$$/)""#;
    let mut command = wmctl(&scratch);
    command.env("WMSHIM_LIB", &library).args(["run", "-q", "--stats", "--", "sh", "-c", words]);
    let output = command.output().expect("ran");
    assert!(output.status.success() && stderr(&output).contains("short (process "), "{}", stderr(&output));
    let left: Vec<_> = fs::read_dir(scratch.path()).expect("the folder").flatten().collect();
    let left: Vec<_> =
        left.iter().filter(|it| it.file_name().to_string_lossy().starts_with("wmctl-")).collect();
    assert!(left.is_empty(), "the files of a run go with it: {left:?}");
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
        ("no-such-command-here", "no such command in PATH", 127),
        ("/no/such/file", "there is no such file", 127),
        (plain.to_str().expect("UTF-8"), "not executable; `chmod +x` it", 126),
    ];
    for (program, expected, code) in cases {
        for extra in [&[][..], &["--stats"]] {
            let mut command = wmctl(&scratch);
            command.env("WMSHIM_LIB", &library).args(["run", "-q"]).args(extra).args(["--", program]);
            let output = command.output().expect("ran");
            assert_eq!(output.status.code(), Some(code), "as env and nice say it");
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

#[test]
fn a_typing_error_in_an_option_is_not_taken_for_the_program() {
    let scratch = Scratch::new("option");
    let library = installation(&scratch, true);
    let run = |arguments: &[&str]| {
        let output =
            wmctl(&scratch).env("WMSHIM_LIB", &library).arg("run").args(arguments).output().expect("ran");
        (output.status.code(), stderr(&output))
    };
    for arguments in [&["--stat", "--", "true"][..], &["-q", "--stat", "true"], &["-x"]] {
        let (code, said) = run(arguments);
        assert!(code == Some(2) && said.contains("is no option of `wmctl run`"), "{arguments:?}: {said}");
    }
    let (code, said) = run(&["-q", "--", "--stat"]);
    assert!(code == Some(127) && said.contains("--stat: no such command"), "{said}");
}

#[test]
fn a_preload_that_is_set_comes_behind_the_library() {
    let scratch = Scratch::new("behind");
    let library = installation(&scratch, true);
    let mut command = wmctl(&scratch);
    command.env("WMSHIM_LIB", &library).args(["run", "-q", "--set", "LD_PRELOAD=/x/mine.so", "--set"]);
    let odd = OsStr::from_bytes(b"ODD=\xff");
    let output = command.arg(odd).args(["--", "cat", "/proc/self/environ"]);
    let output = output.output().expect("ran");
    let text = output.stdout.split(|byte| *byte == 0).collect::<Vec<_>>();
    let expected = format!("LD_PRELOAD={}:/x/mine.so", library.display());
    assert!(text.contains(&expected.as_bytes()), "{}{}", stdout_lossy(&output), stderr(&output));
    assert!(text.contains(&odd.as_bytes()), "bytes that are no UTF-8 arrive");
}

fn stdout_lossy(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The loader cuts a preload at blanks and colons; a zip holds no links. Plain names in a private
/// folder do for both.
#[test]
fn a_path_that_the_loader_would_cut_and_a_layout_without_links_get_names_of_their_own() {
    for (name, with_dropin) in [("my libs", true), ("a:b", true), ("wheel", false)] {
        let scratch = Scratch::new("names");
        let library = installation_in(&scratch, &scratch.path().join(name), with_dropin);
        let output = wmctl(&scratch).env("WMSHIM_LIB", &library).args(["run", "-q", "--", "env"]).output();
        let output = output.expect("ran");
        let text = stdout(&output);
        let value =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
        let (preload, dropin) = (value("LD_PRELOAD="), value("LD_LIBRARY_PATH="));
        for path in [&preload, &dropin] {
            assert!(!path.is_empty() && !path.contains([' ', ':']), "{name}: {text}{}", stderr(&output));
        }
        for link in [preload.clone(), format!("{dropin}/libcuda.so.1"), format!("{dropin}/libcuda.so")] {
            assert_eq!(fs::canonicalize(&link).expect("a link"), library, "{link}");
        }
        assert_eq!(stderr(&output), "", "the loader does not complain");
    }
}

#[test]
fn a_path_that_the_loader_would_cut_is_refused_where_no_link_can_be_made() {
    let scratch = Scratch::new("refused");
    let library = installation_in(&scratch, &scratch.path().join("my libs"), true);
    let nowhere = scratch.path().join("a blank");
    let mut command = wmctl(&scratch);
    command.env("WMSHIM_LIB", &library).env("WMSHIM_STATS_DIR", &nowhere).env("XDG_CACHE_HOME", &nowhere);
    let output = command.args(["run", "--", "true"]).output().expect("ran");
    assert!(
        !output.status.success() && stderr(&output).contains("cannot be preloaded"),
        "{}",
        stderr(&output)
    );
}

/// A program that the C compiler made, with these options.
fn compiled(scratch: &Scratch, name: &str, options: &[&str]) -> Option<String> {
    let (source, program) = (scratch.path().join(format!("{name}.c")), scratch.path().join(name));
    fs::write(&source, "int main(void) { return 0; }\n").expect("written");
    let status =
        Command::new("cc").args(options).arg("-o").arg(&program).arg(&source).stderr(Stdio::null()).status();
    status.expect("a C compiler").success().then(|| program.to_str().expect("UTF-8").to_owned())
}

#[test]
fn programs_that_the_library_cannot_get_into_are_told_in_plain_words() {
    let scratch = Scratch::new("kinds");
    let library = installation(&scratch, true);
    let musl = compiled(&scratch, "musl", &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
    let script = scratch.path().join("script");
    fs::write(&script, format!("#!/usr/bin/env -S {}\n", musl.as_deref().expect("links"))).expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).expect("executable");
    let cases = [
        (musl, "is a musl program", Some(126)),
        (script.to_str().map(str::to_owned), "is a musl program", Some(126)),
        (compiled(&scratch, "static", &["-static"]), "is linked statically", Some(0)),
        (Some(short(&scratch)), "is a 32-bit program", None),
    ];
    for (program, expected, code) in cases {
        // Not every machine can make a static program, or run a 32-bit one.
        let Some(program) = program else { continue };
        let output = wmctl(&scratch).env("WMSHIM_LIB", &library).args(["run", "-q", "--", &program]).output();
        let output = output.expect("ran");
        assert!(stderr(&output).contains(expected), "{program}: {}", stderr(&output));
        let as_wanted = code.is_none() || output.status.code() == code;
        assert!(as_wanted, "{program}: {:?} {}", output.status, stderr(&output));
    }
}

/// The beginning of a 32-bit program: few compilers make one.
fn short(scratch: &Scratch) -> String {
    let (program, mut header) = (scratch.path().join("short"), [0_u8; 52]);
    header[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
    // An executable, for i386, with headers of the right sizes and none of them there.
    (header[16], header[18], header[20], header[40], header[42]) = (2, 3, 1, 52, 32);
    fs::write(&program, header).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("executable");
    program.to_str().expect("UTF-8").to_owned()
}

/// The library that judges is the real one.
#[test]
fn a_setting_that_is_not_understood_keeps_the_program_from_starting() {
    let scratch = Scratch::new("judged");
    places::shim();
    let cases = [
        ("WMSHIM_DEVICE_LIMIT=48", "WMSHIM_DEVICE_LIMIT=48 is not understood"),
        ("WMSHIM_DEVICE_LIMIT=0", "a size above 0"),
        ("WMSHIM_HEADROOM=100%", "below 100%"),
        ("WMSHIM_STATS_SIGNAL=SEGV", "USR1, USR2"),
        ("WMSHIM_STICH=off", "WMSHIM_STICH is not a setting"),
    ];
    for (setting, expected) in cases {
        let output = wmctl(&scratch).args(["run", "-q", "--set", setting, "--", "echo", "started"]).output();
        let output = output.expect("ran");
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{setting}");
        assert!(stderr(&output).contains(expected), "{setting}: {}", stderr(&output));
        assert!(!stderr(&output).contains("default is used"), "nothing is used: {}", stderr(&output));
    }
    let output =
        wmctl(&scratch).args(["run", "-q", "--set", "WMSHIM_DEVICE_LIMIT=48GiB", "--", "true"]).output();
    assert!(output.expect("ran").status.success());
}
