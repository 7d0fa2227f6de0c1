//! The tests' common functions: ranks that are processes with the simulated driver, memory and
//! streams, and messages whose bytes say where they belong.
#![allow(
    unused_macros,
    unused_imports,
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test uses a part of it"
)]

use std::ffi::{CString, c_int, c_void};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use simnccl::abi::{Code, Config, Handle, UniqueId};
pub use simnccl::*;
pub use wm_abi::symbol::{self, Symbol};
pub use wm_abi::{CUcontext, CUdeviceptr, CUresult, CUstream};

/// `ncclUint8`.
pub const BYTE: c_int = 1;

/// A function of the simulated driver.
pub fn driver<S: Symbol>() -> S::Function {
    // SAFETY: a string with an end; the driver was opened for all of the process.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, S::NAME.as_ptr()) };
    assert!(!address.is_null() && size_of::<S::Function>() == size_of_val(&address));
    // SAFETY: the driver's function of this name has this type.
    unsafe { std::mem::transmute_copy(&address) }
}

/// Calls a driver function and returns its result.
macro_rules! cu {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the test passes valid arguments.
        unsafe { (common::driver::<common::symbol::$name>())($($argument),*) }
    };
}

/// Calls a function of NCCL's and returns its result.
macro_rules! nccl {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        #[allow(unused_unsafe, reason = "some are safe")]
        // SAFETY: the test passes valid arguments.
        unsafe { common::$name($($argument),*) }
    }};
}

/// As `nccl!`; fails the test unless the result is success.
macro_rules! ok {
    ($name:ident($($argument:expr),* $(,)?)) => {
        assert_eq!(nccl!($name($($argument),*)), Code::SUCCESS, stringify!($name))
    };
}

pub(crate) use {cu, nccl, ok};

use crate::common;

/// Opens the simulated driver for the process and makes a device's context current.
pub fn open_driver(device: c_int) {
    let file = hazards::places::built("libsimcuda.so");
    let file = CString::new(file.as_os_str().as_bytes()).expect("no zero in it");
    // SAFETY: a string with an end.
    let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    assert!(!library.is_null(), "{file:?} opens");
    assert_eq!(cu!(cuInit(0)), CUresult::SUCCESS);
    use_device(device);
}

/// Makes a device's context current in the calling thread.
pub fn use_device(device: c_int) {
    let mut context = CUcontext::NULL;
    assert_eq!(cu!(cuDevicePrimaryCtxRetain(&raw mut context, device)), CUresult::SUCCESS);
    assert_eq!(cu!(cuCtxSetCurrent(context)), CUresult::SUCCESS);
}

pub fn stream() -> CUstream {
    let mut stream = CUstream::NULL;
    assert_eq!(cu!(cuStreamCreate(&raw mut stream, 1)), CUresult::SUCCESS);
    stream
}

pub fn allocate(bytes: usize) -> CUdeviceptr {
    let mut address = 0;
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut address, bytes.max(1))), CUresult::SUCCESS);
    address
}

/// Device memory with these bytes.
pub fn uploaded(bytes: &[u8]) -> CUdeviceptr {
    let address = allocate(bytes.len());
    if !bytes.is_empty() {
        assert_eq!(cu!(cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len())), CUresult::SUCCESS);
    }
    address
}

pub fn downloaded(address: CUdeviceptr, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    if count > 0 {
        assert_eq!(cu!(cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, count)), CUresult::SUCCESS);
    }
    bytes
}

pub fn free(addresses: &[CUdeviceptr]) {
    for address in addresses {
        assert_eq!(cu!(cuMemFree_v2(*address)), CUresult::SUCCESS);
    }
}

pub fn synchronize(stream: CUstream) {
    assert_eq!(cu!(cuStreamSynchronize(stream)), CUresult::SUCCESS);
}

pub fn is_idle(stream: CUstream) -> bool {
    cu!(cuStreamQuery(stream)) == CUresult::SUCCESS
}

/// Waits for a condition. Fails the test after 20 seconds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
    begin.elapsed()
}

/// The bytes of a message: each place, pair and round has its own.
pub fn message(from: usize, to: usize, round: usize, length: usize) -> Vec<u8> {
    let seed = (from * 1_000_003 + to * 10_007 + round * 101) as u64;
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}

/// The state of a communicator.
pub fn state(communicator: Handle) -> Code {
    let mut code = Code::INTERNAL;
    ok!(ncclCommGetAsyncError(communicator, &raw mut code));
    code
}

