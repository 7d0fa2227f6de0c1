//! Hazard (data race): after a random order of loads, writes, graphs, frees, pauses, kills, forks,
//! cancellations and exits a process reads another one's bytes, or loses its own.
//!
//! Three programs obey random commands, some of them at the same time, and remember the expected
//! content of each block, which is one of `cuMemAlloc`, a piece of `cuMemCreate`, or a
//! tensor.
//! `DEDUP_SEEDS=100-199` runs other seeds than the usual ones.

use std::ops::RangeInclusive;

use fastrand::Rng;
use hazards::sharers::{Sharer, Stage};

const PROGRAMS: usize = 3;
const BLOCKS: usize = 4;
/// Behind them as many tensors of so many MiB in a segment, some of which have pieces in common.
const TENSORS: usize = 4;
const TENSOR: u64 = 6;
const STEPS: usize = 45;

/// The names of `c/shared.c`. The first six can be captured, and graphs of the first two launched
/// again: a kernel that repeatedly writes the bytes that are there already counts as a reader, and
/// faults.
const WAYS: [&str; 8] =
    ["memset", "memset32", "kernel", "fill", "host-async", "device-async", "host", "device"];
const CAPTURED: usize = 6;
const REPEATED: usize = 2;

/// The state of one program.
struct Known {
    /// MiB of each existing block. Tensors live as long as the program.
    blocks: [Option<u64>; BLOCKS + TENSORS],
    /// The block that the program's graph writes, while a launch of the graph does not change it.
    graph: Option<usize>,
    /// It obeys no command now.
    is_paused: bool,
}

impl Known {
    fn new() -> Self {
        let mut blocks = [None; BLOCKS + TENSORS];
        blocks[BLOCKS..].fill(Some(TENSOR));
        Self { blocks, graph: None, is_paused: false }
    }

    /// A command that is legal now; `None` for no command.
    fn command(&mut self, rng: &mut Rng) -> Option<Vec<String>> {
        let block = rng.usize(..BLOCKS + TENSORS);
        let Some(mib) = self.blocks[block] else {
            let mib = [2, 4, 8][rng.usize(..3)];
            self.blocks[block] = Some(mib);
            // Few seeds, so that blocks of several programs are equal.
            let of = if rng.bool() { "load" } else { "piece" };
            return Some(vec![format!("{of} {block} {} {mib}", 7 + rng.u32(..2))]);
        };
        let seed = rng.u32(100..10_000);
        let way = WAYS[rng.usize(..WAYS.len())];
        match rng.u32(..12) {
            0..3 => {
                self.written(block);
                Some(vec![format!("write {way} {block} {seed}")])
            }
            3..5 if mib > 2 => {
                self.written(block);
                Some(vec![format!("part {way} {block} {seed}")])
            }
            5 if block < BLOCKS => {
                self.written(block);
                self.blocks[block] = None;
                Some(vec![format!("free {block}")])
            }
            6 | 7 => {
                let way = rng.usize(..CAPTURED);
                self.graph = (way < REPEATED).then_some(block);
                Some(vec![format!("capture {} {block} {seed}", WAYS[way]), "launch".to_owned()])
            }
            8 => self.graph.map(|_| vec!["launch".to_owned()]),
            9 => Some(vec!["child".to_owned()]),
            10 => {
                self.written(block);
                Some(vec![format!("cancelled write {way} {block} {seed}")])
            }
            _ => None,
        }
    }

    fn written(&mut self, block: usize) {
        self.graph = self.graph.filter(|written| *written != block);
    }
}

/// A program with its tensors.
fn start(stage: &Stage) -> Sharer {
    let mut sharer = stage.start();
    sharer.obey(&format!("tensors {BLOCKS} {TENSORS} 9 {TENSOR}"));
    sharer
}

struct Play {
    stage: Stage,
    sharers: Vec<Sharer>,
    known: Vec<Known>,
    rng: Rng,
}

impl Play {
    fn new(seed: u64) -> Self {
        let stage = Stage::new();
        let sharers = (0..PROGRAMS).map(|_| start(&stage)).collect();
        let known = (0..PROGRAMS).map(|_| Known::new()).collect();
        Self { stage, sharers, known, rng: Rng::with_seed(seed) }
    }

    fn step(&mut self) {
        match self.rng.u32(..23) {
            0..4 => {
                let line = format!("share 1000 {}", self.rng.u64(50..600));
                self.running().for_each(|(_, sharer)| sharer.tell(&line));
                self.running().for_each(|(_, sharer)| drop(sharer.hear()));
            }
            4 => {
                let victim = self.rng.usize(..PROGRAMS);
                self.sharers[victim].kill();
                self.sharers[victim] = start(&self.stage);
                self.known[victim] = Known::new();
            }
            5 => self.stage.kill_broker(),
            6..9 => {
                let number = self.rng.usize(..PROGRAMS);
                self.pause_or_resume(number);
            }
            _ => self.commands(),
        }
    }

    fn running(&mut self) -> impl Iterator<Item = (usize, &mut Sharer)> {
        let is_running = |(number, _): &(usize, &mut Sharer)| !self.known[*number].is_paused;
        self.sharers.iter_mut().enumerate().filter(is_running)
    }

    fn pause_or_resume(&mut self, number: usize) {
        let sharer = &self.sharers[number];
        if self.known[number].is_paused {
            self.stage.resume(sharer);
        } else {
            let places = [None, Some("memory".into()), Some(self.stage.cache())];
            self.stage.pause(sharer, places[self.rng.usize(..places.len())].as_deref());
        }
        self.known[number].is_paused ^= true;
    }

    /// Each program gets one command, or none, and all of them obey at the same time.
    fn commands(&mut self) {
        let running = |known: &mut Known| if known.is_paused { None } else { known.command(&mut self.rng) };
        let commands: Vec<_> = self.known.iter_mut().map(running).map(Option::unwrap_or_default).collect();
        for (sharer, commands) in self.sharers.iter_mut().zip(&commands) {
            commands.iter().for_each(|command| sharer.tell(command));
        }
        for (sharer, commands) in self.sharers.iter_mut().zip(&commands) {
            commands.iter().for_each(|command| assert_eq!(sharer.hear(), "done", "{command}"));
        }
    }

    fn verify(&mut self, when: &str) {
        self.running().for_each(|(_, sharer)| sharer.tell("verify"));
        for (number, sharer) in self.running() {
            assert_eq!(sharer.hear(), "right", "program {number}, {when}");
        }
    }
}

fn seeds() -> RangeInclusive<u64> {
    let given = std::env::var("DEDUP_SEEDS").unwrap_or_else(|_| "1-3".to_owned());
    let (first, last) = given.split_once('-').expect("DEDUP_SEEDS=FIRST-LAST");
    first.parse().expect("a number")..=last.parse().expect("a number")
}

#[test]
fn random_programs_read_what_they_wrote() {
    let mut shared = 0;
    for seed in seeds() {
        let mut play = Play::new(seed);
        for step in 0..STEPS {
            play.step();
            play.verify(&format!("seed {seed}, step {step}"));
        }
        let paused: Vec<usize> = (0..PROGRAMS).filter(|number| play.known[*number].is_paused).collect();
        paused.into_iter().for_each(|number| play.pause_or_resume(number));
        play.verify(&format!("seed {seed}, at its end"));
        let saved = play.sharers.iter_mut().map(|sharer| sharer.figure("faults_avoided"));
        shared += saved.sum::<u64>();
        play.stage.end(play.sharers);
    }
    assert!(shared > 0, "nothing that was written was ever shared");
}
