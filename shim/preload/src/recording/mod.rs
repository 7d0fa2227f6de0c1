//! A recording: events as text in a chunk under one lock, and the file that takes finished chunks
//! under another.
//!
//! The trace and the profile have one value of this type each, or one a device. They say what an
//! event is and when a chunk goes to the file; the rest is the same for both:
//!
//! * Chunks reach the file in the order in which they were filled, and each is whole there
//!   ([`file`]).
//! * While a chunk is compressed and written, events go on into the next one.
//! * The first failed write ends the recording, and is logged once.
//! * A forked child adds nothing, for its copy of the file is its parent's. After exit began
//!   nothing is added.
//! * The exit waits half a second for a thread that is recording, and allocates nothing: it may
//!   have begun in a handler that has interrupted the allocator.

mod file;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use wm_driver::thread::Uncancelled;
use wm_driver::{lock, lock_soon};

use crate::process;
pub(crate) use file::{RecordingError, RecordingFile};

/// Events that are put into words.
pub(crate) trait EventText {
    /// The words since the last chunk ended.
    fn text(&self) -> &[u8];

    /// Ends the chunk, and allocates nothing.
    fn clear(&mut self);

    /// The chunk's words. The next chunk begins.
    fn take(&mut self) -> Vec<u8>;
}

/// A recording. Locks are taken in the order of the fields; the chunk's is never held while a
/// finished chunk is compressed or written, except at the exit.
pub(crate) struct Recording<T> {
    /// The setting that asked for it, for the log.
    setting: &'static str,
    began: Instant,
    chunk: Mutex<T>,
    file: Mutex<RecordingFile>,
    /// The file could not be written.
    broken: AtomicBool,
}

impl<T: EventText> Recording<T> {
    /// A recording that begins now.
    pub(crate) fn new(setting: &'static str, chunk: T, file: RecordingFile) -> Self {
        Self {
            setting,
            began: Instant::now(),
            chunk: Mutex::new(chunk),
            file: Mutex::new(file),
            broken: AtomicBool::new(false),
        }
    }

    /// The time since the recording began.
    #[inline]
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Has a write failed? Then nothing more is written.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }

    /// The chunk, for an event or a question. `None` in a process that exits or was forked.
    #[inline]
    pub(crate) fn chunk(&self) -> Option<MutexGuard<'_, T>> {
        (!process::exiting() && !process::forked()).then(|| lock(&self.chunk))
    }

    /// Appends the chunk to the file.
    #[cold]
    pub(crate) fn append(&self, mut chunk: MutexGuard<'_, T>) {
        let _whole = Uncancelled::new();
        let text = chunk.take();
        // Taken before the chunk is let go: the next one cannot overtake this one.
        let mut file = lock(&self.file);
        drop(chunk);
        let written = file.append(&text);
        drop(file);
        self.note_failure(written);
    }

    /// Appends the last chunk, after `last` has added to it, which must not allocate.
    pub(crate) fn finish(&self, last: impl FnOnce(&mut T)) {
        if self.is_broken() {
            return;
        }
        let Some(mut chunk) = lock_soon(&self.chunk) else { return };
        last(&mut chunk);
        let Some(mut file) = lock_soon(&self.file) else { return };
        let written = file.append_plain(chunk.text());
        chunk.clear();
        drop((chunk, file));
        self.note_failure(written);
    }

    /// Ends the recording at the first failed write, and logs it.
    fn note_failure(&self, written: std::io::Result<()>) {
        if let Err(error) = written
            && !self.broken.swap(true, Relaxed)
        {
            log::warn!("{}: writing failed ({error}); the recording ends here", self.setting);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (error handling): a write that fails is tried, and logged, at each chunk. Hazard
    //! (deadlock): an exit that waits for a thread which the exit has stopped. Hazard (wrong
    //! report): a chunk that overtakes another, or is written twice.
    use std::io::Read;
    use std::path::PathBuf;

    use super::*;

    impl EventText for Vec<u8> {
        fn text(&self) -> &[u8] {
            self
        }

        fn clear(&mut self) {
            Vec::clear(self);
        }

        fn take(&mut self) -> Vec<u8> {
            std::mem::take(self)
        }
    }

    fn recording(name: &str) -> (Recording<Vec<u8>>, PathBuf) {
        let name = format!("wmshim-recording-test-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = RecordingFile::create(&path, b"0 ").expect("a file");
        (Recording::new("WMSHIM_TEST", Vec::new(), file), path)
    }

    fn unwritable() -> Recording<Vec<u8>> {
        Recording::new("WMSHIM_TEST", b"lost".to_vec(), RecordingFile::unwritable())
    }

    fn text(path: &PathBuf) -> String {
        let mut text = String::new();
        let file = std::fs::File::open(path).expect("a recording");
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).expect("whole members");
        std::fs::remove_file(path).expect("there");
        text
    }

    fn event<'a>(recording: &'a Recording<Vec<u8>>, next: &mut u32) -> MutexGuard<'a, Vec<u8>> {
        let mut chunk = recording.chunk().expect("no exit");
        chunk.extend_from_slice(format!("{next} ").as_bytes());
        *next += 1;
        chunk
    }

    #[test]
    fn chunks_of_many_threads_are_in_the_order_of_their_events() {
        let (recording, path) = recording("order");
        let next = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let mut next = lock(&next);
                        let chunk = event(&recording, &mut next);
                        drop(next);
                        recording.append(chunk);
                    }
                });
            }
        });
        drop(event(&recording, &mut lock(&next)));
        recording.finish(|chunk| chunk.extend_from_slice(b"end"));
        recording.finish(|_| {});
        let all: String = (0..=800).map(|number| format!("{number} ")).collect();
        assert_eq!(text(&path), all + "end");
    }

    #[test]
    fn the_first_failed_write_ends_the_recording() {
        let recording = unwritable();
        recording.append(recording.chunk().expect("no exit"));
        assert!(recording.is_broken());
        recording.finish(|_| panic!("nothing is added to a broken recording"));
        let recording = unwritable();
        recording.finish(|_| {});
        assert!(recording.is_broken(), "the exit's write fails as well");
    }

    #[test]
    fn the_exit_does_not_wait_for_a_thread_inside_a_recording() {
        let recording = unwritable();
        let held = recording.chunk().expect("no exit");
        recording.finish(|_| panic!("the chunk is another thread's"));
        drop(held);
        let held = lock(&recording.file);
        recording.finish(|_| {});
        drop(held);
        assert!(!recording.is_broken(), "nothing was written");
        assert_eq!(recording.chunk().expect("no exit").text(), b"lost", "and the chunk is left");
    }
}
