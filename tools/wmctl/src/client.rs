//! The client's side of the statistics endpoint: the sockets, their peers, and the answers.
//!
//! The shim decides where it puts its socket (see `docs/wmctl.md`). The client searches the
//! folders of programs started from this shell, and the folders in which each process that this
//! user may inspect would have put its own socket ([`processes`]): so root finds the sockets of all
//! users, and of containers. The client checks each socket before it trusts it ([`folder`]), and
//! asks with a limit on time and size ([`exchange`]).

pub(crate) mod boxes;
mod broker;
pub(crate) mod exchange;
mod folder;
mod groups;
mod identity;
mod origins;
pub(crate) mod processes;
mod refusals;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use boxes::{FoundBoxes, ReadBox};
pub(crate) use broker::FoundBroker;
use exchange::Knock;
pub(crate) use folder::FolderFile;
use folder::{Folder, Unusable};
pub(crate) use identity::{IdentityReader, ProcessIdentity};
pub(crate) use origins::Origins;
use processes::RunningProcess;

/// How long a program may take to answer. It answers from a thread of its own, so seconds mean that
/// it is stopped.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A program with a socket.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) pid: u32,
    /// As people name it.
    pub(crate) socket: PathBuf,
    folder: Arc<Folder>,
    name: String,
    identity: (u64, u64),
}

/// All sockets found: those of living programs, those of dead programs, and the folders that are
/// not to be trusted.
#[derive(Debug, Default)]
pub(crate) struct FoundSockets {
    pub(crate) alive: Vec<Endpoint>,
    pub(crate) stale: Vec<Endpoint>,
    pub(crate) problems: Vec<String>,
}

/// Says that there may be more programs, if processes could not be looked into, and what is missing
/// to see them.
pub(crate) fn closed_line(closed: usize) -> Option<String> {
    let processes = if closed == 1 { "1 process" } else { &format!("{closed} processes") };
    (closed > 0).then(|| format!("{processes} could not be looked into: CAP_SYS_PTRACE is missing"))
}

impl Endpoint {
    /// A socket in a folder, if it is one of the folder's user.
    fn new(folder: &Arc<Folder>, name: &str, pid: u32) -> Option<Self> {
        let identity = folder.socket(name)?;
        let (socket, folder) = (folder.path.join(name), Arc::clone(folder));
        Some(Self { pid, socket, folder, name: name.to_owned(), identity })
    }

    /// A socket that the user named.
    ///
    /// # Errors
    /// The kind of file that is there instead.
    pub(crate) fn at(path: &Path) -> Result<Self> {
        let owner = rustix::fs::stat(path).map_err(|error| match error {
            Errno::NOENT => anyhow!("{}: there is no such socket", path.display()),
            _ => anyhow!("{} cannot be reached: {error}", path.display()),
        })?;
        let (parent, name) = folder::without_link(path);
        let folder = Folder::named(&parent, owner.st_uid).with_context(|| path.display().to_string())?;
        let endpoint = Self::new(&Arc::new(folder), &name, 0);
        let endpoint = endpoint.with_context(|| {
            format!("{} is no socket: give the path that WMSHIM_STATS_SOCKET names", path.display())
        })?;
        Ok(Self { socket: path.to_owned(), ..endpoint })
    }

    /// Where it is reached.
    pub(crate) fn door(&self) -> PathBuf {
        self.folder.inside(&self.name)
    }

    /// The user that may answer: the folder's owner. For a socket that was named: this user alone,
    /// or any user if this process is root.
    fn expected(&self) -> Option<u32> {
        let own = own_user();
        if own == 0 && self.pid == 0 {
            None
        } else if own == 0 {
            Some(self.folder.user)
        } else {
            Some(own)
        }
    }

    /// The user that must ask, where the program has a user namespace in which root has no number:
    /// it takes such a peer for a stranger.
    fn stranger(&self) -> Option<u32> {
        let is_foreign = own_user() == 0 && self.pid != 0 && !processes::sees(self.pid, 0);
        is_foreign.then_some(self.folder.user)
    }

    /// A path of the program's as it is reached from here.
    pub(crate) fn seen_from_here(&self, path: &str) -> PathBuf {
        let root = processes::running(self.pid).and_then(|process| process.root);
        let inside = Path::new(path).strip_prefix("/").unwrap_or(Path::new(path));
        root.map_or_else(|| PathBuf::from(path), |root| root.join(inside))
    }

