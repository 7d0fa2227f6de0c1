//! The black box of the process: figures in a mapped file, which outlive the process.
//!
//! Everything that counts writes to [`current`]: to memory of the library at first, to the file
//! from the first successful `cuInit` on, and to memory again in a forked child. So a store needs
//! no question whether there is a file, and a process without a file (no room, statistics off) runs
//! as one with a file. The layout is [`wm_schema::black_box`].
//!
//! Invariants: the library decides nothing by what it reads here; no thread, no driver call, no
//! lock; a child never writes its parent's file.

mod file;

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use wm_abi::CUdevice;
use wm_schema::BytesByTier;
use wm_schema::black_box::{BlackBox, CopyWords, DeviceBox, LimitWords, ProcessWords, RefusalWords};
use wm_sockets::file::Published;
use wm_sockets::private_folder;
use wm_trust::environment;
use wm_trust::incarnation::Incarnation;

use crate::process::preserve_errno;

/// Where figures go while there is no file.
static SPARE: BlackBox = BlackBox::new();

/// The box of this process. It is a static of this layer, which counters import.
static RECORDER: BoxRecorder = BoxRecorder {
    current: AtomicPtr::new((&raw const SPARE).cast_mut()),
    file: Published::none(),
    made: OnceLock::new(),
    is_sampling: AtomicBool::new(false),
    devices: AtomicUsize::new(0),
};

/// The variable by which `wmctl run --stats` finds the boxes of its processes.
const RUN: &str = "WMSHIM_STATS_RUN";

struct BoxRecorder {
    current: AtomicPtr<BlackBox>,
    file: Published,
    made: OnceLock<Instant>,
    /// A thread writes a sample.
    is_sampling: AtomicBool,
    /// No device from here on has a place in use.
    devices: AtomicUsize,
}

/// The facts of a process that do not change.
pub(crate) struct ProcessFacts<'a> {
    pub(crate) program: &'a str,
    pub(crate) driver: &'a str,
    pub(crate) cuda_version: u64,
    pub(crate) allocator: &'a str,
    /// As in [`ProcessWords`].
    pub(crate) dedup_mode: u64,
}

/// Where figures go now.
#[inline]
pub(crate) fn current() -> &'static BlackBox {
    // SAFETY: the static, or a mapping that is never unmapped.
    unsafe { &*RECORDER.current.load(Acquire) }
}

/// Makes the file, once. `folder`: the one that the user named.
pub(crate) fn open(folder: Option<&Path>, facts: &ProcessFacts<'_>) {
    if RECORDER.made.set(Instant::now()).is_err() {
        return;
    }
    preserve_errno(|| {
        if let Err(problem) = make(folder, facts) {
            log::info!("no black box: {problem}");
        }
    });
}

fn make(folder: Option<&Path>, facts: &ProcessFacts<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let folder = private_folder::in_memory(folder)?;
    let own = Incarnation::of("self").ok_or("the kernel does not tell when this process started")?;
    let namespace = file::namespace()?;
    let (made, file) = file::make(&folder.join(format!("{}-{namespace}.box", std::process::id())))?;
    let [run_high, run_low] = run();
    made.program.store(facts.program);
    made.library.store(env!("CARGO_PKG_VERSION"));
    made.driver.store(facts.driver);
    made.allocator.store(facts.allocator);
    made.process.store(&ProcessWords {
        version: BlackBox::VERSION,
        bytes: BlackBox::BYTES as u64,
        pid: std::process::id().into(),
        started_ticks: own.started,
        stack: own.stack,
        namespace,
        made_ns: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64),
        run_high,
        run_low,
        cuda_version: facts.cuda_version,
        dedup_mode: facts.dedup_mode,
        ..ProcessWords::default()
    });
    take_over(made);
    made.process.magic.store(BlackBox::MAGIC, Release);
    RECORDER.file.publish(file);
    RECORDER.current.store(std::ptr::from_ref(made).cast_mut(), Release);
    Ok(())
}

/// What was counted before there was a file.
fn take_over(made: &BlackBox) {
    let spare = current();
    made.copies.iter().zip(&spare.copies).for_each(|(to, from)| to.store(&from.words()));
    made.marks.take_over(&spare.marks);
    let ProcessWords { fail_open, out_of_bounds, pause_state, .. } = spare.process.words();
    made.process.pause_state.store(pause_state, Relaxed);
    made.process.fail_open.store(fail_open, Relaxed);
    made.process.out_of_bounds.store(out_of_bounds, Relaxed);
}

