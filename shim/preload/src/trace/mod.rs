//! `WMSHIM_TRACE=FILE`: writes down what the program asks of device memory, for `wmctl replay`.
//!
//! One recording a device. `%p` in the file's name is the process, `%d` the device; without `%d` the first device that
//! allocates is recorded, and a line says so when another one does.
//!
//! * [`log`](mod@log) puts events into words, under a lock that is held for nothing else.
//! * [`file`] compresses finished chunks and appends them. Each chunk is a gzip member of its own, so a process that is
//!   killed leaves a file that is whole up to its last chunk.
//!
//! Order: a free is written before the manager takes the block back, an allocation after the manager gave it, a launch
//! (`WMSHIM_TRACE_LAUNCHES`) before the driver gets it. So the
//! written order is one in which the events could have happened, whatever threads do. A forked child writes nothing: its
//! calls never reach a hook. After exit began nothing is added.

mod file;
mod log;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use wm_abi::CUdevice;
use wm_driver::StreamId;
use wm_driver::thread::Uncancelled;
use wm_memory::Order;

use crate::launches::{self, Touched, TouchedBlock};
use crate::process::{self, PROCESS_HOT};
use crate::settings::{self, Settings};
use file::File;
use log::Log;

/// Devices by ordinal; more than any machine has.
const DEVICES: usize = 64;

static RECORDERS: [OnceLock<Result<Recorder, Refusal>>; DEVICES] = [const { OnceLock::new() }; DEVICES];

/// Are launches recorded? Others may have subscribed to them, too.
static LAUNCHES: AtomicBool = AtomicBool::new(false);

/// The only device that is recorded, where the file's name has no room for more.
static ONLY: OnceLock<CUdevice> = OnceLock::new();

/// One device's recording. Locks are taken in the order of the fields; the log's is never held while a file is written.
struct Recorder {
    log: Mutex<Log>,
    file: Mutex<File>,
    /// The file could not be written: nothing is recorded any more.
    broken: AtomicBool,
}

/// Why a device is not recorded, until it has been said.
type Refusal = Mutex<Option<String>>;

/// The settings are known, and no hook has run yet.
pub(crate) fn choose(settings: &Settings) {
    PROCESS_HOT.traced.store(settings.trace.is_some(), Ordering::Relaxed);
    if settings.trace.is_some() && settings.trace_launches {
        launches::subscribe(launches::Subscriber::Blocks);
        LAUNCHES.store(true, Ordering::Relaxed);
    }
}

/// Is anything written down?
#[inline]
pub(crate) fn is_on() -> bool {
    PROCESS_HOT.traced.load(Ordering::Relaxed)
}

/// The manager gave out a block. The first one opens the file.
#[cold]
#[inline(never)]
pub(crate) fn allocated(device: CUdevice, address: u64, bytes: usize, order: Order) {
    let _whole = Uncancelled::new();
    let Some(template) = settings::get().and_then(|settings| settings.trace.as_deref()) else { return };
    let Some(slot) = slot(device) else { return };
    match slot.get_or_init(|| Recorder::open(template, device)) {
        Ok(recorder) => recorder.add(|log| log.allocated(address, bytes, order.stream())),
        Err(refusal) => say(refusal),
    }
}

/// The program gives an address back, which may be none of ours.
#[cold]
#[inline(never)]
pub(crate) fn freed(device: CUdevice, address: u64, order: Order) {
    let _whole = Uncancelled::new();
    if let Some(recorder) = recorder(device) {
        recorder.add(|log| log.freed(address, order.stream()));
    }
}

/// The host has waited for a stream, or (`None`) for the device.
pub(crate) fn waited(device: CUdevice, stream: Option<StreamId>) {
    if let Some(recorder) = recorder(device) {
        recorder.add(|log| log.waited(stream));
    }
}

/// A kernel is about to be launched on a device. Its blocks on other devices are in their recordings.
pub(crate) fn launched(device: CUdevice, stream: StreamId, touched: &Touched) {
    if !LAUNCHES.load(Ordering::Relaxed) {
        return;
    }
    let add = |device, blocks: Option<&[TouchedBlock]>| {
        if let Some(recorder) = recorder(device) {
            recorder.add(|log| log.launched(stream, blocks));
        }
    };
    match touched {
        Touched::Unknown => add(device, None),
        Touched::Blocks(blocks) if blocks.iter().all(|block| block.device == device) => {
            add(device, Some(blocks))
        }
        Touched::Blocks(blocks) => on_each_device(blocks, add),
    }
}