    /// Removes the file, if still no process listens at it.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn remove(&self) -> std::io::Result<()> {
        match exchange::knock(&self.door()) {
            Knock::Refused => self.folder.remove(&self.name, self.identity),
            _ => Err(std::io::Error::other("another process listens there now")),
        }
    }
}

pub(crate) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The places where sockets of programs started from here may be, whether they exist or not.
pub(crate) fn directories() -> Vec<PathBuf> {
    directories_of(own_user(), &own_setting)
}

/// A variable of this shell, or the node's default of that setting.
fn own_setting(name: &str) -> Option<OsString> {
    processes::setting(&|name| std::env::var_os(name), None, name)
}

/// The same for programs of a user with these variables. Only `WMSHIM_STATS_DIR`, if that is set.
pub(crate) fn directories_of(user: u32, variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = set("WMSHIM_STATS_DIR") {
        return vec![directory];
    }
    let shared = format!("wmshim-{user}");
    let runtime = set("XDG_RUNTIME_DIR").unwrap_or_else(|| format!("/run/user/{user}").into());
    let mut places = vec![runtime.join("wmshim"), Path::new("/tmp").join(&shared)];
    places.extend(set("TMPDIR").map(|folder| folder.join(shared)));
    places.dedup();
    places
}

/// Did the user of this shell name the folder to look into?
pub(crate) fn is_named() -> bool {
    own_setting("WMSHIM_STATS_DIR").is_some()
}

/// Looks everywhere, or only into the folder that was named. A process with several sockets, some
/// of them stale, is alive once.
pub(crate) fn find() -> FoundSockets {
    let mut found = FoundSockets::default();
    let mut seen = BTreeMap::new();
    for endpoint in of_other_places().chain(of_own_places(&mut found.problems)) {
        seen.entry(endpoint.identity).or_insert(endpoint);
    }
    let mut alive = BTreeMap::new();
    for endpoint in seen.into_values() {
        match exchange::knock(&endpoint.door()) {
            Knock::Alive => drop(alive.insert(endpoint.pid, endpoint)),
            Knock::Refused => found.stale.push(endpoint),
            Knock::Unreachable => {}
        }
    }
    found.alive = alive.into_values().collect();
    found
}

/// Sockets in the folders of programs started from here.
pub(crate) fn of_own_places(problems: &mut Vec<String>) -> std::vec::IntoIter<Endpoint> {
    let user = Some(own_user()).filter(|user| *user != 0 || !is_named());
    let mut endpoints = Vec::new();
    for path in directories() {
        match Folder::private(None, &path, user) {
            Ok(folder) => endpoints.extend(sockets(&Arc::new(folder), ".sock")),
            Err(Unusable::Missing) => {}
            Err(Unusable::Refused(problem)) => problems.push(problem),
        }
    }
    endpoints.into_iter()
}

/// Files of a folder that are named `<number><ending>`.
fn sockets(folder: &Arc<Folder>, ending: &str) -> Vec<Endpoint> {
    let pid = |name: &str| name.strip_suffix(ending)?.parse().ok();
    let names = folder.names();
    names.iter().filter_map(|name| Endpoint::new(folder, name, pid(name)?)).collect()
}

/// Sockets of processes whose folders are not this shell's.
fn of_other_places() -> impl Iterator<Item = Endpoint> {
    let own = directories();
    let all = if is_named() { None } else { Some(processes::all()) };
    all.into_iter().flatten().filter_map(move |process| of_other_process(&process, &own))
}

/// The socket of a living process, wherever its variables put it. It is not checked whether the
/// process listens.
pub(crate) fn endpoint_of(pid: u32) -> Option<Endpoint> {
    of_other_process(&processes::running(pid)?, &[])
}

pub(crate) fn of_other_process(process: &RunningProcess, own: &[PathBuf]) -> Option<Endpoint> {
    let named = process.setting("WMSHIM_STATS_SOCKET");
    if let Some(endpoint) = named.and_then(|path| at_named_path(process, &path)) {
        return Some(endpoint);
    }
    let places = directories_of(process.user_inside, &|name| process.setting(name));
    let fresh = places.iter().filter(|place| process.root.is_some() || !own.contains(place));
    let mut folders = fresh.filter_map(|place| private_folder(process, place));
    folders.find_map(|folder| Endpoint::new(&folder, &format!("{}.sock", process.inner), process.pid))
}

