//! Memory functions that a program passes to the library (`wholememory_env_func_t`), which count
//! open objects and can fail.

use std::cell::{Cell, RefCell};
use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;

use wm_driver::Api;

use crate::api::Description;
use crate::rank::{Rank, Verdict, must};

/// `WHOLEMEMORY_MA_*`
const ON_DEVICE: c_uint = 1;
const ON_HOST: c_uint = 2;
const PINNED: c_uint = 3;

type Create = unsafe extern "C" fn(*mut *mut c_void, *mut c_void);
type Malloc = unsafe extern "C" fn(*mut Description, c_uint, *mut c_void, *mut c_void) -> *mut c_void;
type Give = unsafe extern "C" fn(*mut c_void, *mut c_void);

/// `wholememory_env_func_t`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Functions {
    pub(crate) create: Option<Create>,
    pub(crate) destroy: Option<Give>,
    pub(crate) malloc: Option<Malloc>,
    pub(crate) free: Option<Give>,
    global: *mut c_void,
    pub(crate) output_malloc: Option<Malloc>,
    pub(crate) output_free: Option<Give>,
    output_global: *mut c_void,
}

/// The program whose functions allocate the memory.
#[derive(Debug)]
pub(crate) struct Caller<'a> {
    rank: &'a Rank,
    /// Contexts of temporary memory, and outputs, that were made and not released.
    pub(crate) contexts: Cell<isize>,
    pub(crate) outputs: Cell<isize>,
    /// Requests so far, and the number of the one that fails.
    requests: Cell<usize>,
    fails: Cell<usize>,
}

/// Memory of one context.
#[derive(Debug)]
pub(crate) struct Memory<'a> {
    rank: &'a Rank,
    pub(crate) shape: Cell<Option<Description>>,
    place: Cell<c_uint>,
    address: Cell<u64>,
    host: RefCell<Vec<u64>>,
}

impl<'a> Memory<'a> {
    pub(crate) fn new(rank: &'a Rank) -> Self {
        let (place, address) = (Cell::new(0), Cell::new(0));
        Self { rank, shape: Cell::new(None), place, address, host: RefCell::default() }
    }

