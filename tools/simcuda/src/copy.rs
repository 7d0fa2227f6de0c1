//! Copies: every form of the driver becomes rows of bytes, which are checked, ordered, paced and
//! copied.
//!
//! Rights are checked during the call, where a bad range is `INVALID_VALUE` and the context lives
//! on; and once more, under the address map's lock, when the bytes move. If the memory was unmapped
//! in between, the copy faults the context, as on a device, and not the process.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use wm_abi::{
    CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED, CUDA_MEMCPY2D,
    CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUarray, CUcontext, CUresult,
};

use crate::array::Array;
use crate::context::Context;
use crate::entry::{Outcome, require};
use crate::graph_form::Form;
use crate::lane::Work;
use crate::link::{self, Link};
use crate::memory::{Area, Owner, Place, Want, space};
use crate::races::{self, Access};
use crate::state::driver;
use crate::stream::Stream;

/// The caller's claim about one side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// Host memory.
    Host,
    /// Device memory.
    Device,
    /// The address itself decides.
    Anything,
    /// Memory of an array, which the program names by the array.
    Array,
}

/// One side of a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side {
    /// First byte.
    pub(crate) address: u64,
    /// The caller's claim.
    pub(crate) said: Said,
    /// Bytes from one row to the next.
    pub(crate) pitch: usize,
    /// Bytes from one layer to the next.
    pub(crate) layer: usize,
    /// The device whose rights count, if it is not the current one.
    pub(crate) device: Option<usize>,
}

impl Side {
    /// A side without rows.
    pub(crate) fn flat(address: u64, said: Said) -> Self {
        Self { address, said, pitch: 0, layer: 0, device: None }
    }

    fn row(&self, y: usize, z: usize) -> u64 {
        self.address + (z * self.layer + y * self.pitch) as u64
    }
}

/// A copy: `width` bytes in each of `height` rows in each of `depth` layers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) to: Side,
    pub(crate) from: Side,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

impl Shape {
    /// A copy of consecutive bytes.
    pub(crate) fn flat(to: Side, from: Side, bytes: usize) -> Self {
        Self { to, from, width: bytes, height: 1, depth: 1 }
    }

    /// # Errors
    /// `INVALID_VALUE` for a pitch below the width and a place outside of an array.
    pub(crate) fn of_2d(c: &CUDA_MEMCPY2D) -> Outcome<Self> {
        let (size, dst, src) =
            ([c.WidthInBytes, c.Height], [c.dstXInBytes, c.dstY, 0], [c.srcXInBytes, c.srcY, 0]);
        let to = Base::of(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstArray)?;
        let from = Base::of(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcArray)?;
        let (to, from) = (side(to, dst, [c.dstPitch, 0], size)?, side(from, src, [c.srcPitch, 0], size)?);
        Ok(Self { to, from, width: c.WidthInBytes, height: c.Height, depth: 1 })
    }

    /// # Errors
    /// As [`Self::of_2d`].
    pub(crate) fn of_3d(c: &CUDA_MEMCPY3D) -> Outcome<Self> {
        let (dst, src) = ([c.dstXInBytes, c.dstY, c.dstZ], [c.srcXInBytes, c.srcY, c.srcZ]);
        let to = Base::of(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstArray)?;
        let from = Base::of(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcArray)?;
        let size = [c.WidthInBytes, c.Height];
        let to = side(to, dst, [c.dstPitch, c.dstHeight], size)?;
        let from = side(from, src, [c.srcPitch, c.srcHeight], size)?;
        Ok(Self { to, from, width: c.WidthInBytes, height: c.Height, depth: c.Depth })
    }

    /// # Errors
    /// As [`Self::of_2d`], and `INVALID_CONTEXT` for an unknown context.
    pub(crate) fn of_peer(c: &CUDA_MEMCPY3D_PEER) -> Outcome<Self> {
        let (dst, src) = ([c.dstXInBytes, c.dstY, c.dstZ], [c.srcXInBytes, c.srcY, c.srcZ]);
        let to = Base::of(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstArray)?;
        let from = Base::of(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcArray)?;
        let size = [c.WidthInBytes, c.Height];
        let mut to = side(to, dst, [c.dstPitch, c.dstHeight], size)?;
        let mut from = side(from, src, [c.srcPitch, c.srcHeight], size)?;
        to.device = Some(Context::of(c.dstContext)?.device);
        from.device = Some(Context::of(c.srcContext)?.device);
        Ok(Self { to, from, width: c.WidthInBytes, height: c.Height, depth: c.Depth })
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.width * self.height * self.depth) as u64
    }

    /// Bytes from the first to the last of a side.
    pub(crate) fn extent(&self, side: &Side) -> u64 {
        side.row(self.height - 1, self.depth - 1) - side.address + self.width as u64
    }
}

