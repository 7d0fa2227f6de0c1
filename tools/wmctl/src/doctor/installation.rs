//! The library: is it there, is it whole, and is it kept out of the system's way?
//!
//! Its SONAME is the driver's. Run over a directory that holds it, `ldconfig` would give the name
//! `libcuda.so.1` to it for every program of the machine; so it must lie in a directory that the
//! loader's cache does not know.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use wm_driver::interposer::is_interposer;

use super::finding::Finding;
use super::settings::{self, EffectiveSettings};
use crate::layout::{self, Layout};
use crate::shim::{self, Library};

const CACHE: &str = "/etc/ld.so.cache";

/// The installed library and its names.
#[derive(Debug, Default, Serialize)]
pub(super) struct Installation {
    library: Option<PathBuf>,
    version: Option<String>,
    dropin: Option<PathBuf>,
    /// The file that `wmctl run` preloads: the library, or a link to it.
    preload: Option<PathBuf>,
    /// Driver functions that the library does not export: none, if it is whole.
    missing_exports: Vec<String>,
    /// Paths under which the loader's cache gives the library out as the driver.
    in_loader_cache: Vec<PathBuf>,
    settings: EffectiveSettings,
}

/// Looks for the library and into it.
pub(super) fn examine(findings: &mut Vec<Finding>) -> Installation {
    let mut seen = Installation { in_loader_cache: captured(), ..Installation::default() };
    match shim::find() {
        Ok(path) => inspect(&mut seen, path, findings),
        Err(error) => {
            findings.push(Finding::blocks(format!("{error:#}"), "install wmctl and the library together"))
        }
    }
    if let Some(path) = seen.in_loader_cache.first() {
        findings.push(Finding::blocks(
            format!(
                "the loader's cache knows {} as libcuda.so.1: every program gets the shim",
                path.display()
            ),
            "move it to a directory that /etc/ld.so.conf does not name, and run `ldconfig`",
        ));
    }
    seen
}

fn inspect(seen: &mut Installation, path: PathBuf, findings: &mut Vec<Finding>) {
    name(seen, &path, findings);
    match Library::open(&path) {
        Ok(library) => {
            seen.version = library.text(c"wmshim_version");
            let judged = library.judge_settings(&std::env::vars_os().collect::<Vec<_>>());
            seen.settings = settings::examine(judged, findings);
            seen.missing_exports = missing(&library);
            findings.push(judge(seen, &path));
        }
        Err(error) => findings.push(Finding::blocks(
            format!("{} cannot be loaded: {error:#}", path.display()),
            "it needs glibc 2.31 or newer on x86-64; on another system build it there",
        )),
    }
    if directories_of_cache().contains(path.parent().unwrap_or(Path::new("/"))) {
        findings.push(Finding::blocks(
            format!("{} lies in a directory of the loader's cache: the next `ldconfig` makes it everybody's driver", path.display()),
            "move it to a directory that /etc/ld.so.conf does not name",
        ));
    }
    seen.library = Some(path);
}

/// Under which names programs get it.
fn name(seen: &mut Installation, path: &Path, findings: &mut Vec<Finding>) {
    match layout::of(path) {
        Ok(Layout { preload, dropin }) => {
            if preload != *path {
                findings.push(Finding::good(format!(
                    "programs get the library by links in {}: its own folder has no links, or a name that the loader would cut",
                    preload.ancestors().nth(2).unwrap_or(&preload).display()
                )));
            }
            seen.preload = Some(preload);
            match dropin {
                Ok(folder) => seen.dropin = Some(folder),
                Err(why) => findings.push(Finding::note(
                    format!("no drop-in folder: {why:#}; children that are started without LD_PRELOAD run without the shim"),
                    "set XDG_CACHE_HOME to a folder of yours, or install from the archive, which has dropin/",
                )),
            }
        }
        Err(error) => {
            findings
                .push(Finding::blocks(format!("{error:#}"), "move the installation, or set XDG_CACHE_HOME"));
        }
    }
}

fn judge(seen: &Installation, path: &Path) -> Finding {
    let version = seen.version.as_deref().unwrap_or("of unknown version");
    if seen.missing_exports.is_empty() {
        let count = wm_abi::symbol::COUNT;
        return Finding::good(format!("{} {version} exports all {count} driver functions", path.display()));
    }
    let first: Vec<_> = seen.missing_exports.iter().take(3).map(String::as_str).collect();
    Finding::blocks(
        format!(
            "{} lacks {} driver functions: {} ...",
            path.display(),
            seen.missing_exports.len(),
            first.join(", ")
        ),
        "it is damaged or of another version than this wmctl: install both together",
    )
}

fn missing(library: &Library) -> Vec<String> {
    let absent = wm_abi::symbol::NAMES.iter().filter(|name| !library.has(name));
    absent.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// Files that the cache names `libcuda.so.1` and that are ours.
fn captured() -> Vec<PathBuf> {
    let names =
        cached_paths().into_iter().filter(|path| path.file_name() == Some(OsStr::new("libcuda.so.1")));
    names.filter(|path| is_interposer(path)).collect()
}

fn directories_of_cache() -> BTreeSet<PathBuf> {
    let parents = cached_paths().into_iter().filter_map(|path| path.parent().map(Path::to_owned));
    parents.filter_map(|folder| folder.canonicalize().ok()).collect()
}

/// Every absolute path in the loader's cache. Its string table is plain text between zero bytes.
fn cached_paths() -> Vec<PathBuf> {
    let cache = fs::read(CACHE).unwrap_or_default();
    let strings = cache.split(|byte| *byte == 0).filter(|text| text.starts_with(b"/"));
    strings.map(|text| PathBuf::from(OsStr::from_bytes(text))).collect()
}

impl Installation {
    /// WMSHIM_HOST_LIMIT of programs that start from here; `None`: there is no limit.
    pub(super) fn host_limit(&self) -> Option<&str> {
        self.settings.host_limit()
    }

    /// WMSHIM_DEVICE_LIMIT of programs that start from here, within the node's ceiling; `None`:
    /// there is no limit.
    pub(super) fn device_limit(&self) -> Option<&str> {
        self.settings.device_limit()
    }

    /// One line, and those of the settings.
    pub(super) fn render(&self) -> String {
        let path = |path: &Option<PathBuf>| {
            path.as_ref().map_or_else(|| "none".into(), |path| path.display().to_string())
        };
        let settings = self.settings.render();
        format!("Library  {}, drop-in folder {}\n{settings}", path(&self.library), path(&self.dropin))
    }
}
