//! The client's side of the statistics endpoint: where sockets are, who answers, what they say.
//!
//! The shim decides where it puts its socket (see `docs/statistics.md`); here all those places are looked through, so
//! that a program started with another `XDG_RUNTIME_DIR` than ours is found too.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

/// How long a program may take to answer. It answers from a thread of its own, so seconds mean that it is stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// A program with a socket.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) pid: u32,
    pub(crate) socket: PathBuf,
}

/// All sockets found: of living programs, and what dead ones left behind.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) alive: Vec<Endpoint>,
    pub(crate) stale: Vec<Endpoint>,
}

/// The places where sockets of programs started from here may be, whether they exist or not.
pub(crate) fn directories() -> Vec<PathBuf> {
    directories_of(&|name| std::env::var_os(name))
}

/// The same for programs with these variables. Only `WMSHIM_STATS_DIR`, if that is set.
pub(crate) fn directories_of(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = set("WMSHIM_STATS_DIR") {
        return vec![directory];
    }
    let user = rustix::process::geteuid().as_raw();
    let shared = format!("wmshim-{user}");
    let runtime = set("XDG_RUNTIME_DIR").unwrap_or_else(|| format!("/run/user/{user}").into());
    let mut places = vec![runtime.join("wmshim"), Path::new("/tmp").join(&shared)];
    places.extend(set("TMPDIR").map(|folder| folder.join(shared)));
    places.dedup();
    places
}

/// Every socket file in these places, whether somebody listens there or not.
pub(crate) fn candidates(places: &[PathBuf]) -> Vec<Endpoint> {
    places.iter().flat_map(|directory| sockets(directory)).collect()
}

/// Looks through all places. A process with several sockets, some of them stale, is alive once.
pub(crate) fn find() -> Found {
    let (alive, stale): (Vec<_>, Vec<_>) = candidates(&directories())
        .into_iter()
        .partition(|endpoint| UnixStream::connect(&endpoint.socket).is_ok());
    let alive: BTreeMap<_, _> = alive.into_iter().map(|endpoint| (endpoint.pid, endpoint)).collect();
    Found { alive: alive.into_values().collect(), stale }
}

/// `<pid>.sock` files of a directory. One that is missing or unreadable has none.
fn sockets(directory: &Path) -> Vec<Endpoint> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = entries.filter_map(|socket| {
        let pid = socket.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok()?;
        Some(Endpoint { pid, socket })
    });
    named.collect()
}

/// Says that there is no program, and how to start one.
pub(crate) fn none_found() -> String {
    format!(
        "no program under the shim has a socket in {}; start one with `wmctl run -- COMMAND` (its socket appears \
         with its first CUDA call)",
        list(&directories())
    )
}

/// The socket of one process.
///
/// # Errors
/// Why there is none: no such process, not under the shim, no CUDA call yet, another user's.
pub(crate) fn of_process(pid: u32) -> Result<Endpoint> {
    let found = find();
    let wanted = |endpoint: &Endpoint| endpoint.pid == pid;
    if let Some(endpoint) = found.alive.into_iter().find(wanted) {
        return Ok(endpoint);
    }
    if found.stale.iter().any(wanted) && !is_process(pid) {
        bail!("process {pid} has ended; its socket is left over and can be deleted");
    }
    if !is_process(pid) {
        bail!("there is no process {pid}; `wmctl stats` lists the programs that run under the shim");
    }
    Err(explain(pid))
}

fn is_process(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Why a living process has no socket.
fn explain(pid: u32) -> anyhow::Error {
    let Ok(maps) = fs::read_to_string(format!("/proc/{pid}/maps")) else {
        return anyhow!("process {pid} cannot be looked into: ask as its user, or as root");
    };
    if !maps.contains("libwmshim.so") && !maps.contains("/dropin/libcuda.so.1") {
        return anyhow!("process {pid} does not run under the shim; start it with `wmctl run -- COMMAND`");
    }
    anyhow!(
        "process {pid} runs under the shim but has no socket in {}: it has made no CUDA call yet, or was started \
         with another WMSHIM_STATS_DIR or WMSHIM_STATS_SOCKET (give `--socket PATH`)",
        list(&directories())
    )
}

/// Paths as a list for a sentence.
pub(crate) fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Asks one question.
///
/// # Errors
/// A program that is gone, does not answer in time, or answers with an error.
pub(crate) fn ask(socket: &Path, request: &str) -> Result<Value> {
    understand(socket, exchange(socket, request, Some(PATIENCE)))
}

/// Asks a question whose answer may take as long as the program runs.
///
/// # Errors
/// A program that ends without an answer, or answers with an error.
pub(crate) fn ask_patiently(socket: &Path, request: &str) -> Result<Value> {
    understand(socket, exchange(socket, request, None))
}

fn understand(socket: &Path, line: Result<String>) -> Result<Value> {
    let line = line.with_context(|| format!("no answer from {}", socket.display()))?;
    let answer: Value = serde_json::from_str(&line)
        .with_context(|| format!("{} answered something that is not JSON", socket.display()))?;
    match answer.get("error").and_then(Value::as_str) {
        Some(problem) => bail!("the program answered: {problem}"),
        None => Ok(answer),
    }
}

fn exchange(socket: &Path, request: &str, patience: Option<Duration>) -> Result<String> {
    let mut stream = UnixStream::connect(socket).map_err(no_connection)?;
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    writeln!(stream, "{}", json!({ "request": request }))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(no_answer)?;
    if line.is_empty() {
        bail!("the process closed the connection: it is ending, or belongs to another user");
    }
    Ok(line)
}

fn no_connection(error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            anyhow!("the process has ended; the socket is left over and can be deleted")
        }
        ErrorKind::NotFound => anyhow!("there is no such socket"),
        _ => error.into(),
    }
}

fn no_answer(error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            anyhow!("nothing within {} s: is the process stopped?", PATIENCE.as_secs())
        }
        _ => error.into(),
    }
}
