//! `WMSHIM_PROFILE`: which code holds the memory.
//!
//! Blocks and pieces are sampled by their bytes ([`sampler`]). A sampled allocation is recorded
//! with its callers, Python functions ([`python`]) and native code ([`native`]), in a file that
//! `wmctl profile` reads ([`ledger`] has its lines), and stays known until it is freed: at an
//! out-of-memory the sites that hold the most are named.
//!
//! Invariants: an allocation that is not sampled costs a subtraction, a free a look-up; no lock is
//! held while a stack is read or a file is written, except the file's; no lock of the loader's that
//! a constructor may hold is taken after the first call; a process without the setting is not even
//! subscribed. `docs/adr/0042-profile.md` says why stacks are read as they are.

mod ledger;
mod native;
mod python;
mod sampler;

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{MutexGuard, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use ledger::{CallStack, NewSample, SampleKey, SampleLedger};
use native::{NativeWalker, WalkBounds, has_stack};
use python::Interpreter;
use sampler::Sampler;
use wm_abi::CUdevice;
use wm_driver::thread::Uncancelled;
use wm_schema::Holder;
use wm_schema::profile::{ProfileHeader, ProfileLine};

use crate::events::{PieceEvent, PieceStep};
use crate::process;
use crate::recording::{EventText, Recording, RecordingFile};
use crate::settings::{Settings, with_process};

/// Frames of a stack that are kept, of each kind: the innermost ones.
const DEPTH: usize = 64;

/// A chunk is written this long after the one before, when something is recorded.
const PAUSE_MS: u64 = 1000;

/// The profile of a process.
pub(crate) struct Profiler {
    choice: OnceLock<ProfileChoice>,
    walker: NativeWalker,
    /// `None`: the file cannot be written, which was said.
    recorder: OnceLock<Option<ProfileRecorder>>,
}

/// What the user asked for.
struct ProfileChoice {
    path: PathBuf,
    interval: u64,
    interpreter: Option<Interpreter>,
}

/// The recording. Where its file cannot be written, samples are known to this process alone.
struct ProfileRecorder {
    recording: Recording<SampleLedger>,
    written_ms: AtomicU64,
}

thread_local! {
    static SAMPLER: Cell<Option<Sampler>> = const { Cell::new(None) };
    /// A piece that this thread has just made, and that is sampled. Its callers are read when the
    /// books of pieces are open to others again.
    static MADE: Cell<Option<NewSample>> = const { Cell::new(None) };
}

impl Profiler {
    pub(crate) const fn new() -> Self {
        Self { choice: OnceLock::new(), walker: NativeWalker::new(), recorder: OnceLock::new() }
    }

    /// The settings are known, and no hook has run yet.
    pub(crate) fn choose(&self, settings: &Settings) {
        let Some(target) = &settings.profile else { return };
        let choice = ProfileChoice {
            path: target.path.clone(),
            interval: target.interval,
            interpreter: Interpreter::find(),
        };
        let _first = self.choice.set(choice);
    }

    /// The program is given a block.
    pub(crate) fn allocated(&self, device: CUdevice, address: u64, bytes: usize) {
        if let Some(sample) = self.sample(SampleKey::Block(address), device, bytes as u64) {
            self.record(sample);
        }
    }

    /// The program gives an address back, which may be none of a sample.
    pub(crate) fn freed(&self, address: u64) {
        let key = SampleKey::Block(address);
        let _whole = Uncancelled::new();
        // Most frees are of no sample: they pay for a look-up, and not for the time of day.
        if let Some(Some(recorder)) = self.recorder.get()
            && recorder.recording.chunk().is_some_and(|ledger| ledger.knows(key))
        {
            recorder.add(|ledger, ms| ledger.freed(ms, key));
        }
    }

    /// The program made memory itself, or something became of such memory. The books of pieces are
    /// locked.
    pub(crate) fn piece(&self, event: &PieceEvent) {
        match event.step {
            PieceStep::Made { bytes } => {
                MADE.set(self.sample(SampleKey::Piece(event.number), event.device, bytes));
            }
            step => self.note(|ledger, ms| ledger.piece(ms, event.number, step)),
        }
    }

    /// This thread may have made a piece, which the program does not know yet. The books are not
    /// locked.
    pub(crate) fn settle(&self) {
        if self.choice.get().is_some()
            && let Some(sample) = MADE.take()
        {
            self.record(sample);
        }
    }

    /// All memory of a device is gone.
    pub(crate) fn device_ended(&self, device: CUdevice) {
        self.change(|ledger, ms| ledger.device_ended(ms, device));
    }

    /// The program was refused memory.
    pub(crate) fn refused(&self, device: CUdevice, asked: u64) {
        self.change(|ledger, ms| ledger.refused(ms, device, asked));
    }

    /// The program says where it is.
    pub(crate) fn mark(&self, text: &str) {
        let _whole = Uncancelled::new();
        // A child's copy of the file is its parent's.
        if process::forked() || process::exiting() {
            return;
        }
        if let Some(recorder) = self.recorder() {
            recorder.add(|ledger, ms| ledger.mark(ms, text));
        }
    }

    /// The sites that hold the most, at most so many, and the bytes of all others. `None` without a
    /// profile.
    pub(crate) fn holders(&self, most: usize) -> Option<(Vec<Holder>, u64)> {
        let recorder = self.recorder.get()?.as_ref()?;
        Some(recorder.recording.chunk()?.holders(most))
    }

    /// Writes the unfinished chunk. A thread that is recording at this moment has a moment to
    /// finish; a thread that exits from inside a hook would otherwise wait for itself.
    pub(crate) fn finish(&self) {
        self.recorder.get().into_iter().flatten().for_each(|recorder| recorder.recording.finish(|_| {}));
    }

    fn sample(&self, key: SampleKey, device: CUdevice, bytes: u64) -> Option<NewSample> {
        let interval = self.choice.get()?.interval;
        let mut sampler = SAMPLER.take().unwrap_or_else(|| Sampler::new(fastrand::Rng::new(), interval));
        let weight = sampler.sample(bytes, interval);
        SAMPLER.set(Some(sampler));
        weight.map(|weight| NewSample { key, device, bytes, weight })
    }

    fn record(&self, sample: NewSample) {
        let _whole = Uncancelled::new();
        if process::exiting() {
            return;
        }
        let Some(recorder) = self.recorder() else { return };
        let stack = self.stack();
        recorder.add(|ledger, ms| ledger.allocated(ms, sample, &stack));
    }

    /// Changes what is recorded already.
    fn change(&self, change: impl FnOnce(&mut SampleLedger, u64)) {
        let _whole = Uncancelled::new();
        if let Some(Some(recorder)) = self.recorder.get() {
            recorder.add(change);
        }
    }

    /// The same, where a lock is held: a later event writes it.
    fn note(&self, change: impl FnOnce(&mut SampleLedger, u64)) {
        let _whole = Uncancelled::new();
        if let Some(Some(recorder)) = self.recorder.get() {
            recorder.note(change);
        }
    }

    /// The callers of the hook that runs. Where the native walk meets the interpreter, its
    /// functions go on.
    fn stack(&self) -> CallStack {
        let interpreter = self.choice.get().and_then(|choice| choice.interpreter.as_ref());
        let (python, is_cut) = interpreter.map(|found| found.stack(DEPTH)).unwrap_or_default();
        let until = interpreter.filter(|_| !python.is_empty()).map(|found| found.code);
        CallStack { native: self.walker.walk(WalkBounds { most: DEPTH, until }), python, is_cut }
    }

    /// The recording, which its first sample or mark begins.
    fn recorder(&self) -> Option<&ProfileRecorder> {
        let choice = self.choice.get()?;
        let recorder = self.recorder.get_or_init(|| {
            let path = with_process(&choice.path, std::process::id());
            let file = RecordingFile::create(&path, ProfileHeader::BEGINNING.as_bytes());
            let file = file.inspect_err(|error| log::warn!("WMSHIM_PROFILE: {error}; nothing is recorded"));
            Some(ProfileRecorder::new(choice, file.ok()?))
        });
        recorder.as_ref()
    }
}

fn header(choice: &ProfileChoice) -> ProfileLine {
    let program = std::env::current_exe().unwrap_or_default();
    ProfileLine::Profile(ProfileHeader {
        schema: ProfileHeader::SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        program: program.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        interval_bytes: choice.interval,
        began_unix_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64),
        python: choice.interpreter.as_ref().map(|found| found.version.clone()),
    })
}

