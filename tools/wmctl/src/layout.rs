//! The names under which the loader is given the library: one for a preload, and a drop-in folder.
//!
//! An installation has them beside the library. A wheel is a zip, which holds no links; and the
//! loader takes blanks and colons in a preload, and colons and semicolons in a library path, for
//! the ends of paths. Where the installation's own paths do not do, links with plain names are made
//! in a private folder of the user's. A link's name follows from its target, so no link is ever
//! replaced or removed.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use wm_driver::interposer::is_interposer;
use wm_trust::{folder, user};

use crate::shim;

/// Characters that end a path in one of the loader's variables, or begin one of its own words
/// (`$ORIGIN`).
const SPECIAL: &[u8] = b" :;$\t\n";

/// The values for a program's variables.
#[derive(Debug)]
pub(crate) struct Layout {
    /// For `LD_PRELOAD`.
    pub(crate) preload: PathBuf,
    /// For `LD_LIBRARY_PATH`, or the reason why there is no such folder.
    pub(crate) dropin: Result<PathBuf>,
}

/// The names of a library: the installation's own where they do, else links to it.
///
/// # Errors
/// A library that no preload can name, and no folder for a link to it.
pub(crate) fn of(library: &Path) -> Result<Layout> {
    let own = own_dropin(library);
    let (plain, complete) = (is_plain(library), has_second_name(library));
    if let (true, true, Some(dropin)) = (plain, complete, own.clone().filter(|folder| is_plain(folder))) {
        return Ok(Layout { preload: library.to_owned(), dropin: Ok(dropin) });
    }
    match links(library) {
        Ok(folder) => {
            Ok(Layout { preload: folder.join("lib").join(shim::NAME), dropin: Ok(folder.join("dropin")) })
        }
        Err(why) if plain => Ok(Layout { preload: library.to_owned(), dropin: own.ok_or(why) }),
        Err(why) => bail!(
            "{} cannot be preloaded: its path has a blank, a colon, a semicolon or a dollar sign, and {why:#}; move it, or set \
             XDG_CACHE_HOME to a folder of yours without these",
            library.display()
        ),
    }
}

/// Can the loader's variables name it?
pub(crate) fn is_plain(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|byte| SPECIAL.contains(byte))
}

/// The installation's folder with the library under the driver's names, if it has one.
pub(crate) fn own_dropin(library: &Path) -> Option<PathBuf> {
    let folder = library.parent()?.parent()?.join("dropin");
    is_interposer(&folder.join("libcuda.so.1")).then_some(folder)
}

/// Does the link lie beside the library by which the loader learns its name without a version?
fn has_second_name(library: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
    let second = identity(&library.with_file_name("libcuda.so"));
    second.is_some() && second == identity(library)
}

/// A folder with links to the library, made if need be.
fn links(library: &Path) -> Result<PathBuf> {
    let mut problem = anyhow!("there is no folder for links to it");
    for base in bases().into_iter().filter(|base| is_plain(base)) {
        match links_in(&base, library) {
            Ok(folder) => return Ok(folder),
            Err(why) => problem = why.context(format!("links to it cannot be made in {}", base.display())),
        }
    }
    Err(problem)
}

/// The user's cache folder, and the private folders of sockets where that cannot be had.
fn bases() -> Vec<PathBuf> {
    let (cache, sockets) = (wm_multipath::measured::cache::folder(), crate::client::directories());
    cache.into_iter().chain(sockets).filter(|path| path.is_absolute()).collect()
}

fn links_in(base: &Path, library: &Path) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let folder = base.join(format!("names-{:016x}", hasher.finish()));
    for private in [base, &folder, &folder.join("lib"), &folder.join("dropin")] {
        prepare(private)?;
    }
    for name in ["lib/libwmshim.so", "lib/libcuda.so", "dropin/libcuda.so.1", "dropin/libcuda.so"] {
        link(library, &folder.join(name))?;
    }
    Ok(folder)
}

/// Makes a folder, or finds one that only the user can write: its files are loaded into programs.
fn prepare(folder: &Path) -> Result<()> {
    if fs::symlink_metadata(folder).is_err() {
        folder::make(folder).with_context(|| folder.display().to_string())?;
    }
    let status = fs::symlink_metadata(folder)?;
    let own = user::is_own(status.uid());
    if own && status.is_dir() && status.mode() & 0o022 == 0 {
        return Ok(());
    }
    bail!("{} is not a folder that is yours alone", folder.display())
}

/// Makes a link, or finds one that leads to the same file.
fn link(library: &Path, at: &Path) -> Result<()> {
    match symlink(library, at) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let leads = fs::read_link(at).is_ok_and(|target| target == library);
            if leads { Ok(()) } else { Err(anyhow!("{} is something else", at.display())) }
        }
        made => made.with_context(|| at.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a path that the loader takes for two.
    use super::*;

    #[test]
    fn paths_that_the_loader_would_cut_are_told() {
        for cut in ["/my libs/a.so", "/a:b/c.so", "/a;b", "/$ORIGIN/a.so"] {
            assert!(!is_plain(Path::new(cut)), "{cut}");
        }
        assert!(is_plain(Path::new("/opt/wm-shim_0.1/lib/libwmshim.so")));
    }
}
