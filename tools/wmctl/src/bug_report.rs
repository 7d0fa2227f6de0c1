//! `wmctl bug-report`: one archive with what a report of a fault needs, to be looked into and then
//! sent by hand.
//!
//! Nothing is asked over a network, and no program is changed. Each part is a file that a person
//! can read. What programs were started with stays out, since arguments and variables hold
//! passwords: a command line is its first word, and of all variables the archive has those of
//! wmshim alone, unless the user asks for more.

mod tar;

use std::ffi::CStr;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::client::boxes::ReadBox;
use crate::client::{self, IdentityReader};
use crate::programs::{self, Finder, FoundPrograms, Program};
use crate::shim::{self, JudgedSettings, Library};
use crate::{human, output, stats};

/// How long the doctor may take: a driver that hangs is worth a report, too.
const PATIENCE: Duration = Duration::from_secs(60);
/// The folder inside the archive.
const FOLDER: &str = "wmshim-bug-report";

/// Arguments of `wmctl bug-report`.
#[derive(Debug, clap::Args)]
pub(crate) struct BugReportArguments {
    /// The archive to write; a file that is there is not overwritten
    #[arg(short, long, value_name = "FILE", default_value = "wmshim-bug-report.tar.gz")]
    output: PathBuf,
    /// Also the arguments of programs, which may hold secrets
    #[arg(long)]
    arguments: bool,
    /// Also all variables of this shell, which may hold secrets
    #[arg(long)]
    environment: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A file of the archive: its name, its purpose, its text.
struct ReportPart {
    name: &'static str,
    purpose: &'static str,
    text: String,
}

impl ReportPart {
    fn json(name: &'static str, purpose: &'static str, value: &Value) -> Self {
        Self { name, purpose, text: output::escaped(&format!("{value:#}\n")) }
    }
}

/// Writes the archive, and prints what is in it.
///
/// # Errors
/// An archive that cannot be written. A part that cannot be had says so in its place.
pub(crate) fn bug_report(arguments: &BugReportArguments) -> Result<()> {
    let found = Finder::default().find();
    let mut parts = vec![
        ReportPart::json(
            "versions.json",
            "versions of wmshim, of the system and of its C library",
            &versions(),
        ),
        ReportPart::json("doctor.json", "what `wmctl doctor --json` says of this machine", &doctor()),
        ReportPart::json("settings.json", "this shell's WMSHIM_ variables", &settings(arguments.environment)),
        ReportPart::json(
            "programs.json",
            "figures and settings of programs, running and ended",
            &programs_of(&found, arguments),
        ),
        ReportPart {
            name: "maps.txt",
            purpose: "where running programs have the library",
            text: maps(&found),
        },
    ];
    parts.insert(0, ReportPart { name: "README.txt", purpose: "this list", text: readme(&parts, arguments) });
    let archive = packed(&parts)?;
    write(&arguments.output, &archive)?;
    if arguments.json {
        let files: Vec<_> = parts.iter().map(|part| format!("{FOLDER}/{}", part.name)).collect();
        let path = arguments.output.display().to_string();
        return output::print_json(&json!({ "schema": "wmctl-bug-report/1", "path": path, "files": files }));
    }
    output::print(&format!("{}\n\n{}", said(&arguments.output), parts[0].text))
}

fn said(path: &Path) -> String {
    let path = human::shown(&path.display().to_string());
    format!("wrote {path}; look into it before you send it: tar -xzOf {path} | less")
}

fn packed(parts: &[ReportPart]) -> Result<Vec<u8>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut archive = tar::Archive::new(now);
    for part in parts {
        archive.add(&format!("{FOLDER}/{}", part.name), part.text.as_bytes())?;
    }
    Ok(archive.finish()?)
}

/// A new file for its owner alone.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let explain = || format!("{} cannot be written; name another file by --output", path.display());
    file.and_then(|mut file| file.write_all(bytes)).with_context(explain)
}

fn readme(parts: &[ReportPart], arguments: &BugReportArguments) -> String {
    let lines: String = parts
        .iter()
        .map(|part| format!("  {:<14} {} ({} bytes)\n", part.name, part.purpose, part.text.len()))
        .collect();
    let shown = |it: bool, yes: &'static str, no: &'static str| if it { yes } else { no };
    format!(
        "In {FOLDER}/:\n{lines}{}\n{}\nPaths hold names of users and folders. No contents of memory are in it.\n",
        shown(
            arguments.arguments,
            "Arguments of programs are in it (--arguments).",
            "Arguments of programs are left out (--arguments adds them)."
        ),
        shown(
            arguments.environment,
            "All variables of this shell are in it (--environment).",
            "Variables other than WMSHIM_* are left out (--environment adds them)."
        ),
    )
}