fn private_folder(process: &RunningProcess, path: &Path) -> Option<Arc<Folder>> {
    let absolute = path.is_absolute().then_some(path)?;
    Folder::private(process.root.as_deref(), absolute, Some(process.user)).ok().map(Arc::new)
}

/// The socket that a process was told to make. Its folder need not be private, so the listener's
/// user is checked.
fn at_named_path(process: &RunningProcess, path: &OsStr) -> Option<Endpoint> {
    let path = Path::new(path);
    let folder = match process.root {
        None => {
            Folder::named(path.is_absolute().then(|| path.parent())??, process.user).ok().map(Arc::new)?
        }
        Some(_) => private_folder(process, path.parent()?)?,
    };
    Endpoint::new(&folder, path.file_name()?.to_str()?, process.pid)
}

/// Says that there is no program, and how to start one.
pub(crate) fn none_found() -> String {
    let elsewhere = match (is_named(), own_user()) {
        (true, _) => "",
        (_, 0) => ", or where any process's own variables say",
        _ => ", or where the variables of your processes say",
    };
    format!(
        "no program under the shim has a socket in {}{elsewhere}; start one with `wmctl run -- COMMAND` (its socket \
         appears with its first CUDA call)",
        crate::human::paths(&directories())
    )
}

/// The boxes in this user's folders.
pub(crate) fn own_boxes() -> FoundBoxes {
    boxes_of(&own_setting)
}

/// The boxes of this user's programs with these variables.
pub(crate) fn boxes_of(variable: &dyn Fn(&str) -> Option<OsString>) -> FoundBoxes {
    let is_named = variable("WMSHIM_STATS_DIR").is_some_and(|value| !value.is_empty());
    let folders = boxes::places(directories_of(own_user(), variable), own_user(), is_named);
    boxes::in_folders(&folders, Some(own_user()))
}

/// The figures of one process's black box.
pub(crate) fn box_of(pid: u32) -> Option<ReadBox> {
    let process = processes::running(pid)?;
    let (pid, file) = boxes::of_process(&process, &box_places(&process))?;
    boxes::read_living(pid, &file)
}

/// Where a process would have put its black box.
pub(crate) fn box_places(process: &RunningProcess) -> Vec<PathBuf> {
    let variable = |name: &str| process.setting(name);
    let is_named = variable("WMSHIM_STATS_DIR").is_some_and(|value| !value.is_empty());
    boxes::places(directories_of(process.user_inside, &variable), process.user_inside, is_named)
}

/// The socket of one process.
///
/// # Errors
/// Why there is none: no such process, not under the shim, no CUDA call yet, another user's.
pub(crate) fn of_process(pid: u32) -> Result<Endpoint> {
    let own = endpoint_of(pid).filter(|endpoint| exchange::knock(&endpoint.door()) == Knock::Alive);
    if let Some(endpoint) = own {
        return Ok(endpoint);
    }
    let found = find();
    let wanted = |endpoint: &Endpoint| endpoint.pid == pid;
    if let Some(endpoint) = found.alive.into_iter().find(wanted) {
        return Ok(endpoint);
    }
    if found.stale.iter().any(wanted) && !processes::exists(pid) {
        bail!("process {pid} has ended; its socket is left over, and `wmctl clean` removes it");
    }
    if !processes::exists(pid) {
        bail!("there is no process {pid}; `wmctl stats` lists the programs that run under the shim");
    }
    Err(explain(pid, &found.problems))
}

/// Why a living process has no socket.
fn explain(pid: u32, problems: &[String]) -> anyhow::Error {
    let Some(process) = processes::running(pid) else {
        return anyhow!("process {pid} cannot be looked into: ask as its user, or as root");
    };
    if process.is_shimmed() != Some(true) {
        return anyhow!("process {pid} does not run under the shim; start it with `wmctl run -- COMMAND`");
    }
    let places = directories_of(process.user_inside, &|name| process.setting(name));
    let problems: String = problems.iter().map(|problem| format!("; {problem}")).collect();
    anyhow!(
        "process {pid} runs under the shim but has no socket in {}: it has made no CUDA call yet, or its statistics \
         are off (WMSHIM_STATS_SOCKET), or it runs with WMSHIM_DISABLE{problems}",
        crate::human::paths(&places)
    )
}

