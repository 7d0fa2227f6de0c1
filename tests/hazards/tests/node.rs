//! Hazard (error handling): a wrong line in the node's file ends or changes the programs of a whole
//! node. Hazard: a program passes the node's ceiling, or a default counts against its own variable.
//!
//! The file's path is fixed, so each program runs in a namespace with an `/etc` of the test's own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use hazards::{Host, Outcome, Scratch, c, driver, places, skip};

/// Words that start a program with another `/etc`; `None`: namespaces are missing.
fn starter(etc: &Path) -> Option<Vec<String>> {
    // SAFETY: a plain question.
    let flags = if unsafe { libc::geteuid() } == 0 { "-m" } else { "-rm" };
    let script = "mount --bind \"$0\" /etc && exec \"$@\"";
    let words = ["unshare", flags, "sh", "-c", script, etc.to_str().expect("a readable path")];
    let words = words.map(str::to_owned).to_vec();
    let tried = Command::new(&words[0]).args(&words[1..]).arg("true").output();
    if tried.is_ok_and(|output| output.status.success()) {
        return Some(words);
    }
    skip("needs mount namespaces");
    None
}

/// A program under the library on a node with the `/etc` of the scratch folder.
fn on_node(scratch: &Scratch, program: &[&str]) -> Option<Host> {
    let words = starter(&scratch.folder("etc"))?;
    let host = Host::shimmed(&words[0], scratch, &driver::simulated(scratch));
    Some(host.args(&words[1..]).args(program))
}

/// Six blocks of 8 MiB on a device of 64 MiB: the number that it gets, and how it went.
fn blocks(file: &[u8], variables: &[(&str, &str)]) -> Option<(usize, Outcome)> {
    let scratch = Scratch::new();
    fs::write(scratch.folder("etc").join("wmshim.toml"), file).expect("written");
    let program = c::cuda_program(&scratch, "spilled");
    let words = ["a8", "a8", "a8", "a8", "a8", "a8"];
    let program = [&[program.to_str().expect("a readable path")][..], &words].concat();
    let host = on_node(&scratch, &program)?.env("SIMCUDA_MEMORY", "64MiB");
    let outcome = variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run();
    let answers = outcome.expect_success().lines().filter(|answer| *answer == "0").count();
    Some((answers, outcome))
}

const NODE: &[u8] =
    b"[defaults]\noverflow = \"off\"\nheadroom = 0\nlog = \"error\"\n[ceilings]\ndevice_limit = \"32MiB\"\n";

#[test]
fn a_ceiling_holds_whatever_the_variables_say() {
    for (variables, expected) in [
        (&[][..], 4),
        (&[("WMSHIM_DEVICE_LIMIT", "off")], 4),
        (&[("WMSHIM_DEVICE_LIMIT", "16MiB")], 2),
        // Together with the limit it would leave nothing, so neither is in force.
        (&[("WMSHIM_HEADROOM", "9GiB")], 4),
        (&[("WMSHIM_OVERFLOW", "host")], 6),
    ] {
        let Some((got, outcome)) = blocks(NODE, variables) else { return };
        assert_eq!(got, expected, "{variables:?}: {}", outcome.stderr);
    }
    let asked = [("WMSHIM_DEVICE_LIMIT", "48MiB"), ("WMSHIM_LOG", "warn")];
    let Some((4, outcome)) = blocks(NODE, &asked) else { panic!("the ceiling is passed") };
    let said = "WMSHIM_DEVICE_LIMIT=48MiB: line 6 of /etc/wmshim.toml allows 32MiB at most";
    assert_eq!(outcome.log().iter().filter(|line| line.ends_with(said)).count(), 1, "{}", outcome.stderr);
}

