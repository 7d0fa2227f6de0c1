//! `WMSHIM_TRACE=FILE`: records the program's allocations, frees, host waits and launches, and the
//! memory that it makes itself, for `wmctl replay`.
//!
//! One recording a device. `%p` in the file's name is the process, `%d` the device; without `%d`
//! the first device that allocates is recorded, and a line says so when another one does.
//!
//! [`log`](mod@log) puts events into words, and a [`Recording`] appends finished chunks of them to
//! the file. Each chunk is a gzip member of its own, so a process that is killed leaves a file that
//! is whole up to its last chunk.
//!
//! Order: a free is written before the manager takes the block back, an allocation after the
//! manager gave it, a launch (`WMSHIM_TRACE_LAUNCHES`) before the driver gets it, a piece after the
//! driver made it, and its release and unmapping before the driver gets them. So the written order
//! is one in which the events could have happened, however threads interleave.

mod line;
mod log;
mod name;
mod places;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use wm_abi::CUdevice;
use wm_driver::thread::Uncancelled;
use wm_driver::{StreamId, lock};
use wm_memory::Order;

use crate::events::{PieceEvent, PieceStep};
use crate::launches::{self, Launch, Submission, Subscriber, TouchedBlock};
use crate::recording::{Recording, RecordingError, RecordingFile};
use crate::settings::Settings;
use crate::{black_box, process};
use log::Log;

/// The beginning of every trace, once it is unpacked.
const BEGINNING: &[u8] = b"# wmshim-trace ";

/// Devices by ordinal; more than any machine has.
const DEVICES: usize = 64;

/// The recordings of a process.
pub(crate) struct Recordings {
    /// The file's name, before `%p` and `%d` are replaced.
    template: OnceLock<PathBuf>,
    /// Are launches recorded? Other subsystems may have subscribed to launches, too.
    has_launches: AtomicBool,
    /// The only device that is recorded, if the file's name has no `%d`.
    only: OnceLock<CUdevice>,
    by_device: [OnceLock<Result<Recorder, Refusal>>; DEVICES],
    /// Marks from before the first recording, which it begins with. Before the first CUDA call it
    /// is not known whether there will be one.
    early_marks: Mutex<Vec<String>>,
}

/// Marks that are kept until a recording begins.
const EARLY_MARKS: usize = 64;

/// One device's recording.
struct Recorder {
    device: CUdevice,
    recording: Recording<Log>,
}

/// Why a device is not recorded. Logged at the device's first allocation.
struct Refusal {
    why: NotRecorded,
    was_logged: AtomicBool,
}

#[derive(Debug, thiserror::Error)]
enum NotRecorded {
    #[error("{0}; nothing is recorded")]
    File(#[from] RecordingError),
    #[error(
        "only device {only} is recorded, and device {device} allocates too; put %d into the name for a file a device"
    )]
    OtherDevice { only: CUdevice, device: CUdevice },
}

impl Recordings {
    pub(crate) const fn new() -> Self {
        Self {
            template: OnceLock::new(),
            has_launches: AtomicBool::new(false),
            only: OnceLock::new(),
            by_device: [const { OnceLock::new() }; DEVICES],
            early_marks: Mutex::new(Vec::new()),
        }
    }

    /// The settings are known, and no hook has run yet.
    pub(crate) fn choose(&self, settings: &Settings) {
        let Some(template) = &settings.trace else { return };
        self.set(template, settings.trace_launches);
        if settings.trace_launches {
            launches::subscribe(Subscriber::Trace);
        }
    }

    fn set(&self, template: &Path, has_launches: bool) {
        self.template.get_or_init(|| template.to_owned());
        self.has_launches.store(has_launches, Ordering::Relaxed);
    }

    /// The manager gave out a block. The first one opens the file, unless a piece has.
    pub(crate) fn allocated(&self, device: CUdevice, address: u64, bytes: usize, order: Order) {
        self.begin_with(device, |log| log.allocated(address, bytes, order.stream()));
    }

    /// The program made memory itself, or something became of such memory.
    pub(crate) fn piece(&self, event: &PieceEvent) {
        let add = |log: &mut Log| log.piece(event.number, event.step);
        if matches!(event.step, PieceStep::Made { .. }) {
            return self.begin_with(event.device, add);
        }
        let _whole = Uncancelled::new();
        if let Some(recorder) = self.recorder(event.device) {
            recorder.add(add);
        }
    }

    /// Adds an event to the recording of a device, which may be its first.
    fn begin_with(&self, device: CUdevice, event: impl FnOnce(&mut Log)) {
        let _whole = Uncancelled::new();
        let Some(slot) = self.slot(device) else { return };
        match slot.get_or_init(|| self.open(device)) {
            Ok(recorder) => recorder.add(event),
            Err(refusal) => refusal.log_once(),
        }
    }

    /// The program gives an address back, which may be none of ours.
    pub(crate) fn freed(&self, device: CUdevice, address: u64, order: Order) {
        let _whole = Uncancelled::new();
        if let Some(recorder) = self.recorder(device) {
            recorder.add(|log| log.freed(address, order.stream()));
        }
    }

