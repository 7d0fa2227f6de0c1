//! One rank: a thread with a GPU, its communicator, and short forms of the scenarios' common steps.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

use wm_abi::CUdeviceptr;
use wm_driver::api::Named;
use wm_driver::{Api, Table};

use crate::api::{Description, Handle, Library, UniqueId};

/// Outcome of a scenario, on one rank.
pub(crate) type Verdict<T = ()> = Result<T, String>;

/// `WHOLEMEMORY_*`
pub(crate) const SUCCESS: c_uint = 0;
pub(crate) const LOGIC_ERROR: c_uint = 3;
pub(crate) const CUDA_ERROR: c_uint = 4;
pub(crate) const COMMUNICATION_ERROR: c_uint = 5;
pub(crate) const INVALID_INPUT: c_uint = 6;
pub(crate) const INVALID_VALUE: c_uint = 7;
pub(crate) const OUT_OF_MEMORY: c_uint = 8;
pub(crate) const NOT_SUPPORTED: c_uint = 9;
pub(crate) const SYSTEM_ERROR: c_uint = 10;

pub(crate) const CONTINUOUS: c_uint = 1;
pub(crate) const CHUNKED: c_uint = 2;
pub(crate) const DISTRIBUTED: c_uint = 3;
pub(crate) const HIERARCHY: c_uint = 4;
pub(crate) const DEVICE: c_uint = 1;
pub(crate) const HOST: c_uint = 2;

/// All types of memory at all locations.
pub(crate) const KINDS: [(c_uint, c_uint); 8] = [
    (CONTINUOUS, DEVICE),
    (CONTINUOUS, HOST),
    (CHUNKED, DEVICE),
    (CHUNKED, HOST),
    (DISTRIBUTED, DEVICE),
    (DISTRIBUTED, HOST),
    (HIERARCHY, DEVICE),
    (HIERARCHY, HOST),
];

/// Those that may span several islands.
const SPANNING: [(c_uint, c_uint); 4] =
    [(DISTRIBUTED, DEVICE), (DISTRIBUTED, HOST), (HIERARCHY, DEVICE), (HIERARCHY, HOST)];

/// Calls a function of the library and requires a code.
macro_rules! want {
    ($code:expr, $rank:ident.$name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: handles may be any number; places are live locals, or null on purpose.
        let code = unsafe { ($rank.library.$name)($($argument),*) };
        let wanted = $code;
        if code == wanted { Ok(()) } else { Err(format!("{} gave {code:?}, not {wanted:?}", stringify!($name))) }
    }};
}
pub(crate) use want;

/// Requires a condition.
pub(crate) fn must(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

/// A running rank.
#[derive(Debug)]
pub(crate) struct Rank {
    pub(crate) library: Library,
    pub(crate) driver: Named<'static>,
    pub(crate) number: usize,
    pub(crate) size: usize,
    /// The islands to which the ranks are dealt in turn.
    pub(crate) islands: usize,
    pub(crate) comm: Handle,
    /// The communicator's own stream: no other communicator has it.
    pub(crate) id: UniqueId,
}

/// A part of memory, as the API returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    pub(crate) offset: usize,
}

impl Rank {
    /// Enters a GPU and joins the others.
    pub(crate) fn begin(
        library: Library,
        driver: &'static Table,
        id: UniqueId,
        number: usize,
        (size, islands): (usize, usize),
    ) -> Verdict<Self> {
        let driver = Named(driver);
        let fail = |error: wm_driver::api::Failed| error.to_string();
        driver.init().map_err(fail)?;
        let devices = driver.device_count().map_err(fail)?;
        let device = number as c_int % devices.max(1);
        let context = driver.primary_ctx_retain(device).map_err(fail)?;
        driver.ctx_set_current(context).map_err(fail)?;
        let mut rank = Self { library, driver, number, size, islands, comm: null_mut(), id };
        let (mut comm, number, size) = (null_mut(), number as c_int, size as c_int);
        want!(SUCCESS, rank.wholememory_create_communicator(&mut comm, id, number, size))?;
        rank.comm = comm;
        Ok(rank)
    }

    /// Leaves.
    pub(crate) fn end(self) -> Verdict {
        want!(SUCCESS, self.wholememory_destroy_communicator(self.comm))
    }

