//! The name of a trace's file: `%p` in it is the process, `%d` the device.

use std::path::{Path, PathBuf};

use wm_abi::CUdevice;

use crate::settings::{replace, with_process};

/// Does the name tell devices apart?
pub(super) fn names_device(template: &Path) -> bool {
    template.to_string_lossy().contains("%d")
}

/// The file's name with the process and the device in it.
pub(super) fn expand(template: &Path, process: u32, device: CUdevice) -> PathBuf {
    replace(&with_process(template, process), "%d", &device.to_string())
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): two devices, or two processes, record to one file.
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn names_are_expanded() {
        let odd = OsStr::from_bytes(b"/a\xff/%p-%p.gz");
        assert_eq!(expand(Path::new(odd), 7, 3), Path::new(OsStr::from_bytes(b"/a\xff/7-7.gz")));
        assert_eq!(expand(Path::new("/a/%p.%d.gz"), 7, 3), Path::new("/a/7.3.gz"));
        assert!(names_device(Path::new("x%d")) && !names_device(Path::new("x%p")));
    }
}
