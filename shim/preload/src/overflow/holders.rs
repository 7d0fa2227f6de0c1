//! The file of an out-of-memory: what every device holds by tier, the largest holders, and what
//! would have been enough.
//!
//! It is written beside the line in the log, once a minute at most, into the folder of the sockets.
//! With a profile the holders are call sites, else blocks and ranges of the program's own memory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wm_abi::CUdevice;
use wm_driver::{Device, lock};
use wm_memory::{Manager, Shortage};
use wm_schema::{FullDevice, Holder, OutOfMemory};
use wm_sockets::private_folder::{self, FolderError};

use crate::endpoint::write_new_file;
use crate::{physical, registry};

/// Holders that are named.
const MOST: usize = 50;

/// Files that may lie in the folder, of all processes: it is often memory.
const FILES: usize = 100;

const PAUSE: Duration = Duration::from_secs(60);

/// The call sites that hold the most, at most so many, and the bytes of all others.
pub(crate) type BySite = fn(usize) -> Option<(Vec<Holder>, u64)>;

/// Where files go, and the profile.
#[derive(Debug)]
pub(crate) struct HolderSources {
    /// The folder that the user named.
    pub(crate) folder: Option<PathBuf>,
    /// `None` without a profile.
    pub(crate) by_site: BySite,
}

/// The files of this process.
#[derive(Debug)]
pub(super) struct HolderFiles {
    sources: OnceLock<HolderSources>,
    last: Mutex<Option<Instant>>,
}

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
enum NoFile {
    #[error(transparent)]
    NoFolder(#[from] FolderError),
    #[error("{FILES} files of earlier ones are in {}: `wmctl clean --all` removes those of programs that have ended", .0.display())]
    TooMany(PathBuf),
    #[error("{} cannot be written: {error}", .path.display())]
    Unwritten { path: PathBuf, error: io::Error },
}

impl HolderFiles {
    pub(super) const fn new() -> Self {
        Self { sources: OnceLock::new(), last: Mutex::new(None) }
    }

    pub(super) fn choose(&self, sources: HolderSources) {
        let _first = self.sources.set(sources);
    }

