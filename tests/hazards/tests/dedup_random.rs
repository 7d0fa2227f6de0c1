//! Hazard (data race): after a random order of loads, writes, graphs, frees, kills and exits a
//! process reads another one's bytes, or loses its own.
//!
//! Three programs obey random commands, some of them at the same time, and remember the expected
//! content of each block. `DEDUP_SEEDS=100-199` runs other seeds than the usual ones.

use std::ops::RangeInclusive;

use fastrand::Rng;
use hazards::sharers::{Sharer, Stage, read_until};

const PROGRAMS: usize = 3;
const BLOCKS: usize = 4;
const STEPS: usize = 60;

/// The names of `c/shared.c`. The first six can be captured, and graphs of the first two launched
/// again: a kernel that repeatedly writes the bytes that are there already counts as a reader, and
/// faults.
const WAYS: [&str; 8] =
    ["memset", "memset32", "kernel", "fill", "host-async", "device-async", "host", "device"];
const CAPTURED: usize = 6;
const REPEATED: usize = 2;

/// The state of one program.
#[derive(Default)]
struct Known {
    /// MiB of each existing block.
    blocks: [Option<u64>; BLOCKS],
    /// The block that the program's graph writes, while a launch of the graph does not change it.
    graph: Option<usize>,
}

impl Known {
    /// A command that is legal now; `None` for no command.
    fn command(&mut self, rng: &mut Rng) -> Option<Vec<String>> {
        let block = rng.usize(..BLOCKS);
        let Some(mib) = self.blocks[block] else {
            let mib = [2, 4, 8][rng.usize(..3)];
            self.blocks[block] = Some(mib);
            // Few seeds, so that blocks of several programs are equal.
            return Some(vec![format!("load {block} {} {mib}", 7 + rng.u32(..2))]);
        };
        let seed = rng.u32(100..10_000);
        let way = WAYS[rng.usize(..WAYS.len())];
        match rng.u32(..10) {
            0..3 => {
                self.written(block);
                Some(vec![format!("write {way} {block} {seed}")])
            }
            3..5 if mib > 2 => {
                self.written(block);
                Some(vec![format!("part {way} {block} {seed}")])
            }
            5 => {
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
            _ => None,
        }
    }

    fn written(&mut self, block: usize) {
        self.graph = self.graph.filter(|written| *written != block);
    }
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
        let sharers = (0..PROGRAMS).map(|_| stage.start()).collect();
        let known = (0..PROGRAMS).map(|_| Known::default()).collect();
        Self { stage, sharers, known, rng: Rng::with_seed(seed) }
    }

    fn step(&mut self) {
        match self.rng.u32(..20) {
            0..4 => {
                let milliseconds = self.rng.u64(50..600);
                read_until(&mut self.sharers, 1000, milliseconds);
            }
            4 => {
                let victim = self.rng.usize(..PROGRAMS);
                self.sharers[victim].kill();
                self.sharers[victim] = self.stage.start();
                self.known[victim] = Known::default();
            }
            5 => self.stage.kill_broker(),
            _ => self.commands(),
        }
    }

    /// Each program gets one command, or none, and all of them obey at the same time.
    fn commands(&mut self) {
        let commands: Vec<_> = self.known.iter_mut().map(|known| known.command(&mut self.rng)).collect();
        let commands: Vec<_> = commands.into_iter().map(Option::unwrap_or_default).collect();
        for (sharer, commands) in self.sharers.iter_mut().zip(&commands) {
            commands.iter().for_each(|command| sharer.tell(command));
        }
        for (sharer, commands) in self.sharers.iter_mut().zip(&commands) {
            commands.iter().for_each(|command| assert_eq!(sharer.hear(), "done", "{command}"));
        }
    }

    fn verify(&mut self, when: &str) {
        self.sharers.iter_mut().for_each(|sharer| sharer.tell("verify"));
        for (number, sharer) in self.sharers.iter_mut().enumerate() {
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
        let saved = play.sharers.iter_mut().map(|sharer| sharer.figure("faults_avoided"));
        shared += saved.sum::<u64>();
        play.stage.end(play.sharers);
    }
    assert!(shared > 0, "nothing that was written was ever shared");
}
