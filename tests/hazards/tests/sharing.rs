//! Hazard (privilege boundary): a process cannot open memory for which it has a handle, or a wrong
//! process can. The tests cover signals during the request, equal process ids in two namespaces,
//! forked children, clients that connect and send nothing, exporters that are stopped or killed,
//! few descriptors, other devices, and separate mount and network namespaces.
//!
//! A test that needs a namespace or another user's process is skipped if this process may not make
//! one.

use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout};
use std::thread;
use std::time::{Duration, Instant};

use hazards::{Host, Outcome, Scratch, c, driver, skip};

const BYTES: &str = "4194304";
const INVALID_HANDLE: &str = "400";
/// The program's exit code if a namespace is not allowed.
const NOT_ALLOWED: i32 = 77;
/// A user that owns nothing.
const STRANGER: u32 = 65_431;
/// Longer than an exchange without a delay, shorter than the time-out of either side.
const SOON: Duration = Duration::from_secs(3);

struct Stage {
    scratch: Scratch,
    driver: PathBuf,
    program: PathBuf,
}

impl Stage {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (driver, program) = (driver::simulated(&scratch), c::cuda_program(&scratch, "share"));
        Self { scratch, driver, program }
    }

    fn host(&self, words: &[&str]) -> Host {
        Host::shimmed(&self.program, &self.scratch, &self.driver).args(words).env("SIMCUDA_DEVICES", "2")
    }

    fn export(&self, words: &[&str]) -> Exporter {
        Exporter::of(self.host(words)).expect("a handle")
    }

    fn import(&self, handle: &str, how: &[&str]) -> Outcome {
        self.host(&[&["import", handle], how].concat()).run()
    }

    /// The code of an open, and the duration of the program.
    fn open(&self, handle: &str) -> (String, Duration) {
        let outcome = self.import(handle, &["once"]);
        (outcome.expect_success().to_owned(), outcome.took)
    }

    fn socket_files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.scratch.path().join("stats")).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.ends_with(".ipc")).collect()
    }
}

/// A process that exports memory until it is dropped.
struct Exporter {
    child: Child,
    words: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    handle: String,
}

impl Exporter {
    /// `None` if it ends before it prints a handle.
    fn of(host: Host) -> Option<Self> {
        let mut child = host.start();
        let words = child.stdin.take();
        let mut answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut handle = String::new();
        answers.read_line(&mut handle).expect("a pipe can be read");
        let handle = handle.trim().to_owned();
        let exporter = Self { child, words, answers, handle };
        (exporter.handle.len() == 128).then_some(exporter)
    }

    fn fork(&mut self) -> u32 {
        use std::io::Write;
        writeln!(self.words.as_mut().expect("not ended"), "fork").expect("it listens");
        let mut child = String::new();
        self.answers.read_line(&mut child).expect("an answer");
        child.trim().parse().expect("a number")
    }

    /// Ends it as programs end.
    fn end(&mut self) {
        self.words = None;
        assert!(self.child.wait().expect("it can be waited for").success());
    }

    fn signal(&self, number: i32) {
        // SAFETY: a plain system call; the process is ours and not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, number) }, 0);
    }

    /// Ends it as `kill -9` does.
    fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it can be waited for");
    }

    /// The addresses at which it listens for importers. The table shows the name that a socket was
    /// bound to; a file was renamed since.
    fn addresses(&self) -> Vec<String> {
        let own = sockets(self.child.id());
        let table = fs::read_to_string("/proc/net/unix").expect("the table of sockets");
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let rows = rows.filter(|row| row.len() == 8 && row[3] == "00010000");
        let names = rows.filter(|row| own.contains(&row[6].to_owned())).map(|row| PathBuf::from(row[7]));
        let named = names.map(|name| if name.is_absolute() { name.with_extension("ipc") } else { name });
        let named = named.filter(|name| !name.is_absolute() || name.exists());
        named.map(|name| name.to_str().expect("a readable name").to_owned()).collect()
    }

    /// Its abstract name.
    fn name(&self) -> String {
        let names = self.addresses();
        names.into_iter().find(|name| name.starts_with('@')).expect("an abstract name")
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // Forked children too: no process may outlive a test.
        // SAFETY: a plain system call; the group is the child's own.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

/// Bytes of a handle that was printed.
fn bytes(handle: &str, range: Range<usize>) -> Vec<u8> {
    range.map(|at| u8::from_str_radix(&handle[2 * at..][..2], 16).expect("two digits")).collect()
}

/// The numbers of a process's sockets.
fn sockets(process: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).expect("its descriptors").flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    let names = links.map(|link| link.to_string_lossy().into_owned());
    names.filter_map(|name| Some(name.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect()
}

/// A socket like those of exporter and importer, that waits for [`SOON`] at most.
fn socket() -> OwnedFd {
    let limit = libc::timeval { tv_sec: SOON.as_secs() as i64, tv_usec: 0 };
    // SAFETY: makes a descriptor that no other code knows, and sets an option whose value lives
    // through the call.
    unsafe {
        let raw = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        assert!(raw >= 0, "{}", std::io::Error::last_os_error());
        let size = size_of_val(&limit) as libc::socklen_t;
        libc::setsockopt(raw, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const limit).cast(), size);
        OwnedFd::from_raw_fd(raw)
    }
}

/// An address as the table of sockets shows it.
fn address(name: &str) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: all zeroes is a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = name.bytes().enumerate().map(|(at, byte)| if at == 0 && byte == b'@' { 0 } else { byte });
    address.sun_path.iter_mut().zip(bytes).for_each(|(to, from)| *to = from as libc::c_char);
    (address, (size_of::<libc::sa_family_t>() + name.len()) as libc::socklen_t)
}

