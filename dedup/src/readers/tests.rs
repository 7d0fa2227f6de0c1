//! Hazard: a kernel that wrote into a block counts as a reader, and then faults in a shared one; or
//! verdicts come from fewer launches than the user asked for. Random programs of kernels that are
//! known to read or to write run over blocks of few bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const BLOCKS: usize = 3;
const PROOF: u32 = 4;

fn parameter(number: u8) -> ParameterKey {
    ParameterKey {
        function: FunctionKey::of(u128::from(number / 2), "kernel"),
        offset: u32::from(number % 2) * 8,
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Of a kernel: parameters below 4 read, others write this value into the byte.
    Launch {
        number: u8,
        block: usize,
        byte: usize,
        value: u8,
    },
    /// Of a function whose parameters are not told, which writes.
    Unknown {
        block: usize,
        value: u8,
    },
    /// Of a copy, which the caller knows.
    Copy {
        block: usize,
        value: u8,
    },
    Close {
        block: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..8_u8, 0..BLOCKS, 0..2_usize, 0..2_u8)
            .prop_map(|(number, block, byte, value)| Step::Launch { number, block, byte, value }),
        1 => (0..BLOCKS, 0..2_u8).prop_map(|(block, value)| Step::Unknown { block, value }),
        1 => (0..BLOCKS, 0..2_u8).prop_map(|(block, value)| Step::Copy { block, value }),
        5 => (0..BLOCKS).prop_map(|block| Step::Close { block }),
    ]
}

/// A block, its last fingerprint, which is its bytes, and the events since.
#[derive(Debug, Default)]
struct Block {
    bytes: [u8; 2],
    before: [u8; 2],
    window: LaunchWindow,
    launched: Vec<u8>,
    is_copied: bool,
    is_unknown: bool,
}

/// The expected verdicts.
#[derive(Debug, Default)]
struct Model {
    credit: BTreeMap<u8, u32>,
    writers: BTreeSet<u8>,
}

impl Model {
    fn verdict(&self, number: u8) -> ParameterVerdict {
        if self.writers.contains(&number) {
            ParameterVerdict::Writer
        } else if self.credit.get(&number).is_some_and(|credit| *credit >= PROOF) {
            ParameterVerdict::Reader
        } else {
            ParameterVerdict::Unknown
        }
    }

    fn close(&mut self, block: &Block) {
        if block.is_copied || block.is_unknown {
            return;
        }
        for number in &block.launched {
            if block.bytes == block.before {
                *self.credit.entry(*number).or_default() += 1;
            } else {
                self.writers.insert(*number);
            }
        }
    }
}

fn close(block: &mut Block, readers: &Readers, model: &mut Model) -> Lessons {
    let was: Vec<_> = (0..8).map(|number| model.verdict(number)).collect();
    model.close(block);
    let outcome = match block.bytes == block.before {
        _ if block.is_copied => WindowOutcome::Void,
        true => WindowOutcome::Unchanged,
        false => WindowOutcome::Changed,
    };
    let lessons = readers.close(&block.window, outcome);
    let became = |verdict, from: Option<ParameterVerdict>| {
        let changed = (0..8).filter(|number| {
            let (was, is) = (was[usize::from(*number)], model.verdict(*number));
            was != is && is == verdict && from.is_none_or(|from| from == was)
        });
        changed.map(parameter).collect::<BTreeSet<_>>()
    };
    let set = |list: &[ParameterKey]| list.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!(set(&lessons.readers), became(ParameterVerdict::Reader, None));
    assert_eq!(set(&lessons.writers), became(ParameterVerdict::Writer, None));
    assert_eq!(set(&lessons.reversed), became(ParameterVerdict::Writer, Some(ParameterVerdict::Reader)));
    let writing: BTreeSet<_> = (4..8).map(parameter).collect();
    assert!(set(&lessons.certain).is_subset(&writing), "what only reads is never blamed beyond doubt");
    *block = Block { bytes: block.bytes, before: block.bytes, ..Block::default() };
    lessons
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn verdicts_are_those_of_the_model(steps in prop::collection::vec(step(), 0..200)) {
        let (readers, mut model) = (Readers::new(PROOF), Model::default());
        let mut blocks: [Block; BLOCKS] = Default::default();
        // Writers whose change is in a window.
        let mut caught = BTreeSet::new();
        for step in steps {
            match step {
                Step::Launch { number, block, byte, value } => {
                    let block = &mut blocks[block];
                    block.window.add(parameter(number));
                    block.launched.push(number);
                    if number >= 4 { block.bytes[byte] = value }
                }
                Step::Unknown { block, value } => {
                    blocks[block].window.add_unknown();
                    blocks[block].bytes[0] = value;
                    blocks[block].is_unknown = true;
                }
                Step::Copy { block, value } => {
                    blocks[block].bytes[1] = value;
                    blocks[block].is_copied = true;
                }
                Step::Close { block } => {
                    let block = &mut blocks[block];
                    if !block.is_copied && !block.is_unknown && block.bytes != block.before {
                        caught.extend(block.launched.iter().copied().filter(|number| *number >= 4));
                    }
                    close(block, &readers, &mut model);
                }
            }
            for number in 0..8 {
                prop_assert_eq!(readers.verdict(parameter(number)), model.verdict(number));
                prop_assert!(!caught.contains(&number) || readers.verdict(parameter(number)) == ParameterVerdict::Writer);
                prop_assert_eq!(readers.judge(&[parameter(0), parameter(number)]),
                    model.verdict(0) == ParameterVerdict::Reader && model.verdict(number) == ParameterVerdict::Reader);
            }
        }
        let listed = |verdict| (0..8).filter(|number| model.verdict(*number) == verdict).count() as u64;
        let counts = readers.counts();
        prop_assert_eq!((counts.readers, counts.writers), (listed(ParameterVerdict::Reader), listed(ParameterVerdict::Writer)));
    }
}

