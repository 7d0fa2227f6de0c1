//! The loader matrix: every way in which a program can reach the driver, and the library that it
//! then reaches.
//!
//! One row a way, measured in four layouts. The tests in `tests/loader.rs` run each row;
//! `docs/dev/interception.md` shows this table, and a test compares the two.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::{Host, Outcome, Scratch, c, driver, places, shim};

/// The library that a program reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// The shim.
    Shim,
    /// The real driver, past the shim.
    Driver,
    /// No library: the way is closed, as it is without the shim.
    Nothing,
}
use Reached::{Driver, Nothing, Shim};

/// The installation of the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// The variables of `wmctl run`: the preload as installed, and the drop-in folder on the
    /// library path.
    Run,
    /// `LD_PRELOAD` of the file with its link `libcuda.so` beside it, as installed.
    Preload,
    /// `LD_PRELOAD` of the file alone.
    Alone,
    /// `LD_LIBRARY_PATH` to a folder where the file has the driver's names; no preload.
    DropIn,
}

/// The columns of the matrix.
pub const LAYOUTS: [Layout; 4] = [Layout::Run, Layout::Preload, Layout::Alone, Layout::DropIn];

/// One way to the driver.
#[derive(Debug)]
pub struct Row {
    /// The test's name.
    pub name: &'static str,
    /// The way, in the words of the page.
    pub way: &'static str,
    /// The program of the row: arguments of `opener` in which `@` is the driver's folder, or
    /// another program.
    pub run: Run,
    /// The library that is reached in each layout of [`LAYOUTS`].
    pub reached: [Reached; 4],
}

/// The program of a row.
#[derive(Debug)]
pub enum Run {
    /// `opener` with these arguments.
    Opener(&'static [&'static str]),
    /// `linked`.
    Linked,
    /// Python, with this expression for the library.
    Python(&'static str),
}
use Run::{Linked, Opener, Python};

const fn row(name: &'static str, way: &'static str, run: Run, reached: [Reached; 4]) -> Row {
    Row { name, way, run, reached }
}

