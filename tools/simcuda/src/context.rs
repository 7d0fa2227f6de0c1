//! Contexts: a thread's working state, and the objects that end with it.
//!
//! Invariants: a context's handle is in the registry exactly while it is alive; a primary context
//! keeps its handle over its lives; each thread has a stack of handles, which may be stale.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use wm_abi::{CUcontext, CUresult};

use crate::device::Device;
use crate::entry::{Call, Outcome};
use crate::lane::{Fault, Lane, Point, Work};
use crate::memory::Owner;
use crate::state::driver;
use crate::stream::Stream;

/// One context.
#[derive(Debug)]
pub(crate) struct Context {
    /// Its handle.
    pub(crate) handle: usize,
    /// Unique in the process, unlike the handle of a primary context.
    pub(crate) id: u64,
    /// Ordinal of its device.
    pub(crate) device: usize,
    /// Is it the device's primary context?
    pub(crate) primary: bool,
    /// The handle as a green context, and the primary context that it is a part of.
    green: Option<(usize, Arc<Context>)>,
    /// Was it a green context that was destroyed?
    ended: AtomicBool,
    /// The number of attachments to it, its creator's included.
    pub(crate) users: AtomicU32,
    /// `CU_CTX_*`.
    pub(crate) flags: AtomicU32,
    /// Its sticky error.
    pub(crate) fault: Arc<Fault>,
    /// Values of `cuCtxSetLimit`, by `CUlimit`.
    pub(crate) limits: Mutex<[usize; 7]>,
    /// Contexts whose memory this one may touch.
    pub(crate) peers: Mutex<BTreeSet<usize>>,
    /// Held while work is pushed, so that all waits of the default stream refer to one moment.
    lanes: Mutex<Vec<Arc<Lane>>>,
    legacy: OnceLock<Arc<Stream>>,
}

/// A device's primary context.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    /// How often it was retained.
    pub(crate) references: usize,
    /// Flags that it has, or will have.
    pub(crate) flags: u32,
    /// Its handle, once it has lived.
    pub(crate) handle: usize,
}

/// Stack size, FIFO of printf, heap, depth and number of device-side launches, L2 fetch, persisting
/// L2.
const LIMITS: [usize; 7] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0];

impl Context {
    /// Makes a context with a handle of its own, or with the given one.
    pub(crate) fn create(device: usize, flags: u32, primary: Option<usize>) -> Arc<Self> {
        Self::make(device, flags, primary, None)
    }

    /// A green context: part of a primary context.
    pub(crate) fn green(primary: &Arc<Self>, handle: usize) -> Arc<Self> {
        Self::make(primary.device, primary.flags(), None, Some((handle, Arc::clone(primary))))
    }

    fn make(
        device: usize,
        flags: u32,
        primary: Option<usize>,
        green: Option<(usize, Arc<Self>)>,
    ) -> Arc<Self> {
        let handle = primary.unwrap_or_else(|| driver().contexts.reserve());
        let context = Arc::new(Self {
            handle,
            id: crate::memory::store::unique(),
            device,
            primary: primary.is_some(),
            green,
            ended: AtomicBool::new(false),
            users: AtomicU32::new(1),
            flags: AtomicU32::new(flags),
            fault: Arc::default(),
            limits: Mutex::new(LIMITS),
            peers: Mutex::default(),
            lanes: Mutex::default(),
            legacy: OnceLock::new(),
        });
        if let Err(error) = context.of_device().lost.check() {
            context.fault.set(error);
        }
        driver().contexts.enter(handle, Arc::clone(&context));
        context
    }

    /// The context of a handle.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` if no living context has it; the context's sticky error.
    pub(crate) fn of(handle: CUcontext) -> Outcome<Arc<Self>> {
        let context = driver().contexts.get(handle.0).ok_or(CUresult::INVALID_CONTEXT)?;
        context.fault.check()?;
        Ok(context)
    }

    /// The legacy default stream.
    pub(crate) fn legacy(self: &Arc<Self>) -> Arc<Stream> {
        Arc::clone(self.legacy.get_or_init(|| Arc::new(Stream::legacy(self))))
    }

