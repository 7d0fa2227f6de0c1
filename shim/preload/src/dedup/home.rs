//! Where the broker of this user listens, and which program it is.

use std::path::{Path, PathBuf};

use wm_driver::interposer;

use crate::settings;
use wm_sockets::private_folder;

/// File name of the broker.
const PROGRAM: &str = "wmshimd";

/// A folder of sockets, and the program that is to listen there.
#[derive(Debug, Clone)]
pub(crate) struct BrokerHome {
    pub(super) folder: PathBuf,
    /// None: it is not installed.
    pub(super) program: Option<PathBuf>,
}

impl BrokerHome {
    /// As this process is set.
    ///
    /// # Errors
    /// There is no private folder, in a sentence for the log.
    pub(crate) fn of_process() -> Result<Self, String> {
        let settings = settings::load();
        let folder =
            private_folder::directory(settings.stats_dir.as_deref()).map_err(|error| error.to_string())?;
        // The broker has another working folder.
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        let named = settings.broker.as_ref().and_then(|path| std::path::absolute(path).ok());
        Ok(Self { folder, program: named.or_else(beside_library) })
    }

    /// A folder and a program that are named.
    pub(crate) fn at(folder: PathBuf, program: Option<PathBuf>) -> Self {
        Self { folder, program }
    }
}

/// The broker of this installation: in `bin` beside the library's folder, or beside the library, as in a build.
fn beside_library() -> Option<PathBuf> {
    let library = interposer::own_path()?.canonicalize().ok()?;
    candidates(&library).into_iter().find(|path| path.is_file())
}

fn candidates(library: &Path) -> Vec<PathBuf> {
    let folder = library.parent();
    let installed = folder.and_then(Path::parent).map(|root| root.join("bin").join(PROGRAM));
    installed.into_iter().chain(folder.map(|folder| folder.join(PROGRAM))).collect()
}
