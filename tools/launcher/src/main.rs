//! `wmctl` and `wmshim-run` as pip installs them: replaces itself by the `wmctl` of the Python
//! package, so that no Python starts first.
//!
//! A wheel's programs lie in a folder `bin`, its package in a folder of libraries that depends on
//! the interpreter and on the way of installation. The package is looked for beside the program:
//! below `lib` or `lib64` of the same prefix, or beside `bin` (`pip install --target`). If several
//! interpreters share a prefix, each has a package; the one of this program's version is taken, of
//! several the one in the folder that sorts last.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const PROGRAM: &str = "wmshim/bin/wmctl";
/// The mark that pip leaves beside a package.
const INFO: &str = concat!("wmshim-", env!("CARGO_PKG_VERSION"), ".dist-info");

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    // Its own name says to wmctl which command line is meant.
    let name = arguments.next().unwrap_or_else(|| "wmctl".into());
    let error = match program() {
        Ok(program) => {
            let error = Command::new(&program).arg0(&name).args(arguments).exec();
            format!("{}: {error}", program.display())
        }
        Err(error) => error,
    };
    let name = Path::new(&name).file_name().unwrap_or(&name).to_string_lossy();
    eprintln!("{name}: {error}; install the wmshim wheel again, or take `python -m wmshim`");
    ExitCode::FAILURE
}

/// The program of the package.
fn program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    let prefix = own.ancestors().nth(2).unwrap_or(Path::new("/"));
    let mut places: Vec<_> = places(prefix).filter(|place| place.join(PROGRAM).is_file()).collect();
    places.sort_by_key(|place| (place.join(INFO).is_dir(), place.clone()));
    let place = places.pop().ok_or_else(|| format!("no package wmshim in {}", prefix.display()))?;
    Ok(place.join(PROGRAM))
}

/// The folders of a prefix in which packages may be.
fn places(prefix: &Path) -> impl Iterator<Item = PathBuf> {
    let libraries = ["lib", "lib64"].map(|name| prefix.join(name));
    let interpreters = libraries.into_iter().flat_map(|folder| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| is_of_python(path))
    });
    let packages =
        interpreters.flat_map(|folder| ["site-packages", "dist-packages", ""].map(|name| folder.join(name)));
    packages.chain([prefix.to_owned()])
}

fn is_of_python(folder: &Path) -> bool {
    folder.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("python"))
}
