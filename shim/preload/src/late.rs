//! A library that a program loads itself, after its start: `wmshim.enable()` of the Python package.
//!
//! The choices that a preloaded library makes at load are told to the package, which writes them
//! where Python reads them too (`os.environ`).

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};

use serde_json::json;

use crate::settings;
use crate::subsystems::PROCESS;

/// The changes of the environment that choose the allocators of PyTorch and JAX (null: the variable
/// is removed), and whether the settings have been read, after which none can change. A JSON text
/// that the caller frees with `free`; null without memory for it.
#[unsafe(no_mangle)]
extern "C" fn wmshim_late_json() -> *mut c_char {
    let mut changes = BTreeMap::new();
    changes.extend(PROCESS.torch.changes());
    let answer = json!({
        "schema": "wmshim-late/1",
        "settings_read": settings::get().is_some(),
        "environment": changes,
    });
    let text = CString::new(answer.to_string()).unwrap_or_default();
    // SAFETY: a NUL-terminated string; `strdup` gives memory of the C allocator, which the caller
    // can free.
    unsafe { libc::strdup(text.as_ptr()) }
}
