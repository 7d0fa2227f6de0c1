//! Programs that take turns with others, and are killed at random moments.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use random::{Choices, Random};

use crate::bench::{Bench, Side};
use crate::generate::{self, Wishes};
use crate::process::Process;

/// How long a program lives that is killed, in milliseconds.
const LIFE: [usize; 2] = [50, 1500];

/// One program in so many is killed together with the broker.
const BROKER: usize = 4;

/// Programs that are killed, one after another, for as long as this value.
#[derive(Debug)]
pub(crate) struct Killer {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Killer {
    /// Programs of some seeds, under the library.
    pub(crate) fn start(bench: &Bench, seeds: Vec<u64>, wishes: Wishes) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (bench, seen) = (bench.clone(), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || kill_one_after_another(&bench, &seeds, &wishes, &seen));
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has no panic to tell.
            let _ended = thread.join();
        }
    }
}

fn kill_one_after_another(bench: &Bench, seeds: &[u64], wishes: &Wishes, is_over: &AtomicBool) {
    let Some((machine, first)) = bench.turns.as_ref().zip(seeds.first()) else { return };
    let mut random = Random::with_seed(first ^ 0x0074_7572_6e73);
    while !is_over.load(Ordering::Relaxed) {
        let program = generate::program(seeds[random.below(seeds.len())], wishes);
        let Ok(mut process) = Process::start(bench, Side::Library, &program) else { return };
        process.feed(&program);
        let life = LIFE[0] + random.below(LIFE[1] - LIFE[0]);
        std::thread::sleep(Duration::from_millis(life as u64));
        // It is killed.
        drop(process);
        if random.one_in(BROKER) {
            machine.kill_brokers();
        }
    }
}
