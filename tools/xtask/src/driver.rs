//! Which driver serves the programs that a task starts: the machine's own where there is a GPU,
//! else the simulated one.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::step;

/// Device files of a GPU: desktop and server, WSL, Jetson.
const DEVICE_FILES: [&str; 3] = ["/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu"];
/// Where drivers are when the loader's cache does not say.
const DIRECTORIES: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

/// Which one it is.
pub(crate) enum TestDriver {
    /// The machine's own.
    Real,
    /// The simulator, under the name that programs look for.
    Simulated(PathBuf),
}

impl TestDriver {
    /// The driver of this machine, said in a line. `folder` is where cargo left the simulated one.
    pub(crate) fn choose(folder: &Path) -> Result<Self> {
        if let Some(path) = real() {
            println!("\nA GPU is there: the driver is {}.", path.display());
            return Ok(Self::Real);
        }
        println!("\nNo GPU here: the driver is the simulated one.");
        Ok(Self::Simulated(simulated(folder)?))
    }

    /// Sets the variables by which a program finds this driver as `libcuda.so.1`. A real one is
    /// found without help.
    pub(crate) fn serve(&self, program: &mut Command) {
        if let Self::Simulated(library) = self {
            let mut path: OsString = library.parent().unwrap_or(Path::new("/")).into();
            if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH") {
                path.push(":");
                path.push(rest);
            }
            program.env("LD_LIBRARY_PATH", path);
        }
    }

    /// The same for a program that runs under the shim: that looks for the driver itself.
    pub(crate) fn serve_behind_the_shim(&self, program: &mut Command) {
        self.serve(program);
        if let Self::Simulated(library) = self {
            program.env("WMSHIM_DRIVER", library);
        }
    }
}

/// The real driver: a device file, and the library in the loader's cache or a usual directory.
fn real() -> Option<PathBuf> {
    DEVICE_FILES.iter().find(|file| Path::new(file).exists())?;
    let directories = DIRECTORIES.iter().map(|folder| Path::new(folder).join("libcuda.so.1"));
    cached().into_iter().chain(directories).find(|path| path.exists())
}

/// A line of `ldconfig -p`: `libcuda.so.1 (libc6,x86-64) => /path`.
fn cached() -> Option<PathBuf> {
    let listing = step::output(step::command("/sbin/ldconfig", &["-p"])).ok()?;
    let line = listing.lines().find(|line| line.trim_start().starts_with("libcuda.so.1 "))?;
    Some(line.split_once("=> ")?.1.trim().into())
}

/// The simulated driver under the name that programs look for.
fn simulated(folder: &Path) -> Result<PathBuf> {
    let named = folder.join("sim/libcuda.so.1");
    fs::create_dir_all(folder.join("sim"))?;
    let _absent_the_first_time = fs::remove_file(&named);
    symlink("../libsimcuda.so", &named).with_context(|| named.display().to_string())?;
    Ok(named)
}
