//! Hazard (vacuous test): a kernel that is to hold a stream ends early, and the tests of stream
//! order that use it prove nothing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use wm_kernels::diagnostics::{Spin, SpinUntil};

use crate::support::{run, written};

#[test]
fn spin_lasts_as_long_as_it_says_for_all_threads_together() {
    let started = Instant::now();
    run((2, 64), &Spin { duration: 20_000_000 });
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(20), "{took:?}");
    assert!(
        took < Duration::from_millis(1000),
        "128 threads stand side by side, yet the launch took {took:?}"
    );
}

#[test]
fn spin_until_waits_for_the_host() {
    let (flag, released, mut expired) = (AtomicU32::new(0), AtomicU32::new(0), [0u32]);
    let (flag_pointer, expired_pointer) = (flag.as_ptr().expose_provenance() as u64, written(&mut expired));
    thread::scope(|scope| {
        let kernel = scope.spawn(|| {
            let limit = 60_000_000_000;
            run((1, 32), &SpinUntil { flag: flag_pointer, value: 5, limit, expired: expired_pointer });
            assert_eq!(released.load(Ordering::SeqCst), 1, "the kernel ended before the host let it");
        });
        thread::yield_now();
        released.store(1, Ordering::SeqCst);
        flag.store(5, Ordering::SeqCst);
        kernel.join().expect("the kernel waited");
    });
    assert_eq!(expired[0], 0);
}

#[test]
fn spin_until_gives_up_at_its_limit() {
    let (mut flag, mut expired) = ([0u32], [0u32]);
    let (flag, expired_pointer) = (written(&mut flag), written(&mut expired));
    run((1, 8), &SpinUntil { flag, value: 1, limit: 1_000_000, expired: expired_pointer });
    assert_eq!(expired[0], 8);
}