/// Peers' memory: one line in each device's recording.
#[cold]
fn on_each_device(blocks: &[TouchedBlock], add: impl Fn(CUdevice, Option<&[TouchedBlock]>)) {
    let mut blocks = blocks.to_vec();
    blocks.sort_unstable_by_key(|block| (block.device, block.address));
    blocks.chunk_by(|one, other| one.device == other.device).for_each(|of| add(of[0].device, Some(of)));
}

/// Writes what is left. Threads that are recording at this moment get a moment to finish; a thread that exits from
/// inside a hook would otherwise wait for itself.
pub(crate) fn finish() {
    let opened = RECORDERS.iter().filter_map(OnceLock::get);
    opened.filter_map(|recorder| recorder.as_ref().ok()).for_each(Recorder::finish);
}

fn slot(device: CUdevice) -> Option<&'static OnceLock<Result<Recorder, Refusal>>> {
    RECORDERS.get(usize::try_from(device).ok()?)
}

/// The recording of a device that has begun.
fn recorder(device: CUdevice) -> Option<&'static Recorder> {
    slot(device)?.get()?.as_ref().ok()
}

/// One line, once, without a lock held.
fn say(refusal: &Refusal) {
    let sentence = lock(refusal).take();
    if let Some(sentence) = sentence {
        ::log::warn!("WMSHIM_TRACE: {sentence}");
    }
}

impl Recorder {
    fn open(template: &Path, device: CUdevice) -> Result<Self, Refusal> {
        let only = *ONLY.get_or_init(|| device);
        if !file::names_device(template) && only != device {
            let sentence = format!(
                "only device {only} is recorded, and device {device} allocates too; put %d into the name for a file a device"
            );
            return Err(Mutex::new(Some(sentence)));
        }
        let file = File::create(&file::expand(template, std::process::id(), device));
        let file = file.map_err(|sentence| Mutex::new(Some(format!("{sentence}; nothing is recorded"))))?;
        let log = Log::new(LAUNCHES.load(Ordering::Relaxed));
        Ok(Self { log: Mutex::new(log), file: Mutex::new(file), broken: AtomicBool::new(false) })
    }

    fn add(&self, event: impl FnOnce(&mut Log)) {
        if self.broken.load(Ordering::Relaxed) || process::exiting() {
            return;
        }
        let mut log = lock(&self.log);
        event(&mut log);
        if !log.is_full() {
            return;
        }
        let text = log.take();
        // Taken before the log is let go: the next chunk cannot overtake this one.
        let mut file = lock(&self.file);
        drop(log);
        let written = file.append(&text);
        drop(file);
        self.judge(written);
    }

    fn finish(&self) {
        let Some(text) = patient(&self.log).map(|mut log| log.take()) else { return };
        let Some(mut file) = patient(&self.file) else { return };
        let written = file.append(&text);
        drop(file);
        self.judge(written);
    }

    /// One line, at the first failure.
    fn judge(&self, written: std::io::Result<()>) {
        if let Err(error) = written
            && !self.broken.swap(true, Ordering::Relaxed)
        {
            ::log::warn!("WMSHIM_TRACE: writing failed ({error}); the recording ends here");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock, if its holder lets go within a moment.
fn patient<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    const MOMENT: Duration = Duration::from_millis(500);
    let end = Instant::now() + MOMENT;
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) if Instant::now() < end => std::thread::yield_now(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a disk that fills up is asked, and complained about, at every chunk.
    use super::*;

    #[test]
    fn a_failed_write_ends_the_recording() {
        let recorder = Recorder {
            log: Mutex::new(Log::new(false)),
            file: Mutex::new(File::unwritable()),
            broken: AtomicBool::new(false),
        };
        let mut events = 0;
        while !recorder.broken.load(Ordering::Relaxed) {
            events += 1;
            recorder.add(|log| log.allocated(events, 1, None));
            assert!(events < 100_000, "the failure is not noticed");
        }
        recorder.add(|_| panic!("nothing is added to a broken recording"));
    }
}
