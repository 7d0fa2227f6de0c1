//! Hazard (process crash): a kernel that wrote into a block, or has no proof, counts as a reader,
//! and then faults in a shared one. Random programs of kernels run over blocks of few bytes; some
//! proofs are wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const BLOCKS: usize = 3;

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
    Prove {
        number: u8,
        only_reads: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..8_u8, 0..BLOCKS, 0..2_usize, 0..2_u8)
            .prop_map(|(number, block, byte, value)| Step::Launch { number, block, byte, value }),
        1 => (0..BLOCKS, 0..2_u8).prop_map(|(block, value)| Step::Unknown { block, value }),
        1 => (0..BLOCKS, 0..2_u8).prop_map(|(block, value)| Step::Copy { block, value }),
        5 => (0..BLOCKS).prop_map(|block| Step::Close { block }),
        4 => (0..8_u8, any::<bool>()).prop_map(|(number, only_reads)| Step::Prove { number, only_reads }),
    ]
}

/// A block, its last fingerprint, which is its bytes, and the events since.
#[derive(Debug, Default)]
struct Block {
    bytes: [u8; 2],
    before: [u8; 2],
    window: LaunchWindow,
    launched: BTreeSet<u8>,
    is_copied: bool,
    is_unknown: bool,
}

/// The expected verdicts: none for those that are not there.
type Model = BTreeMap<u8, ParameterVerdict>;

/// Closes a window. All its parameters were readers, and a byte changed: all are accused.
fn close(block: &mut Block, readers: &Readers, model: &mut Model) -> Vec<ParameterKey> {
    let outcome = match block.bytes == block.before {
        _ if block.is_copied => WindowOutcome::Void,
        true => WindowOutcome::Unchanged,
        false => WindowOutcome::Changed,
    };
    let is_reader = |number: &u8| model.get(number) == Some(&ParameterVerdict::Reader);
    let is_refuted =
        outcome == WindowOutcome::Changed && !block.is_unknown && block.launched.iter().all(is_reader);
    let expected: BTreeSet<u8> = if is_refuted { block.launched.clone() } else { BTreeSet::new() };
    let accused = readers.close(&block.window, outcome);
    let found: BTreeSet<ParameterKey> = accused.iter().copied().collect();
    assert_eq!(found, expected.iter().map(|number| parameter(*number)).collect());
    model.extend(expected.into_iter().map(|number| (number, ParameterVerdict::Writer)));
    *block = Block { bytes: block.bytes, before: block.bytes, ..Block::default() };
    accused
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn verdicts_are_those_of_the_model(steps in prop::collection::vec(step(), 0..200)) {
        let (readers, mut model) = (Readers::new(), Model::new());
        let mut blocks: [Block; BLOCKS] = Default::default();
        for step in steps {
            match step {
                Step::Launch { number, block, byte, value } => {
                    let block = &mut blocks[block];
                    block.window.add(parameter(number));
                    block.launched.insert(number);
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
                Step::Close { block } => drop(close(&mut blocks[block], &readers, &mut model)),
                Step::Prove { number, only_reads } => {
                    readers.prove(parameter(number), only_reads);
                    let proven = if only_reads { ParameterVerdict::Reader } else { ParameterVerdict::Writer };
                    model.entry(number).or_insert(proven);
                }
            }
            for number in 0..8 {
                let expected = model.get(&number).copied().unwrap_or_default();
                prop_assert_eq!(readers.verdict(parameter(number)), expected);
                prop_assert_eq!(readers.judge(&[parameter(number)]), expected == ParameterVerdict::Reader);
            }
        }
        let listed = |verdict| model.values().filter(|of| **of == verdict).count() as u64;
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
    assert!(Readers::new().judge(&[]));
    assert!(!Readers::new().judge(&[parameter(0)]));
}

#[test]
fn what_has_no_verdict_is_named_until_it_has_one() {
    let readers = Readers::new();
    let all = [parameter(0), parameter(1), parameter(2)];
    assert_eq!(readers.unjudged(&all), all);
    assert_eq!(readers.counts().unknown, 3);
    readers.prove(parameter(0), true);
    readers.prove(parameter(1), false);
    assert_eq!(readers.unjudged(&all), [parameter(2)]);
}

/// A parameter that may write explains the change, so the readers beside it are not accused.
#[test]
fn a_change_beside_a_possible_writer_refutes_nothing() {
    let readers = Readers::new();
    readers.prove(parameter(0), true);
    assert_eq!(readers.close(&window(&[0, 1]), WindowOutcome::Changed), []);
    readers.prove(parameter(1), true);
    assert_eq!(readers.close(&window(&[0, 1]), WindowOutcome::Changed).len(), 2);
    assert_eq!(readers.close(&window(&[0, 1]), WindowOutcome::Changed), [], "each is told once");
}

/// A full table gets no new parameter; it still corrects the ones that it has.
#[test]
fn endless_functions_are_forgotten_before_they_are_believed() {
    let readers = Readers::new();
    let numbered = |number: usize| ParameterKey { function: FunctionKey(number as u128), offset: 0 };
    (0..MOST + 10).for_each(|number| readers.prove(numbered(number), true));
    assert_eq!(readers.counts().readers, MOST as u64);
    assert_eq!(readers.accuse([numbered(MOST + 11)]), []);
    assert_eq!(readers.unjudged(&[numbered(MOST + 11)]), []);
    assert_eq!(readers.accuse([numbered(5)]), [numbered(5)]);
}

#[test]
fn threads_that_close_windows_refute_a_reader_once() {
    let readers = Arc::new(Readers::new());
    (0..4).for_each(|number| readers.prove(parameter(number), true));
    let close = |_| {
        let readers = Arc::clone(&readers);
        std::thread::spawn(move || readers.close(&window(&[0, 1, 2, 3]), WindowOutcome::Changed).len())
    };
    let threads: Vec<_> = (0..4).map(close).collect();
    let refuted: usize = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    assert_eq!(refuted, 4);
}