/// Asks one question.
///
/// # Errors
/// A program that is gone, does not answer in time, or answers with an error.
pub(crate) fn ask(endpoint: &Endpoint, request: &str) -> Result<Value> {
    ask_within(endpoint, request, PATIENCE)
}

fn ask_within(endpoint: &Endpoint, request: &str, patience: Duration) -> Result<Value> {
    ask_with(endpoint, &json!({ "request": request }), patience)
}

/// Asks a question that has more to it than its name.
///
/// # Errors
/// As [`ask`].
pub(crate) fn ask_with(endpoint: &Endpoint, request: &Value, patience: Duration) -> Result<Value> {
    let asked = || exchange::exchange(&endpoint.door(), endpoint.expected(), request, patience);
    let answer = match endpoint.stranger() {
        Some(user) => exchange::as_user(user, asked),
        None => asked(),
    };
    let line = answer.with_context(|| format!("no answer from {}", endpoint.socket.display()))?;
    let answer: Value = serde_json::from_str(&line)
        .with_context(|| format!("{} answered something that is not JSON", endpoint.socket.display()))?;
    match answer.get("error").and_then(Value::as_str) {
        Some(problem) => bail!("the program answered: {}", crate::human::shortened(problem, 200)),
        None => Ok(answer),
    }
}

/// An answer as the type of its request. A field that an older library lacks has its default, and
/// one that only a newer library knows is left out.
///
/// # Errors
/// A field of another type, by its name.
pub(crate) fn parsed<T: DeserializeOwned>(answer: &Value) -> Result<T> {
    T::deserialize(answer).context("the answer has another form than docs/schema.md says")
}

/// The brokers of memory that this user's programs share, and the problems of the folders in which
/// brokers may be.
pub(crate) fn brokers() -> (Vec<FoundBroker>, Vec<String>) {
    broker::find(&directories(), own_user())
}

/// Asks many programs at once: together they take no longer than the slowest.
pub(crate) fn ask_all(endpoints: &[Endpoint], request: &str, patience: Duration) -> Vec<Result<Value>> {
    thread::scope(|scope| {
        let ask = |one| scope.spawn(move || ask_within(one, request, patience));
        let asked: Vec<_> = endpoints.iter().map(ask).collect();
        let answer = |thread: thread::ScopedJoinHandle<'_, Result<Value>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("internal error, please report it")))
        };
        asked.into_iter().map(answer).collect()
    })
}

/// What this user's programs left in this shell's folders when they ended.
#[derive(Debug, Default)]
pub(crate) struct LeftOver {
    /// Statistics sockets, and sockets for shared memory.
    pub(crate) sockets: Vec<Endpoint>,
    /// Files of an out-of-memory.
    pub(crate) refusals: Vec<FolderFile>,
    /// Why folders stay untouched.
    pub(crate) problems: Vec<String>,
}

/// Sockets that nothing listens at, and files of an out-of-memory that are at least so old.
pub(crate) fn left_over(age: Duration) -> LeftOver {
    let mut found = LeftOver::default();
    for path in directories() {
        match Folder::private(None, &path, Some(own_user())) {
            // A socket of another machine's process refuses us as a dead one does.
            Ok(folder) if folder.is_remote() => found.problems.push(format!(
                "{} may be shared with other machines: nothing is removed there",
                path.display()
            )),
            Ok(folder) => {
                let folder = Arc::new(folder);
                found.sockets.extend(refusing(&folder));
                found.refusals.extend(refusals::left_in(&folder, age));
            }
            Err(Unusable::Missing) => {}
            Err(Unusable::Refused(problem)) => found.problems.push(problem),
        }
    }
    found
}

/// Sockets of a folder with the shim's names and without a listener.
fn refusing(folder: &Arc<Folder>) -> Vec<Endpoint> {
    let names = folder.names();
    let ours = |name: &&String| {
        name.ends_with(".ipc")
            || *name == wm_dedup::protocol::SOCKET
            || name.strip_suffix(".sock").is_some_and(|pid| pid.parse::<u32>().is_ok())
    };
    let sockets = names.iter().filter(ours).filter_map(|name| Endpoint::new(folder, name, 0));
    sockets.filter(|endpoint| exchange::knock(&endpoint.door()) == Knock::Refused).collect()
}
