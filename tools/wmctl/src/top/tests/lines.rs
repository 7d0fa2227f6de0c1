//! Hazard (wrong report): a program is left out, shown twice, or counted to another tree.

use std::collections::BTreeSet;

use super::super::lines::{LineKey, ProgramLine, ScreenLine, ViewChoice};
use super::super::reading::CopyRate;
use super::*;

fn choice(filter: &str) -> ViewChoice {
    ViewChoice { sort: Column::Pid, is_reversed: false, filter: filter.to_owned(), folded: BTreeSet::new() }
}

fn shown<'a>(change: &'a Change, choice: &ViewChoice) -> Vec<ProgramLine<'a>> {
    let program = |line| match line {
        ScreenLine::Program(line) => Some(line),
        _ => None,
    };
    lines(change, &History::default(), choice, 200).into_iter().filter_map(program).collect()
}

fn pids(change: &Change, choice: &ViewChoice) -> Vec<u32> {
    shown(change, choice).iter().map(|line| line.process.pid).collect()
}

/// All on one device.
fn on_one_device(count: u32) -> Change {
    let mut change = machine(count);
    for device in change.processes.iter_mut().flat_map(|process| &mut process.devices) {
        (device.gpu_uuid, device.pci) = (uuid(0), String::new());
    }
    change
}

#[test]
fn every_program_is_there_once_in_any_order() {
    let change = machine(200);
    let all: BTreeSet<u32> = change.processes.iter().map(|process| process.pid).collect();
    for sort in super::super::column::ALL {
        for is_reversed in [false, true] {
            let found = pids(&change, &ViewChoice { sort, is_reversed, ..choice("") });
            assert_eq!(found.len(), 200, "{sort:?}");
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), all, "{sort:?}");
        }
    }
}

#[test]
fn a_worker_is_below_its_parent_and_folded_into_it() {
    let change = on_one_device(5);
    let [parent, worker] = [4022, 4033];
    let choice = ViewChoice { sort: Column::Live, ..choice("") };
    let open = shown(&change, &choice);
    assert_eq!(
        open.iter().map(|line| line.process.pid).collect::<Vec<_>>(),
        [parent, worker, 4044, 4011, 4000]
    );
    assert_eq!(open.iter().map(|line| line.depth).collect::<Vec<_>>(), [0, 1, 0, 0, 0]);
    let folded = ViewChoice { folded: BTreeSet::from([parent, 4044]), ..choice };
    let closed = shown(&change, &folded);
    assert_eq!(closed.iter().map(|line| line.process.pid).collect::<Vec<_>>(), [parent, 4044, 4011, 4000]);
    let sum = |lines: &[ProgramLine<'_>]| {
        lines.iter().filter_map(|line| line.figures).map(|it| it.live).sum::<u64>()
    };
    assert_eq!(sum(&open), sum(&closed));
    assert_eq!((closed[0].is_folded, &closed[0].below, closed[1].is_folded), (true, &vec![worker], false));
}

#[test]
fn a_table_is_in_the_order_that_was_chosen_and_equals_keep_theirs() {
    let mut change = machine(9);
    let mut pids = |by| {
        super::super::column::sort(&mut change.processes, by);
        change.processes.iter().map(|process| process.pid).collect::<Vec<_>>()
    };
    assert_eq!(pids(Column::Host), [4022, 4055, 4088, 4011, 4044, 4000, 4033, 4066, 4077]);
    assert_eq!(pids(Column::User)[..3], [4000, 4033, 4066]);
    assert_eq!(pids(Column::Pid)[..3], [4000, 4011, 4022]);
}

/// Processes were looked at one after the other, and a number may be given again meanwhile.
#[test]
fn programs_that_name_each_other_as_parents_are_shown() {
    let mut change = on_one_device(3);
    for others in
        [[vec![4011], vec![4022], vec![4000]], [vec![4011, 4022], vec![4022], vec![4000, 4022, 4011]]]
    {
        for (process, others) in change.processes.iter_mut().zip(others) {
            process.ancestors = others;
        }
        let found: BTreeSet<u32> = pids(&change, &choice("")).into_iter().collect();
        assert_eq!(found, BTreeSet::from([4000, 4011, 4022]));
    }
}

#[test]
fn a_filter_looks_into_each_column_of_text() {
    let change = machine(9);
    assert_eq!(pids(&change, &choice("SOLVE")), [4055, 4088, 4022], "device 0, device 1");
    assert_eq!(pids(&change, &choice("bela")), [4011, 4044, 4077], "the last has no figures");
    assert_eq!((pids(&change, &choice("77006")), pids(&change, &choice("4066"))), (vec![4066], vec![4066]));
    assert_eq!(pids(&change, &choice("nothing")), [] as [u32; 0]);
}

#[test]
fn a_device_has_the_sum_of_all_its_programs_also_of_those_that_a_filter_hides() {
    let change = machine(9);
    let sums = |filter| -> Vec<(usize, u64, Option<u64>)> {
        let device = |line| match line {
            ScreenLine::Device(line) => Some((line.programs, line.sum.live, line.used)),
            _ => None,
        };
        lines(&change, &History::default(), &choice(filter), 80).into_iter().filter_map(device).collect()
    };
    let half = GIB / 2;
    let expected = [(5, 54 * GIB + 5 * half, Some(131 * GIB + half)), (3, 33 * GIB + 3 * half, None)];
    assert_eq!((sums(""), sums("solve")), (expected.to_vec(), expected.to_vec()));
}

#[test]
fn copies_have_a_table_below_the_programs() {
    let mut change = machine(9);
    let rate = || CopyRate { path: "relay 2".into(), direction: "htod".into(), bytes: 7, bytes_per_s: 2.5e9 };
    change.processes[2].copies.push(rate());
    let last = |filter| {
        let lines = lines(&change, &History::default(), &choice(filter), 80);
        lines.last().map(|line| line.key()).expect("a line")
    };
    let row = "4022  relay 2      htod       2.50";
    assert_eq!(last(""), LineKey::Text(row.to_owned()));
    assert_eq!(last("4000"), LineKey::Device(uuid(1)), "of the programs that are shown");
}
