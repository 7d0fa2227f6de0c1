//! A thread that pauses and resumes the process while a program's steps are made.
//!
//! The driver alone has no such call, so it is no step of a program, and its answers do not count:
//! while a gate holds a stream, or something is captured, there is no pause.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use random::{Choices, Random};

type Pause = unsafe extern "C" fn(c_uint) -> c_int;
type PauseTo = unsafe extern "C" fn(*const c_char, c_uint) -> c_int;
type Resume = unsafe extern "C" fn() -> c_int;

/// How long work may take to end, in milliseconds. Calls of the program wait as long.
const DEADLINE: c_uint = 20;

/// One pause in so many is to files.
const FILES: usize = 3;

/// `CUDA_ERROR_OPERATING_SYSTEM`.
const OPERATING_SYSTEM: c_int = 304;

/// The library's functions for pauses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pauses {
    pause: Pause,
    pause_to: PauseTo,
    resume: Resume,
}

impl Pauses {
    /// Of the library that this process runs under.
    pub(crate) fn find() -> Option<Self> {
        let find = |name: &std::ffi::CStr| {
            // SAFETY: looks a name up in the loaded libraries.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        let (pause, resume) = find(c"wmshim_pause").zip(find(c"wmshim_resume"))?;
        let pause_to = find(c"wmshim_pause_to")?;
        // SAFETY: the library's function has this type.
        let pause_to = unsafe { std::mem::transmute::<*mut c_void, PauseTo>(pause_to) };
        // SAFETY: the library's functions have these types.
        let pause = unsafe { std::mem::transmute::<*mut c_void, Pause>(pause) };
        // SAFETY: as above.
        let resume = unsafe { std::mem::transmute::<*mut c_void, Resume>(resume) };
        Some(Self { pause, pause_to, resume })
    }

    /// Pauses and resumes at random until the program has `ended`. The process runs then.
    pub(crate) fn go_on(self, seed: u64, ended: &AtomicBool) {
        let mut random = Random::with_seed(seed ^ 0x7061_7573_6564);
        let folder = CString::new(std::env::temp_dir().into_os_string().into_encoded_bytes());
        let folder = folder.unwrap_or_default();
        let wait = |random: &mut Random, most: usize| {
            std::thread::sleep(Duration::from_micros(random.below(most) as u64));
        };
        while !ended.load(Ordering::SeqCst) {
            if random.one_in(FILES) {
                // SAFETY: a string that lives until the call has returned.
                let _answer = unsafe { (self.pause_to)(folder.as_ptr(), DEADLINE) };
            } else {
                // SAFETY: the function takes no pointers.
                let _answer = unsafe { (self.pause)(DEADLINE) };
            }
            wait(&mut random, 1000);
            // SAFETY: as above. With files it fails where a call of the driver does.
            while unsafe { (self.resume)() } == OPERATING_SYSTEM {}
            wait(&mut random, 4000);
        }
    }
}

/// The process can be paused.
pub(crate) fn furnish(command: &mut Command) {
    command.arg("--pauses").env("WMSHIM_PAUSE", "on");
}