/// Puts a line of the program's into the ring of marks. Before the box is made, its time is 0.
pub(crate) fn mark(text: &str) {
    let at = RECORDER.made.get().map_or(0, |made| made.elapsed().as_nanos() as u64);
    current().marks.note(at, text);
}

/// Shows whether the process is paused, as in [`ProcessWords`], and where its bytes lie.
pub(crate) fn show_pause(state: u64, [out, stayed]: [u64; 2]) {
    let process = &current().process;
    process.pause_out.store(out, Relaxed);
    process.pause_stayed.store(stayed, Relaxed);
    process.pause_state.store(state, Relaxed);
}

/// What the process holds for a device now.
pub(crate) fn live(device: CUdevice) -> BytesByTier {
    let place = usize::try_from(device).ok().and_then(|number| current().devices.get(number));
    place.map_or_else(BytesByTier::default, DeviceBox::live)
}

/// The run that this process belongs to, in two halves; zeros for none.
fn run() -> [u64; 2] {
    let text = environment::text(RUN).filter(|text| text.len() == 32 && text.is_ascii());
    let half = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
    text.map_or([0, 0], |text| [half(&text[..16]), half(&text[16..])])
}

/// The choice for PyTorch has changed.
pub(crate) fn set_allocator(name: &str) {
    current().allocator.store(name);
}

/// The library was detached from the process, or attached again.
pub(crate) fn set_detached(is_detached: bool) {
    let word = &current().process.dedup_mode;
    let rest = word.load(Relaxed) & !ProcessWords::DETACHED;
    word.store(rest | if is_detached { ProcessWords::DETACHED } else { 0 }, Relaxed);
}

/// A place for a device with its name, UUID and PCI address. `None` for a number that no machine
/// has.
pub(crate) fn device(device: CUdevice, texts: [&str; 3], limits: &LimitWords) -> Option<&'static DeviceBox> {
    let number = usize::try_from(device).ok()?;
    let place = current().devices.get(number)?;
    place.name.store(texts[0]);
    place.uuid.store(texts[1]);
    place.pci.store(texts[2]);
    place.limits.store(limits);
    place.hot.number.store(number as u64 + 1, Relaxed);
    RECORDER.devices.fetch_max(number + 1, AcqRel);
    Some(place)
}

/// Notes the live bytes of now. Called after changes of them, by any thread and without a lock.
pub(crate) fn sample() {
    let Some(made) = RECORDER.made.get() else { return };
    if RECORDER.is_sampling.swap(true, Acquire) {
        return;
    }
    let devices = RECORDER.devices.load(Acquire);
    let mut live = BytesByTier::default();
    for held in current().devices[..devices].iter().map(DeviceBox::live) {
        live.device += held.device;
        live.peer += held.peer;
        live.host += held.host;
    }
    current().sample(made.elapsed().as_secs(), live);
    RECORDER.is_sampling.store(false, Release);
}

/// Notes a request that was refused.
pub(crate) fn refused(device: CUdevice, asked: u64) {
    let live = live(device);
    let held = live.device + live.peer + live.host;
    let at = RECORDER.made.get().map_or(0, |made| made.elapsed().as_secs());
    current().refused(&RefusalWords { at_s: at + 1, ordinal: device.unsigned_abs().into(), asked, held });
}

/// Shows copies that the library made, by path and direction.
pub(crate) fn show_copies(rows: impl Iterator<Item = CopyWords>) {
    current().copies[DIRECT..].iter().zip(rows).for_each(|(cells, words)| cells.store(&words));
}

/// Rows of copies that the driver makes, by direction.
pub(crate) const DIRECT: usize = 3;

/// A forked child leaves its parent's file alone: what writes there writes to memory of its own.
/// Async-signal-safe.
pub(crate) fn forked() {
    RECORDER.file.forget();
    let parents = RECORDER.current.swap((&raw const SPARE).cast_mut(), AcqRel);
    if !std::ptr::eq(parents, &raw const SPARE) {
        file::replace(parents);
    }
}

/// The process exits. Its file goes, unless `wmctl run` waits for it.
pub(crate) fn finish() {
    let made = current();
    made.process.has_ended.store(1, Relaxed);
    if made.process.run_high.load(Relaxed) | made.process.run_low.load(Relaxed) == 0 {
        preserve_errno(|| RECORDER.file.withdraw());
    }
}