/// The origin of one side of a shaped copy.
enum Base {
    Address(u64, Said),
    Array(Arc<Array>),
}

impl Base {
    fn of(kind: u32, host: *const c_void, device: u64, array: CUarray) -> Outcome<Self> {
        match kind {
            CU_MEMORYTYPE_HOST => Ok(Self::Address(host as u64, Said::Host)),
            CU_MEMORYTYPE_DEVICE => Ok(Self::Address(device, Said::Device)),
            CU_MEMORYTYPE_UNIFIED => Ok(Self::Address(device, Said::Anything)),
            CU_MEMORYTYPE_ARRAY => Array::of(array).map(Self::Array),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }
}

/// One side of a shaped copy. `at` is x in bytes, y, z; `layout` the pitch and the rows of a layer;
/// `size` the bytes and rows that are copied.
fn side(base: Base, at: [usize; 3], layout: [usize; 2], size: [usize; 2]) -> Outcome<Side> {
    let (base, said) = match base {
        Base::Address(address, said) => (address, said),
        Base::Array(array) => return in_array(&array, at, size),
    };
    let ([x, y, z], [width, height]) = (at, size);
    let pitch = if layout[0] == 0 { x + width } else { layout[0] };
    let rows = if layout[1] == 0 { y + height } else { layout[1] };
    require(x + width <= pitch && y + height <= rows || height <= 1, CUresult::INVALID_VALUE)?;
    let layer = pitch.checked_mul(rows).ok_or(CUresult::INVALID_VALUE)?;
    let address = base + (z * layer + y * pitch + x) as u64;
    Ok(Side { address, said, pitch, layer, device: None })
}

/// A side that is part of an array. Its layers are checked with the extent of the whole copy.
fn in_array(array: &Array, [x, y, z]: [usize; 3], [width, height]: [usize; 2]) -> Outcome<Side> {
    let (pitch, rows) = (array.pitch, array.rows());
    let within = x.checked_add(width).is_some_and(|end| end <= pitch)
        && y.checked_add(height).is_some_and(|end| end <= rows);
    require(within, CUresult::INVALID_VALUE)?;
    let layer = pitch * rows;
    let address = array.address + (z * layer + y * pitch + x) as u64;
    Ok(Side { address, said: Said::Array, pitch, layer, device: None })
}

/// A side of a copy: its memory, and the device or the host that accesses it.
#[derive(Debug, Clone, Copy)]
struct Known {
    side: Side,
    /// `None`: memory of the program that the driver does not know.
    place: Option<Place>,
    want: Want,
    device: usize,
}

impl Known {
    fn new(side: Side, want: Want, context: &Context, bytes: u64) -> Outcome<Self> {
        require(side.address != 0, CUresult::INVALID_VALUE)?;
        let device = side.device.unwrap_or(context.device);
        let memory = driver().memory();
        let place = memory.place(side.address);
        let known = Self { side, place, want, device };
        require(!memory.is_behind(side.address), CUresult::INVALID_VALUE)?;
        match (side.said, memory.find(side.address)) {
            (Said::Host | Said::Anything, None) => return Ok(known),
            (Said::Host, Some(area)) => require(cpu_may(area, side.address), CUresult::INVALID_VALUE)?,
            (Said::Device | Said::Array, None) => return Err(CUresult::INVALID_VALUE),
            (Said::Device | Said::Anything | Said::Array, Some(_)) => {}
        }
        if side.said != Said::Host {
            memory.check(side.address, bytes, want, device)?;
        }
        Ok(known)
    }

    fn is_pageable(&self) -> bool {
        self.place.is_none()
    }