fn versions() -> Value {
    // SAFETY: the C library's function gives a string that lives as long as the process.
    let c_library = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy().into_owned();
    let library = shim::find().and_then(|path| Ok((path.clone(), Library::open(&path)?)));
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let pretty = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or_default();
    json!({
        "wmctl": env!("CARGO_PKG_VERSION"),
        "library": match &library {
            Ok((path, library)) => json!({ "path": path, "version": library.text(c"wmshim_version") }),
            Err(error) => json!({ "error": format!("{error:#}") }),
        },
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "system": pretty.trim_matches('"'),
        "glibc": c_library,
        "driver_module": fs::read_to_string("/proc/driver/nvidia/version").ok(),
    })
}

/// The doctor's own answer, by another process: it opens the driver, which can end or stop it.
fn doctor() -> Value {
    let told = std::env::current_exe().map_err(Into::into).and_then(|own| answer(&own, PATIENCE));
    told.unwrap_or_else(|error: anyhow::Error| json!({ "error": format!("{error:#}") }))
}

fn answer(own: &Path, patience: Duration) -> Result<Value> {
    let mut command = Command::new(own);
    command.args(["doctor", "--json"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut doctor = command.spawn().context("the doctor cannot be started")?;
    let mut output = doctor.stdout.take().context("the doctor has no output")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        let read = output.read_to_string(&mut text).map(|_| text);
        let _the_wait_is_over = sender.send(read);
    });
    let Ok(text) = receiver.recv_timeout(patience) else {
        // In a driver that hangs even this may have no effect, and nothing waits for it.
        doctor.kill()?;
        anyhow::bail!("the doctor has not answered in {} s", patience.as_secs());
    };
    let code = doctor.wait()?;
    serde_json::from_str(&text?).with_context(|| format!("the doctor ended with {code}"))
}

fn settings(all: bool) -> Value {
    let variables: Vec<_> = std::env::vars_os().collect();
    let is_shown = |name: &str| all || name.starts_with("WMSHIM_");
    let shown: Map<String, Value> = variables
        .iter()
        .map(|(name, value)| (name.to_string_lossy(), value.to_string_lossy()))
        .filter(|(name, _)| is_shown(name))
        .map(|(name, value)| (name.into_owned(), value.into()))
        .collect();
    let library = shim::find().and_then(|path| Library::open(&path));
    let judged = library.map(|library| library.judge_settings(&variables)).unwrap_or_default();
    let node = json!({ "path": judged.node.path, "faults": judged.node.faults });
    let JudgedSettings { problems, bounds, origins, .. } = judged;
    json!({ "variables": shown, "problems": problems, "bounds": bounds, "origins": origins, "node_file": node })
}

fn programs_of(found: &FoundPrograms, arguments: &BugReportArguments) -> Value {
    let mut identities = IdentityReader::new(!arguments.arguments);
    let figures = programs::figures(&found.running, client::PATIENCE).into_iter();
    let running = found.running.iter().zip(figures).map(|(program, figures)| {
        let figures = figures.map_or_else(|error| json!(format!("{error:#}")), |told| json!(told.stats));
        let (identity, config) = (identities.of(program.pid), config(program));
        json!({ "identity": identity, "stopped": program.is_stopped, "stats": figures, "config": config })
    });
    let running: Vec<_> = running.collect();
    json!({
        "running": running,
        "ended_without_an_exit": found.dead.iter().map(last_words).collect::<Vec<_>>(),
        "left_over_sockets": found.stale.len(),
        "problems": found.problems,
        "processes_not_looked_into": found.closed,
    })
}

/// The settings in force.
fn config(program: &Program) -> Value {
    let answer = program.endpoint().map(|endpoint| client::ask(&endpoint, "config"));
    answer.map_or(Value::Null, |answer| answer.unwrap_or_else(|error| json!(format!("{error:#}"))))
}

fn last_words(read: &ReadBox) -> Value {
    json!({ "stats": read.stats(false), "refused": read.reading.refused.iter().map(stats::refusal).collect::<Vec<_>>() })
}

/// The lines of each program's memory map that name libraries of wmshim's and of the driver's.
fn maps(found: &FoundPrograms) -> String {
    const NAMES: [&str; 5] = ["libwmshim.so", "libcuda.so", "libwholegraph.so", "libcudart", "libnvidia-"];
    let mut text = String::new();
    for program in &found.running {
        let maps = fs::read_to_string(format!("/proc/{}/maps", program.pid)).unwrap_or_default();
        let lines = maps.lines().filter(|line| NAMES.iter().any(|name| line.contains(name)));
        text += &format!("process {}\n", program.pid);
        lines.for_each(|line| text += &format!("{}\n", human::shown(line)));
    }
    if text.is_empty() { "no program runs under wmshim\n".to_owned() } else { text }
}