pub fn send(from: CUdeviceptr, count: usize, peer: usize, communicator: Handle, stream: CUstream) -> Code {
    nccl!(ncclSend(from as *const c_void, count, BYTE, peer as c_int, communicator, stream))
}

pub fn receive(to: CUdeviceptr, count: usize, peer: usize, communicator: Handle, stream: CUstream) -> Code {
    nccl!(ncclRecv(to as *mut c_void, count, BYTE, peer as c_int, communicator, stream))
}

/// Aborts, and checks that the stream is free soon after.
pub fn abort(communicator: Handle, stream: CUstream) {
    let begin = Instant::now();
    ok!(ncclCommAbort(communicator));
    until("an abort frees the stream", || is_idle(stream));
    assert!(begin.elapsed() < Duration::from_secs(1), "abort took {:?}", begin.elapsed());
}

/// One rank of a test.
pub struct Rank {
    pub rank: usize,
    pub size: usize,
    pub id: UniqueId,
    /// A word that the ranks of the test share.
    pub shared: &'static AtomicU64,
}

impl Rank {
    /// A communicator over all ranks of the test.
    pub fn communicator(&self) -> Handle {
        let mut communicator = Handle(0);
        ok!(ncclCommInitRank(&raw mut communicator, self.size as c_int, self.id, self.rank as c_int));
        communicator
    }

    /// The next rank of the ring, and the one before.
    pub fn neighbours(&self) -> (usize, usize) {
        ((self.rank + 1) % self.size, (self.rank + self.size - 1) % self.size)
    }
}

pub fn word() -> &'static AtomicU64 {
    let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: new memory, zeroed, of one page, which stays.
    unsafe {
        let place = libc::mmap(std::ptr::null_mut(), 4096, read_write, shared, -1, 0);
        assert!(place != libc::MAP_FAILED);
        &*place.cast::<AtomicU64>()
    }
}

/// Runs ranks that are processes, each with a device of its own, and returns their exit statuses:
/// 0 if the body returned, 101 if it panicked, negative for a signal. Variables of the environment
/// hold in each of them.
pub fn statuses(size: usize, variables: &[(&str, &str)], body: impl Fn(&Rank)) -> Vec<i32> {
    let shared = word();
    let mut pairs: Vec<_> = (0..size).map(|_| UnixStream::pair().expect("a pair")).collect();
    let children: Vec<_> =
        (0..size).map(|rank| child(rank, size, variables, &mut pairs, shared, &body)).collect();
    drop(pairs);
    children.into_iter().map(status_of).collect()
}

/// As [`statuses`], for tests in which every rank succeeds.
pub fn ranks(size: usize, variables: &[(&str, &str)], body: impl Fn(&Rank)) {
    assert_eq!(statuses(size, variables, body), vec![0; size]);
}

fn child(
    rank: usize,
    size: usize,
    variables: &[(&str, &str)],
    pairs: &mut [(UnixStream, UnixStream)],
    shared: &'static AtomicU64,
    body: &impl Fn(&Rank),
) -> libc::pid_t {
    // SAFETY: the child runs the body and ends without a return.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a hang ends the process, and nothing else uses this clock.
        unsafe { libc::alarm(60) };
        let run = || {
            environment(size, variables);
            body(&Rank { rank, size, id: agree(rank, pairs), shared });
        };
        let status = if catch_unwind(AssertUnwindSafe(run)).is_ok() { 0 } else { 101 };
        // SAFETY: ends the process at once: no destructors of the parent's threads.
        unsafe { libc::_exit(status) };
    }
    child
}

fn environment(size: usize, variables: &[(&str, &str)]) {
    let devices = size.to_string();
    let usual = [("SIMCUDA_DEVICES", devices.as_str()), ("SIMCUDA_QUIET", "1")];
    for (name, value) in usual.iter().chain(variables) {
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var(name, value) };
    }
}

/// The first rank makes the id and gives it to the others.
fn agree(rank: usize, pairs: &mut [(UnixStream, UnixStream)]) -> UniqueId {
    let mut id = UniqueId([0; 128]);
    if rank == 0 {
        ok!(ncclGetUniqueId(&raw mut id));
        pairs.iter_mut().for_each(|(here, _)| here.write_all(&id.0).expect("the others listen"));
    } else {
        pairs[rank].1.read_exact(&mut id.0).expect("the first rank has an id");
    }
    open_driver(rank as c_int);
    id
}

pub fn status_of(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

/// Nanoseconds of a clock that all processes share.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: an out-pointer to a live local.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub fn seconds_since(then: &AtomicU64) -> f64 {
    now().saturating_sub(then.load(Ordering::SeqCst)) as f64 / 1e9
}