    /// The host has waited for a stream, or (`None`) for the device.
    pub(crate) fn waited(&self, device: CUdevice, stream: Option<StreamId>) {
        if let Some(recorder) = self.recorder(device) {
            recorder.add(|log| log.waited(stream));
        }
    }

    /// A request was refused, because all tiers of the device are full.
    pub(crate) fn refused(&self, device: CUdevice, bytes: u64) {
        let _whole = Uncancelled::new();
        if let Some(recorder) = self.recorder(device) {
            recorder.add_now(|log| log.refused(bytes));
        }
    }

    /// The program's own line, into each recording that has begun.
    pub(crate) fn mark(&self, text: &str) {
        let _whole = Uncancelled::new();
        let mut early = lock(&self.early_marks);
        if self.begun().next().is_none() && early.len() < EARLY_MARKS {
            return early.push(text.to_owned());
        }
        drop(early);
        self.begun().for_each(|recorder| recorder.add_now(|log| log.marked(text)));
    }

    /// A kernel or a graph is about to be launched. Blocks on other devices are written into the
    /// recordings of those. A captured launch makes a node and uses no memory, so it is left out.
    pub(crate) fn launched(&self, launch: &mut Launch) {
        if launch.submission() != Submission::Now || process::exiting() {
            return;
        }
        if let Some((device, stream)) = launch.device_and_stream() {
            self.add_launch(device, stream, launch.blocks());
        }
    }

    /// `blocks`: lowest address first; `None` if they are unknown.
    fn add_launch(&self, device: CUdevice, stream: StreamId, blocks: Option<&[TouchedBlock]>) {
        if !self.has_launches.load(Ordering::Relaxed) {
            return;
        }
        let add = |device, blocks: Option<&[TouchedBlock]>| {
            if let Some(recorder) = self.recorder(device) {
                recorder.add(|log| log.launched(stream, blocks));
            }
        };
        match blocks {
            Some(blocks) if !blocks.iter().all(|block| block.device == device) => {
                on_each_device(blocks, add);
            }
            blocks => add(device, blocks),
        }
    }

    /// Writes the unfinished chunks. A thread that is recording at this moment has half a
    /// second to finish; a thread that exits from inside a hook would otherwise wait for itself.
    pub(crate) fn finish(&self) {
        self.begun().for_each(Recorder::finish);
    }

    fn begun(&self) -> impl Iterator<Item = &Recorder> {
        self.by_device.iter().filter_map(OnceLock::get).filter_map(|recorder| recorder.as_ref().ok())
    }

    fn slot(&self, device: CUdevice) -> Option<&OnceLock<Result<Recorder, Refusal>>> {
        self.by_device.get(usize::try_from(device).ok()?)
    }

    /// The recording of a device that has begun.
    fn recorder(&self, device: CUdevice) -> Option<&Recorder> {
        self.slot(device)?.get()?.as_ref().ok()
    }

    fn open(&self, device: CUdevice) -> Result<Recorder, Refusal> {
        self.create(device).map_err(|why| Refusal { why, was_logged: AtomicBool::new(false) })
    }

    fn create(&self, device: CUdevice) -> Result<Recorder, NotRecorded> {
        let template = self.template.get().map_or(Path::new(""), PathBuf::as_path);
        let only = *self.only.get_or_init(|| device);
        if !name::names_device(template) && only != device {
            return Err(NotRecorded::OtherDevice { only, device });
        }
        let path = name::expand(template, std::process::id(), device);
        let file = RecordingFile::create(&path, BEGINNING)?;
        let recorder = Recorder::new(device, file);
        let early = std::mem::take(&mut *lock(&self.early_marks));
        early.iter().for_each(|text| recorder.add(|log| log.marked(text)));
        Ok(recorder)
    }
}

/// One line in the recording of each device that the blocks are on.
#[cold]
fn on_each_device(blocks: &[TouchedBlock], add: impl Fn(CUdevice, Option<&[TouchedBlock]>)) {
    let mut blocks = blocks.to_vec();
    blocks.sort_unstable_by_key(|block| (block.device, block.address));
    blocks.chunk_by(|one, other| one.device == other.device).for_each(|of| add(of[0].device, Some(of)));
}

impl Refusal {
    fn log_once(&self) {
        if !self.was_logged.swap(true, Ordering::Relaxed) {
            ::log::warn!("WMSHIM_TRACE: {}", self.why);
        }
    }
}

impl Recorder {
    fn new(device: CUdevice, file: RecordingFile) -> Self {
        Self { device, recording: Recording::new("WMSHIM_TRACE", Log::new(), file) }
    }

    fn tell_time(&self, log: &mut Log, is_exact: bool) {
        let now = self.recording.elapsed().as_micros() as u64;
        log.time(now, is_exact, || black_box::live(self.device));
    }

    /// Adds what has a line of the time of its own.
    fn add_now(&self, event: impl FnOnce(&mut Log)) {
        self.add_timed(true, event);
    }

    fn add(&self, event: impl FnOnce(&mut Log)) {
        self.add_timed(false, event);
    }

