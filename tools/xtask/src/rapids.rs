//! `cargo xtask rapids [TESTS]`: RAPIDS' Python layer of WholeMemory, its wheel unchanged, and our
//! layers for PyTorch, over our library on the simulated driver.
//!
//! Without a folder, the cases of `tests/wholememory/pylibwholegraph` run, and the C headers are
//! compared with RAPIDS'. With the folder `tests` of a checkout of its source, pytest runs the
//! published tests, unchanged.
//!
//! PyTorch is the machine's own (`python3` imports it), else Debian's for the CPU, unpacked into
//! `target/`: nothing is installed. It meets a simulated GPU
//! (`tests/wholememory/pylibwholegraph/stand_in`).

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::step;

const SOURCES: &str = "tests/wholememory/pylibwholegraph";

/// Libraries that the wheel names, without a function of theirs that it calls.
const EMPTY: [&str; 3] = ["librmm.so", "librapids_logger.so", "libnvidia-ml.so.1"];

/// Where Debian's packages have libraries.
const DEBIAN: [&str; 5] = [
    "usr/lib",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/blas",
    "usr/lib/x86_64-linux-gnu/lapack",
    "lib/x86_64-linux-gnu",
];
const DEBIAN_PYTHON: &str = "usr/lib/python3/dist-packages";

#[derive(Args)]
pub(crate) struct RapidsArguments {
    /// Folder `python/pylibwholegraph/pylibwholegraph/tests` of a checkout of rapidsai/cugraph-gnn
    tests: Option<PathBuf>,
    /// Ranks, each with a simulated GPU, of the published tests
    #[arg(long, default_value_t = 1)]
    gpus: u32,
    /// Handed to pytest, for example `-k append_unique`
    #[arg(last = true)]
    more: Vec<String>,
}

/// A Python that has the wheel, PyTorch and the simulated GPU.
struct RapidsPython {
    folder: PathBuf,
    libraries: Vec<PathBuf>,
    modules: Vec<PathBuf>,
}

/// Runs the cases, or the published tests.
pub(crate) fn run(arguments: &RapidsArguments) -> Result<()> {
    step::build()?;
    let mut place = prepare()?;
    let Some(tests) = &arguments.tests else { return cases(&place) };
    let tests = tests.canonicalize().with_context(|| tests.display().to_string())?;
    place.modules.push(wheels(&place.folder, "pytest", &["pytest<9", "pytest-forked"])?);
    let mut pytest = place.python(arguments.gpus)?;
    pytest.args(["-m", "pytest", "-q", "--forked", "-p", "no:cacheprovider"]).arg("--rootdir").arg(&tests);
    pytest.args(&arguments.more).arg(&tests);
    step::run("published tests", pytest)
}

fn cases(place: &RapidsPython) -> Result<()> {
    let mut python = place.python(2)?;
    python.arg(crate::root().join(SOURCES).join("cases.py"));
    step::run("RAPIDS' Python layer", python)?;
    for (title, file) in [("layers of PyTorch", "layer.py"), ("launchers", "launchers.py")] {
        let mut python = place.python(2)?;
        python.arg(crate::root().join(SOURCES).join(file));
        step::run(title, python)?;
    }
    let mut compare = step::command("python3", &[]);
    compare.arg(crate::root().join(SOURCES).join("headers.py"));
    compare.env("WHOLEGRAPH_HEADERS", place.folder.join("site/libwholegraph/include"));
    step::run("RAPIDS' headers", compare)
}

/// Fetches what is not there yet.
fn prepare() -> Result<RapidsPython> {
    let folder = crate::target()?.join("rapids");
    let list = crate::root().join(SOURCES).join("requirements.txt");
    let listed = list.to_string_lossy().into_owned();
    let all = wheels(&folder, "site", &["--no-deps", "--require-hashes", "-r", &listed])?;
    let own = libraries(&folder)?;
    // The wheel of the library would be loaded if it could be imported.
    let alone = folder.join("alone");
    fs::create_dir_all(&alone)?;
    link(&all.join("pylibwholegraph"), &alone.join("pylibwholegraph"))?;
    let stand_in = crate::root().join(SOURCES).join("stand_in");
    let ours = crate::root().join("tools/python");
    let mut place = RapidsPython { folder, libraries: vec![own], modules: vec![stand_in, alone, ours] };
    if place.has_torch()? {
        return Ok(place);
    }
    // The machine may have Debian's, and another Python first.
    place.modules.push(Path::new("/").join(DEBIAN_PYTHON));
    if place.has_torch()? {
        return Ok(place);
    }
    place.modules.pop();
    let debian = debian_torch(&place.folder)?;
    place.libraries.extend(DEBIAN.map(|path| debian.join(path)));
    place.modules.push(debian.join(DEBIAN_PYTHON));
    ensure!(place.has_torch()?, "PyTorch was unpacked into {}, and is not usable", debian.display());
    Ok(place)
}