    /// Makes a lane whose work belongs to this context.
    pub(crate) fn lane(&self, blocking: bool) -> Arc<Lane> {
        let lane = Lane::new(Arc::clone(&self.fault), blocking);
        let mut lanes = self.lanes();
        lanes.retain(|lane| !lane.is_over());
        lanes.push(Arc::clone(&lane));
        lane
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Arc<Lane>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues work in a lane, in order with the legacy default stream if the lane takes part in
    /// that.
    ///
    /// # Errors
    /// As [`Lane::push`].
    pub(crate) fn push(&self, lane: &Arc<Lane>, mut after: Vec<Point>, work: Work) -> Outcome<Point> {
        let lanes = self.lanes();
        let legacy = self.legacy.get().map(|stream| &stream.lane);
        if legacy.is_some_and(|legacy| Arc::ptr_eq(legacy, lane)) {
            after.extend(lanes.iter().filter(|other| other.blocking).filter_map(|other| other.tail()));
        } else if lane.blocking {
            after.extend(legacy.and_then(|legacy| legacy.tail()));
        }
        lane.push(after, work)
    }

    /// The ends of all work now in the context, and in its green ones.
    pub(crate) fn tails(&self) -> Vec<Point> {
        let contexts = driver().contexts.all();
        let greens = contexts.iter().filter(|other| other.is_part_of(self));
        let mut tails: Vec<Point> = self.lanes().iter().filter_map(|lane| lane.tail()).collect();
        tails.extend(greens.flat_map(|green| green.tails()));
        tails
    }

    fn is_part_of(&self, other: &Self) -> bool {
        self.green.as_ref().is_some_and(|(_, primary)| primary.id == other.id)
    }

    /// Its handle as a green context, or 0.
    pub(crate) fn green_handle(&self) -> usize {
        self.green.as_ref().map_or(0, |(handle, _)| *handle)
    }

    /// The handle of the context that owns memory made here.
    pub(crate) fn owner_handle(&self) -> usize {
        self.green.as_ref().map_or(self.handle, |(_, primary)| primary.handle)
    }

    /// Ends a green context at once. The work in its streams goes on, and the primary context waits
    /// for it; the streams exist on, but calls with them fail; memory and other objects stay.
    pub(crate) fn detach(&self) {
        driver().contexts.remove(self.handle);
        crate::capture::end_of_context(self.id);
        self.ended.store(true, Ordering::Relaxed);
        if let Some((_, primary)) = &self.green {
            let lanes = std::mem::take(&mut *self.lanes());
            primary.lanes().extend(lanes);
        }
    }

    /// Was it a green context, and is it gone?
    fn of_device(&self) -> &'static Device {
        &driver().devices[self.device]
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Blocks until all work now in the context is done.
    ///
    /// # Errors
    /// The context's sticky error.
    pub(crate) fn synchronize(&self) -> Outcome {
        self.tails().iter().for_each(Point::wait);
        self.fault.check()
    }

    /// Ends the context: waits for its work, and destroys its streams, events, modules and memory.
    pub(crate) fn destroy(&self) {
        let contexts = &driver().contexts;
        let _context =
            if self.primary { contexts.suspend(self.handle) } else { contexts.remove(self.handle) };
        if let Err(error) = self.synchronize() {
            self.of_device().lost.set(error);
        }
        crate::capture::end_of_context(self.id);
        driver().streams.retain(|stream| stream.context_id != self.id);
        driver().events.retain(|event| event.context_id != self.id);
        driver().modules.retain(|module| module.context_id != self.id);
        driver().functions.retain(|function| function.context_id != self.id);
        driver().arrays.retain(|array| array.context_id != self.id);
        for lane in self.lanes().iter() {
            lane.close();
        }
        let areas = driver().memory_mut().drain(|area| area.context() == Some(self.handle));
        areas
            .into_iter()
            .filter(|area| !matches!(area.owner, Owner::Registered { .. }))
            .for_each(|area| area.discard());
    }
}

/// Blocks until a device has completed all its present work, as frees of host memory and of arrays
/// and `cuIpcCloseMemHandle` do.
pub(crate) fn synchronize_device(device: usize) {
    let contexts = driver().contexts.all();
    contexts
        .iter()
        .filter(|context| context.device == device)
        .flat_map(|context| context.tails())
        .for_each(|p| p.wait());
}

thread_local! {
    // Never dropped: destructors of threads make calls too, after other thread-locals are gone.
    static STACK: RefCell<ManuallyDrop<Vec<usize>>> = const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// The calling thread's current context in any state; `None` if it has none.
pub(crate) fn current_handle() -> Option<usize> {
    STACK.with_borrow(|stack| stack.last().copied()).filter(|handle| *handle != 0)
}

/// The device of the calling thread's current context, if the context lives.
pub(crate) fn current_device() -> Option<usize> {
    let handle = current_handle()?;
    driver().contexts.get(handle).map(|context| context.device)
}

/// Replaces the current context.
pub(crate) fn set_current(handle: usize) {
    STACK.with_borrow_mut(|stack| {
        stack.pop();
        if handle != 0 {
            stack.push(handle);
        }
    });
}

/// Makes a context current on top of the present one.
pub(crate) fn push_current(handle: usize) {
    STACK.with_borrow_mut(|stack| stack.push(handle));
}

/// Takes the current context off the stack.
pub(crate) fn pop_current() -> Option<usize> {
    STACK.with_borrow_mut(|stack| stack.pop())
}

impl Call {
    /// The current context, able to work.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` without one, `CONTEXT_IS_DESTROYED` if it has ended, and its sticky error.
    pub(crate) fn context(self) -> Outcome<Arc<Context>> {
        let handle = current_handle().ok_or(CUresult::INVALID_CONTEXT)?;
        let context = driver().contexts.get(handle).ok_or(CUresult::CONTEXT_IS_DESTROYED)?;
        context.fault.check()?;
        Ok(context)
    }

    /// The context of a handle, or the current one for the null handle.
    ///
    /// # Errors
    /// As [`Self::context`] and [`Context::of`].
    pub(crate) fn context_or_current(self, handle: CUcontext) -> Outcome<Arc<Context>> {
        if handle.is_null() { self.context() } else { Context::of(handle) }
    }
}

impl Primary {
    /// Starts the context's life, or counts another user of it.
    pub(crate) fn retain(&mut self, device: usize) -> usize {
        if self.references == 0 {
            let handle = if self.handle == 0 { driver().contexts.reserve() } else { self.handle };
            self.handle = Context::create(device, self.flags, Some(handle)).handle;
        }
        self.references += 1;
        self.handle
    }

    /// The living context, if there is one.
    pub(crate) fn context(&self) -> Option<Arc<Context>> {
        driver().contexts.get(self.handle).filter(|_| self.references > 0)
    }

    /// Undoes one retain; the last ends the context.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` if it was not retained.
    pub(crate) fn release(&mut self) -> Outcome<Option<Arc<Context>>> {
        let context = self.context().ok_or(CUresult::INVALID_CONTEXT)?;
        self.references -= 1;
        Ok((self.references == 0).then_some(context))
    }
}

/// Checks the flags of a new context.
///
/// # Errors
/// `INVALID_VALUE` for any other bit, and for more than one way to wait.
pub(crate) fn check_flags(flags: u32) -> Outcome {
    let known = flags & !wm_abi::CU_CTX_FLAGS_MASK == 0;
    let schedule = flags & wm_abi::CU_CTX_SCHED_MASK;
    crate::entry::require(known && (schedule == 0 || schedule.is_power_of_two()), CUresult::INVALID_VALUE)
}

impl Context {
    /// Its flags.
    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }
}

impl Context {
    /// Is all work over in the legacy default stream and in every stream that it waits for?
    pub(crate) fn blocking_is_idle(&self) -> bool {
        let legacy = self.legacy.get().is_none_or(|stream| stream.lane.is_idle());
        legacy && self.lanes().iter().all(|lane| !lane.blocking || lane.is_idle())
    }
}