    fn add_timed(&self, is_exact: bool, event: impl FnOnce(&mut Log)) {
        if self.recording.is_broken() {
            return;
        }
        let Some(mut log) = self.recording.chunk() else { return };
        self.tell_time(&mut log, is_exact);
        event(&mut log);
        if log.is_full() {
            self.recording.append(log);
        }
    }

    fn finish(&self) {
        self.recording.finish(|log| {
            if log.has_room_for_time() {
                self.tell_time(log, true);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (error handling): a write that fails is tried, and logged, at every chunk. Hazard
    //! (wrong report): events of one device are in another's recording.
    use std::io::Read;

    use super::*;

    #[test]
    fn a_failed_write_ends_the_recording() {
        let recorder = Recorder::new(0, RecordingFile::unwritable());
        let mut events = 0;
        while !recorder.recording.is_broken() {
            events += 1;
            recorder.add(|log| log.allocated(events, 1, None));
            assert!(events < 100_000, "the failure is not noticed");
        }
        recorder.add(|_| panic!("nothing is added to a broken recording"));
    }

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("wmshim-recordings-test-{}-{name}", std::process::id()))
    }

    fn text(path: &Path) -> String {
        let mut text = String::new();
        let file = std::fs::File::open(path).expect("a recording");
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).expect("whole members");
        std::fs::remove_file(path).expect("there");
        text
    }

    /// The lines that a replay plays.
    fn events(text: &str) -> Vec<&str> {
        text.lines().skip(1).filter(|line| !line.starts_with("t ")).collect()
    }

    fn why_not(recordings: &Recordings, device: CUdevice) -> Option<&NotRecorded> {
        let refusal = recordings.slot(device)?.get()?.as_ref().err()?;
        assert!(refusal.was_logged.load(Ordering::Relaxed));
        Some(&refusal.why)
    }

    #[test]
    fn each_device_has_a_recording_of_its_own() {
        let (recordings, template) = (Recordings::new(), place("%d"));
        recordings.set(&template, false);
        recordings.freed(0, 0x1000, Order::Device);
        for device in [0, 3] {
            recordings.allocated(device, 0x1000, 64, Order::Stream(StreamId(device as u64)));
            recordings.waited(device, None);
            recordings.freed(device, 0x1000, Order::Device);
        }
        recordings.add_launch(0, StreamId(0), None);
        recordings.finish();
        for device in [0, 3] {
            let text = text(&name::expand(&template, 0, device));
            assert_eq!(events(&text), ["a 0 64 0 4096", "s *", "f 0 -"], "and no launch");
        }
    }

    #[test]
    fn a_piece_begins_a_recording_as_a_block_does() {
        let (recordings, template) = (Recordings::new(), place("pieces-%d"));
        recordings.set(&template, false);
        let steps = [PieceStep::Held, PieceStep::Made { bytes: 64 }, PieceStep::Mapped];
        for (device, step) in [0, 1].into_iter().flat_map(|device| steps.map(|step| (device, step))) {
            recordings.piece(&PieceEvent { device, number: 7, step });
        }
        recordings.finish();
        for device in [0, 1] {
            let text = text(&name::expand(&template, 0, device));
            assert_eq!(events(&text), ["c 7 64", "m 7"]);
        }
    }

    #[test]
    fn marks_and_refusals_have_their_own_time() {
        let (recordings, template) = (Recordings::new(), place("marks"));
        recordings.set(&template, false);
        recordings.mark("before the recording");
        recordings.allocated(0, 0x1000, 64, Order::Device);
        recordings.mark("step 1");
        recordings.refused(0, 1 << 40);
        recordings.refused(1, 1);
        recordings.finish();
        let text = text(&template);
        let kinds: Vec<_> = text.lines().skip(1).map(|line| &line[..1]).collect();
        assert_eq!(kinds, ["t", "k", "a", "t", "k", "t", "o", "t"], "{text}");
        assert_eq!(events(&text), ["k before the recording", "a 0 64 - 4096", "k step 1", "o 1099511627776"]);
    }

    #[test]
    fn without_a_place_for_the_device_the_first_one_is_recorded() {
        let (recordings, template) = (Recordings::new(), place("only"));
        recordings.set(&template, true);
        recordings.allocated(2, 0x1000, 64, Order::Device);
        recordings.allocated(0, 0x1000, 64, Order::Device);
        let blocks = [0, 2].map(|device| TouchedBlock { address: 0x1000, bytes: 64, id: 1, device });
        recordings.add_launch(0, StreamId(9), Some(&blocks));
        recordings.finish();
        assert!(matches!(why_not(&recordings, 0), Some(NotRecorded::OtherDevice { only: 2, device: 0 })));
        let text = text(&template);
        assert_eq!(events(&text), ["a 0 64 - 4096", "l 0 0"]);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_refused_once() {
        let recordings = Recordings::new();
        recordings.set(Path::new("/no/such/folder/x"), false);
        recordings.allocated(0, 0x1000, 64, Order::Device);
        recordings.allocated(0, 0x2000, 64, Order::Device);
        assert!(matches!(why_not(&recordings, 0), Some(NotRecorded::File(_))));
        recordings.finish();
    }
}
