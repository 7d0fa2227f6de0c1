//! Hazard (deadlock): the gate stays closed, or a migration waits without bound; or a thread
//! submits work while memory migrates.
//!
//! Under shuttle's schedules, with the crate's own source, as in `interleavings.rs`; the tests that
//! take real time run against the crate as it is.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "the crate's source, under another root")]

mod sync {
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
}

#[path = "../src/gate.rs"]
mod gate;

use std::sync::Arc;
use std::time::Duration;

use gate::Gate;
use shuttle::sync::atomic::{AtomicU32, Ordering::Relaxed};
use shuttle::thread;

const LONG: Duration = Duration::from_secs(60);

/// The gate, the work that passes it (two stripes), and the move that must not be there at the same
/// time.
#[derive(Default)]
struct Scene {
    gate: Gate,
    submitting: AtomicU32,
    moving: AtomicU32,
}

impl Scene {
    fn submit(&self, stripe: usize) {
        self.gate.enter(stripe);
        self.submitting.fetch_add(1, Relaxed);
        assert_eq!(self.moving.load(Relaxed), 0, "work is submitted while memory moves");
        thread::yield_now();
        assert_eq!(self.moving.load(Relaxed), 0, "memory moves while work is submitted");
        self.submitting.fetch_sub(1, Relaxed);
        self.gate.leave(stripe);
    }

    fn move_with(&self, patience: Duration) {
        let Some(closed) = self.gate.close(patience) else { return };
        assert_eq!(self.moving.fetch_add(1, Relaxed), 0, "two movers");
        thread::yield_now();
        assert_eq!(self.submitting.load(Relaxed), 0, "work is being submitted");
        self.moving.fetch_sub(1, Relaxed);
        drop(closed);
    }
}

fn scenario(patience: Duration) {
    let scene = Arc::new(Scene::default());
    let spawn = |work: fn(&Scene, Duration, usize), index| {
        let scene = Arc::clone(&scene);
        thread::spawn(move || work(&scene, patience, index))
    };
    let submit = |scene: &Scene, _: Duration, index: usize| (0..2).for_each(|_| scene.submit(index % 2));
    let moves = |scene: &Scene, patience: Duration, _: usize| (0..2).for_each(|_| scene.move_with(patience));
    let mut threads: Vec<_> = (0..3).map(|index| spawn(submit, index)).collect();
    threads.extend((0..2).map(|index| spawn(moves, index)));
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert!(scene.gate.close(Duration::ZERO).is_some(), "it is open, and nobody is inside");
}

#[test]
fn nobody_submits_while_memory_moves_and_everybody_gets_through() {
    for patience in [LONG, Duration::ZERO] {
        shuttle::check_random(move || scenario(patience), 500);
        shuttle::check_pct(move || scenario(patience), 500, 3);
    }
}

#[test]
fn a_mover_gives_up_where_somebody_stays_inside() {
    let gate = wm_memory::Gate::new();
    gate.enter(7);
    assert!(gate.close(Duration::from_millis(2)).is_none());
    gate.enter(8);
    gate.leave(8);
    gate.leave(7);
    assert!(gate.close(Duration::ZERO).is_some(), "and it is open again");
}

/// Hazard: a mover takes its time while calls wait, or hurries for one that has long passed.
#[test]
fn a_mover_is_told_who_waits() {
    let gate = wm_memory::Gate::new();
    let closed = gate.close(Duration::ZERO).expect("nobody is inside");
    assert!(!gate.is_awaited());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| gate.enter(3));
        while !gate.is_awaited() {
            std::thread::yield_now();
        }
        drop(closed);
        waits.join().expect("no panic");
    });
    assert!(!gate.is_awaited());
    gate.leave(3);
}
