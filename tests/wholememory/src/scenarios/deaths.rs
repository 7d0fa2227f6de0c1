//! A rank's process ends, or is forked, in the middle of collective calls.
//!
//! Hazards: a rank that ends while ranks split is waited for; a child of a rank that has
//! ended keeps its connections open; a child speaks on its parent's connections.

use std::ffi::{OsString, c_int};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};
use std::{fs, thread};

use wm_driver::Api;

use crate::rank::{
    COMMUNICATION_ERROR, CONTINUOUS, DEVICE, DISTRIBUTED, HIERARCHY, HOST, INVALID_INPUT, LOGIC_ERROR, Rank,
    SUCCESS, Verdict, must, want,
};

/// The end of a rank is an error of the others sooner than this.
const SOON: Duration = Duration::from_secs(5);

/// The seed of the moment at which a rank ends, from the test.
pub(super) fn seed() -> u64 {
    std::env::var("WHOLEMEMORY_SUITE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0)
}

/// Ends the process as a kill does: no handler runs, and the kernel closes what it has.
pub(super) fn end_now() -> ! {
    // SAFETY: the call does not return.
    unsafe { libc::_exit(0) }
}

/// A child that lives for a while and does nothing. It has none of this process's pipes.
fn fork_a_sleeper(handlers: bool) -> Verdict<c_int> {
    // SAFETY: the child makes calls that are safe after a fork, and does not return. Without fork
    // handlers it is the kernel's own fork.
    let child = unsafe {
        if handlers {
            libc::fork()
        } else {
            libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as c_int
        }
    };
    match child {
        -1 => Err(std::io::Error::last_os_error().to_string()),
        // SAFETY: as above.
        0 => unsafe {
            for file in 0..3 {
                libc::close(file);
            }
            libc::sleep(12);
            libc::_exit(0)
        },
        child => Ok(child),
    }
}

/// Was a rank lost in a call? If rows of a call that has returned are missing, the GPU's context
/// has ended, unless calls wait for rows.
fn is_loss(made: Verdict<u32>) -> Verdict<bool> {
    let waits = std::env::var("WMSHIM_WHOLEMEMORY_WAIT").is_ok_and(|setting| setting == "on");
    match made {
        Ok(SUCCESS) => Ok(false),
        Ok(COMMUNICATION_ERROR) => Ok(true),
        Ok(code) => Err(format!("code {code}")),
        Err(reason) if reason.contains(" gave 5,") => Ok(true),
        Err(reason) if reason.contains("CUDA_ERROR_LAUNCH_FAILED") && !waits => Ok(true),
        Err(reason) => Err(reason),
    }
}

/// Makes calls until one fails, which must be soon after a rank has ended.
pub(super) fn until_the_end(rank: &Rank, call: impl FnMut() -> Verdict<u32>) -> Verdict {
    until_an_end(rank, call, |begin| Ok(begin.elapsed()))
}

/// The same, with the time since the end as `since` has it, from the begin of the call that failed.
pub(super) fn until_an_end(
    rank: &Rank,
    mut call: impl FnMut() -> Verdict<u32>,
    since: impl Fn(Instant) -> Verdict<Duration>,
) -> Verdict {
    loop {
        let begin = Instant::now();
        if !is_loss(call())? {
            continue;
        }
        let time = since(begin)?;
        must(time < SOON, || format!("noticed after {time:?}"))?;
        eprintln!("noticed after {time:?}");
        want!(COMMUNICATION_ERROR, rank.wholememory_communicator_barrier(rank.comm))?;
        return Ok(());
    }
}

/// The same, where the cause is a rank that ends at a random moment behind a barrier. The end may
/// come before all have heard of the barrier's.
pub(super) fn until_a_rank_ends(rank: &Rank, mut call: impl FnMut() -> Verdict<u32>) -> Verdict {
    let random = &mut fastrand::Rng::with_seed(seed());
    let (victim, moment) = (random.usize(..rank.size), Duration::from_millis(random.u64(..400)));
    let mut has_begun = false;
    until_the_end(rank, || {
        if has_begun {
            return call();
        }
        has_begun = true;
        // SAFETY: a handle.
        let code = unsafe { (rank.library.wholememory_communicator_barrier)(rank.comm) };
        if rank.number == victim {
            thread::spawn(move || {
                thread::sleep(moment);
                end_now()
            });
        }
        Ok(code)
    })
}

fn split(rank: &Rank, round: c_int) -> u32 {
    let mut part = null_mut();
    let (number, place) = (rank.number as c_int, &mut part);
    // SAFETY: a handle, and a live local.
    unsafe {
        let code = (rank.library.wholememory_split_communicator)(
            place,
            rank.comm,
            number % (1 + round % 3),
            -number,
        );
        if code == SUCCESS {
            let _code = (rank.library.wholememory_communicator_barrier)(part);
            return (rank.library.wholememory_destroy_communicator)(part);
        }
        code
    }
}

fn hierarchy(rank: &Rank, round: c_int) -> u32 {
    let mut memory = null_mut();
    let location = if round % 2 == 0 { DEVICE } else { HOST };
    // SAFETY: a handle, and a live local.
    unsafe {
        let code = (rank.library.wholememory_malloc)(
            &mut memory,
            1 << 16,
            rank.comm,
            HIERARCHY,
            location,
            64,
            null(),
        );
        if code == SUCCESS { (rank.library.wholememory_free)(memory) } else { code }
    }
}

fn dies_in(rank: &Rank, call: fn(&Rank, c_int) -> u32, child: Option<bool>) -> Verdict {
    dies_in_with(rank, child, call)
}

fn dies_in_with(rank: &Rank, child: Option<bool>, call: impl Fn(&Rank, c_int) -> u32) -> Verdict {
    let random = &mut fastrand::Rng::with_seed(seed());
    let (victim, moment) = (random.usize(..rank.size), Duration::from_micros(random.u64(..40_000)));
    let mut round = 0;
    until_the_end(rank, || {
        round += 1;
        if round > 1 {
            return Ok(call(rank, round - 1));
        }
        // The end may come before all have heard of the barrier's.
        // SAFETY: a handle.
        let code = unsafe { (rank.library.wholememory_communicator_barrier)(rank.comm) };
        if rank.number == victim {
            if let Some(handlers) = child {
                fork_a_sleeper(handlers)?;
            }
            thread::spawn(move || {
                thread::sleep(moment);
                end_now()
            });
        }
        Ok(code)
    })
}

pub(super) fn in_splits(rank: &Rank) -> Verdict {
    dies_in(rank, split, None)
}

pub(super) fn in_hierarchy(rank: &Rank) -> Verdict {
    dies_in(rank, hierarchy, None)
}

pub(super) fn with_a_child(rank: &Rank) -> Verdict {
    dies_in(rank, split, Some(true))
}

/// Any of the other collective calls, in an order that all ranks draw alike.
pub(super) fn in_any_call(rank: &Rank) -> Verdict {
    let folder = super::folder::Folder::new(rank)?;
    dies_in_with(rank, None, |rank, round| any_call(rank, &folder, round))?;
    nothing_is_left(&folder.path(""))
}

/// The stored files alone are in the folder, soon: another rank that lives may be about to give its
/// file the name.
fn nothing_is_left(folder: &Path) -> Verdict {
    let begin = Instant::now();
    loop {
        // The folder ends with the process that has it.
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        let names: Vec<_> = files.map(|file| file.file_name()).collect();
        let is_stored = |name: &OsString| name.as_encoded_bytes().starts_with(b"stored_");
        if names.iter().all(is_stored) {
            return Ok(());
        }
        must(begin.elapsed() < SOON, || format!("left: {names:?}"))?;
        thread::yield_now();
    }
}

fn any_call(rank: &Rank, folder: &super::folder::Folder, round: c_int) -> u32 {
    let random = &mut fastrand::Rng::with_seed(seed() << 16 | u64::from(round.unsigned_abs()));
    let (kind, mut memory) = (crate::rank::KINDS[random.usize(..8)], null_mut());
    let name = folder.name(&format!("stored_{}", rank.number));
    let library = &rank.library;
    // SAFETY: handles, live locals, and a terminated name.
    unsafe {
        let codes = [
            (library.wholememory_malloc)(&mut memory, 1 << 16, rank.comm, kind.0, kind.1, 64, null()),
            if memory.is_null() {
                COMMUNICATION_ERROR
            } else if random.bool() {
                (library.wholememory_store_to_file)(memory, 0, 64, 64, name.as_ptr())
            } else {
                (library.wholememory_communicator_barrier)(rank.comm)
            },
        ];
        if !memory.is_null() {
            (library.wholememory_free)(memory);
        }
        codes.into_iter().find(|code| *code != SUCCESS).unwrap_or(SUCCESS)
    }
}

/// The child keeps all descriptors.
pub(super) fn with_a_whole_child(rank: &Rank) -> Verdict {
    dies_in(rank, split, Some(false))
}

/// One that has left its part of the ranks, with a child that lives.
pub(super) fn leaves_with_a_child(rank: &Rank) -> Verdict {
    let mut part = null_mut();
    want!(SUCCESS, rank.wholememory_split_communicator(&mut part, rank.comm, 0, 0))?;
    if rank.number == rank.size / 2 {
        let child = fork_a_sleeper(false)?;
        want!(SUCCESS, rank.wholememory_destroy_communicator(part))?;
        rank.barrier()?;
        // SAFETY: a child of ours.
        unsafe { libc::kill(child, libc::SIGKILL) };
        return Ok(());
    }
    let begin = Instant::now();
    want!(COMMUNICATION_ERROR, rank.wholememory_communicator_barrier(part))?;
    must(begin.elapsed() < SOON, || format!("noticed after {:?}", begin.elapsed()))?;
    want!(SUCCESS, rank.wholememory_destroy_communicator(part))?;
    rank.barrier()
}

/// A child's calls are refused, and the ranks do not hear them.
pub(super) fn calls_of_a_child(rank: &Rank) -> Verdict {
    for parent in 0..rank.size {
        if rank.number == parent {
            // SAFETY: the rank has one thread of its own; the child does not return.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: as above.
                unsafe {
                    libc::alarm(10);
                    libc::_exit(as_child(rank).map_or(1, |()| 0))
                }
            }
            let mut status = -1;
            // SAFETY: a child of ours, and a live local.
            let waited = unsafe { libc::waitpid(child, &mut status, 0) };
            must(waited == child && status == 0, || format!("the child ended with {status:#x}"))?;
        }
        rank.barrier()?;
        let memory = rank.malloc(100, 64, (CONTINUOUS, DEVICE), None)?;
        rank.free(memory)?;
    }
    rank.barrier()
}

