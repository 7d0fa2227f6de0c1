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
use shuttle::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use shuttle::thread;

const LONG: Duration = Duration::from_secs(60);

/// The gate, the work that passes it (two stripes), and the move that must not be there at the same
/// time.
#[derive(Default)]
struct Scene {
    gate: Gate,
    submitting: AtomicU32,
    moving: AtomicU32,
    /// Threads that have entered so far.
    entered: AtomicU32,
}

impl Scene {
    fn submit(&self, stripe: usize) {
        self.gate.enter(stripe);
        self.entered.fetch_add(1, Relaxed);
        self.submitting.fetch_add(1, Relaxed);
        assert_eq!(self.moving.load(Relaxed), 0, "work is submitted while memory moves");
        thread::yield_now();
        assert_eq!(self.moving.load(Relaxed), 0, "memory moves while work is submitted");
        self.submitting.fetch_sub(1, Relaxed);
        self.gate.leave(stripe);
    }

    fn move_with(&self, patience: Duration) {
        if !self.gate.let_pass(patience) {
            return;
        }
        let Ok(closed) = self.gate.close(patience) else { return };
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
    assert!(scene.gate.close(Duration::ZERO).is_ok(), "it is open, and no call is inside");
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
    assert_eq!(gate.close(Duration::from_millis(2)).err(), Some(wm_memory::NotClosed::Occupied));
    gate.enter(8);
    gate.leave(8);
    gate.leave(7);
    assert!(gate.close(Duration::ZERO).is_ok(), "and it is open again");
}

/// Hazard (latency): a mover closes the gate again before the thread that waited is awake.
#[test]
fn a_thread_that_waited_enters_before_the_gate_closes_again() {
    let scenario = || {
        let scene = Arc::new(Scene::default());
        let closed = scene.gate.close(Duration::ZERO).expect("no call is inside");
        let waits = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || scene.submit(1))
        };
        while !scene.gate.is_awaited() {
            thread::yield_now();
        }
        drop(closed);
        while !scene.gate.let_pass(LONG) {}
        let closed = scene.gate.close(LONG).expect("the thread that was inside leaves");
        assert_eq!(scene.entered.load(Relaxed), 1, "the gate closed before a thread that waited");
        drop(closed);
        waits.join().expect("no panic");
    };
    shuttle::check_random(scenario, 500);
    shuttle::check_pct(scenario, 500, 3);
}

/// Hazard (latency): the same for a mover that does not ask whether threads wait.
#[test]
fn a_gate_that_is_awaited_or_closed_is_not_closed() {
    let gate = wm_memory::Gate::new();
    let closed = gate.close(Duration::ZERO).expect("no call is inside");
    assert_eq!(gate.close(Duration::ZERO).err(), Some(wm_memory::NotClosed::Awaited));
    assert!(!gate.let_pass(Duration::ZERO));
    drop(closed);
    assert!(gate.let_pass(Duration::ZERO));
}

/// Hazard: a mover takes its time while calls wait, or hurries for one that has long passed.
#[test]
fn a_mover_is_told_who_waits() {
    let gate = wm_memory::Gate::new();
    let closed = gate.close(Duration::ZERO).expect("no call is inside");
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

/// Hazard (deadlock): a thread arrives at a gate that a pause leaves closed, and neither is the
/// arrival seen by the mover nor the closed gate by the thread.
#[test]
fn a_thread_that_arrives_at_a_kept_gate_is_seen_or_sees_it() {
    let scenario = || {
        let (scene, kept, asks) = (Arc::new(Scene::default()), Arc::default(), Arc::default());
        let (held, asked): (Arc<AtomicU32>, Arc<AtomicU32>) = (Arc::clone(&kept), Arc::clone(&asks));
        let closed = scene.gate.close(Duration::ZERO).expect("no call is inside");
        let waits = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || {
                scene.gate.enter_announced(0, || {
                    asked.fetch_add(held.load(SeqCst), SeqCst);
                });
                scene.gate.leave(0);
            })
        };
        closed.keep();
        kept.store(1, SeqCst);
        if !scene.gate.is_awaited() {
            while asks.load(SeqCst) == 0 {
                thread::yield_now();
            }
        }
        scene.gate.open();
        waits.join().expect("no panic");
        assert!(scene.gate.close(LONG).is_ok(), "it is open, and no call is inside");
    };
    shuttle::check_random(scenario, 500);
    shuttle::check_pct(scenario, 500, 3);
}

/// Hazard (deadlock): the exit of a paused process waits for the gate.
#[test]
fn a_kept_gate_is_opened_at_once_and_those_who_wait_come_in() {
    let gate = wm_memory::Gate::new();
    gate.close(Duration::ZERO).expect("no call is inside").keep();
    assert!(!gate.try_enter(1), "it is still closed");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| gate.enter(2));
        while !gate.is_awaited() {
            std::thread::yield_now();
        }
        while !gate.open_now() {
            std::thread::yield_now();
        }
        waits.join().expect("no panic");
    });
    gate.leave(2);
    assert!(gate.close(Duration::ZERO).is_ok());
}
