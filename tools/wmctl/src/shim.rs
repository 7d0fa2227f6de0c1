//! Finds `libwmshim.so` and the simulated driver, and looks into the library.
//!
//! Everything that this program calls by name in a library that is not linked to it is called here,
//! except the driver's functions, which `doctor::driver` calls through `wm_driver`.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use wm_driver::interposer::is_interposer;

/// The library's file name.
pub(crate) const NAME: &str = "libwmshim.so";

/// Finds the library: `WMSHIM_LIB`, then where an installation, a wheel or a build has it relative
/// to this program.
///
/// # Errors
/// All places looked at, and the remedy.
pub(crate) fn find() -> Result<PathBuf> {
    let candidates = candidates()?;
    let found = candidates.iter().find(|path| path.is_file());
    let Some(path) = found else {
        bail!("{NAME} is not at {}; set WMSHIM_LIB to its path", crate::human::paths(&candidates));
    };
    if !is_interposer(path) {
        bail!("{} is not wmshim's library; set WMSHIM_LIB to its path", path.display());
    }
    path.canonicalize().with_context(|| path.display().to_string())
}

fn candidates() -> Result<Vec<PathBuf>> {
    if let Some(set) = std::env::var_os("WMSHIM_LIB").filter(|value| !value.is_empty()) {
        let path = PathBuf::from(set);
        return Ok(vec![if path.is_dir() { path.join(NAME) } else { path }]);
    }
    let here = std::env::current_exe()?.canonicalize()?;
    let folder = here.parent().unwrap_or(Path::new("/"));
    Ok(vec![folder.join("../lib").join(NAME), folder.join(NAME), folder.join("../lib/wmshim").join(NAME)])
}

/// The driver that `WMSHIM_DRIVER` names, as the library understands it: `sim` is the simulated one
/// (a folder of that name is `./sim`).
pub fn driver() -> Option<PathBuf> {
    let named = std::env::var_os("WMSHIM_DRIVER").filter(|value| !value.is_empty()).map(PathBuf::from)?;
    if named.as_os_str() == "sim" { simulated().ok().or(Some(named)) } else { Some(named) }
}

/// The simulated driver beside this program: as installed, or as built.
///
/// # Errors
/// All places looked at, and the remedy.
pub(crate) fn simulated() -> Result<PathBuf> {
    let here = std::env::current_exe()?.canonicalize()?;
    let folder = here.parent().unwrap_or(Path::new("/"));
    let candidates = [folder.join("../sim/libcuda.so.1"), folder.join("libsimcuda.so")];
    match candidates.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => bail!(
            "the simulated driver is not at {}: install it with this wmctl (a clone builds it with `cargo build -p simcuda`), or \
             use a GPU (`replay --driver real`)",
            crate::human::paths(&candidates)
        ),
    }
}

/// The answer of `wmshim_check_settings`. An older library gives a part of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct JudgedSettings {
    /// Values that are not understood.
    pub(crate) problems: Vec<String>,
    /// Values above the node's ceilings.
    pub(crate) bounds: Vec<String>,
    /// The value of each variable, if it has one.
    pub(crate) settings: BTreeMap<String, Option<String>>,
    /// Where each value comes from: `variable`, `node`, `ceiling` or `default`.
    pub(crate) origins: BTreeMap<String, String>,
    pub(crate) node: JudgedNode,
}

/// The node's file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct JudgedNode {
    /// `None`: there is none.
    pub(crate) path: Option<PathBuf>,
    /// Lines without effect.
    pub(crate) faults: Vec<String>,
}

/// The library, opened in this process. It makes no driver call and starts nothing by being opened.
#[derive(Debug)]
pub(crate) struct Library(*mut c_void);

impl Library {
    /// Opens the library at a path.
    ///
    /// # Errors
    /// The loader's own sentence.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: a valid C string. The library's constructor only reads the environment and
        // registers handlers.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: after a failed `dlopen` there is a message, valid until the next call of this
            // thread.
            let message = unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned();
            bail!("{message}");
        }
        Ok(Self(handle))
    }

    /// Does the library export the name?
    pub(crate) fn has(&self, name: &CStr) -> bool {
        self.symbol(name).is_some()
    }

    /// Calls an exported `const char *name(void)`. `None`: not exported, or it has nothing to say.
    pub(crate) fn text(&self, name: &CStr) -> Option<String> {
        let address = self.symbol(name)?;
        // SAFETY: our own library's functions of these names have this type; the caller names no
        // other.
        let function: extern "C" fn() -> *const c_char = unsafe { std::mem::transmute(address) };
        let text = function();
        // SAFETY: null, or a C string that lives as long as the library.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    /// The library's judgement of the settings among these variables. An older library has none.
    pub(crate) fn judge_settings(&self, environment: &[(OsString, OsString)]) -> JudgedSettings {
        let Some(address) = self.symbol(c"wmshim_check_settings") else { return JudgedSettings::default() };
        // SAFETY: our own library's function of this name has this type.
        let check: extern "C" fn(*const *const c_char) -> *mut c_char =
            unsafe { std::mem::transmute(address) };
        let pair = |(name, value): &(OsString, OsString)| {
            CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
        };
        let pairs: Vec<_> = environment.iter().filter_map(pair).collect();
        let mut pointers: Vec<_> = pairs.iter().map(|pair| pair.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let text = check(pointers.as_ptr());
        if text.is_null() {
            return JudgedSettings::default();
        }
        // SAFETY: `text` is a C string from the library, allocated with `malloc` for this call.
        let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
        let judged = serde_json::from_slice(bytes).unwrap_or_default();
        // SAFETY: the caller of the library's function frees the text, and `bytes` is not used
        // after this.
        unsafe { libc::free(text.cast()) };
        judged
    }

    fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: a handle that is never closed, and a valid C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

/// Is the shim preloaded into this very process?
pub(crate) fn is_preloaded() -> bool {
    // SAFETY: asks the loader for a name in the global scope.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"wmshim_hooks_json".as_ptr()) }.is_null()
}