#[test]
fn a_bad_file_is_one_line_and_the_program_runs() {
    let cases: [(&[u8], &str); 4] = [
        (b"\x00\xff\xfe", "/etc/wmshim.toml is not text: it has no effect"),
        (&[b'='; 70_000], "is longer than 65536 bytes"),
        (
            b"[defaults]\nlog = \"wran\"\n",
            "/etc/wmshim.toml line 2 has no value of log: wran; valid: error, warn",
        ),
        (b"[\n]\nx\n[ceilings]\nhost_limit=\"0\"\n", "; 2 more lines have no effect (`wmctl doctor`)"),
    ];
    for (file, said) in cases {
        let Some((got, outcome)) = blocks(file, &[("WMSHIM_HEADROOM", "0")]) else { return };
        assert_eq!((got, outcome.log().len()), (6, 1), "{}", outcome.stderr);
        assert!(outcome.log()[0].contains(said), "{}", outcome.stderr);
    }
}

#[test]
fn a_file_that_others_can_write_or_a_folder_does_not_count() {
    for is_folder in [false, true] {
        let scratch = Scratch::new();
        let file = scratch.folder("etc").join("wmshim.toml");
        if is_folder {
            fs::create_dir(&file).expect("a folder");
        } else {
            fs::write(&file, NODE).expect("written");
            fs::set_permissions(&file, Permissions::from_mode(0o646)).expect("its own");
        }
        let program = c::cuda_program(&scratch, "spilled");
        let Some(host) = on_node(&scratch, &[program.to_str().expect("a readable path"), "a8"]) else {
            return;
        };
        let outcome = host.run();
        assert_eq!(outcome.expect_success(), "0");
        let said = "toml is not a plain file of root's that no other user can write: it has no effect";
        assert!(outcome.log().len() == 1 && outcome.log()[0].contains(said), "{}", outcome.stderr);
    }
}

/// The choice of PyTorch's allocator comes before the other settings are read.
#[test]
fn a_default_counts_when_python_starts() {
    let ask = "import os; print(os.environ.get('PYTORCH_CUDA_ALLOC_CONF'))";
    let told = |file: &[u8], variable: &str| {
        let scratch = Scratch::new();
        fs::write(scratch.folder("etc").join("wmshim.toml"), file).expect("written");
        let host = on_node(&scratch, &["python3", "-c", ask])?;
        Some(host.env("WMSHIM_TORCH_ALLOCATOR", variable).run().expect_success().to_owned())
    };
    let file = b"[defaults]\ntorch_allocator = \"native\"\n";
    let Some(by_default) = told(file, "") else { return };
    assert_eq!(by_default, "backend:native");
    assert_eq!(told(file, "async").as_deref(), Some("backend:cudaMallocAsync"));
}

#[test]
fn the_doctor_shows_the_values_in_force_and_the_lines_without_effect() {
    let scratch = Scratch::new();
    let etc = scratch.folder("etc");
    fs::write(etc.join("wmshim.toml"), [NODE, b"migrate = true\n"].concat()).expect("written");
    let Some(words) = starter(&etc) else { return };
    let host = Host::bare(&words[0]).args(&words[1..]).args([places::wmctl()]).args(["doctor", "--json"]);
    let host = host.env("WMSHIM_DRIVER", places::simulated_driver()).env("WMSHIM_LIB", places::shim());
    let outcome = host.env("WMSHIM_STATS_DIR", scratch.folder("stats")).env("WMSHIM_HEADROOM", "5%").run();
    let report: serde_json::Value = serde_json::from_str(outcome.expect_success()).expect("JSON");
    let settings = &report["installation"]["settings"];
    assert_eq!(settings["node"], "/etc/wmshim.toml");
    for (variable, value, origin) in
        [("DEVICE_LIMIT", "32MiB", "ceiling"), ("OVERFLOW", "off", "node"), ("HEADROOM", "5%", "variable")]
    {
        let found = &settings["settings"][format!("WMSHIM_{variable}")];
        assert_eq!((found["value"].as_str(), found["origin"].as_str()), (Some(value), Some(origin)));
    }
    let said = "/etc/wmshim.toml line 7 has a ceiling for migrate";
    assert!(report["findings"].to_string().contains(said), "{}", report["findings"]);
}
