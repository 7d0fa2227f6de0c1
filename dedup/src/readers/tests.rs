//! Hazard (process crash): a kernel without a proof, or one whose proof was refuted, counts as a
//! reader, and then faults in a shared block.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

fn parameter(number: u8) -> ParameterKey {
    ParameterKey {
        function: FunctionKey::of(u128::from(number / 2), "kernel"),
        offset: u32::from(number % 2) * 8,
    }
}

#[derive(Debug, Clone)]
enum Step {
    Prove {
        number: u8,
        only_reads: bool,
    },
    /// Bytes changed in a block that these use.
    Contradict(BTreeSet<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..8_u8, prop::bool::weighted(0.8))
            .prop_map(|(number, only_reads)| Step::Prove { number, only_reads }),
        1 => prop::collection::btree_set(0..8_u8, 0..4).prop_map(Step::Contradict),
    ]
}

fn parameters(numbers: &BTreeSet<u8>) -> FxHashSet<ParameterKey> {
    numbers.iter().map(|number| parameter(*number)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// The model has the first proof of each parameter, and the accused ones.
    #[test]
    fn verdicts_are_those_of_the_model(steps in prop::collection::vec(step(), 0..60)) {
        let (readers, mut model) = (Readers::new(), BTreeMap::new());
        for step in steps {
            match step {
                Step::Prove { number, only_reads } => {
                    readers.prove(parameter(number), only_reads);
                    let proven = if only_reads { ParameterVerdict::Reader } else { ParameterVerdict::Writer };
                    model.entry(number).or_insert(proven);
                }
                Step::Contradict(numbers) => {
                    let is_reader = |number: &u8| model.get(number) == Some(&ParameterVerdict::Reader);
                    let expected = if numbers.iter().all(is_reader) { numbers.clone() } else { BTreeSet::new() };
                    let accused: FxHashSet<_> = readers.contradict(&parameters(&numbers)).into_iter().collect();
                    prop_assert_eq!(accused, parameters(&expected));
                    model.extend(expected.into_iter().map(|number| (number, ParameterVerdict::Writer)));
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
    let (readers, both) = (Readers::new(), parameters(&[0, 1].into()));
    readers.prove(parameter(0), true);
    assert_eq!(readers.contradict(&both), []);
    readers.prove(parameter(1), true);
    assert_eq!(readers.contradict(&both).len(), 2);
    assert_eq!(readers.contradict(&both), [], "each is told once");
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
fn threads_that_accuse_at_once_are_told_once() {
    let readers = Arc::new(Readers::new());
    (0..4).for_each(|number| readers.prove(parameter(number), true));
    let accuse = |_| {
        let readers = Arc::clone(&readers);
        std::thread::spawn(move || readers.accuse((0..4).map(parameter)).len())
    };
    let threads: Vec<_> = (0..4).map(accuse).collect();
    let accused: usize = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    assert_eq!(accused, 4);
}