/// The matrix.
pub const ROWS: &[Row] = &[
    row(
        "now",
        "`dlopen(\"libcuda.so.1\", RTLD_NOW)`",
        Opener(&["open", "libcuda.so.1", "now"]),
        [Shim, Shim, Shim, Shim],
    ),
    row(
        "lazy_global",
        "the same, `LAZY \\| GLOBAL`",
        Opener(&["open", "libcuda.so.1", "lazy,global"]),
        [Shim, Shim, Shim, Shim],
    ),
    row(
        "deepbind",
        "the same, `DEEPBIND`",
        Opener(&["open", "libcuda.so.1", "now,deep"]),
        [Shim, Shim, Shim, Shim],
    ),
    row(
        "noload",
        "the same, `NOLOAD`, nothing loaded before",
        Opener(&["open", "libcuda.so.1", "now,noload"]),
        [Shim, Shim, Shim, Nothing],
    ),
    row(
        "noload_after",
        "the same, `NOLOAD`, after the driver was opened",
        Opener(&["again", "libcuda.so.1", "libcuda.so.1", "now,noload"]),
        [Shim, Shim, Shim, Shim],
    ),
    row(
        "unversioned",
        "`dlopen(\"libcuda.so\")`",
        Opener(&["open", "libcuda.so", "now"]),
        [Shim, Shim, Shim, Shim],
    ),
    row(
        "absolute",
        "`dlopen(\"/…/libcuda.so.1\")`",
        Opener(&["open", "@/libcuda.so.1", "now"]),
        [Shim, Shim, Shim, Driver],
    ),
    row(
        "absolute_full",
        "`dlopen(\"/…/libcuda.so.580.0\")`",
        Opener(&["open", "@/libcuda.so.580.0", "now"]),
        [Shim, Shim, Shim, Driver],
    ),
    row(
        "after_absolute",
        "`dlopen(\"libcuda.so.1\")` after the absolute path",
        Opener(&["again", "@/libcuda.so.580.0", "libcuda.so.1", "now"]),
        [Shim, Shim, Shim, Driver],
    ),
    row(
        "after_unversioned",
        "`dlopen(\"libcuda.so.1\")` after `libcuda.so`",
        Opener(&["again", "libcuda.so", "libcuda.so.1", "now"]),
        [Shim, Shim, Shim, Shim],
    ),
    row("linked", "program linked with `-lcuda`", Linked, [Shim, Shim, Shim, Shim]),
    row(
        "plugin",
        "plugin linked with `-lcuda`, `RUNPATH` to the driver's folder",
        Opener(&["plugin", "@/plugin.so", "now"]),
        [Shim, Shim, Shim, Shim],
    ),
    row(
        "plugin_deepbind",
        "the same plugin, opened `DEEPBIND`",
        Opener(&["plugin", "@/plugin.so", "now,deep"]),
        [Shim, Shim, Shim, Shim],
    ),
    row(
        "plugin_asks",
        "plugin not linked with it that calls `dlopen(\"libcuda.so\")`",
        Opener(&["asked", "@/asker.so", "now", "libcuda.so"]),
        [Shim, Shim, Shim, Shim],
    ),
    row(
        "deep_plugin_asks",
        "the same plugin, opened `DEEPBIND`",
        Opener(&["asked", "@/asker.so", "now,deep", "libcuda.so"]),
        [Shim, Shim, Driver, Shim],
    ),
    row(
        "deep_plugin_asks_absolute",
        "the same, `dlopen` of the absolute path",
        Opener(&["asked", "@/asker.so", "now,deep", "@/libcuda.so.580.0"]),
        [Driver, Driver, Driver, Driver],
    ),
    row(
        "linked_plugin_asks_absolute",
        "plugin linked with `-lcuda` that calls `dlopen(\"/…/libcuda.so.580.0\")`, opened `DEEPBIND`",
        Opener(&["asked", "@/plugin.so", "now,deep", "@/libcuda.so.580.0"]),
        [Shim, Shim, Shim, Shim],
    ),
    row(
        "default_scope",
        "`dlsym(RTLD_DEFAULT, \"cuInit\")`, nothing opened before",
        Opener(&["default"]),
        [Shim, Shim, Shim, Nothing],
    ),
    row(
        "namespace",
        "`dlmopen(LM_ID_NEWLM, \"libcuda.so.1\")`",
        Opener(&["namespace", "libcuda.so.1"]),
        [Shim, Shim, Shim, Shim],
    ),
    row(
        "namespace_absolute",
        "`dlmopen(LM_ID_NEWLM, \"/…/libcuda.so.580.0\")`",
        Opener(&["namespace", "@/libcuda.so.580.0"]),
        [Shim, Shim, Shim, Driver],
    ),
    row(
        "forked_child",
        "`dlopen(\"libcuda.so.1\")` in a forked child",
        Opener(&["fork", "open", "libcuda.so.1", "now"]),
        [Shim, Shim, Shim, Shim],
    ),
    row(
        "after_exec",
        "`dlopen(\"libcuda.so.1\")` after `exec`",
        Opener(&["exec", "open", "libcuda.so.1", "now"]),
        [Shim, Shim, Shim, Shim],
    ),
    row(
        "after_scrubbed_exec",
        "the same, by a launcher that drops `LD_PRELOAD`",
        Opener(&["scrubbed", "open", "libcuda.so.1", "now"]),
        [Shim, Driver, Driver, Shim],
    ),
    row(
        "ctypes",
        "Python `ctypes.CDLL(\"libcuda.so.1\")`",
        Python("ctypes.CDLL('libcuda.so.1')"),
        [Shim, Shim, Shim, Shim],
    ),
    row(
        "ctypes_unversioned",
        "Python `ctypes.CDLL(\"libcuda.so\")`",
        Python("ctypes.CDLL('libcuda.so')"),
        [Shim, Shim, Shim, Shim],
    ),
    row(
        "ctypes_absolute",
        "Python `ctypes.CDLL(\"/…/libcuda.so.1\")`",
        Python("ctypes.CDLL('@/libcuda.so.1')"),
        [Shim, Shim, Shim, Driver],
    ),
    row(
        "ctypes_self",
        "Python `ctypes.CDLL(None)`, nothing opened before",
        Python("ctypes.CDLL(None)"),
        [Shim, Shim, Shim, Nothing],
    ),
];

/// Prints, in Python, the owner of a library's `cuInit`, in the words of `opener`.
const PYTHON: &str = r#"
import ctypes, os
def same(a, b): return any(os.path.samefile(a, file) for file in os.environ[b].split(":"))
class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("at", ctypes.c_void_p)]
library = LIBRARY
try:
    init = library.cuInit
except AttributeError:
    print("nothing")
else:
    info = Info()
    ctypes.CDLL(None).dladdr(ctypes.cast(init, ctypes.c_void_p), ctypes.byref(info))
    file = info.file.decode()
    print("shim" if same(file, "HAZARD_SHIM") else "driver" if same(file, "HAZARD_DRIVER") else file)
    assert init(0) == 0
"#;

/// A folder with all files that a row needs.
#[derive(Debug)]
pub struct Bench {
    scratch: Scratch,
    driver: PathBuf,
}

impl Bench {
    /// Makes a driver and a plugin. The driver has three functions: the loader does not look into
    /// files.
    #[allow(clippy::new_without_default, reason = "compiling is no default")]
    pub fn new() -> Self {
        let scratch = Scratch::new();
        let driver = driver::small(&scratch);
        let (search, runpath) = (c::flag("-L", &driver), c::flag("-Wl,--enable-new-dtags,-rpath,", &driver));
        c::library("plugin", driver.join("plugin.so"), &[&search, "-lcuda", &runpath]);
        c::library("asker", driver.join("asker.so"), &[]);
        Self { scratch, driver }
    }

