//! Hazard (privilege boundary): a set-user-ID program loads code or writes files of its caller's
//! choice, another user's process gets memory, or root leaves folders in a user's home that the
//! user cannot use.
//!
//! Only root can become other users, so the tests are skipped under other users.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use hazards::{Host, Outcome, Scratch, c, driver, places, shim, skip};

/// A user that owns nothing.
const CALLER: u32 = 65_431;

/// Installs a driver where it is found without a setting, and runs the program as a user, all in a
/// mount namespace that ends with it.
const AS_INSTALLED: &str = "mount -t tmpfs none /usr/local && mkdir -p /usr/local/nvidia && cp -r \"$1\" /usr/local/nvidia/lib64 && \
    exec setpriv --reuid \"$2\" --regid \"$2\" --clear-groups \"$3\"";

fn is_root() -> bool {
    // SAFETY: a plain question.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        skip("needs root");
    }
    root
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode can be set");
}

/// Everything in a folder and below.
fn contents(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    paths
        .flat_map(
            |path| if path.is_dir() { [vec![path.clone()], contents(&path)].concat() } else { vec![path] },
        )
        .collect()
}

/// A program that is linked to the drop-in, a driver where drivers are installed, and a driver of
/// the caller's.
struct Installation {
    scratch: Scratch,
    program: PathBuf,
    installed: PathBuf,
    chosen: PathBuf,
    /// The place where the caller has all files written.
    written: PathBuf,
}

impl Installation {
    fn new() -> Self {
        let scratch = Scratch::new();
        let dropin = shim::drop_in(&scratch);
        let library = dropin.join("libcuda.so.1");
        let rpath = c::flag("-Wl,-rpath,", &dropin);
        let program =
            c::program(&scratch, "privileged", &[library.to_str().expect("a readable path"), &rpath]);
        let installed = driver::simulated(&scratch);
        let chosen = scratch.folder("chosen").join("chosen.so");
        fs::copy(places::simulated_driver(), &chosen).expect("a copy");
        let written = scratch.folder("written");
        mode(scratch.path(), 0o755);
        mode(&written, 0o777);
        Self { scratch, program, installed, chosen, written }
    }

    /// Runs the program as the caller, with every variable set that names a file.
    fn run(&self, bits: u32) -> Outcome {
        mode(&self.program, bits);
        let at = |name: &str| self.written.join(name);
        Host::bare("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-ec", AS_INSTALLED, "sh"])
            .args([&self.installed])
            .args([CALLER.to_string().as_str()])
            .args([&self.program])
            .env("WMSHIM_DRIVER", &self.chosen)
            .env("WMSHIM_TRACE", at("trace"))
            .env("WMSHIM_STATS_AT_EXIT", at("exit"))
            .env("WMSHIM_STATS_DIR", at("statistics"))
            .env("WMSHIM_STATS_SOCKET", at("socket"))
            .env("WMSHIM_LOG", "trace")
            .env("XDG_RUNTIME_DIR", &self.written)
            .env("XDG_CACHE_HOME", &self.written)
            .env("HOME", &self.written)
            .env("TMPDIR", &self.written)
            .run()
    }

    fn has_chosen(&self, outcome: &Outcome) -> bool {
        outcome.stdout.contains(&format!("mapped {}", self.chosen.display()))
    }
}

#[test]
fn a_program_with_more_rights_than_its_caller_takes_nothing_from_the_environment() {
    if !is_root() {
        return;
    }
    let installation = Installation::new();
    let plain = installation.run(0o755);
    assert!(plain.expect_success().contains("secure 0\ncalls 0"), "{}{}", plain.stdout, plain.stderr);
    let written = contents(&installation.written);
    assert!(
        installation.has_chosen(&plain) && !written.is_empty(),
        "the same program without rights: {written:?}"
    );
    fs::remove_dir_all(&installation.written).expect("removed");
    mode(&installation.scratch.folder("written"), 0o777);

    let privileged = installation.run(0o4755);
    let words = privileged.expect_success();
    if words.contains("secure 0") {
        return skip("needs a file system that honours the set-user-ID bit");
    }
    assert!(words.contains("calls 0"), "the driver that is installed serves: {words}{}", privileged.stderr);
    assert!(!installation.has_chosen(&privileged), "the caller's driver is loaded: {words}");
    assert_eq!(contents(&installation.written), Vec::<PathBuf>::new(), "files of the caller's choice");
    assert_eq!(privileged.stderr, "", "nor the level of the log");
}

/// In a user namespace without a map all users look alike: a folder or a process that appears to be
/// one's own may belong to any user.
#[test]
fn a_user_who_looks_like_others_trusts_nobody() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    mode(scratch.path(), 0o755);
    let folder = scratch.folder("stats");
    chown(&folder, Some(CALLER), Some(CALLER)).expect("root may");
    mode(&folder, 0o700);
    let user = CALLER.to_string();
    let unmapped = ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups", "unshare", "--user"]
        .map(str::to_owned);
    let driver = driver::simulated(&scratch);
    let run = |words: &[&str]| {
        Host::shimmed(&unmapped[0], &scratch, &driver).args(&unmapped[1..]).args(words).run()
    };
    if !run(&["true"]).status.success() {
        return skip("needs user namespaces");
    }
    let program = c::cuda_program(&scratch, "privileged");
    let outcome = run(&[program.to_str().expect("a readable path")]);
    assert!(outcome.expect_success().contains("calls 0"), "it has its memory: {}", outcome.stderr);
    assert!(
        outcome.log().len() == 1 && outcome.stderr.contains("no socket: users without a number"),
        "{}",
        outcome.stderr
    );
    let broker = places::broker();
    let broker = run(&[broker.to_str().expect("a readable path"), "--foreground", "--idle-seconds", "0.1"]);
    assert!(!broker.status.success() && broker.stderr.contains("look alike"), "{}", broker.stderr);
    assert_eq!(contents(&folder), Vec::<PathBuf>::new());
}

/// `sudo -E`: root with a user's variables.
#[test]
fn root_makes_nothing_in_a_users_folders() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    mode(scratch.path(), 0o755);
    let [home, runtime] = ["home", "runtime"].map(|name| scratch.folder(name));
    for folder in [&home, &runtime] {
        chown(folder, Some(CALLER), Some(CALLER)).expect("root may");
    }
    // A path with a blank cannot be preloaded: links to it are made.
    let library = shim::wheel(&scratch);
    let outcome = Host::bare(places::wmctl())
        .args(["run", "--"])
        .args([c::cuda_program(&scratch, "privileged")])
        .env("WMSHIM_LIB", &library)
        .env("WMSHIM_DRIVER", driver::simulated(&scratch))
        .env("TMPDIR", scratch.folder("temporary"))
        .env("HOME", &home)
        .env("XDG_RUNTIME_DIR", &runtime)
        .without("XDG_CACHE_HOME")
        .run();
    assert!(outcome.expect_success().contains("calls 0"), "{}", outcome.stderr);
    for folder in [home, runtime] {
        assert_eq!(contents(&folder), Vec::<PathBuf>::new(), "{}", folder.display());
    }
}