    fn on_device(&self) -> Option<usize> {
        match self.place {
            Some(Place::Device(ordinal)) => Some(ordinal),
            _ => None,
        }
    }
}

/// A copy of consecutive bytes between two contexts.
///
/// NVIDIA's driver crashes in this form if an end is mapped host memory to which the other device
/// has no right, crossing a border or not. It does not crash in the form with a description.
///
/// # Errors
/// `INVALID_CONTEXT`.
pub(crate) fn between(ends: [(u64, CUcontext); 2], bytes: usize) -> Outcome<Shape> {
    let devices = [Context::of(ends[0].1)?.device, Context::of(ends[1].1)?.device];
    let memory = driver().memory();
    let crashes =
        |end: usize| memory.is_on_the_host_for_one(ends[end].0, bytes as u64, devices[end], devices[1 - end]);
    if crashes(0) || crashes(1) {
        crash("a copy between contexts has host memory at an end, which only one of the two devices may use");
    }
    let side = |end: usize| Side { device: Some(devices[end]), ..Side::flat(ends[end].0, Said::Anything) };
    Ok(Shape::flat(side(0), side(1), bytes))
}

/// Ends the process where NVIDIA's driver crashes.
fn crash(what: &str) -> ! {
    eprintln!("simcuda: {what}; NVIDIA's driver crashes here");
    std::process::abort()
}

/// Is this an address that the CPU may use?
fn cpu_may(area: &Area, address: u64) -> bool {
    match &area.owner {
        Owner::Host { .. } | Owner::Registered { .. } | Owner::Managed { .. } => true,
        Owner::Reserved(_) => {
            area.mapping(address).is_some_and(|(_, mapping)| mapping.rights.of(Place::Host) != 0)
        }
        _ => false,
    }
}

/// A checked copy.
#[derive(Debug, Clone, Copy)]
struct Plan {
    shape: Shape,
    to: Known,
    from: Known,
}

impl Plan {
    fn new(context: &Context, shape: Shape) -> Outcome<Self> {
        let to = Known::new(shape.to, Want::Write, context, shape.extent(&shape.to))?;
        let from = Known::new(shape.from, Want::Read, context, shape.extent(&shape.from))?;
        let plan = Self { shape, to, from };
        plan.crash_at_borders(context);
        Ok(plan)
    }

    /// NVIDIA's driver crashes in a copy between devices if one side lies across a border of device
    /// and host memory. The forms of copy have not been tested one by one, so all of them crash
    /// here.
    fn crash_at_borders(&self, context: &Context) {
        let places = |known: &Known| {
            let mapped = known.side.said != Said::Host && !known.is_pageable();
            let bytes = if mapped { self.shape.extent(&known.side) } else { 0 };
            driver().memory().mapped_places(known.side.address, bytes)
        };
        let sides = [&self.to, &self.from].map(|known| (known, places(known)));
        // Memory of two devices side by side is copied like that of one, such as WholeMemory's
        // continuous memory.
        let is_border = |places: &[Place]| {
            places.len() > 1 && places.iter().any(|place| !matches!(place, Place::Device(_)))
        };
        if sides.iter().all(|(_, places)| !is_border(places)) {
            return;
        }
        let home = |(known, places): &(&Known, Vec<Place>)| {
            let on_a_device =
                |place: &Place| if let Place::Device(ordinal) = place { Some(*ordinal) } else { None };
            known.side.device.or_else(|| places.iter().find_map(on_a_device)).or_else(|| known.on_device())
        };
        let devices = sides.iter().filter_map(home);
        if devices.chain([context.device]).any(|device| device != context.device) {
            crash("a copy between devices crosses a border of device and host memory");
        }
    }

    /// The accesses of the copy, row by row. A staged source has been read already.
    fn accesses(&self, staged: bool) -> Vec<Access> {
        let mut accesses = self.rows(&self.to).map(Access::write).collect::<Vec<_>>();
        if !staged {
            accesses.extend(self.rows(&self.from).map(Access::read));
        }
        accesses
    }

    /// The bytes of one side: one range if rows have no gaps.
    fn rows(&self, known: &Known) -> impl Iterator<Item = Range<u64>> {
        let (shape, side) = (self.shape, known.side);
        let whole = shape.extent(&side) == shape.bytes();
        let (width, height, depth) =
            if whole { (shape.bytes(), 1, 1) } else { (shape.width as u64, shape.height, shape.depth) };
        let starts = (0..depth).flat_map(move |z| (0..height).map(move |y| side.row(y, z)));
        starts.map(move |start| start..start + width)
    }

