//! Hazard (wrong result): a look-up misses a value because a removal, or the end of the row, cut
//! the probe chain. The table's own source is compared with an ordered map.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "the crate's sources, under another root")]

#[path = "../src/containers/mod.rs"]
mod containers;

use std::collections::BTreeMap;

use containers::table::{Keyed, ProbingTable};
use proptest::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Value(u64, u32);

impl Keyed for Value {
    type Key = u64;

    fn key(&self) -> u64 {
        self.0
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u64, u32),
    GetOrInsert(u64, u32),
    Change(u64, u32),
    Remove(u64),
    Retain(u32),
}

/// Few enough that most cells of a small table are full, or their neighbours.
fn keys() -> impl Strategy<Value = u64> {
    (0..60u64).prop_map(|index| index * 512)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (keys(), any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
        2 => (keys(), any::<u32>()).prop_map(|(key, value)| Step::GetOrInsert(key, value)),
        1 => (keys(), any::<u32>()).prop_map(|(key, value)| Step::Change(key, value)),
        4 => keys().prop_map(Step::Remove),
        1 => (0..4u32).prop_map(Step::Retain),
    ];
    prop::collection::vec(step, 1..150)
}

/// Does a step to both, and checks that they answer alike.
fn apply(step: &Step, table: &mut ProbingTable<Value>, model: &mut BTreeMap<u64, u32>) {
    match *step {
        Step::Insert(key, value) => {
            table.insert(Value(key, value));
            model.insert(key, value);
        }
        Step::GetOrInsert(key, value) => {
            let found = table.get_or_insert(key, || Value(key, value)).1;
            assert_eq!(found, *model.entry(key).or_insert(value));
        }
        Step::Change(key, value) => {
            let found = table.get_mut(key).map(|found| std::mem::replace(&mut found.1, value));
            assert_eq!(found, model.get_mut(&key).map(|found| std::mem::replace(found, value)));
        }
        Step::Remove(key) => assert_eq!(table.remove(key).map(|value| value.1), model.remove(&key)),
        Step::Retain(part) => {
            table.retain(|value| value.1 % 4 != part);
            model.retain(|_, value| *value % 4 != part);
        }
    }
}

proptest! {
    #[test]
    fn a_table_answers_as_a_map_does(steps in steps()) {
        let (mut table, mut model) = (ProbingTable::default(), BTreeMap::new());
        for step in &steps {
            apply(step, &mut table, &mut model);
            for key in (0..60).map(|index| index * 512) {
                prop_assert_eq!(table.get(key).map(|value| value.1), model.get(&key).copied());
            }
            prop_assert_eq!(table.iter().count(), model.len());
        }
    }
}
