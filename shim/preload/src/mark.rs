//! `wmshim_mark` of wmshim.h: a line of the program's own, such as `step 12`, beside its memory: in
//! the ring of the black box, in each recording that has begun, and in the profile.
//!
//! Plain stores and, under a recording, the lock of its text: no driver call, and no wait for the
//! GPU.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use wm_abi::CUresult;
use wm_driver::thread::Uncancelled;

use crate::black_box;
use crate::process::{self, preserve_errno};
use crate::subsystems::PROCESS;

/// Bytes of a text that are kept.
const LONGEST: usize = 200;

/// `int wmshim_mark(const char *text)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn wmshim_mark(text: *const c_char) -> CUresult {
    if text.is_null() {
        return CUresult::INVALID_VALUE;
    }
    // SAFETY: the program's text, which ends with a zero.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes();
    let _whole = Uncancelled::new();
    let done = preserve_errno(|| catch_unwind(AssertUnwindSafe(|| put(&cleaned(text)))));
    if done.is_ok() { CUresult::SUCCESS } else { CUresult::UNKNOWN }
}

fn put(text: &str) {
    if process::forked() || process::exiting() {
        return;
    }
    black_box::mark(text);
    PROCESS.trace.mark(text);
    PROCESS.profile.mark(text);
}

/// The beginning of the text, as one line: blanks stand for control characters.
fn cleaned(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(LONGEST)]);
    let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a mark that ends its line in a recording makes another line of its
    //! rest.
    use super::*;

    #[test]
    fn a_text_becomes_one_short_line() {
        assert_eq!(cleaned(b"step 12"), "step 12");
        assert_eq!(cleaned(b"a\nf 0 -\x1b[2J\xff b"), "a f 0 - [2J\u{fffd} b");
        let cut = cleaned("é".repeat(150).as_bytes());
        assert_eq!(cut, "é".repeat(100));
        assert_eq!(cleaned(format!("x{}", "é".repeat(150)).as_bytes()).len(), 199, "cut at a letter");
    }
}