fn connect(name: &str) -> OwnedFd {
    let (socket, (address, bytes)) = (socket(), address(name));
    // SAFETY: a whole address of that size.
    let outcome = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
    assert_eq!(outcome, 0, "{name}: {}", std::io::Error::last_os_error());
    socket
}

fn listen(name: &str) -> OwnedFd {
    let (socket, (address, bytes)) = (socket(), address(name));
    // SAFETY: a whole address of that size.
    let outcome = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
    assert_eq!(outcome, 0, "{name}: {}", std::io::Error::last_os_error());
    // SAFETY: a system call on a socket of ours.
    assert_eq!(unsafe { libc::listen(socket.as_raw_fd(), 8) }, 0);
    socket
}

/// The next message of the other side; empty when it has closed. `None`: no message within
/// [`SOON`].
fn hear(socket: &OwnedFd) -> Option<Vec<u8>> {
    let mut bytes = [0_u8; 4096];
    // SAFETY: the kernel writes at most the buffer's size.
    let heard = unsafe { libc::recv(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if heard < 0 && std::io::Error::last_os_error().kind() == std::io::ErrorKind::WouldBlock {
        return None;
    }
    Some(bytes[..usize::try_from(heard).unwrap_or(0)].to_vec())
}

fn say(socket: &OwnedFd, bytes: &[u8]) {
    // SAFETY: a slice of ours. The result tells whether a process listens.
    unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
}

/// Runs `body` on a thread of another user. `None` if this process is not root.
fn as_stranger<T: Send>(body: impl FnOnce() -> T + Send) -> Option<T> {
    // SAFETY: a plain question.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    thread::scope(|scope| {
        let run = move || {
            // SAFETY: the bare system call changes this thread alone, and the thread ends here.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, STRANGER, STRANGER, STRANGER) } == 0;
            changed.then(body)
        };
        scope.spawn(run).join().expect("no panic")
    })
}

#[test]
fn signals_while_memory_is_opened_cost_nothing() {
    let stage = Stage::new();
    let exporter = stage.export(&["export", BYTES]);
    stage.import(&exporter.handle, &["signals"]).expect_success();
}

#[test]
fn threads_open_and_close_one_block_while_access_is_granted() {
    let stage = Stage::new();
    let exporter = stage.export(&["export", BYTES]);
    let outcome = stage.import(&exporter.handle, &["threads"]);
    outcome.expect_success();
    assert_eq!(outcome.stderr, "", "no access was asked for where nothing is mapped");
}

/// Two programs of one user may have the same number, each in a namespace of its own, and share one
/// network.
#[test]
fn equal_process_numbers_are_told_apart() {
    let stage = Stage::new();
    let Some(first) = Exporter::of(stage.host(&["pid", "export", BYTES])) else {
        return skip("needs namespaces of process numbers");
    };
    let second = Exporter::of(stage.host(&["pid", "export", BYTES])).expect("the second exports too");
    for exporter in [first, second] {
        let outcome = stage.host(&["pid", "import", &exporter.handle, "once"]).run();
        assert_eq!(outcome.expect_success(), "0", "{}", outcome.stderr);
    }
}

/// With any process number in the handle, the exporter is not mistaken for the importer.
#[test]
fn a_number_in_a_handle_says_nothing() {
    let stage = Stage::new();
    let mut exporter = stage.export(&["export", BYTES]);
    let (open, handle) = (|handle: &str| stage.open(handle).0, exporter.handle.clone());
    let renumbered: String = [&handle[..16], "01000000", &handle[24..]].concat();
    assert_eq!(open(&renumbered), "0");
    exporter.end();
    assert_eq!(open(&handle), INVALID_HANDLE);
}

