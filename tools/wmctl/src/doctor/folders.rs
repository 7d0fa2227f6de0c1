//! Places that programs under the shim share with others: the folder of sockets, the record of
//! links, the cache.
//!
//! In `/tmp` and `/dev/shm` another user can make a file of our name first. The shim does not use a
//! file of another user, and goes on without its feature. The doctor reports such a file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::finding::Finding;
use crate::client;

/// Looks at all of them.
pub(super) fn examine(findings: &mut Vec<Finding>) {
    let user = rustix::process::geteuid().as_raw();
    let client::LeftOver { sockets, problems, .. } = client::left_over(Duration::MAX);
    findings.extend(problems.into_iter().map(|problem| {
        Finding::note(
            format!("statistics: {problem}"),
            "remove it as its owner or as root, or set WMSHIM_STATS_DIR to a folder of yours",
        )
    }));
    if !sockets.is_empty() {
        findings.push(Finding::note(
            format!("{} sockets are left over from programs that were killed", sockets.len()),
            "`wmctl clean` removes them",
        ));
    }
    findings.extend(record_of_links(Path::new("/dev/shm"), user));
    findings.extend(wm_multipath::measured::cache::folder().and_then(|folder| cache(folder, user)));
}

/// The file by which processes see how busy links are.
fn record_of_links(folder: &Path, user: u32) -> Option<Finding> {
    let path = folder.join(format!("wmshim-links-{user}"));
    let status = fs::symlink_metadata(&path).ok()?;
    let sound = status.is_file() && status.uid() == user && status.mode() & 0o022 == 0;
    (!sound).then(|| {
        Finding::note(
            format!(
                "{} is user {}'s or can be written by others: processes do not see each other's copies over several links",
                path.display(),
                status.uid()
            ),
            "remove it as its owner or as root",
        )
    })
}

/// Measurements of links, and links to the library. Where others may write, `wmctl` makes its links
/// elsewhere.
fn cache(folder: PathBuf, user: u32) -> Option<Finding> {
    let status = fs::symlink_metadata(&folder).ok()?;
    let sound = status.is_dir() && status.uid() == user && status.mode() & 0o022 == 0;
    (!sound).then(|| {
        Finding::note(
            format!("{} is not a folder that is yours alone: what is measured is not kept", folder.display()),
            "correct its owner and mode (700), or set XDG_CACHE_HOME",
        )
    })
}

#[cfg(test)]
mod tests {
    //! Hazard: a feature that a stranger has switched off, in silence.
    use super::*;

    #[test]
    fn a_file_that_somebody_else_made_first_is_told() {
        let folder = std::env::temp_dir().join(format!("wmctl-folders-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder");
        let user = rustix::process::geteuid().as_raw();
        assert!(record_of_links(&folder, user).is_none(), "there is none yet");
        fs::create_dir(folder.join(format!("wmshim-links-{user}"))).expect("something else");
        let finding = record_of_links(&folder, user);
        fs::remove_dir_all(&folder).expect("ours");
        assert!(finding.is_some_and(|it| it.text.contains("do not see each other's copies")));
    }
}