fn as_child(rank: &Rank) -> Verdict {
    let (mut part, mut memory) = (null_mut(), null_mut());
    want!(LOGIC_ERROR, rank.wholememory_split_communicator(&mut part, rank.comm, 0, 0))?;
    let (place, kind) = (&mut memory, (CONTINUOUS, HOST));
    want!(LOGIC_ERROR, rank.wholememory_malloc(place, 4096, rank.comm, kind.0, kind.1, 64, null()))?;
    // The communicator's close in a child leaves the parent's connections open.
    want!(SUCCESS, rank.wholememory_destroy_communicator(rank.comm))
}

/// A null place, or a wrong color, at one rank is an error of all, and they stay in step.
pub(super) fn split_by_mistake(rank: &Rank) -> Verdict {
    for mistaken in 0..rank.size {
        let is_mistaken = rank.number == mistaken;
        let mut part = null_mut();
        let place = if is_mistaken { null_mut() } else { &raw mut part };
        want!(INVALID_INPUT, rank.wholememory_split_communicator(place, rank.comm, 0, 0))?;
        let color = if is_mistaken { -2 } else { 0 };
        want!(INVALID_INPUT, rank.wholememory_split_communicator(&mut part, rank.comm, color, 0))?;
        want!(SUCCESS, rank.wholememory_split_communicator(&mut part, rank.comm, 0, 0))?;
        want!(SUCCESS, rank.wholememory_communicator_barrier(part))?;
        want!(SUCCESS, rank.wholememory_destroy_communicator(part))?;
    }
    rank.barrier()
}

