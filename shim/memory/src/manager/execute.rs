//! The one executor of plans.
//!
//! Either all of a [`Build`] happens or none: each step that succeeds notes its opposite, and a
//! failure runs the notes backwards. Taking things apart cannot be undone, so [`dismantle`] goes on
//! past a failure and returns the steps that failed: their objects still exist, and the caller
//! keeps them for another try. Called without any lock: each step may take milliseconds.

use wm_abi::CUresult;
use wm_driver::{Gpu, Handle, Tier};

use super::remap::MappedAccess;
use crate::vocabulary::plan::{Build, BuildFailure, Built, ExtentPart, Undo};

/// Makes an extent. Of each other GPU that it takes memory of, `headroom` bytes are made first and
/// released in the end: so much is left to that GPU, and the driver does not tell how much memory a
/// GPU has left where no context is. Comes with the steps that release it and failed.
pub(crate) fn build<G: Gpu>(
    gpu: &G,
    build: &Build,
    headroom: u64,
) -> (Result<Built, BuildFailure>, Vec<Undo>) {
    let (mut undo, mut beside) = (Vec::new(), Vec::new());
    let made =
        reserve_headroom(gpu, build, headroom, &mut beside).and_then(|()| attempt(gpu, build, &mut undo));
    undo.reverse();
    let built = match made {
        Ok((base, handles)) => Ok(Built { base, handles, undo }),
        Err((code, tier)) => Err(BuildFailure { code, tier, not_undone: dismantle(gpu, &undo) }),
    };
    (built, dismantle(gpu, &beside))
}

/// Maps memory at addresses that are reserved and have none, at all of them or at none. The last
/// one is the extent's.
pub(crate) fn build_at<G: Gpu>(
    gpu: &G,
    part: ExtentPart,
    places: &[u64],
    access: MappedAccess,
) -> Result<Built, BuildFailure> {
    let mut undo = Vec::new();
    let made = obtain(gpu, part, &mut undo).and_then(|handle| {
        let place = |address: &u64| map_at(gpu, (*address, part.bytes(), handle), access, &mut undo);
        places.iter().try_for_each(place).map_err(|code| (code, None)).map(|()| handle)
    });
    undo.reverse();
    match made {
        Ok(handle) => Ok(Built { base: places.last().copied().unwrap_or(0), handles: vec![handle], undo }),
        Err((code, tier)) => Err(BuildFailure { code, tier, not_undone: dismantle(gpu, &undo) }),
    }
}

fn map_at<G: Gpu>(
    gpu: &G,
    (address, bytes, handle): (u64, u64, Handle),
    access: MappedAccess,
    undo: &mut Vec<Undo>,
) -> wm_driver::gpu::Result<()> {
    gpu.map(address, bytes as usize, handle)?;
    undo.push(Undo::Unmap { address, bytes, handle });
    access.grant(gpu, address, bytes as usize)
}

/// Takes the idle memory of other GPUs' managers. The steps release it, and no account counts it
/// meanwhile.
fn reserve_headroom<G: Gpu>(
    gpu: &G,
    build: &Build,
    headroom: u64,
    release: &mut Vec<Undo>,
) -> Result<(), Cause> {
    let mut peers: Vec<Tier> = build.parts.iter().filter_map(|part| part.peer()).collect();
    peers.sort_unstable();
    peers.dedup();
    for tier in peers.into_iter().filter(|_| headroom > 0) {
        let handle = gpu.create(tier, headroom as usize).map_err(|code| (code, Some(tier)))?;
        release.push(Undo::Release { handle, tier, bytes: 0 });
    }
    Ok(())
}

type Cause = (CUresult, Option<Tier>);

fn attempt<G: Gpu>(gpu: &G, build: &Build, undo: &mut Vec<Undo>) -> Result<(u64, Vec<Handle>), Cause> {
    let handles = build.parts.iter().map(|part| obtain(gpu, *part, undo)).collect::<Result<Vec<_>, _>>()?;
    let bytes: u64 = build.parts.iter().map(|part| part.bytes()).sum();
    let reserved = bytes + build.gap;
    let base = gpu.reserve(reserved as usize).map_err(|code| (code, None))?;
    undo.push(Undo::Unreserve { address: base, bytes: reserved });
    let mut address = base;
    for (part, handle) in build.parts.iter().zip(&handles) {
        gpu.map(address, part.bytes() as usize, *handle).map_err(|code| (code, None))?;
        undo.push(Undo::Unmap { address, bytes: part.bytes(), handle: *handle });
        address += part.bytes();
    }
    gpu.allow(base, bytes as usize).map_err(|code| (code, None))?;
    Ok((base, handles))
}

fn obtain<G: Gpu>(gpu: &G, part: ExtentPart, undo: &mut Vec<Undo>) -> Result<Handle, Cause> {
    let (tier, bytes) = match part {
        ExtentPart::Existing { handle, .. } => return Ok(handle),
        ExtentPart::New { tier, bytes } => (tier, bytes),
    };
    let handle = gpu.create(tier, bytes as usize).map_err(|code| (code, Some(tier)))?;
    undo.push(Undo::Release { handle, tier, bytes });
    Ok(handle)
}

/// Takes things apart in order, and returns the steps that failed. A reservation in which a mapping
/// is left over is not tried, nor is a handle that is left mapped: its memory would stay taken, and
/// nothing would count it any more.
pub(crate) fn dismantle<G: Gpu>(gpu: &G, steps: &[Undo]) -> Vec<Undo> {
    let mut failed: Vec<Undo> = Vec::new();
    for step in steps {
        if failed.iter().any(|left| blocks(*left, *step)) || undo(gpu, *step).is_err() {
            failed.push(*step);
        }
    }
    failed
}

/// Must `step` wait until the failed step `left` has been done?
fn blocks(left: Undo, step: Undo) -> bool {
    let Undo::Unmap { address: mapped, handle: in_use, .. } = left else { return false };
    match step {
        Undo::Unmap { .. } => false,
        Undo::Unreserve { address, bytes } => (address..address + bytes).contains(&mapped),
        Undo::Release { handle, .. } => handle == in_use,
    }
}

fn undo<G: Gpu>(gpu: &G, step: Undo) -> wm_driver::gpu::Result<()> {
    match step {
        Undo::Unmap { address, bytes, .. } => gpu.unmap(address, bytes as usize),
        Undo::Unreserve { address, bytes } => gpu.unreserve(address, bytes as usize),
        Undo::Release { handle, .. } => gpu.release(handle),
    }
}
