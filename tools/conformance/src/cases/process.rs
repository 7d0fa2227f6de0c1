//! Threads of one process, and processes made by `fork`.

use wm_abi::*;

use crate::case::{Case, Halt, Verdict};
use crate::driver::Driver;
use crate::fixture::process::in_fork;
use crate::fixture::{
    Errors, Kernels, Memory, Primary, Stream, alloc_async, init, pattern, synchronize, write,
};
use crate::{cu, must};

const THREADS: u64 = 8;

/// Runs `work` on eight threads in one context; the first failure becomes the case's.
fn on_threads(primary: &Primary, work: impl Fn(u64) -> Verdict + Sync) -> Verdict {
    let results: Vec<_> = std::thread::scope(|scope| {
        let work = &work;
        let start = |index| scope.spawn(move || primary.enter().and_then(|()| work(index)));
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let panicked = |_| Err(Halt::Failed("a thread panicked".into()));
    results.into_iter().try_for_each(|result| result.unwrap_or_else(panicked))
}

pub(super) fn threads_allocate(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    on_threads(&primary, |index| {
        for round in 0..60_usize {
            let bytes = 1 + (round * 7919 + index as usize * 104_729) % (2 << 20);
            let memory = Memory::new(d, bytes)?;
            let seed = index << 32 | round as u64;
            let end = bytes.min(4096);
            write(d, memory.address + (bytes - end) as u64, &pattern(end, seed))?;
            if memory.read()?[bytes - end..] != pattern(end, seed)[..] {
                return Err(Halt::Failed(format!("thread {index}, round {round}: other bytes came back")));
            }
        }
        Ok(())
    })?;
    case.observe("eight threads kept their bytes", true);
    Ok(())
}

pub(super) fn threads_on_streams(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (kernels, errors) = (Kernels::load(d)?, Errors::new(d)?);
    on_threads(&primary, |index| {
        let stream = Stream::non_blocking(d)?;
        for round in 0..40_u64 {
            let bytes = 8 * (500 + (round as usize * 977 + index as usize * 131) % 30_000);
            let stamp = index << 32 | round;
            let address = alloc_async(d, bytes, stream.raw)?;
            kernels.stamp(stream.raw, address, bytes, stamp)?;
            kernels.check(stream.raw, address, bytes, stamp, errors.address())?;
            must!(d, cuMemFreeAsync(address, stream.raw));
        }
        synchronize(d, stream.raw)
    })?;
    case.expect_eq("words that another thread wrote", errors.count()?, 0);
    Ok(())
}

pub(super) fn freed_by_another_thread(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (sender, receiver) = std::sync::mpsc::channel::<u64>();
    let codes = std::thread::scope(|scope| {
        let primary = &primary;
        let free = move || {
            primary.enter().map_err(|_| ())?;
            let codes: Vec<_> = receiver.iter().map(|address| cu!(d, cuMemFree_v2(address))).collect();
            Ok::<_, ()>(codes)
        };
        let thread = scope.spawn(free);
        let made = (0..100).try_for_each(|seed| {
            let mut address = 0;
            must!(d, cuMemAlloc_v2(&mut address, 1 + seed as usize * 9973));
            sender.send(address).map_err(|_| Halt::Failed("the freeing thread is gone".into()))
        });
        drop(sender);
        made.map(|()| thread.join())
    })?;
    let all_good =
        matches!(codes, Ok(Ok(codes)) if codes.len() == 100 && codes.iter().all(|code| code.0 == 0));
    case.expect_that("all were freed", all_good);
    Ok(())
}

pub(super) fn threads_end(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let kept = Memory::holding(d, &pattern(4096, 1))?;
    for _ in 0..20 {
        on_threads(&primary, |_| {
            must!(d, cuMemsetD8Async(kept.address + 2048, 5, 8, CUstream::PER_THREAD));
            Ok(())
        })?;
    }
    must!(d, cuCtxSynchronize());
    case.expect_that("memory is kept", kept.read()?[..2048] == pattern(4096, 1)[..2048]);
    Ok(())
}

/// The calls of a child to a driver that its parent used.
fn ask_all(d: &'static Driver, address: CUdeviceptr) -> Vec<CUresult> {
    let (mut count, mut other, mut free, mut total) = (0, 0, 0, 0);
    vec![
        cu!(d, cuInit(0)),
        cu!(d, cuDeviceGetCount(&mut count)),
        cu!(d, cuMemAlloc_v2(&mut other, 4096)),
        cu!(d, cuMemFree_v2(address)),
        cu!(d, cuMemGetInfo_v2(&mut free, &mut total)),
        cu!(d, cuMemAllocAsync(&mut other, 4096, CUstream::NULL)),
        cu!(d, cuMemsetD8_v2(address, 0, 16)),
    ]
}

const ASKED: [&str; 7] = [
    "cuInit",
    "cuDeviceGetCount",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemGetInfo",
    "cuMemAllocAsync",
    "cuMemsetD8",
];

pub(super) fn fork_in_use(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::holding(d, &pattern(1 << 20, 1))?;
    // Resolved here, so that the child makes only driver calls.
    let _ = ask_before_fork(d);
    let codes = in_fork(|| ask_all(d, memory.address))?;
    for (label, code) in ASKED.iter().zip(&codes) {
        case.code(format!("in the child: {label}"), *code);
    }
    case.expect_eq("answers", codes.len() as u64, ASKED.len() as u64);
    let refused = codes.iter().skip(2).all(|code| *code != CUresult::SUCCESS);
    case.expect(refused, "the child could use memory through its parent's context");
    case.expect_that("the parent keeps its memory", memory.read()? == pattern(1 << 20, 1));
    case.expect_ok("the parent goes on", cu!(d, cuCtxSynchronize()));
    Ok(())
}

fn ask_before_fork(d: &'static Driver) -> Verdict {
    let address = alloc_async(d, 4096, CUstream::NULL)?;
    must!(d, cuMemFreeAsync(address, CUstream::NULL));
    let (mut free, mut total) = (0, 0);
    must!(d, cuMemGetInfo_v2(&mut free, &mut total));
    must!(d, cuMemsetD8_v2(Memory::new(d, 64)?.address, 0, 16));
    Ok(())
}

pub(super) fn fork_after_init(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let codes = in_fork(|| {
        let mut count = 0;
        vec![cu!(d, cuInit(0)), cu!(d, cuDeviceGetCount(&mut count))]
    })?;
    for (label, code) in ["cuInit", "cuDeviceGetCount"].iter().zip(codes) {
        case.code(format!("in the child: {label}"), code);
    }
    Ok(())
}

pub(super) fn fork_before_use(case: &mut Case) -> Verdict {
    let d = case.driver;
    let codes = in_fork(|| use_driver(d))?;
    case.expect_that(
        "a child of a process that made no call can use the driver",
        codes == [CUresult::SUCCESS],
    );
    let codes = use_driver(d);
    case.expect_that("and so can the process afterwards", codes == [CUresult::SUCCESS]);
    Ok(())
}

fn use_driver(d: &'static Driver) -> Vec<CUresult> {
    let whole = || -> Verdict<bool> {
        let _primary = Primary::new(d)?;
        Ok(Memory::holding(d, &pattern(1 << 20, 2))?.read()? == pattern(1 << 20, 2))
    };
    let kept = whole().is_ok_and(|kept| kept);
    vec![if kept { CUresult::SUCCESS } else { CUresult::UNKNOWN }]
}

pub(super) fn exit_with_work_in_flight(case: &mut Case) -> Verdict {
    let d = case.driver;
    let codes = in_fork(|| {
        let start = || -> Verdict {
            std::mem::forget(Primary::new(d)?);
            let stream = std::mem::ManuallyDrop::new(Stream::non_blocking(d)?);
            let kernels = std::mem::ManuallyDrop::new(Kernels::load(d)?);
            kernels.spin(stream.raw, 50_000_000)
        };
        if start().is_err() {
            return vec![CUresult::UNKNOWN];
        }
        // SAFETY: runs the exit handlers, among them the driver's, which the case tests.
        unsafe { libc::exit(0) }
    })?;
    case.expect_that("the process ended by itself", codes.is_empty());
    Ok(())
}