    /// The link that the bytes travel over.
    fn link(&self) -> Option<&'static Link> {
        let devices = &driver().devices;
        match (self.from.on_device(), self.to.on_device()) {
            (None, Some(to)) => Some(&devices[to].inbound),
            (Some(from), None) => Some(&devices[from].outbound),
            (Some(from), Some(to)) if from != to => Some(&devices[from].peer),
            _ => None,
        }
    }

    /// Moves the bytes.
    fn run(&self) -> Outcome {
        let end = self.link().and_then(|link| link.book(self.shape.bytes()));
        for z in 0..self.shape.depth {
            for y in 0..self.shape.height {
                self.copy_row(self.to.side.row(y, z), self.from.side.row(y, z))?;
            }
        }
        link::pace(end);
        Ok(())
    }

    /// One row, in pieces: the address map is locked only for the time of one piece.
    fn copy_row(&self, to: u64, from: u64) -> Outcome {
        const PIECE: u64 = 4 << 20;
        let width = self.shape.width as u64;
        // For overlapping bytes CUDA defines no result; here they arrive as with `memmove` if they
        // fit one piece.
        for at in (0..width).step_by(PIECE as usize) {
            let bytes = PIECE.min(width - at);
            let memory = driver().memory();
            for (known, address) in [(&self.to, to + at), (&self.from, from + at)] {
                if !known.is_pageable() && known.side.said != Said::Host {
                    let still = memory.check_moving(address, bytes, known.want, known.device);
                    still.map_err(|_| CUresult::ILLEGAL_ADDRESS)?;
                }
            }
            // SAFETY: known memory was checked under the lock; the program guarantees the other
            // range.
            unsafe { space::copy(to + at, from + at, bytes) };
        }
        Ok(())
    }
}

/// The copy as work, for a graph.
///
/// # Errors
/// `INVALID_VALUE` for a range that the driver does not know or whose rights forbid the access.
pub(crate) fn work(context: &Context, shape: Shape) -> Outcome<Work> {
    if shape.bytes() == 0 {
        return Ok(Arc::new(|| Ok(())));
    }
    let plan = Plan::new(context, shape)?;
    Ok(races::declare(Arc::new(move || plan.run()), || plan.accesses(false)))
}

/// Pageable sources of at most this many bytes are staged, so that the call need not wait.
const STAGED: u64 = 64 << 10;

/// Copies in order with a stream's work. A synchronous copy waits, except between devices; an
/// asynchronous one waits only if pageable memory forces the driver to.
///
/// # Errors
/// As [`work`]; if it waits, also the error of the copy itself.
pub(crate) fn start(context: &Context, stream: &Stream, shape: Shape, synchronous: bool) -> Outcome {
    if shape.bytes() == 0 {
        return Ok(());
    }
    let plan = Plan::new(context, shape)?;
    let staged =
        !synchronous && plan.from.is_pageable() && shape.bytes() <= STAGED && stream.capture().is_none();
    let work: Work = if staged { stage(&plan) } else { Arc::new(move || plan.run()) };
    let work = races::declare(work, || plan.accesses(staged));
    let pageable = plan.to.is_pageable() || (plan.from.is_pageable() && !staged);
    let between_devices = plan.to.on_device().is_some() && plan.from.on_device().is_some();
    let waits = pageable || (synchronous && !between_devices);
    let Some(point) = stream.submit(Form::of_copy(&shape), work)? else { return Ok(()) };
    if waits {
        point.wait();
        return context.fault.check();
    }
    Ok(())
}

/// Reads the source's bytes now; the work copies from them.
fn stage(plan: &Plan) -> Work {
    let (mut later, shape) = (*plan, plan.shape);
    let mut bytes = vec![0_u8; shape.bytes() as usize];
    for row in 0..shape.height * shape.depth {
        let (y, z) = (row % shape.height, row / shape.height);
        let to = bytes[row * shape.width..].as_mut_ptr() as u64;
        // SAFETY: the destination is ours; the program guarantees the source.
        unsafe { space::copy(to, plan.from.side.row(y, z), shape.width as u64) };
    }
    later.from.side =
        Side { pitch: shape.width, layer: shape.width * shape.height, ..Side::flat(0, Said::Host) };
    Arc::new(move || {
        let mut plan = later;
        plan.from.side.address = bytes.as_ptr() as u64;
        plan.run()
    })
}