/// Installs wheels into a folder, once.
fn wheels(folder: &Path, name: &str, what: &[&str]) -> Result<PathBuf> {
    let (target, mark) = (folder.join(name), folder.join(format!("{name}.done")));
    if mark.exists() {
        return Ok(target);
    }
    let mut pip = step::command("python3", &["-m", "pip", "install", "--quiet", "--upgrade"]);
    pip.args(["--disable-pip-version-check", "--only-binary", ":all:", "--target"]).arg(&target).args(what);
    pip.env("PIP_ROOT_USER_ACTION", "ignore");
    step::run(&format!("fetch {name}"), pip)
        .context("RAPIDS' wheels come from the Python package registry: a network, and Python 3.11 or newer, are needed")?;
    fs::write(&mark, what.join(" "))?;
    Ok(target)
}

/// The folder of the library under test, of the simulated driver and NCCL, and of empty libraries.
fn libraries(folder: &Path) -> Result<PathBuf> {
    let (own, built) = (folder.join("lib"), crate::target()?.join("debug"));
    fs::create_dir_all(&own)?;
    link(&built.join("libwholegraph.so"), &own.join("libwholegraph.so"))?;
    link(&built.join("libsimcuda.so"), &own.join("libcuda.so.1"))?;
    link(&built.join("libsimnccl.so"), &own.join("libnccl.so.2"))?;
    for name in EMPTY.into_iter().filter(|name| !own.join(name).exists()) {
        let mut gcc =
            step::command("gcc", &["-shared", "-x", "c", "/dev/null", &format!("-Wl,-soname,{name}")]);
        gcc.arg("-o").arg(own.join(name));
        step::output(gcc)?;
    }
    Ok(own)
}

fn link(to: &Path, at: &Path) -> Result<()> {
    let _absent_the_first_time = fs::remove_file(at);
    symlink(to, at).with_context(|| at.display().to_string())
}

/// Debian's PyTorch for the CPU and all that it needs and this machine lacks, unpacked, once.
fn debian_torch(folder: &Path) -> Result<PathBuf> {
    let (target, packages) = (folder.join("debian"), folder.join("packages"));
    if target.join("done").exists() {
        return Ok(target);
    }
    fs::create_dir_all(&packages)?;
    let remedy = "python3 does not import torch, and Debian's python3-torch cannot be fetched: install PyTorch, or run \
                  `apt-get update` on Debian 12 with a network";
    let names = needed().or_else(|_| {
        step::run("look for packages", step::command("apt-get", &["--quiet", "--quiet", "update"]))?;
        needed()
    });
    let names = names.context(remedy)?;
    let mut fetch = step::command("apt-get", &["--quiet", "--quiet", "download"]);
    fetch.args(&names).current_dir(&packages);
    step::run("fetch PyTorch", quiet(fetch)).context(remedy)?;
    step::perform("unpack PyTorch", || unpack(&packages, &target))?;
    fs::remove_dir_all(&packages)?;
    fs::write(target.join("done"), names.join("\n"))?;
    Ok(target)
}

/// A command whose words would be many: its output is an error's alone.
fn quiet(mut command: Command) -> Command {
    command.stdout(std::process::Stdio::null());
    command
}

/// Names of the packages that an installation would fetch.
fn needed() -> Result<Vec<String>> {
    let words = ["install", "--no-install-recommends", "--print-uris", "--yes", "python3-torch"];
    let printed = step::output(step::command("apt-get", &words))?;
    let files =
        printed.lines().filter(|line| line.starts_with('\'')).filter_map(|line| line.split(' ').nth(1));
    let names: Vec<_> = files.filter_map(|file| Some(file.split_once('_')?.0.to_owned())).collect();
    ensure!(!names.is_empty(), "apt-get names no packages of python3-torch");
    Ok(names)
}

/// Unpacks all packages, several at a time.
fn unpack(packages: &Path, target: &Path) -> Result<()> {
    fs::create_dir_all(target)?;
    let entries = fs::read_dir(packages)?.collect::<Result<Vec<_>, _>>()?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let each = entries.len().div_ceil(workers).max(1);
    let extract = |package: &fs::DirEntry| {
        let mut dpkg = step::command("dpkg-deb", &["--extract"]);
        dpkg.arg(package.path()).arg(target);
        step::output(dpkg).map(drop)
    };
    std::thread::scope(|scope| {
        let started: Vec<_> =
            entries.chunks(each).map(|part| scope.spawn(move || part.iter().try_for_each(extract))).collect();
        let ended = started.into_iter().map(|worker| worker.join().expect("a worker does not panic"));
        ended.collect::<Result<Vec<()>>>()
    })?;
    // Pages and data that no program here reads.
    Ok(fs::remove_dir_all(target.join("usr/share"))?)
}

impl RapidsPython {
    /// A Python with so many simulated GPUs.
    fn python(&self, gpus: u32) -> Result<Command> {
        let mut python = step::command("python3", &[]);
        python.env("PYTHONPATH", joined(&self.modules)?).env("LD_LIBRARY_PATH", joined(&self.libraries)?);
        python.env("SIMCUDA_DEVICES", gpus.to_string()).env("SIMCUDA_MEMORY", "8GiB");
        python.env("PYTHONDONTWRITEBYTECODE", "1").env("WHOLEMEMORY_LIBRARY", self.folder.join("lib"));
        Ok(python)
    }

    fn has_torch(&self) -> Result<bool> {
        let mut python = self.python(1)?;
        python.args(["-c", "import torch"]);
        Ok(python.output().context("python3 is needed")?.status.success())
    }
}

fn joined(paths: &[PathBuf]) -> Result<OsString> {
    std::env::join_paths(paths).context("a path has a colon")
}