#[test]
fn a_forked_child_keeps_no_socket() {
    let stage = Stage::new();
    let mut exporter = stage.export(&["export", BYTES]);
    let silent: Vec<_> = exporter.addresses().iter().map(|name| connect(name)).collect();
    assert_eq!(stage.open(&exporter.handle).0, "0", "it has accepted those that came before");
    let child = exporter.fork();
    assert_eq!(sockets(child), [""; 0]);
    exporter.kill();
    for socket in silent {
        assert_eq!(hear(&socket), Some(vec![]), "the exporter is gone, and so is its end");
    }
    let (code, took) = stage.open(&exporter.handle);
    assert_eq!(code, INVALID_HANDLE);
    assert!(took < SOON, "{took:?}");
}

#[test]
fn a_killed_exporters_socket_is_removed_by_the_next() {
    let stage = Stage::new();
    let mut killed = stage.export(&["export", BYTES]);
    let left = stage.socket_files();
    killed.kill();
    assert_eq!((left.len(), stage.socket_files()), (1, left.clone()), "no process could remove it");
    let mut next = stage.export(&["export", BYTES]);
    let files = stage.socket_files();
    assert!(files.len() == 1 && files != left, "{left:?}, then {files:?}");
    let other = stage.export(&["export", BYTES]);
    assert_eq!(stage.socket_files().len(), 2, "the living keep theirs");
    next.end();
    drop(other);
    assert!(!stage.socket_files().contains(&files[0]), "an end removes its own");
}

/// A stopped or debugged importer must not block other importers; nor must many.
#[test]
fn silent_peers_delay_nobody() {
    let stage = Stage::new();
    let exporter = stage.export(&["export", BYTES]);
    let names = exporter.addresses();
    assert!(!names.is_empty());
    let silent: Vec<_> = (0..5).flat_map(|_| names.iter().map(|name| connect(name))).collect();
    let (code, took) = stage.open(&exporter.handle);
    assert_eq!(code, "0");
    assert!(took < SOON, "{took:?}");
    drop(silent);
}

#[test]
fn a_silent_peer_is_given_up() {
    let stage = Stage::new();
    let exporter = stage.export(&["export", BYTES]);
    let silent = connect(&exporter.addresses()[0]);
    say(&silent, &[7; 16]);
    let greeted = hear(&silent).expect("an answer to a nonce");
    assert_eq!(greeted.len(), 32, "a nonce and a tag");
    let begun = Instant::now();
    let ended = std::iter::repeat_with(|| hear(&silent)).take(3).flatten().next();
    assert_eq!(ended, Some(vec![]), "closed after {:?}", begun.elapsed());
}

/// A process that guesses an allocation's handle gets no memory, even a process of the same user.
#[test]
fn a_request_without_the_key_is_not_answered() {
    let stage = Stage::new();
    let exporter = stage.export(&["export", BYTES]);
    for name in exporter.addresses() {
        let guesser = connect(&name);
        say(&guesser, &[7; 16]);
        hear(&guesser).expect("an answer to a nonce");
        let allocation = bytes(&exporter.handle, 16..32);
        say(&guesser, &[allocation, vec![0; 16]].concat());
        assert_eq!(hear(&guesser), Some(vec![]), "closed without a word");
    }
}

#[test]
fn another_users_process_is_sent_away() {
    let stage = Stage::new();
    let exporter = stage.export(&["export", BYTES]);
    let name = exporter.name();
    let heard = as_stranger(|| {
        let stranger = connect(&name);
        // The answer to all other processes.
        say(&stranger, &[7; 16]);
        hear(&stranger)
    });
    match heard {
        Some(heard) => assert_eq!(heard, Some(vec![]), "closed at once, without a word"),
        None => skip("needs root"),
    }
}

/// The bytes that an importer sends to a process that has taken the exporter's name, and the
/// importer's exit code.
fn betrayed(bind: impl FnOnce(&str) -> Option<OwnedFd>) -> Option<(Vec<u8>, String)> {
    let stage = Stage::new();
    let mut exporter = stage.export(&["export", BYTES]);
    let name = exporter.name();
    exporter.kill();
    let impostor = bind(&name)?;
    let heard = thread::scope(|scope| {
        let listener = scope.spawn(|| overhear(&impostor));
        let outcome = stage.import(&exporter.handle, &["once"]);
        (listener.join().expect("no panic"), outcome.expect_success().to_owned())
    });
    let key = bytes(&exporter.handle, 32..48);
    let told = heard.0.windows(8).any(|window| key.windows(8).any(|part| part == window));
    assert!(!told, "the key was told: {:x?}", heard.0);
    Some(heard)
}