impl ProfileRecorder {
    fn new(choice: &ProfileChoice, file: RecordingFile) -> Self {
        let mut ledger = SampleLedger::new();
        ledger.line(&header(choice));
        Self { recording: Recording::new("WMSHIM_PROFILE", ledger, file), written_ms: AtomicU64::new(0) }
    }

    /// Adds an event, and writes no file.
    fn note(
        &self,
        event: impl FnOnce(&mut SampleLedger, u64),
    ) -> Option<(MutexGuard<'_, SampleLedger>, u64)> {
        let mut ledger = self.recording.chunk()?;
        let ms = self.recording.elapsed().as_millis() as u64;
        event(&mut ledger, ms);
        Some((ledger, ms))
    }

    /// Adds an event. Compression takes more stack than some threads have: then another thread's
    /// event writes the chunk, or the exit.
    fn add(&self, event: impl FnOnce(&mut SampleLedger, u64)) {
        let Some((mut ledger, ms)) = self.note(event) else { return };
        if self.recording.is_broken() {
            ledger.clear();
        } else if (ledger.is_full() || ms >= self.written_ms.load(Relaxed) + PAUSE_MS) && has_stack() {
            self.written_ms.store(ms, Relaxed);
            self.recording.append(ledger);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (error handling): a file that cannot be written. Hazard (wrong report): an allocation
    //! that is not recorded, or without its callers.
    use std::io::Read;

    use super::*;

    fn profile(name: &str, interval: u64) -> (Profiler, PathBuf) {
        let path = std::env::temp_dir().join(format!("wmshim-profile-test-{}-{name}", std::process::id()));
        let profile = Profiler::new();
        let _first = profile.choice.set(ProfileChoice { path: path.clone(), interval, interpreter: None });
        (profile, path)
    }

    fn lines(path: &PathBuf) -> Vec<ProfileLine> {
        let mut text = String::new();
        let file = std::fs::File::open(path).expect("a recording");
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).expect("whole members");
        std::fs::remove_file(path).expect("there");
        text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect()
    }

    #[test]
    fn blocks_and_pieces_are_recorded_with_their_callers() {
        let (profile, path) = profile("both", 1);
        profile.freed(0x10);
        profile.allocated(0, 0x10, 64);
        let step = PieceStep::Made { bytes: 128 };
        profile.piece(&PieceEvent { device: 1, number: 7, step });
        profile.settle();
        profile.settle();
        profile.freed(0x10);
        profile.refused(1, 1 << 30);
        profile.mark("step 12");
        let (holders, others) = profile.holders(9).expect("a profile");
        profile.finish();
        assert_eq!((holders.len(), holders[0].bytes, others), (1, 128, 0));
        assert!(!holders[0].frames.is_empty(), "{holders:?}");
        let lines = lines(&path);
        let ProfileLine::Profile(header) = &lines[0] else { panic!("{lines:?}") };
        assert_eq!((header.pid, header.interval_bytes), (std::process::id(), 1));
        let count = |is_it: fn(&ProfileLine) -> bool| lines.iter().filter(|line| is_it(line)).count();
        assert_eq!(count(|line| matches!(line, ProfileLine::Allocated(_))), 2);
        assert_eq!(count(|line| matches!(line, ProfileLine::Freed(_))), 1);
        assert_eq!(count(|line| matches!(line, ProfileLine::OutOfMemory(_) | ProfileLine::Mark(_))), 2);
    }

    #[test]
    fn without_the_setting_nothing_is_sampled() {
        let profile = Profiler::new();
        profile.allocated(0, 0x10, 1 << 40);
        profile.piece(&PieceEvent { device: 0, number: 1, step: PieceStep::Made { bytes: 1 << 40 } });
        profile.settle();
        profile.finish();
        assert!(profile.holders(1).is_none() && profile.recorder.get().is_none());
    }

    #[test]
    fn a_file_that_cannot_be_made_is_no_recording() {
        let profile = Profiler::new();
        let choice = ProfileChoice { path: "/no/such/folder/x".into(), interval: 1, interpreter: None };
        let _first = profile.choice.set(choice);
        profile.allocated(0, 0x10, 64);
        profile.freed(0x10);
        profile.finish();
        assert!(profile.holders(1).is_none());
    }

    #[test]
    fn a_failed_write_ends_the_recording_and_the_holders_stay_known() {
        let (profile, path) = profile("full", 1);
        let choice = profile.choice.get().expect("set");
        let _first = profile.recorder.set(Some(ProfileRecorder::new(choice, RecordingFile::unwritable())));
        let recorder = profile.recorder().expect("one");
        let mut address = 0;
        while !recorder.recording.is_broken() {
            address += 1;
            profile.allocated(0, address, 64);
            assert!(address < 100_000, "the failure is not noticed");
        }
        profile.allocated(0, address + 1, 64);
        assert!(recorder.recording.chunk().expect("no exit").text().is_empty() && !path.exists());
        let (holders, others) = profile.holders(1).expect("a profile");
        assert_eq!(holders[0].bytes + others, 64 * (address + 1));
    }
}