    /// Writes a file if one is due. The end of the line about the refusal.
    pub(super) fn write(&self, device: CUdevice, shortage: &Shortage) -> String {
        let Some(sources) = self.sources.get().filter(|_| self.is_due(Instant::now())) else {
            return String::new();
        };
        match sources.write(device, shortage) {
            Ok(path) => format!("; the largest holders are in {}", path.display()),
            Err(problem) => format!("; the largest holders are in no file: {problem}"),
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let mut last = lock(&self.last);
        let is_due = last.is_none_or(|last| now.duration_since(last) >= PAUSE);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

impl HolderSources {
    fn write(&self, device: CUdevice, shortage: &Shortage) -> Result<PathBuf, NoFile> {
        let folder = private_folder::directory(self.folder.as_deref())?;
        let path = fresh_name(&folder).ok_or_else(|| NoFile::TooMany(folder.clone()))?;
        let content = serde_json::to_value(self.content(device, shortage)).unwrap_or_default();
        write_new_file(&path, &content).map_err(|error| NoFile::Unwritten { path: path.clone(), error })?;
        Ok(path)
    }

    fn content(&self, device: CUdevice, shortage: &Shortage) -> OutOfMemory {
        let (holders_by, (holders, other_bytes)) = match (self.by_site)(MOST) {
            Some(sites) => ("site", sites),
            None => ("range", largest(registry::all().flat_map(blocks_of).chain(ranges(pieces())).collect())),
        };
        let program = std::env::current_exe().unwrap_or_default();
        OutOfMemory {
            schema: OutOfMemory::SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            program: program.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            unix_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64),
            device,
            asked_bytes: shortage.asked,
            would_be_enough_bytes: registry::existing(device)
                .map_or(shortage.asked, |manager| would_be_enough(manager, shortage)),
            reason: shortage.to_string(),
            devices: registry::all().map(full_device).collect(),
            holders_by: holders_by.to_owned(),
            holders,
            other_bytes,
        }
    }
}

/// Memory of the device for all that was held at once up to here, and for this request beside what
/// is held now, with the headroom.
fn would_be_enough(manager: &Manager<Device>, shortage: &Shortage) -> u64 {
    let now = shortage.live.total().saturating_add(shortage.asked);
    let before = manager.usage().together.live_peaks.total;
    now.max(before).saturating_add(manager.settings().headroom)
}

fn full_device(manager: &Manager<Device>) -> FullDevice {
    let ordinal = manager.gpu().ordinal();
    let (limits, total_bytes) = (manager.settings(), registry::label(ordinal).total);
    FullDevice {
        ordinal,
        total_bytes,
        limit_bytes: manager.device_limit().min(total_bytes),
        headroom_bytes: limits.headroom,
        memory: manager.usage().together.tiers(),
    }
}

fn blocks_of(manager: &'static Manager<Device>) -> impl Iterator<Item = Holder> {
    let device = manager.gpu().ordinal();
    manager.blocks().into_iter().map(move |block| Holder {
        device,
        bytes: block.bytes,
        count: 1,
        kind: "block".to_owned(),
        address: Some(block.address),
        frames: Vec::new(),
    })
}

/// Memory that the program made itself, and where it is mapped first.
struct MadePiece {
    device: CUdevice,
    address: Option<u64>,
    bytes: u64,
}

fn pieces() -> Vec<MadePiece> {
    let book = physical::book();
    let made = book.listed().into_iter().map(|piece| MadePiece {
        device: piece.charge.manager().gpu().ordinal(),
        address: piece.mappings.first().map(|mapping| mapping.0),
        bytes: piece.charge.bytes(),
    });
    made.collect()
}

/// Pieces that follow each other in memory are one holder, and those that are mapped nowhere one
/// each.
fn ranges(mut pieces: Vec<MadePiece>) -> Vec<Holder> {
    pieces.sort_unstable_by_key(|piece| (piece.device, piece.address));
    let mut found: Vec<Holder> = Vec::new();
    for MadePiece { device, address, bytes } in pieces {
        let follows = |last: &&mut Holder| {
            let end = last.address.and_then(|start| start.checked_add(last.bytes));
            last.device == device && end.is_some() && end == address
        };
        if let Some(last) = found.last_mut().filter(follows) {
            last.bytes += bytes;
            last.count += 1;
            continue;
        }
        found.push(Holder { device, bytes, count: 1, kind: "piece".to_owned(), address, frames: Vec::new() });
    }
    found
}

/// The largest, and the bytes of all others.
fn largest(mut holders: Vec<Holder>) -> (Vec<Holder>, u64) {
    holders.sort_unstable_by(|one, other| other.bytes.cmp(&one.bytes).then(one.address.cmp(&other.address)));
    let others = holders.split_off(MOST.min(holders.len()));
    (holders, others.iter().map(|other| other.bytes).sum())
}

/// A name that is free, if there is room for one more file.
fn fresh_name(folder: &Path) -> Option<PathBuf> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    if names.filter(|name| name.to_string_lossy().starts_with(OutOfMemory::FILE_PREFIX)).count() >= FILES {
        return None;
    }
    let name = |number| folder.join(OutOfMemory::file_name(std::process::id(), number));
    (1..=FILES).map(name).find(|path| fs::symlink_metadata(path).is_err())
}

#[cfg(test)]
mod tests {
    //! Hazard: a folder that is filled, or a program that is slow because it is refused memory.
    use super::*;

    #[test]
    fn a_file_is_due_once_a_minute() {
        let (files, start) = (HolderFiles::new(), Instant::now());
        let due = [0, 1, 59, 60, 61, 119, 120].map(|s| files.is_due(start + Duration::from_secs(s)));
        assert_eq!(due, [true, false, false, true, false, false, true]);
    }

    #[test]
    fn pieces_that_follow_each_other_are_one_holder() {
        let piece = |device, address, bytes| MadePiece { device, address, bytes };
        let made = vec![
            piece(0, Some(30), 5),
            piece(0, Some(10), 20),
            piece(1, Some(35), 5),
            piece(0, None, 7),
            piece(0, None, 8),
            piece(0, Some(40), 1),
        ];
        let found: Vec<_> =
            ranges(made).iter().map(|it| (it.device, it.address, it.bytes, it.count)).collect();
        let expected = [
            (0, None, 7, 1),
            (0, None, 8, 1),
            (0, Some(10), 25, 2),
            (0, Some(40), 1, 1),
            (1, Some(35), 5, 1),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_largest_are_named_and_the_others_summed_up() {
        let holder = |bytes| Holder { bytes, address: Some(bytes), ..Holder::default() };
        let (named, others) = largest((1..=52).map(holder).collect());
        assert_eq!((named.len(), named[0].bytes, named[49].bytes, others), (50, 52, 3, 3));
    }

    #[test]
    fn a_folder_with_many_files_gets_no_more() {
        let folder = std::env::temp_dir().join(format!("wmshim-holders-{}", std::process::id()));
        let _left_by_an_earlier_run = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder");
        let first = fresh_name(&folder).expect("a name");
        fs::write(&first, "").expect("room");
        assert_ne!(fresh_name(&folder).expect("another"), first);
        (1..FILES)
            .for_each(|n| fs::write(folder.join(format!("out-of-memory-1-{n}.json")), "").expect("room"));
        assert_eq!(fresh_name(&folder), None);
        fs::remove_dir_all(folder).expect("removed");
    }
}
