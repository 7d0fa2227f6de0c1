//! Measurements kept between processes: one file a machine and set of visible devices, in the
//! user's cache folder.
//!
//! A file is used only if the key inside it is the requested key, so a changed driver, device or
//! slot leads to a new measurement. The file is written under another name and renamed: a reader
//! sees a whole file or none. The folder's name comes from variables: a folder that other users may
//! write in is not used, and an existing file is not written to. If the cache cannot be read or
//! written, the only cost is a measurement.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use wm_trust::{environment, folder};

use crate::topology::Topology;
use crate::vocabulary::machine::MachineKey;
use crate::vocabulary::path::Costs;

/// Raised when the measured quantities change, or the way of measuring.
const FORMAT: u32 = 5;

/// The folder for this user: `$XDG_CACHE_HOME/wmshim`, or `~/.cache/wmshim`. `None` for a user
/// without a home.
pub fn folder() -> Option<PathBuf> {
    let set = |name: &str| environment::variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(base.join("wmshim"))
}

/// The path of a machine's topology in a folder.
pub fn path(folder: &Path, key: &MachineKey) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (FORMAT, key, machine_id()).hash(&mut hasher);
    folder.join(format!("topology-{:016x}.json", hasher.finish()))
}

/// The machine's identifier; containers often have none.
fn machine_id() -> String {
    fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned()
}

/// The stored measurement for a key, if there is a valid one.
pub fn load(folder: &Path, key: &MachineKey) -> Option<Topology> {
    folder::check(folder).ok()?;
    let text = fs::read(path(folder, key)).ok()?;
    let topology: Topology = serde_json::from_slice(&text).ok()?;
    (topology.key == *key && is_sound(&topology)).then_some(topology)
}

/// Stores a measurement.
///
/// # Errors
/// Those of the file system.
pub fn store(folder: &Path, topology: &Topology) -> std::io::Result<()> {
    make(folder)?;
    let path = path(folder, &topology.key);
    let draft = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = file.write_all(&serde_json::to_vec_pretty(topology)?);
    written.and_then(|()| fs::rename(&draft, &path)).inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// Makes the folder, or finds one that may be used.
fn make(folder: &Path) -> std::io::Result<()> {
    folder::make(folder)?;
    folder::check(folder)
}

/// Which process measures. Ranks of one job start together, and would measure each other.
#[derive(Debug)]
pub enum Turn {
    /// This one, until the value is dropped. Without a lock if the folder does not allow one.
    Mine(Option<fs::File>),
    /// Another process measures now.
    Theirs,
}

/// Asks for the turn, without waiting. The turn ends with the process at the latest.
pub fn turn(folder: &Path) -> Turn {
    let open = || {
        make(folder)?;
        fs::File::options().create(true).append(true).mode(0o600).open(folder.join("measuring.lock"))
    };
    match open().map(|file| (file.try_lock(), file)) {
        Ok((Ok(()), file)) => Turn::Mine(Some(file)),
        Ok((Err(fs::TryLockError::WouldBlock), _)) => Turn::Theirs,
        Ok((Err(fs::TryLockError::Error(_)), _)) | Err(_) => Turn::Mine(None),
    }
}

/// Deletes a measurement that has proved wrong.
///
/// # Errors
/// Those of the file system.
pub fn forget(folder: &Path, key: &MachineKey) -> std::io::Result<()> {
    fs::remove_file(path(folder, key))
}

/// Has every list the length of the device list, and is every figure plausible? The file may come
/// from anywhere.
fn is_sound(topology: &Topology) -> bool {
    let count = topology.key.devices.len();
    let is_count = |length: usize| length == count;
    let Costs { fixed, lag, step, open } = topology.costs;
    is_count(topology.reach.len())
        && topology.reach.iter().map(Vec::len).all(is_count)
        && [&topology.into, &topology.out]
            .iter()
            .all(|rates| is_count(rates.alone.len()) && rates.are_plausible())
        && [fixed, lag, step].iter().all(|seconds| (0.0..1.0).contains(seconds))
        && (0.0..60.0).contains(&open)
}

#[cfg(test)]
mod tests {
    //! Hazard: a measurement of another machine, or half a file, decides how copies are cut.
    use super::*;
    use crate::topology::rates::Rates;
    use crate::vocabulary::machine::Identity;

    fn topology() -> Topology {
        let identity = Identity { uuid: "ab".into(), pci: "0000:1b:00.0".into(), numa: Some(0) };
        let rates = Rates { alone: vec![5e10], together: vec![vec![0.0]], all: 5e10 };
        Topology {
            key: MachineKey { driver: 13_000, devices: vec![identity] },
            reach: vec![vec![true]],
            into: rates.clone(),
            out: rates,
            costs: Costs { fixed: 1e-4, lag: 3e-5, step: 1e-5, open: 0.2 },
        }
    }

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("wmshim-topology-{name}-{}", std::process::id()))
    }

    #[test]
    fn what_is_stored_is_loaded_and_only_for_its_key() {
        let (folder, kept) = (scratch("key"), topology());
        store(&folder, &kept).expect("a writable folder");
        assert_eq!(load(&folder, &kept.key), Some(kept.clone()));
        let newer = MachineKey { driver: 13_010, ..kept.key.clone() };
        assert_eq!(load(&folder, &newer), None);
        // The same file under another key's name is refused by its content.
        fs::copy(path(&folder, &kept.key), path(&folder, &newer)).expect("copies");
        assert_eq!(load(&folder, &newer), None);
        forget(&folder, &kept.key).expect("it was there");
        assert_eq!(load(&folder, &kept.key), None);
        fs::remove_dir_all(folder).expect("removes");
    }

    /// Hazard (privilege boundary): the folder belongs to another user and has links to files of
    /// this user.
    #[test]
    fn a_folder_that_others_may_write_in_is_not_used_and_no_file_is_written_over() {
        use std::os::unix::fs::PermissionsExt;
        let (folder, kept) = (scratch("open"), topology());
        store(&folder, &kept).expect("a writable folder");
        let draft = path(&folder, &kept.key).with_extension(format!("{}.tmp", std::process::id()));
        fs::write(&draft, "precious").expect("writes");
        assert!(store(&folder, &kept).is_err());
        assert_eq!(fs::read_to_string(&draft).expect("it is there"), "precious");
        fs::remove_file(draft).expect("removes");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("open to all");
        assert!(store(&folder, &kept).is_err() && load(&folder, &kept.key).is_none());
        assert!(matches!(turn(&folder), Turn::Mine(None)));
        fs::remove_dir_all(folder).expect("removes");
    }

    #[test]
    fn a_damaged_file_is_not_used() {
        let (folder, mut kept) = (scratch("damaged"), topology());
        kept.into.together.clear();
        store(&folder, &kept).expect("a writable folder");
        assert_eq!(load(&folder, &kept.key), None);
        for text in ["{\"key\":", "", "[]", "\0\0\0"] {
            fs::write(path(&folder, &kept.key), text).expect("writes");
            assert_eq!(load(&folder, &kept.key), None, "{text:?}");
        }
        let faster_than_light = Rates { all: 1e15, ..topology().into };
        store(&folder, &Topology { into: faster_than_light, ..topology() }).expect("a writable folder");
        assert_eq!(load(&folder, &kept.key), None);
        fs::remove_dir_all(folder).expect("removes");
    }
}