/// All bytes that the first peer sends. Each packet is answered with a nonce and an invalid tag.
fn overhear(listener: &OwnedFd) -> Vec<u8> {
    // SAFETY: a listening socket of ours; the peer's address is not wanted.
    let raw = unsafe { libc::accept(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut()) };
    if raw < 0 {
        return Vec::new();
    }
    // SAFETY: a new descriptor that no other code knows.
    let peer = unsafe { OwnedFd::from_raw_fd(raw) };
    let mut heard = Vec::new();
    while let Some(bytes) = hear(&peer).filter(|bytes| !bytes.is_empty()) {
        heard.extend(bytes);
        say(&peer, &[0; 32]);
    }
    heard
}

/// The name is public. A process that binds it after the exporter's end has no memory to offer and
/// learns no secret.
#[test]
fn an_impostor_is_not_believed_and_not_told_the_key() {
    let (heard, code) = betrayed(|name| Some(listen(name))).expect("bound");
    assert_eq!(code, INVALID_HANDLE);
    assert_eq!(heard.len(), 16, "a nonce, and after an answer without the key no more: {heard:x?}");
}

#[test]
fn another_users_impostor_hears_nothing() {
    match betrayed(|name| as_stranger(|| listen(name))) {
        Some((heard, code)) => assert_eq!((heard, code.as_str()), (vec![], INVALID_HANDLE)),
        None => skip("needs root"),
    }
}

#[test]
fn a_stopped_exporter_is_an_error_after_seconds() {
    let stage = Stage::new();
    let exporter = stage.export(&["export", BYTES]);
    exporter.signal(libc::SIGSTOP);
    let outcome = stage.import(&exporter.handle, &["once"]);
    assert_eq!(outcome.expect_success(), INVALID_HANDLE);
    assert!(outcome.took < Duration::from_secs(60), "{:?}", outcome.took);
    assert!(outcome.stderr.contains("does not answer; is it stopped?"), "{}", outcome.stderr);
}

#[test]
fn a_block_of_many_pieces_needs_few_descriptors() {
    let stage = Stage::new();
    let exporter = stage.export(&["export-pieces", "150"]);
    let outcome = stage.import(&exporter.handle, &["scarce", "150"]);
    assert_eq!(outcome.expect_success(), "0", "{}", outcome.stderr);
}

#[test]
fn other_devices_reach_what_is_opened_as_they_reach_blocks() {
    let stage = Stage::new();
    let exporter = stage.export(&["export", BYTES]);
    for how in ["copy", "enable", "enabled"] {
        let outcome = stage.import(&exporter.handle, &[how]);
        assert!(outcome.status.success(), "{how}: {}", outcome.stderr);
    }
    assert_eq!(stage.import(&exporter.handle, &["elsewhere"]).expect_success(), "1");
}

/// Opened memory ends with the device's contexts, like blocks; memory opened later is unaffected.
#[test]
fn opened_memory_ends_with_the_devices_contexts() {
    let stage = Stage::new();
    let exporter = stage.export(&["export", BYTES]);
    stage.import(&exporter.handle, &["anew"]).expect_success();
}

#[test]
fn processes_of_one_network_need_no_common_folder() {
    let stage = Stage::new();
    let exporter = stage.export(&["export", BYTES]);
    let folder = stage.scratch.path().join("other");
    let host = stage.host(&["import", &exporter.handle, "once"]).env("WMSHIM_STATS_DIR", folder);
    assert_eq!(host.run().expect_success(), "0");
}

/// As two containers with and without a common folder.
#[test]
fn processes_of_one_folder_need_no_common_network() {
    let stage = Stage::new();
    let exporter = stage.export(&["export", BYTES]);
    let import = || stage.host(&["net", "import", &exporter.handle, "once"]);
    let outcome = import().run();
    if outcome.status.code() == Some(NOT_ALLOWED) {
        return skip("needs network namespaces");
    }
    assert_eq!(outcome.expect_success(), "0", "{}", outcome.stderr);
    let apart = import().env("WMSHIM_STATS_DIR", stage.scratch.path().join("other")).run();
    assert_eq!(apart.expect_success(), INVALID_HANDLE);
    assert!(apart.stderr.contains("set WMSHIM_STATS_DIR to a folder that both see"), "{}", apart.stderr);
    assert!(apart.took < SOON, "{:?}", apart.took);
}

/// If no folder can be made, as in a container without a writable one, the abstract name is enough.
#[test]
fn a_folder_that_cannot_be_used_is_not_needed() {
    let stage = Stage::new();
    let host = || stage.host(&["export", BYTES]).env("WMSHIM_STATS_DIR", "/dev/null/none");
    let exporter = Exporter::of(host()).expect("a handle");
    assert_eq!(stage.open(&exporter.handle).0, "0");
}