    /// The library's handle for it.
    pub(crate) fn context(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    fn bytes(&self) -> usize {
        let Some(shape) = self.shape.get() else { return 0 };
        let element = [0, 4, 2, 8, 2, 4, 8, 2, 1][shape.dtype as usize];
        shape.sizes[..shape.dim as usize].iter().product::<i64>() as usize * element
    }

    fn allocate(&self, shape: Description, place: c_uint) -> *mut c_void {
        self.give_back();
        self.shape.set(Some(shape));
        self.place.set(place);
        let bytes = self.bytes();
        let address = match place {
            // As PyTorch does.
            _ if bytes == 0 => 0,
            ON_DEVICE => self.rank.driver.mem_alloc(bytes).unwrap_or(0),
            PINNED => self.rank.driver.mem_host_alloc(bytes, 0).map_or(0, |address| address as u64),
            _ => {
                *self.host.borrow_mut() = vec![0; bytes.div_ceil(8)];
                self.host.borrow_mut().as_mut_ptr() as u64
            }
        };
        self.address.set(address);
        address as *mut c_void
    }

    fn give_back(&self) {
        let address = self.address.replace(0);
        match self.place.get() {
            ON_DEVICE if address != 0 => drop(self.rank.driver.mem_free(address)),
            // SAFETY: `allocate` has pinned it.
            PINNED if address != 0 => drop(unsafe { self.rank.driver.mem_free_host(address as *mut c_void) }),
            _ => self.host.borrow_mut().clear(),
        }
        self.shape.set(None);
    }

    /// Its content.
    pub(crate) fn read(&self) -> Verdict<Vec<u8>> {
        must(self.shape.get().is_some(), || "an output that was not made".to_owned())?;
        self.rank.driver.ctx_synchronize().map_err(|error| error.to_string())?;
        match (self.bytes(), self.place.get()) {
            (0, _) => Ok(Vec::new()),
            (bytes, ON_HOST) => {
                Ok(self.host.borrow().iter().flat_map(|word| word.to_le_bytes()).take(bytes).collect())
            }
            (bytes, _) => self.rank.read(self.address.get(), bytes),
        }
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl<'a> Caller<'a> {
    pub(crate) fn new(rank: &'a Rank) -> Self {
        let (contexts, outputs) = (Cell::new(0), Cell::new(0));
        Self { rank, contexts, outputs, requests: Cell::new(0), fails: Cell::new(usize::MAX) }
    }

    pub(crate) fn functions(&self) -> Functions {
        let global = std::ptr::from_ref(self).cast_mut().cast();
        let (create, destroy) = (Some(create as Create), Some(destroy as Give));
        let (malloc, free) = (Some(malloc as Malloc), Some(free as Give));
        let (output_malloc, output_free) = (Some(output_malloc as Malloc), Some(output_free as Give));
        Functions { create, destroy, malloc, free, global, output_malloc, output_free, output_global: global }
    }

    /// Makes a request fail: the first is number 0.
    pub(crate) fn fail(&self, number: usize) {
        self.requests.set(0);
        self.fails.set(number);
    }

    fn grants(&self) -> bool {
        self.requests.replace(self.requests.get() + 1) != self.fails.get()
    }

    /// All temporary memory has been released.
    pub(crate) fn is_even(&self) -> Verdict {
        must(self.contexts.get() == 0, || {
            format!("{} contexts of temporary memory are left", self.contexts.get())
        })
    }
}

fn add(count: &Cell<isize>, more: isize) {
    count.set(count.get() + more);
}

/// # Safety
/// The pointer is the one of [`Caller::functions`].
unsafe fn caller<'a>(global: *mut c_void) -> &'a Caller<'a> {
    // SAFETY: the caller guarantees it.
    unsafe { &*global.cast() }
}

unsafe extern "C" fn create(place: *mut *mut c_void, global: *mut c_void) {
    // SAFETY: the library passes our pointer, and a place of its own.
    unsafe {
        let caller = caller(global);
        if caller.grants() {
            add(&caller.contexts, 1);
            place.write(Box::into_raw(Box::new(Memory::new(caller.rank))).cast());
        }
    }
}

unsafe extern "C" fn destroy(context: *mut c_void, global: *mut c_void) {
    // SAFETY: the library passes a context that `create` made.
    unsafe {
        add(&caller(global).contexts, -1);
        drop(Box::from_raw(context.cast::<Memory<'_>>()));
    }
}

unsafe extern "C" fn malloc(
    shape: *mut Description,
    place: c_uint,
    context: *mut c_void,
    global: *mut c_void,
) -> *mut c_void {
    // SAFETY: the library passes our pointers, and a description of its own.
    unsafe {
        let memory = &*context.cast::<Memory<'_>>();
        if caller(global).grants() { memory.allocate(*shape, place) } else { null_mut() }
    }
}

unsafe extern "C" fn free(context: *mut c_void, _global: *mut c_void) {
    // SAFETY: the library passes a context that `create` made.
    unsafe { &*context.cast::<Memory<'_>>() }.give_back();
}

unsafe extern "C" fn output_malloc(
    shape: *mut Description,
    place: c_uint,
    context: *mut c_void,
    global: *mut c_void,
) -> *mut c_void {
    // SAFETY: the library passes our pointers.
    unsafe {
        let caller = caller(global);
        if caller.requests.get() == caller.fails.get() {
            return malloc(shape, place, context, global);
        }
        add(&caller.outputs, 1);
        malloc(shape, place, context, global)
    }
}

unsafe extern "C" fn output_free(context: *mut c_void, global: *mut c_void) {
    // SAFETY: the library passes our pointers.
    unsafe {
        add(&caller(global).outputs, -1);
        free(context, global);
    }
}
