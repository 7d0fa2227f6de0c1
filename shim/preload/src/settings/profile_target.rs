//! The notation of `WMSHIM_PROFILE`: a file, and how often a sample is taken.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use wm_schema::size;

use super::shown::Shown;
use super::values::{NotUnderstood, Parsed, bytes, path_or_off};

/// The file of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProfileTarget {
    /// Before `%p` is replaced.
    pub(crate) path: PathBuf,
    /// Mean of the bytes from one sample to the next.
    pub(crate) interval: u64,
}

impl ProfileTarget {
    const INTERVAL: u64 = 1 << 20;
}

/// A path, with a size behind its last comma or without one, or nothing at all. What is no size
/// belongs to the path.
pub(super) fn profile(text: &OsStr) -> Parsed<Option<ProfileTarget>> {
    let Some(path) = path_or_off(text)? else { return Ok(None) };
    let whole = path.as_os_str().as_bytes();
    let split = whole.iter().rposition(|byte| *byte == b',').and_then(|comma| {
        let interval = bytes(std::str::from_utf8(&whole[comma + 1..]).ok()?).ok()?;
        Some((&whole[..comma], interval))
    });
    let (path, interval) = split.unwrap_or((whole, ProfileTarget::INTERVAL));
    if path.is_empty() || interval == 0 {
        return Err(NotUnderstood);
    }
    Ok(Some(ProfileTarget { path: PathBuf::from(OsStr::from_bytes(path)), interval }))
}

/// With the size, which is part of what a user may set.
impl Shown for Option<ProfileTarget> {
    fn shown(&self) -> Option<String> {
        self.as_ref().map(|target| format!("{},{}", target.path.display(), size::exact(target.interval)))
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (error handling): a comma in a path is taken for the end of it.
    use super::*;

    #[test]
    fn a_profile_has_a_file_and_may_have_a_size() {
        let read = |text: &str| profile(OsStr::new(text));
        let target = |path: &str, interval| Ok(Some(ProfileTarget { path: path.into(), interval }));
        assert_eq!(read("p.gz"), target("p.gz", 1 << 20));
        assert_eq!(read("/a,b/p.gz,64KiB"), target("/a,b/p.gz", 64 << 10));
        assert_eq!(read("a,b"), target("a,b", 1 << 20));
        assert_eq!(read("p,80%"), target("p,80%", 1 << 20), "no number of bytes");
        assert_eq!(read("off"), Ok(None));
        for bad in [",1MiB", "p.gz,0B"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
