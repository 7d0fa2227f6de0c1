//! The opened driver, and the moment of its opening: the first CUDA call of the process.
//!
//! [`resolve`] is reached from the trampolines once (or by a few racing threads). It reads the settings, opens the
//! driver, and points every slot at the real function or at a hook. Without a driver, `cuInit` answers
//! `NO_DEVICE` and everything else `NOT_INITIALIZED`, and one line says where was looked.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Once, OnceLock};

use wm_abi::CUresult;
use wm_abi::symbol::{self, COUNT, Symbol};
use wm_driver::streams::Streams;
use wm_driver::{Loader, Table, search};

use crate::glance::GLANCE;
use crate::settings;
use crate::trampolines::{SLOTS, first_per_thread_call};
use crate::{boundary, guard, hooks, lifecycle, logger, trace};

static DRIVER: OnceLock<Option<Table>> = OnceLock::new();
static INSTALLED: Once = Once::new();

thread_local! {
    /// This thread is opening the driver: calls that the opening itself makes must not wait for it.
    static OPENING: Cell<bool> = const { Cell::new(false) };
}

/// The real driver's functions. Hooks run only where there is a driver.
pub(crate) fn driver() -> &'static Table {
    DRIVER.get().and_then(Option::as_ref).expect("hooks are installed only behind an opened driver")
}

/// The real driver, if one has been opened in this process.
pub(crate) fn opened() -> Option<&'static Table> {
    DRIVER.get().and_then(Option::as_ref)
}

/// Every stream the process has shown us.
#[inline]
pub(crate) fn streams() -> &'static Streams {
    &GLANCE.streams
}

/// The address behind slot `index`, opening the driver if that has not been done. Never unwinds, keeps `errno`.
pub(crate) extern "C" fn resolve(index: usize) -> *const () {
    boundary::keep_errno(|| {
        if OPENING.get() {
            return stand_in(index);
        }
        OPENING.set(true);
        // In this order: a thread that meets a hook in a slot must find the driver behind it.
        DRIVER.get_or_init(open);
        INSTALLED.call_once(install);
        OPENING.set(false);
        SLOTS[index].load(Ordering::Acquire)
    })
}

/// The address behind slot `index`, a function of per-thread default streams that is called for the first time. These are
/// blocking streams, which nobody makes: that there are any is seen here.
pub(crate) extern "C" fn resolve_per_thread(index: usize) -> *const () {
    streams().note_blocking();
    let real = driver().address(index).map_or(stand_in_missing as *const (), <*const _>::cast);
    SLOTS[index].store(real.cast_mut(), Ordering::Release);
    real
}

fn open() -> Option<Table> {
    logger::install();
    let settings = settings::load();
    lifecycle::at_first_call();
    let explicit = settings.driver.as_deref().map(|path| simulated(path).unwrap_or_else(|| path.to_owned()));
    let found = search::open(&Loader::system(), explicit.as_deref());
    found.inspect_err(|missing| log::error!("{missing}")).ok()
}

/// `WMSHIM_DRIVER=sim`: the simulated driver of this installation or build. A folder of that name is `./sim`.
fn simulated(path: &Path) -> Option<PathBuf> {
    if path.as_os_str() != "sim" {
        return None;
    }
    let own = search::own_path()?.canonicalize().ok()?;
    let folder = own.parent()?;
    let places = [folder.join("../sim/libcuda.so.1"), folder.join("libsimcuda.so")];
    places.into_iter().find(|place| place.is_file())
}

fn install() {
    let settings = settings::load();
    let Some(table) = opened() else { return fill(stand_in) };
    guard::choose(settings);
    trace::choose(settings);
    fill(|index| {
        let hook = if settings.disable { None } else { hooks::address(index, settings) };
        let real = table.address(index).map(<*const _>::cast);
        // A function that the driver lacks is not hooked either: a program must see that it is lacking.
        let plain = |real| match settings.stitch
            && !settings.disable
            && hooks::is_per_thread(symbol::NAMES[index].to_str().unwrap_or_default())
        {
            true => first_per_thread_call as *const (),
            false => real,
        };
        real.map_or_else(|| stand_in_missing as *const (), |real| hook.unwrap_or_else(|| plain(real)))
    });
    log::info!("driver {}", table.path().display());
}

fn fill(target: impl Fn(usize) -> *const ()) {
    for (index, slot) in SLOTS.iter().enumerate().take(COUNT) {
        slot.store(target(index).cast_mut(), Ordering::Release);
    }
}

/// What a function answers in a process without a driver.
fn stand_in(index: usize) -> *const () {
    if index == symbol::cuInit::INDEX { stand_in_init as *const () } else { stand_in_other as *const () }
}

extern "C" fn stand_in_init() -> CUresult {
    CUresult::NO_DEVICE
}

extern "C" fn stand_in_other() -> CUresult {
    CUresult::NOT_INITIALIZED
}

extern "C" fn stand_in_missing() -> CUresult {
    CUresult::NOT_SUPPORTED
}