    /// The kinds of memory that the ranks can make.
    pub(crate) fn kinds(&self) -> &'static [(c_uint, c_uint)] {
        if self.islands.min(self.size) == 1 { &KINDS } else { &SPANNING }
    }

    pub(crate) fn barrier(&self) -> Verdict {
        want!(SUCCESS, self.wholememory_communicator_barrier(self.comm))
    }

    /// Memory of `rows` rows; `each` are rows of each rank.
    pub(crate) fn malloc(
        &self,
        rows: usize,
        row: usize,
        kind: (c_uint, c_uint),
        each: Option<&[usize]>,
    ) -> Verdict<Handle> {
        let mut handle = null_mut();
        let each = each.map_or(null(), <[usize]>::as_ptr);
        want!(
            SUCCESS,
            self.wholememory_malloc(&mut handle, rows * row, self.comm, kind.0, kind.1, row, each)
        )?;
        Ok(handle)
    }

    pub(crate) fn free(&self, handle: Handle) -> Verdict {
        want!(SUCCESS, self.wholememory_free(handle))
    }

    pub(crate) fn own_part(&self, handle: Handle) -> Verdict<Part> {
        let (mut pointer, mut bytes, mut offset) = (null_mut(), 0, 0);
        want!(SUCCESS, self.wholememory_get_local_memory(&mut pointer, &mut bytes, &mut offset, handle))?;
        Ok(Part { address: pointer as u64, bytes, offset })
    }

    pub(crate) fn part_of(&self, rank: usize, handle: Handle) -> Verdict<Part> {
        let (mut pointer, mut bytes, mut offset) = (null_mut(), 0, 0);
        let rank = rank as c_int;
        want!(
            SUCCESS,
            self.wholememory_get_rank_memory(&mut pointer, &mut bytes, &mut offset, rank, handle)
        )?;
        Ok(Part { address: pointer as u64, bytes, offset })
    }

    /// Writes bytes at an address of device or pinned memory.
    pub(crate) fn write(&self, address: CUdeviceptr, bytes: &[u8]) -> Verdict {
        // SAFETY: the library's memory, whose size the caller has requested; the call returns when
        // the bytes were read.
        let written = unsafe { self.driver.memcpy_htod(address, bytes.as_ptr().cast(), bytes.len()) };
        written.and_then(|()| self.driver.ctx_synchronize()).map_err(|error| error.to_string())
    }

    /// Reads bytes from there.
    pub(crate) fn read(&self, address: CUdeviceptr, bytes: usize) -> Verdict<Vec<u8>> {
        let mut place = vec![0; bytes];
        // SAFETY: as above; the call returns when the bytes have arrived.
        let read = unsafe { self.driver.memcpy_dtoh(place.as_mut_ptr().cast::<c_void>(), address, bytes) };
        read.map(|()| place).map_err(|error| error.to_string())
    }
}

/// Memory of one rank's GPU with a tensor over it; released on drop.
#[derive(Debug)]
pub(crate) struct Local<'a> {
    rank: &'a Rank,
    pub(crate) address: CUdeviceptr,
    bytes: usize,
    pub(crate) tensor: Handle,
}

impl<'a> Local<'a> {
    /// Memory that holds some bytes, as a tensor.
    pub(crate) fn new(rank: &'a Rank, bytes: &[u8], shape: &Description) -> Verdict<Self> {
        let address = rank.driver.mem_alloc(bytes.len().max(1)).map_err(|error| error.to_string())?;
        let mut local = Self { rank, address, bytes: bytes.len(), tensor: null_mut() };
        rank.write(address, bytes)?;
        let mut tensor = null_mut();
        want!(
            SUCCESS,
            rank.wholememory_make_tensor_from_pointer(&mut tensor, address as *mut c_void, shape)
        )?;
        local.tensor = tensor;
        Ok(local)
    }

    /// Its present content.
    pub(crate) fn read(&self) -> Verdict<Vec<u8>> {
        self.rank.driver.ctx_synchronize().map_err(|error| error.to_string())?;
        self.rank.read(self.address, self.bytes)
    }
}

impl Drop for Local<'_> {
    fn drop(&mut self) {
        // SAFETY: a handle, or null.
        let _code = unsafe { (self.rank.library.wholememory_destroy_tensor)(self.tensor) };
        let _freed = self.rank.driver.mem_free(self.address);
    }
}

/// The expected byte at a place of memory, on every rank.
pub(crate) fn byte_at(offset: usize, salt: usize) -> u8 {
    let mixed = (offset as u64 ^ (salt as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// Some of them.
pub(crate) fn bytes_at(offset: usize, count: usize, salt: usize) -> Vec<u8> {
    (offset..offset + count).map(|offset| byte_at(offset, salt)).collect()
}

/// `WHOLEMEMORY_DT_INT`
const INT: c_uint = 5;

/// Integers of either type.
pub(crate) fn packed(numbers: &[i64], dtype: c_uint) -> Vec<u8> {
    let bytes = if dtype == INT { 4 } else { 8 };
    numbers.iter().flat_map(|number| number.to_le_bytes().into_iter().take(bytes)).collect()
}

/// The numbers.
pub(crate) fn unpacked(bytes: &[u8], dtype: c_uint) -> Vec<i64> {
    match dtype {
        INT => bytes.as_chunks().0.iter().map(|bytes| i64::from(i32::from_le_bytes(*bytes))).collect(),
        _ => bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect(),
    }
}

/// An array of them on this rank's GPU.
pub(crate) fn local<'a>(rank: &'a Rank, numbers: &[i64], dtype: c_uint) -> Verdict<Local<'a>> {
    Local::new(rank, &packed(numbers, dtype), &Description::array(numbers.len() as i64, dtype))
}
