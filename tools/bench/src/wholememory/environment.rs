//! Memory functions that a program gives to the library (`wholememory_env_func_t`), as `PyTorch`'s
//! allocators are: a block that was given back is kept for the next request of its size, so that no
//! library pays for the driver's allocations after its first call.
//!
//! Blocks are handed out again at once: all work of a rank is in one stream, as it is in PyTorch.

use std::alloc::{Layout, alloc};
use std::collections::HashMap;
use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;

use wm_driver::Api;
use wm_driver::api::Named;

use super::shape::TensorShape;

/// `WHOLEMEMORY_MA_DEVICE`, `_PINNED`
const ON_DEVICE: c_uint = 1;
const PINNED: c_uint = 3;

type CreateContext = unsafe extern "C" fn(*mut *mut c_void, *mut c_void);
type MallocFor = unsafe extern "C" fn(*mut TensorShape, c_uint, *mut c_void, *mut c_void) -> *mut c_void;
type GiveBack = unsafe extern "C" fn(*mut c_void, *mut c_void);

/// `wholememory_env_func_t`
#[derive(Debug)]
#[repr(C)]
pub(super) struct EnvironmentFunctions {
    create: CreateContext,
    destroy: GiveBack,
    malloc: MallocFor,
    free: GiveBack,
    global: *mut c_void,
    output_malloc: MallocFor,
    output_free: GiveBack,
    output_global: *mut c_void,
}

/// The memory of a process: one value, which lives until the process ends.
#[derive(Debug)]
struct LentBlocks {
    driver: Named<'static>,
    idle: Mutex<HashMap<(c_uint, usize), Vec<usize>>>,
}

/// One request's memory.
#[derive(Debug, Clone, Copy, Default)]
struct LentBlock {
    place: c_uint,
    bytes: usize,
    address: usize,
}

impl EnvironmentFunctions {
    pub(super) fn new(driver: Named<'static>) -> Self {
        let blocks: &'static LentBlocks = Box::leak(Box::new(LentBlocks { driver, idle: Mutex::default() }));
        let global = std::ptr::from_ref(blocks).cast_mut().cast();
        Self {
            create,
            destroy,
            malloc,
            free,
            global,
            output_malloc: malloc,
            output_free: free,
            output_global: global,
        }
    }
}

impl LentBlocks {
    fn lend(&self, place: c_uint, bytes: usize) -> LentBlock {
        let bytes = size_class(bytes);
        let idle = self.idle.lock().ok().and_then(|mut idle| idle.get_mut(&(place, bytes))?.pop());
        LentBlock { place, bytes, address: idle.unwrap_or_else(|| self.make(place, bytes)) }
    }

    fn make(&self, place: c_uint, bytes: usize) -> usize {
        match place {
            ON_DEVICE => self.driver.mem_alloc(bytes).unwrap_or(0) as usize,
            PINNED => self.driver.mem_host_alloc(bytes, 0).map_or(0, |address| address as usize),
            // SAFETY: a size class is not 0. The block is kept for ever, or until the process ends.
            _ => Layout::from_size_align(bytes, 64).map_or(0, |layout| unsafe { alloc(layout) } as usize),
        }
    }

    fn give_back(&self, block: LentBlock) {
        match self.idle.lock() {
            Ok(mut idle) => idle.entry((block.place, block.bytes)).or_default().push(block.address),
            Err(_) => debug_assert!(false, "no code under the lock panics"),
        }
    }
}

/// The rounded size of a request: a power of two, and from 1 MiB on a multiple of that.
fn size_class(bytes: usize) -> usize {
    const LARGE: usize = 1 << 20;
    if bytes < LARGE { bytes.next_power_of_two().max(512) } else { bytes.next_multiple_of(LARGE) }
}

unsafe extern "C" fn create(place: *mut *mut c_void, _global: *mut c_void) {
    // SAFETY: the library hands over a place of its own.
    unsafe { place.write(Box::into_raw(Box::<LentBlock>::default()).cast()) };
}

unsafe extern "C" fn destroy(context: *mut c_void, global: *mut c_void) {
    // SAFETY: the library passes the pointer that `create` returned, for the last time.
    unsafe {
        free(context, global);
        drop(Box::from_raw(context.cast::<LentBlock>()));
    }
}

unsafe extern "C" fn malloc(
    shape: *mut TensorShape,
    place: c_uint,
    context: *mut c_void,
    global: *mut c_void,
) -> *mut c_void {
    // SAFETY: the library passes the pointers that it was given, and a shape of its own.
    unsafe {
        free(context, global);
        let (blocks, bytes) = (&*global.cast::<LentBlocks>(), (*shape).bytes());
        // As PyTorch does.
        if bytes == 0 {
            return null_mut();
        }
        let block = blocks.lend(place, bytes);
        context.cast::<LentBlock>().write(block);
        block.address as *mut c_void
    }
}

unsafe extern "C" fn free(context: *mut c_void, global: *mut c_void) {
    // SAFETY: the library passes the pointer that it was given, and the one that `create` returned.
    let (blocks, block) =
        unsafe { (&*global.cast::<LentBlocks>(), context.cast::<LentBlock>().replace(LentBlock::default())) };
    if block.address != 0 {
        blocks.give_back(block);
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a block that is smaller than the request.
    use super::*;

    #[test]
    fn classes_cover_what_is_asked_for() {
        let found = [1, 512, 513, (1 << 20) - 1, 1 << 20, (1 << 20) + 1].map(size_class);
        assert_eq!(found, [512, 512, 1024, 1 << 20, 1 << 20, 2 << 20]);
    }
}
