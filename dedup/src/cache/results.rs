//! The verdicts on the code of images, in a folder of files: one for each image and architecture.
//!
//! A file is written under a name of its own and renamed, so a reader finds all of it or none, and
//! of two processes that judge one image either may be last: they write the same bytes. So there is
//! no lock. A file that is damaged, or of another version of the analysis, is not believed, and is
//! replaced.
//!
//! The folder holds at most 4096 files and 64 MiB. Beyond that those that were written first are
//! removed, when a process adds its first one.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use rustix::fs::OFlags;
use wm_code::results::{Results, Subject};
use wm_trust::folder;

use super::file::{CacheError, open};

const MOST_FILES: usize = 4096;
const MOST_BYTES: u64 = 64 << 20;
/// No file is larger. The largest image of PyTorch has verdicts of less than 1 MiB.
const LARGEST: u64 = 16 << 20;

/// The folder. Its files are opened by the methods only.
#[derive(Debug)]
pub struct ResultsCache {
    folder: PathBuf,
    is_trimmed: AtomicBool,
}

impl ResultsCache {
    /// A folder in this one, which is made, for the user alone, when something is added.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.join("code-3"), is_trimmed: AtomicBool::new(false) }
    }

    /// The results about an image, if they are there and can be believed.
    pub fn load(&self, subject: Subject) -> Option<Results> {
        folder::check(&self.folder).ok()?;
        let file = open(&self.path(subject), OFlags::RDONLY).ok()?;
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes).ok()?;
        Results::decode(&bytes, subject)
    }

    /// Keeps the results about an image for this user's other processes.
    ///
    /// # Errors
    /// The folder or a file of it cannot be written, or is not this user's.
    pub fn keep(&self, subject: Subject, results: &Results) -> Result<(), CacheError> {
        folder::make(&self.folder)?;
        folder::check(&self.folder)?;
        if !self.is_trimmed.swap(true, Ordering::Relaxed) {
            trim(&self.folder)?;
        }
        let path = self.path(subject);
        let new = path.with_extension(format!("new-{}", std::process::id()));
        open(&new, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?.write_all(&results.encode(subject))?;
        Ok(fs::rename(&new, path)?)
    }

    fn path(&self, Subject { image, sm }: Subject) -> PathBuf {
        self.folder.join(format!("{image:032x}-{sm}"))
    }
}

/// Removes files that are too many, oldest first. Those that a killed process left count, too.
fn trim(folder: &Path) -> Result<(), CacheError> {
    let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        if let Ok(status) = entry.metadata()
            && status.is_file()
        {
            files.push((status.modified()?, status.len(), entry.path()));
        }
    }
    files.sort_unstable();
    let (mut count, mut bytes) = (files.len(), files.iter().map(|(_, bytes, _)| bytes).sum::<u64>());
    for (_, size, path) in files {
        if count < MOST_FILES && bytes < MOST_BYTES {
            break;
        }
        fs::remove_file(path)?;
        (count, bytes) = (count - 1, bytes - size);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Hazard: results of another image are believed, a damaged file brings the process down, or
    //! the folder grows without bound.
    use std::os::unix::fs::PermissionsExt;

    use wm_code::verdict::{CodeVerdict, Why};

    use super::*;

    const SUBJECT: Subject = Subject { image: 7, sm: 90 };

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let place = std::env::temp_dir().join(format!("wm-dedup-results-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&place);
            Self(place)
        }

        fn cache(&self) -> ResultsCache {
            ResultsCache::new(&self.0)
        }

        fn files(&self) -> Vec<PathBuf> {
            let files = fs::read_dir(self.0.join("code-3")).expect("the folder").flatten();
            files.map(|entry| entry.path()).collect()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn results() -> Results {
        let mut results = Results::default();
        results.add("gemm", CodeVerdict::Undecided(Why::Bounds));
        results
    }

    #[test]
    fn results_of_one_process_are_found_by_the_next() {
        let place = Place::new("next");
        assert_eq!(place.cache().load(SUBJECT), None);
        place.cache().keep(SUBJECT, &results()).expect("kept");
        assert_eq!(place.cache().load(SUBJECT), Some(results()));
        for other in [Subject { image: 8, ..SUBJECT }, Subject { sm: 80, ..SUBJECT }] {
            assert_eq!(place.cache().load(other), None);
        }
        assert_eq!(place.files().len(), 1, "no new file is left");
    }

    #[test]
    fn a_file_under_another_name_is_not_believed() {
        let place = Place::new("renamed");
        place.cache().keep(SUBJECT, &results()).expect("kept");
        let other = Subject { image: 8, ..SUBJECT };
        fs::rename(place.cache().path(SUBJECT), place.cache().path(other)).expect("renamed");
        assert_eq!(place.cache().load(other), None);
    }

    #[test]
    fn a_damaged_file_is_replaced() {
        let place = Place::new("damaged");
        place.cache().keep(SUBJECT, &results()).expect("kept");
        let path = place.cache().path(SUBJECT);
        let mut bytes = fs::read(&path).expect("the file");
        *bytes.last_mut().expect("bytes") ^= 1;
        fs::write(&path, bytes).expect("written");
        assert_eq!(place.cache().load(SUBJECT), None);
        place.cache().keep(SUBJECT, &results()).expect("kept");
        assert_eq!(place.cache().load(SUBJECT), Some(results()));
    }

    #[test]
    fn a_link_is_not_followed_and_an_open_folder_not_trusted() {
        let place = Place::new("link");
        place.cache().keep(SUBJECT, &results()).expect("kept");
        let (path, other) = (place.cache().path(SUBJECT), place.0.join("other"));
        fs::rename(&path, &other).and_then(|()| std::os::unix::fs::symlink(&other, &path)).expect("a link");
        assert_eq!(place.cache().load(SUBJECT), None);
        place.cache().keep(SUBJECT, &results()).expect("the link is replaced");
        assert_eq!(place.cache().load(SUBJECT), Some(results()));
        fs::set_permissions(place.0.join("code-3"), fs::Permissions::from_mode(0o777)).expect("open to all");
        assert_eq!(place.cache().load(SUBJECT), None);
        assert!(place.cache().keep(SUBJECT, &results()).is_err());
    }

    #[test]
    fn old_files_make_room() {
        let place = Place::new("old");
        place.cache().keep(SUBJECT, &results()).expect("kept");
        let old = SystemTime::now() - std::time::Duration::from_secs(99);
        for number in 0..MOST_FILES {
            let file = fs::File::create(place.0.join(format!("code-3/{number}"))).expect("a file");
            file.set_modified(old).expect("an old one");
        }
        place.cache().keep(Subject { image: 8, ..SUBJECT }, &results()).expect("kept");
        assert_eq!(place.files().len(), MOST_FILES);
        assert_eq!(place.cache().load(SUBJECT), Some(results()), "the newest ones stay");
    }
}
