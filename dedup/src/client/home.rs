//! The folder in which the user's broker listens, and the broker's program.

use std::path::{Path, PathBuf};

/// File name of the broker's program.
const PROGRAM: &str = "wmshimd";

/// A folder of sockets, and the program that is to listen there.
#[derive(Debug, Clone)]
pub struct BrokerHome {
    /// The user's private folder, as an absolute path: the broker has another working folder.
    pub folder: PathBuf,
    /// `None`: it is not installed.
    pub program: Option<PathBuf>,
}

/// The broker's program of an installation: in `bin` beside the folder of the library, or beside
/// the library, as in a build.
pub fn program_beside(library: &Path) -> Option<PathBuf> {
    let folder = library.parent();
    let installed = folder.and_then(Path::parent).map(|root| root.join("bin").join(PROGRAM));
    let built = folder.map(|folder| folder.join(PROGRAM));
    installed.into_iter().chain(built).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): an installed broker is not found, and nothing is shared.
    use std::fs;

    use super::program_beside;

    #[test]
    fn the_installed_program_comes_before_the_built_one() {
        let root = std::env::temp_dir().join(format!("wm-dedup-home-{}", std::process::id()));
        let library = root.join("lib/libwmshim.so");
        fs::create_dir_all(root.join("lib")).expect("a folder");
        assert_eq!(program_beside(&library), None);
        fs::write(root.join("lib/wmshimd"), "").expect("built");
        assert_eq!(program_beside(&library), Some(root.join("lib/wmshimd")));
        fs::create_dir_all(root.join("bin")).expect("a folder");
        fs::write(root.join("bin/wmshimd"), "").expect("installed");
        assert_eq!(program_beside(&library), Some(root.join("bin/wmshimd")));
        fs::remove_dir_all(root).expect("removed");
    }
}