/// A thread without a context splits: it stays without one, and no other GPU gets a context.
pub(super) fn split_without_a_context(rank: &Rank) -> Verdict {
    let fail = |error: wm_driver::api::Failed| error.to_string();
    let devices = rank.driver.device_count().map_err(fail)?;
    let own = rank.number as c_int % devices.max(1);
    let context = rank.driver.ctx_current().map_err(fail)?;
    rank.driver.ctx_set_current(wm_abi::CUcontext::NULL).map_err(fail)?;
    let mut part = null_mut();
    want!(SUCCESS, rank.wholememory_split_communicator(&mut part, rank.comm, 0, 0))?;
    let memory = rank.malloc(1000, 64, (HIERARCHY, DEVICE), None)?;
    let mut inner = null_mut();
    want!(SUCCESS, rank.wholememory_malloc(&mut inner, 4096, part, CONTINUOUS, DEVICE, 64, null()))?;
    let current = rank.driver.ctx_current().map_err(fail)?;
    must(current == wm_abi::CUcontext::NULL, || "the thread has got a context".to_owned())?;
    if own != 0 {
        let (_, is_active) = rank.driver.primary_ctx_state(0).map_err(fail)?;
        must(is_active == 0, || format!("device 0 has a context of the rank on device {own}"))?;
    }
    rank.driver.ctx_set_current(context).map_err(fail)?;
    rank.barrier()?;
    rank.free(inner)?;
    rank.free(memory)?;
    want!(SUCCESS, rank.wholememory_destroy_communicator(part))
}

