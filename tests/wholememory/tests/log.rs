//! Hazard (wrong report): the settings of the log hold for one library of ours and not for the
//! other, so that a collector misses the reason of an error.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use hazards::places::{built, workspace};
use hazards::{Host, Scratch};

/// Begins twice, which the second time is an error with a reason.
const PROGRAM: &str = "#include <wholememory/wholememory.h>\n\
                       int main(int count, char **argument) {\n    (void)argument;\n    \
                       LogLevel level = count > 1 ? LEVEL_ERROR : LEVEL_INFO;\n    \
                       return wholememory_init(0, level) || !wholememory_init(0, level);\n}\n";

fn program(scratch: &Scratch) -> PathBuf {
    let (source, linked) = (scratch.file("twice.c", PROGRAM), scratch.path().join("twice"));
    let mut command = Command::new("gcc");
    command.arg("-I").arg(workspace("shim/wholegraph/include")).arg(source).arg("-o").arg(&linked);
    let output = command.arg(built("libwholegraph.so")).output().expect("gcc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    linked
}

/// What the program says with these variables; `quiet`: it asks for errors alone.
fn said(scratch: &Scratch, quiet: bool, variables: &[(&str, &str)]) -> String {
    let host = Host::bare(program(scratch)).args(quiet.then_some("quiet")).within(scratch.path());
    let host = host.env("LD_LIBRARY_PATH", built("libwholegraph.so").parent().expect("a folder"));
    let outcome = variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run();
    outcome.expect_success();
    outcome.stderr
}

#[test]
fn a_reason_is_a_line_at_the_level_of_the_user_or_of_the_program() {
    let scratch = Scratch::new();
    let line = said(&scratch, false, &[]);
    assert!(line.starts_with("wholememory[") && line.ends_with("is initialized already\n"), "{line}");
    assert!(line.contains("] warning: wholememory_init: "), "{line}");
    assert_eq!(said(&scratch, true, &[]), "", "the program asks for errors");
    assert_eq!(said(&scratch, false, &[("WMSHIM_LOG", "error")]), "", "the user asks for errors");
    assert!(said(&scratch, true, &[("WMSHIM_LOG", "warn")]).contains("is initialized already"));
    let typing_error = said(&scratch, false, &[("WMSHIM_LOG", "loud")]);
    assert!(typing_error.contains("WMSHIM_LOG=loud is not understood"), "{typing_error}");
    assert!(typing_error.contains("is initialized already"), "{typing_error}");
}

#[test]
fn a_reason_goes_into_the_users_file_as_an_object() {
    let scratch = Scratch::new();
    let variables = [("WMSHIM_LOG_FILE", "lines.log"), ("WMSHIM_LOG_FORMAT", "json")];
    assert_eq!(said(&scratch, false, &variables), "");
    let text = fs::read_to_string(scratch.path().join("lines.log")).expect("the file");
    let object: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(object["level"], "warning");
    assert_eq!(object["message"], "wholememory_init: logic: it is initialized already");
}