    /// Runs a row in a layout. Also checks that the reached function answers and that the shim
    /// prints no line.
    ///
    /// # Panics
    /// If the program fails, or prints none of the three words.
    pub fn measure(&self, row: &Row, layout: Layout) -> Reached {
        let command = self.command(&row.run);
        reached(row, &self.place(Host::bare(&command[0]).args(&command[1..]), layout).run())
    }

    /// Runs a row under `wmctl run` of an installation.
    ///
    /// # Panics
    /// As [`Bench::measure`].
    pub fn measure_under_wmctl(&self, row: &Row) -> Reached {
        let (library, folder) = (shim::installed(&self.scratch), shim::drop_in(&self.scratch));
        self.run_by_wmctl(row, &library, &[library.clone(), folder.join("libcuda.so.1")])
    }

    /// The same for a wheel: the file alone, in a folder whose name the loader would split.
    ///
    /// # Panics
    /// As [`Bench::measure`].
    pub fn measure_in_wheel(&self, row: &Row) -> Reached {
        let library = shim::wheel(&self.scratch);
        self.run_by_wmctl(row, &library, &[&library])
    }

    fn run_by_wmctl<P: AsRef<OsStr>>(&self, row: &Row, library: &Path, shims: &[P]) -> Reached {
        let host = Host::bare(places::wmctl())
            .args(["run", "--quiet", "--"])
            .args(self.command(&row.run))
            .env("WMSHIM_LIB", library)
            .env("WMSHIM_STATS_DIR", self.scratch.path().join("stats"))
            .env("XDG_CACHE_HOME", self.scratch.path().join("cache"))
            .env("LD_LIBRARY_PATH", &self.driver)
            .env("HAZARD_SHIM", paths(shims))
            .env("HAZARD_DRIVER", self.driver.join(driver::FULL_NAME));
        reached(row, &host.run())
    }

    /// A row's program with its arguments.
    fn command(&self, run: &Run) -> Vec<String> {
        let folder = self.driver.to_str().expect("a readable path");
        let program = |source, flags: &[&str]| c::program(&self.scratch, source, flags).display().to_string();
        match run {
            Opener(words) => {
                let words = words.iter().map(|word| word.replace('@', folder));
                std::iter::once(program("opener", &[])).chain(words).collect()
            }
            Linked => vec![program("linked", &[&c::flag("-L", &self.driver), "-lcuda"])],
            Python(library) => {
                let script = PYTHON.replace("LIBRARY", &library.replace('@', folder));
                vec!["python3".into(), "-c".into(), script]
            }
        }
    }

    /// The real driver is always available under its own names: if the shim is missed, the driver
    /// is found.
    fn place(&self, host: Host, layout: Layout) -> Host {
        let (preload, folders) = match layout {
            Layout::Run => (Some(shim::installed(&self.scratch)), vec![shim::drop_in(&self.scratch)]),
            Layout::Preload => (Some(shim::installed(&self.scratch)), vec![]),
            Layout::Alone => (Some(shim::alone(&self.scratch)), vec![]),
            Layout::DropIn => (None, vec![shim::drop_in(&self.scratch)]),
        };
        let shims = preload.iter().cloned().chain(folders.iter().map(|folder| folder.join("libcuda.so.1")));
        let host = host
            .env("HAZARD_SHIM", paths(shims))
            .env("HAZARD_DRIVER", self.driver.join(driver::FULL_NAME))
            .env("LD_LIBRARY_PATH", paths(folders.iter().chain([&self.driver])))
            .env("WMSHIM_STATS_DIR", self.scratch.path().join("stats"));
        preload.iter().fold(host, |host, library| host.env("LD_PRELOAD", library))
    }
}

/// The library that a program reports.
fn reached(row: &Row, outcome: &Outcome) -> Reached {
    let word = outcome.expect_success();
    assert_eq!(outcome.stderr, "", "{}: stderr", row.name);
    match word {
        "shim" => Shim,
        "driver" => Driver,
        "nothing" => Nothing,
        other => panic!("{}: reached {other}", row.name),
    }
}

fn paths<P: AsRef<OsStr>>(list: impl IntoIterator<Item = P>) -> OsString {
    std::env::join_paths(list).expect("paths without colons")
}

/// The matrix as the page shows it.
pub fn page() -> String {
    let mut text = String::from(
        "| the program | `wmctl run` | preload | file alone | drop-in |\n|---|---|---|---|---|\n",
    );
    for row in ROWS {
        let cells = row.reached.map(word).join(" | ");
        writeln!(text, "| {} | {cells} |", row.way).expect("a string can be written to");
    }
    text
}

fn word(reached: Reached) -> &'static str {
    match reached {
        Shim => "shim",
        Driver => "**driver**",
        Nothing => "nothing",
    }
}
