//! The first CUDA call of the process: the driver is opened, and every trampoline is connected.
//!
//! [`resolve`] is reached from the trampolines once (or by a few racing threads). It reads the
//! settings, opens the driver, and points every slot at the real function or at a hook. Without a
//! driver, `cuInit` answers `NO_DEVICE`, errors have their names, everything else answers
//! `NOT_INITIALIZED`, and one line says where was looked.

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::sync::Once;

use wm_abi::CUresult;
use wm_abi::symbol::{self, COUNT, Symbol};
use wm_driver::{Fingerprinting, Loader, Table, interposer, logger, search};

use super::lifecycle;
use crate::events::{self, BlockSubscriber, PieceSubscriber};
use crate::gate::GATE;
use crate::hooks::{self, Exports};
use crate::overflow::HolderSources;
use crate::pauses::{PauseEvents, Pauses};
use crate::process::{driver, open_once, opened, preserve_errno, streams};
use crate::registry::{self, Callbacks};
use crate::settings::Settings;
use crate::subsystems::PROCESS;
use crate::turns::Turns;
use crate::{black_box, guard, settings, shortage};

static INSTALLED: Once = Once::new();

/// Tells every copy of this library that this file is no driver.
#[used]
// SAFETY: a section of ELF notes, and the value is one.
#[unsafe(link_section = ".note.wmshim")]
static NOTE: interposer::Note = interposer::NOTE;

thread_local! {
    /// This thread is opening the driver: calls that the opening itself makes must not wait for it.
    static OPENING: Cell<bool> = const { Cell::new(false) };
}

/// Where the trampoline of function `index` jumps, opening the driver if that has not been done.
/// `per_thread` is what a trampoline of a function of per-thread default streams is to jump to at
/// first. Never unwinds, keeps `errno`.
pub(super) fn resolve(index: usize, exports: &'static Exports, per_thread: *const ()) -> *const () {
    preserve_errno(|| {
        if OPENING.get() {
            return stand_in(index);
        }
        OPENING.set(true);
        // In this order: a thread that meets a hook in a slot must find the driver behind it.
        open_once(open);
        INSTALLED.call_once(|| install(exports, per_thread));
        OPENING.set(false);
        exports.target(index)
    })
}

/// The same for a function of per-thread default streams that is called for the first time. These
/// are blocking streams, and no call makes them: that there are any is seen here.
pub(super) fn resolve_per_thread(index: usize, exports: &'static Exports) -> *const () {
    streams().note_blocking();
    let real = driver().address(index).map_or(stand_in_missing as *const (), <*const _>::cast);
    exports.connect(index, real);
    real
}

fn open() -> Option<Table> {
    logger::install("wmshim");
    // A panic of ours, which the boundary stops, is a log line like any other.
    std::panic::set_hook(Box::new(|panic| log::error!("internal error, please report it: {panic}")));
    let settings = settings::load();
    lifecycle::at_first_call();
    let explicit = settings.driver.as_deref().map(|path| simulated(path).unwrap_or_else(|| path.to_owned()));
    let found = search::open(&Loader::system(), explicit.as_deref());
    found.inspect_err(|missing| log::error!("{missing}")).ok()
}

/// `WMSHIM_DRIVER=sim`: the simulated driver of this installation or build. A folder of that name
/// is `./sim`.
fn simulated(path: &Path) -> Option<PathBuf> {
    if path.as_os_str() != "sim" {
        return None;
    }
    let own = interposer::own_path()?.canonicalize().ok()?;
    let folder = own.parent()?;
    let places = [folder.join("../sim/libcuda.so.1"), folder.join("libsimcuda.so")];
    places.into_iter().find(|place| place.is_file())
}

