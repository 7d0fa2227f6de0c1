//! The verdicts on the kernels of images, a file for each image and architecture in the user's
//! cache folder.
//!
//! A file is written under another name and renamed, so a reader finds a whole one or none. Damaged
//! files, and those of another version of the analysis, yield no verdict, and are replaced. If
//! there are many, those that were used least lately are removed.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::OFlags;
use wm_code::results::{Results, Subject};
use wm_trust::folder;

use super::{CacheError, open};

/// Files that the folder holds, and how many are removed when there are more.
const MOST: usize = 512;
const REMOVED: usize = 128;

/// No file has more bytes.
const MOST_BYTES: u64 = 64 << 20;

/// The files of a user.
#[derive(Debug, Clone)]
pub struct CodeCache {
    folder: PathBuf,
}

impl CodeCache {
    /// Below the user's cache folder, which is made when something is added.
    pub fn new(cache: &Path) -> Self {
        Self { folder: cache.join("code-1") }
    }

    /// The verdicts that were kept, if they can be believed.
    pub fn load(&self, subject: Subject) -> Option<Results> {
        folder::check(&self.folder).ok()?;
        let file = open(&self.path(subject), OFlags::RDONLY).ok()?;
        let mut bytes = Vec::new();
        (&file).take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
        // The time of the last use decides which files are removed.
        let _touched = file.set_modified(SystemTime::now());
        Results::decode(&bytes, subject)
    }

    /// Keeps verdicts for the user's next processes.
    ///
    /// # Errors
    /// The folder or the file cannot be written, or is not this user's.
    pub fn keep(&self, subject: Subject, results: &Results) -> Result<(), CacheError> {
        folder::make(&self.folder)?;
        folder::check(&self.folder)?;
        let new = self.folder.join(format!("new-{}", std::process::id()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        open(&new, flags)?.write_all(&results.encode(subject))?;
        std::fs::rename(&new, self.path(subject))?;
        self.remove_oldest()?;
        Ok(())
    }

    fn remove_oldest(&self) -> io::Result<()> {
        let all = std::fs::read_dir(&self.folder)?.flatten();
        let mut files: Vec<_> =
            all.filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path()))).collect();
        if files.len() > MOST {
            files.sort_unstable();
            // Another process may have removed one.
            files.iter().take(REMOVED).for_each(|(_, path)| drop(std::fs::remove_file(path)));
        }
        Ok(())
    }

    fn path(&self, Subject { image, sm }: Subject) -> PathBuf {
        self.folder.join(format!("{image:032x}-{sm}"))
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (corrupt input): verdicts of another image, of a damaged file or of another user are
    //! believed.
    use std::os::unix::fs::PermissionsExt;

    use wm_code::verdict::{Effects, Verdict};

    use super::*;

    const SUBJECT: Subject = Subject { image: 7, sm: 90 };

    fn results(name: &str) -> Results {
        let mut results = Results::default();
        results.add(name, Verdict::Decided(Effects::default()));
        results
    }

    fn cache(name: &str) -> CodeCache {
        let folder = std::env::temp_dir().join(format!("wm-dedup-code-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        CodeCache::new(&folder)
    }

    #[test]
    fn what_was_kept_is_found_for_the_same_image_and_device() {
        let cache = cache("kept");
        assert_eq!(cache.load(SUBJECT), None);
        cache.keep(SUBJECT, &results("gemm")).expect("kept");
        cache.keep(SUBJECT, &results("norm")).expect("replaced");
        assert_eq!(cache.load(SUBJECT), Some(results("norm")));
        let path = |subject| cache.path(subject);
        for other in [Subject { sm: 80, ..SUBJECT }, Subject { image: 8, ..SUBJECT }] {
            assert_eq!(cache.load(other), None);
            std::fs::copy(path(SUBJECT), path(other)).expect("copied");
            assert_eq!(cache.load(other), None, "it is about another one");
        }
        let mut bytes = std::fs::read(path(SUBJECT)).expect("a file");
        bytes[50] ^= 1;
        std::fs::write(path(SUBJECT), bytes).expect("damaged");
        assert_eq!(cache.load(SUBJECT), None);
        cache.keep(SUBJECT, &results("gemm")).expect("replaced");
        std::fs::set_permissions(&cache.folder, std::fs::Permissions::from_mode(0o777)).expect("open to all");
        assert_eq!(cache.load(SUBJECT), None);
        assert!(cache.keep(SUBJECT, &results("norm")).is_err());
        let _ = std::fs::remove_dir_all(cache.folder.parent().expect("a folder"));
    }

    #[test]
    fn many_files_become_fewer() {
        let cache = cache("many");
        for image in 0..=MOST as u128 {
            cache.keep(Subject { image, sm: 90 }, &results("gemm")).expect("kept");
        }
        let left = std::fs::read_dir(&cache.folder).expect("a folder").count();
        assert_eq!(left, MOST + 1 - REMOVED);
        assert!(cache.load(Subject { image: MOST as u128, sm: 90 }).is_some(), "the newest stays");
        let _ = std::fs::remove_dir_all(cache.folder.parent().expect("a folder"));
    }
}