fn window(numbers: &[u8]) -> LaunchWindow {
    let mut window = LaunchWindow::new();
    for number in numbers {
        window.add(parameter(*number));
    }
    window
}

#[test]
fn nothing_to_judge_is_all_readers() {
    assert!(Readers::new(DEFAULT_PROOF).judge(&[]));
    assert!(!Readers::new(DEFAULT_PROOF).judge(&[parameter(0)]));
}

#[test]
fn another_processes_reader_is_one_until_it_is_caught() {
    let readers = Readers::new(DEFAULT_PROOF);
    let lessons = readers
        .believe([(parameter(0), ParameterVerdict::Reader), (parameter(1), ParameterVerdict::Unknown)]);
    assert_eq!(lessons.readers, [parameter(0)]);
    assert!(readers.judge(&[parameter(0)]) && readers.verdict(parameter(1)) == ParameterVerdict::Unknown);
    assert_eq!(readers.close(&window(&[0]), WindowOutcome::Changed).reversed, [parameter(0)]);
    assert_eq!(readers.believe([(parameter(0), ParameterVerdict::Reader)]), Lessons::default());
    assert_eq!(readers.verdict(parameter(0)), ParameterVerdict::Writer);
}

#[test]
fn another_processes_writer_reverses_a_reader() {
    let readers = Readers::new(0);
    assert_eq!(readers.close(&window(&[3]), WindowOutcome::Unchanged).readers, [parameter(3)]);
    assert_eq!(readers.believe([(parameter(3), ParameterVerdict::Writer)]).reversed, [parameter(3)]);
}

/// A full table learns no new parameter; it still corrects the ones that it has.
#[test]
fn endless_functions_are_forgotten_before_they_are_believed() {
    let readers = Readers::new(1);
    let numbered = |number: usize| ParameterKey { function: FunctionKey(number as u128), offset: 0 };
    readers.believe((0..MOST + 10).map(|number| (numbered(number), ParameterVerdict::Reader)));
    assert_eq!(readers.counts().readers, MOST as u64);
    assert_eq!(readers.believe([(numbered(MOST + 11), ParameterVerdict::Writer)]), Lessons::default());
    assert_eq!(readers.believe([(numbered(5), ParameterVerdict::Writer)]).reversed, [numbered(5)]);
}

#[test]
fn threads_that_close_windows_reverse_a_reader_once() {
    let readers = Arc::new(Readers::new(1));
    readers.close(&window(&[0, 1, 2, 3]), WindowOutcome::Unchanged);
    let close = |_| {
        let readers = Arc::clone(&readers);
        std::thread::spawn(move || {
            readers.close(&window(&[0, 1, 2, 3]), WindowOutcome::Changed).reversed.len()
        })
    };
    let threads: Vec<_> = (0..4).map(close).collect();
    let reversed: usize = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    assert_eq!(reversed, 4);
}