fn install(exports: &'static Exports, per_thread: *const ()) {
    let settings = settings::load();
    let Some(table) = opened() else { return fill(exports, stand_in) };
    guard::choose(settings);
    PROCESS.trace.choose(settings);
    if settings.trace.is_some() {
        events::subscribe(BlockSubscriber {
            allocated: |it| PROCESS.trace.allocated(it.device(), it.address, it.bytes, it.order),
            freed: |it| PROCESS.trace.freed(it.device(), it.address, it.order),
        });
        events::subscribe_to_pieces(PieceSubscriber {
            piece: |it| PROCESS.trace.piece(it),
            refused: |device, asked| PROCESS.trace.refused(device, asked),
        });
    }
    name_holders(settings);
    PROCESS.profile.choose(settings);
    if settings.profile.is_some() {
        events::subscribe(BlockSubscriber {
            allocated: |it| PROCESS.profile.allocated(it.device(), it.address, it.bytes),
            freed: |it| PROCESS.profile.freed(it.address),
        });
        events::subscribe_to_pieces(PieceSubscriber {
            piece: |it| PROCESS.profile.piece(it),
            refused: |device, asked| PROCESS.profile.refused(device, asked),
        });
    }
    PROCESS.moves.choose(
        settings,
        BlockSubscriber { allocated: |it| PROCESS.moves.allocated(it), freed: |it| PROCESS.moves.freed(it) },
    );
    PROCESS.pauses.choose(settings, &PROCESS.moves, || {
        Pauses::arrived(PROCESS.paused_parts());
        PROCESS.turns.arrived();
    });
    PROCESS.turns.choose(settings, PROCESS.pauses.is_on());
    PROCESS.pauses.tell(PauseEvents {
        gave: |device, bytes| PROCESS.turns.gave(device, bytes),
        moved: |time| PROCESS.turns.moved(time),
        has_more_room: || PROCESS.turns.has_more_room(),
        ended: || {
            PROCESS.sharing.pause_moved_memory();
            PROCESS.turns.step_ended();
            PROCESS.pauses.keep_common_copies(|| PROCESS.pauses.look_at_common_copies());
        },
        named_memory: || PROCESS.sharing.named_memory(),
        copies: || PROCESS.sharing.copies(),
    });
    PROCESS.sharing.choose(
        settings,
        BlockSubscriber {
            // A block that began there before ended without an event.
            allocated: |it| PROCESS.sharing.freed(it.address),
            freed: |it| PROCESS.sharing.freed(it.address),
        },
    );
    registry::set_callbacks(Callbacks {
        on_shortage: shortage::of_block,
        idle_host_memory: shortage::idle_host_memory,
        may_be_held: || PROCESS.moves.may_be_held(),
        on_overflow: || PROCESS.overflow.note(),
        fingerprints: Fingerprinting {
            prepare: |context| PROCESS.moves.prepare_fingerprints(context),
            take: |context, chunks| PROCESS.moves.fingerprints(context, chunks),
        },
        knows_contexts: || GATE.is_on(),
        on_change: || {
            black_box::sample();
            PROCESS.pauses.memory_changed(|| {
                Pauses::follow(PROCESS.paused_parts());
                None
            });
        },
        on_create: || {
            PROCESS.torch.announce();
            Turns::begin(PROCESS.turn_parts());
        },
    });
    hooks::prepare(exports);
    fill(exports, |index| {
        let real = table.address(index).map(<*const _>::cast);
        let hook = real.filter(|_| !settings.disable).and_then(|real| hooks::address(index, settings, real));
        // A function that the driver lacks is not hooked either: a program must see that it is
        // lacking.
        let plain = |real| match settings.stitch
            && !settings.disable
            && hooks::is_per_thread(symbol::NAMES[index].to_str().unwrap_or_default())
        {
            true => per_thread,
            false => real,
        };
        real.map_or_else(|| stand_in_missing as *const (), |real| hook.unwrap_or_else(|| plain(real)))
    });
    log::info!("driver {}", table.path().display());
}

/// The folder of the sockets is used unless the user wants none.
fn name_holders(settings: &Settings) {
    if settings.stats_socket.as_deref() != Some(Path::new("off")) && !settings.disable {
        PROCESS.overflow.name_holders(HolderSources {
            folder: settings.stats_dir.clone(),
            by_site: |most| PROCESS.profile.holders(most),
        });
    }
}

fn fill(exports: &Exports, target: impl Fn(usize) -> *const ()) {
    for index in 0..COUNT {
        exports.connect(index, target(index));
    }
}

/// The answer of a function in a process without a driver.
fn stand_in(index: usize) -> *const () {
    match index {
        symbol::cuInit::INDEX => stand_in_init as *const (),
        symbol::cuGetErrorName::INDEX | symbol::cuGetErrorString::INDEX => stand_in_name as *const (),
        _ => stand_in_other as *const (),
    }
}

/// Programs print the error of `cuInit` by its name.
///
/// # Safety
/// As `cuGetErrorName`: `name` is null or can be written.
unsafe extern "C" fn stand_in_name(error: CUresult, name: *mut *const c_char) -> CUresult {
    if name.is_null() {
        return CUresult::INVALID_VALUE;
    }
    let known = error.c_name();
    // SAFETY: not null, so the caller's to be written.
    unsafe { *name = known.map_or(std::ptr::null(), CStr::as_ptr) };
    if known.is_some() { CUresult::SUCCESS } else { CUresult::INVALID_VALUE }
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
