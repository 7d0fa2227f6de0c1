//! The environment, through which all crates of the library read it.
//!
//! In a program that has more rights than its caller (set-user-ID, set-group-ID, file capabilities)
//! the environment is the caller's, and the rights are not: a variable that names a driver would
//! run the caller's code with these rights, one that names a file would write it. So the
//! environment is empty there. Harmless variables are no exception, because the effect of a setting
//! changes with the code.

use std::ffi::{OsStr, OsString};
use std::sync::OnceLock;

/// Does this program have more rights than its caller? The kernel decides that when the program
/// starts.
pub fn is_withheld() -> bool {
    static WITHHELD: OnceLock<bool> = OnceLock::new();
    // SAFETY: reads a value that the kernel has put beside the program's arguments.
    *WITHHELD.get_or_init(|| unsafe { libc::getauxval(libc::AT_SECURE) } != 0)
}

/// A variable's value.
pub fn variable(name: impl AsRef<OsStr>) -> Option<OsString> {
    if is_withheld() { None } else { std::env::var_os(name) }
}

/// A variable's value, where it is text.
pub fn text(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// Words for a setting that is off.
const OFF: [&str; 5] = ["off", "0", "no", "false", "none"];
/// Words for one that is on.
const ON: [&str; 4] = ["on", "1", "yes", "true"];

/// Does a value turn a setting on or off? `None` for any other text. All switches of the library
/// have the same words.
pub fn switch(text: &str) -> Option<bool> {
    let is_one_of = |words: &[&str]| words.iter().any(|word| text.trim().eq_ignore_ascii_case(word));
    if is_one_of(&ON) { Some(true) } else { is_one_of(&OFF).then_some(false) }
}

/// All variables.
pub fn all() -> impl Iterator<Item = (OsString, OsString)> {
    (!is_withheld()).then(std::env::vars_os).into_iter().flatten()
}

/// Sets a variable, or removes it. It has no effect in a program with more rights than its caller.
///
/// # Safety
/// This thread is the only one of the process.
pub unsafe fn set(name: &str, value: Option<&str>) {
    if is_withheld() {
        return;
    }
    match value {
        // SAFETY: as the caller promises.
        Some(value) => unsafe { std::env::set_var(name, value) },
        // SAFETY: as the caller promises.
        None => unsafe { std::env::remove_var(name) },
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a program without special rights loses its settings. The other case needs such a
    //! program: `tests/hazards/tests/privileges.rs`.
    use super::*;

    #[test]
    fn a_program_with_its_callers_rights_has_its_callers_environment() {
        assert!(!is_withheld());
        assert_eq!(variable("PATH"), std::env::var_os("PATH"));
        assert_eq!(all().count(), std::env::vars_os().count());
        assert_eq!(text("WM_TRUST_NO_SUCH_VARIABLE"), None);
    }

    #[test]
    fn a_switch_has_two_lists_of_words() {
        assert!(["on", "ON", " yes", "True", "1"].iter().all(|text| switch(text) == Some(true)));
        assert!(["off", "No", "false", "0", "none"].iter().all(|text| switch(text) == Some(false)));
        assert!(["", "2", "maybe", "host", "onoff", "y"].iter().all(|text| switch(text).is_none()));
    }
}
