//! Measurements kept between processes: one file a machine and set of visible devices, in the user's cache folder.
//!
//! A file is used only if the key inside it is the key that is asked for, so a changed driver, device or slot leads to
//! a new measurement. It is written under another name and renamed: a reader sees a whole file or none. A cache that
//! cannot be read or written costs a measurement, nothing else.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use super::{Key, Topology};

/// Raised when what is measured, or how, changes.
const FORMAT: u32 = 1;

/// The folder for this user: `$XDG_CACHE_HOME/wmshim`, or `~/.cache/wmshim`. `None` for a user without a home.
pub fn folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(base.join("wmshim"))
}

/// Where a machine's topology is kept in a folder.
pub fn path(folder: &Path, key: &Key) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (FORMAT, key, machine_id()).hash(&mut hasher);
    folder.join(format!("topology-{:016x}.json", hasher.finish()))
}

/// The machine's own name for itself; containers often have none.
fn machine_id() -> String {
    fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned()
}

/// The kept measurement for a key, if there is a sound one.
pub fn load(folder: &Path, key: &Key) -> Option<Topology> {
    let text = fs::read(path(folder, key)).ok()?;
    let topology: Topology = serde_json::from_slice(&text).ok()?;
    (topology.key == *key && is_sound(&topology)).then_some(topology)
}

/// Keeps a measurement.
///
/// # Errors
/// Those of the file system.
pub fn store(folder: &Path, topology: &Topology) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let path = path(folder, &topology.key);
    let draft = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&draft, serde_json::to_vec_pretty(topology)?)?;
    fs::rename(&draft, &path)
}

/// Every list as long as the list of devices, every rate a number: the file may come from anywhere.
fn is_sound(topology: &Topology) -> bool {
    let count = topology.key.devices.len();
    let square = |rows: usize, mut lengths: Box<dyn Iterator<Item = usize> + '_>| {
        rows == count && lengths.all(|length| length == count)
    };
    let rates = [&topology.into, &topology.out];
    let numbers = rates.iter().flat_map(|rates| rates.alone.iter().chain(rates.together.iter().flatten()));
    square(topology.reach.len(), Box::new(topology.reach.iter().map(Vec::len)))
        && rates.iter().all(|rates| {
            rates.alone.len() == count
                && square(rates.together.len(), Box::new(rates.together.iter().map(Vec::len)))
        })
        && numbers.chain([&topology.fixed]).all(|number| number.is_finite() && *number >= 0.0)
}

#[cfg(test)]
mod tests {
    //! Hazard: a measurement of another machine, or half a file, decides how copies are cut.
    use super::*;
    use crate::topology::{Identity, Rates};

    fn topology() -> Topology {
        let identity = Identity { uuid: "ab".into(), pci: "0000:1b:00.0".into(), numa: Some(0) };
        let rates = Rates { alone: vec![5e10], together: vec![vec![0.0]], all: 5e10 };
        Topology {
            key: Key { driver: 13_000, devices: vec![identity] },
            reach: vec![vec![true]],
            into: rates.clone(),
            out: rates,
            fixed: 1e-4,
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
        let newer = Key { driver: 13_010, ..kept.key.clone() };
        assert_eq!(load(&folder, &newer), None);
        // The same file under another key's name is refused by its content.
        fs::copy(path(&folder, &kept.key), path(&folder, &newer)).expect("copies");
        assert_eq!(load(&folder, &newer), None);
        fs::remove_dir_all(folder).expect("removes");
    }

    #[test]
    fn a_damaged_file_is_not_used() {
        let (folder, mut kept) = (scratch("damaged"), topology());
        kept.into.together.clear();
        store(&folder, &kept).expect("a writable folder");
        assert_eq!(load(&folder, &kept.key), None);
        fs::write(path(&folder, &kept.key), b"{\"key\":").expect("writes");
        assert_eq!(load(&folder, &kept.key), None);
        fs::remove_dir_all(folder).expect("removes");
    }
}