/// How long ranks have been meeting when one of them ends.
const MEETING: Duration = Duration::from_millis(300);

/// A rank ends while all wait for one that never comes.
pub(super) fn while_ranks_meet(rank: &Rank) -> Verdict {
    let folder = super::folder::Folder::new(rank)?;
    let mut id = crate::api::UniqueId([0; 128]);
    if rank.number == 0 {
        want!(SUCCESS, rank.wholememory_create_unique_id(&mut id))?;
        folder.write("id", &id.0)?;
    }
    rank.barrier()?;
    let told = std::fs::read(folder.path("id")).map_err(|error| error.to_string())?;
    id.0 = told.try_into().map_err(|_| "an id of the wrong length")?;
    rank.barrier()?;
    let begin = Instant::now();
    if rank.number == seed() as usize % rank.size {
        thread::spawn(|| {
            thread::sleep(MEETING);
            end_now()
        });
    }
    let (mut comm, number, size) = (null_mut(), rank.number as c_int, rank.size as c_int + 1);
    want!(COMMUNICATION_ERROR, rank.wholememory_create_communicator(&mut comm, id, number, size))?;
    must(begin.elapsed() < MEETING + SOON, || format!("noticed after {:?}", begin.elapsed()))
}

/// A rank in another network namespace is refused at once.
pub(super) fn elsewhere(rank: &Rank) -> Verdict {
    // SAFETY: a change of this thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        eprintln!("skipped: no network namespace: {}", std::io::Error::last_os_error());
        return Ok(());
    }
    let (mut comm, begin) = (null_mut(), Instant::now());
    let (number, size) = (rank.number as c_int, rank.size as c_int + 1);
    want!(COMMUNICATION_ERROR, rank.wholememory_create_communicator(&mut comm, rank.id, number, size))?;
    must(begin.elapsed() < Duration::from_secs(1), || format!("refused after {:?}", begin.elapsed()))
}

/// GPUs that do not reach each other's memory have no memory together, except on the host.
pub(super) fn without_peers(rank: &Rank) -> Verdict {
    let fail = |error: wm_driver::api::Failed| error.to_string();
    let devices = rank.driver.device_count().map_err(fail)?;
    let reaches = |one, other| rank.driver.device_can_access_peer(one, other).map(|able| able != 0);
    let used = devices.min(rank.size as c_int);
    let has_peers = used < 2 || reaches(0, 1).map_err(fail)?;
    for kind in crate::rank::KINDS {
        let works = has_peers || kind.1 == HOST || [DISTRIBUTED, HIERARCHY].contains(&kind.0);
        let wanted = if works { SUCCESS } else { crate::rank::NOT_SUPPORTED };
        want!(wanted, rank.wholememory_communicator_support_type_location(rank.comm, kind.0, kind.1))?;
        let mut memory = null_mut();
        want!(wanted, rank.wholememory_malloc(&mut memory, 4096, rank.comm, kind.0, kind.1, 64, null()))?;
        rank.barrier()?;
        if works {
            rank.free(memory)?;
        }
    }
    Ok(())
}
