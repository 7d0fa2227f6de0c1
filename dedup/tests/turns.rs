//! Hazard (latency): a process waits for its turn longer than others need, or for ever. Hazard
//! (thrashing): processes that launch all the time move more than they work. Hazard (deadlock): a
//! process that is stopped or has died holds all others up.

mod turns {
    pub(crate) mod world;
}

use std::time::Duration;

use proptest::prelude::*;
use turns::world::{Doing, World};
use wm_dedup::turns::message::{GpuUse, TurnPhase, TurnReport, TurnTask};
use wm_dedup::turns::{HEARTBEAT, LONGEST, MemberNumber, PATIENCE, TURN, TurnTable};

const GPU: [u8; 16] = [7; 16];
const OTHER: [u8; 16] = [8; 16];

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn holds(gpu: [u8; 16], present: u64, idle: u64) -> TurnReport {
    let gpus = vec![GpuUse { gpu, present, missing: 0, free: 0, given: 0 }];
    TurnReport { idle: at(idle), gpus, ..TurnReport::default() }
}

fn asks(gpu: [u8; 16], missing: u64, free: u64) -> TurnReport {
    let gpus = vec![GpuUse { gpu, present: 0, missing, free, given: 0 }];
    TurnReport { ask: 1, phase: TurnPhase::Away, gpus, ..TurnReport::default() }
}

fn tasks(table: &mut TurnTable, member: MemberNumber) -> Vec<TurnTask> {
    std::iter::from_fn(|| table.take_order(member)).map(|order| order.task).collect()
}

fn given_way(tasks: &[TurnTask]) -> Option<u64> {
    tasks.iter().find_map(|task| match task {
        TurnTask::GiveWay { bytes, .. } => Some(bytes.iter().map(|(_, bytes)| bytes).sum()),
        _ => None,
    })
}

/// Members that hold memory since their last launch, in milliseconds.
fn holders(table: &mut TurnTable, idle: &[u64]) -> Vec<MemberNumber> {
    let joined = idle.iter().map(|idle| {
        let member = table.join(at(0));
        table.report(member, holds(GPU, 10, *idle), at(0));
        member
    });
    joined.collect()
}

#[test]
fn the_one_that_launched_least_recently_gives_what_is_missing_and_no_more() {
    let mut table = TurnTable::default();
    let members = holders(&mut table, &[5, 500, 50]);
    let asking = table.join(at(0));
    table.report(asking, asks(GPU, 16, 1), at(1));
    let given: Vec<_> = members.iter().map(|member| given_way(&tasks(&mut table, *member))).collect();
    assert_eq!(given, [None, Some(10), Some(5)]);
    assert_eq!(tasks(&mut table, asking), [TurnTask::Come { ask: 1, is_last: false }]);
}

/// What moves need beside the memory itself is not known before.
#[test]
fn what_is_lacking_when_all_have_given_is_asked_for_again() {
    let mut table = TurnTable::default();
    let giver = holders(&mut table, &[5])[0];
    let asking = table.join(at(0));
    table.report(asking, asks(GPU, 6, 0), at(1));
    let given = |table: &mut TurnTable, order, present, bytes| {
        let mut report = TurnReport { giving: order, done: order, ..holds(GPU, present, 5) };
        report.gpus[0].given = bytes;
        table.report(giver, report, at(2));
        tasks(table, giver)
    };
    let come = |is_last| TurnTask::Come { ask: 1, is_last };
    let is_short = |come| TurnReport { short: come, ..asks(GPU, 1, 0) };
    assert_eq!(given_way(&tasks(&mut table, giver)), Some(6));
    assert_eq!(tasks(&mut table, asking), [come(false)]);
    given(&mut table, 1, 4, 6);
    assert_eq!(tasks(&mut table, asking), [come(false)]);
    // It does not know of the room yet.
    table.report(asking, is_short(1), at(3));
    assert!(!table.has_order(giver));
    table.report(asking, is_short(2), at(3));
    assert_eq!(given_way(&tasks(&mut table, giver)), Some(1));
    given(&mut table, 2, 3, 1);
    assert_eq!(tasks(&mut table, asking).last(), Some(&come(false)));
    table.report(asking, TurnReport { ask: 0, ..asks(GPU, 0, 0) }, at(4));
    assert_eq!((tasks(&mut table, giver), tasks(&mut table, asking)), (vec![], vec![]));
}

/// The last launch may have been after the last report.
#[test]
fn members_are_asked_when_they_launched_and_a_silent_one_is_passed_over() {
    let mut table = TurnTable::default();
    let members = holders(&mut table, &[5, 500]);
    let asking = table.join(at(0));
    table.report(asking, asks(GPU, 10, 0), at(1000));
    for member in &members {
        assert_eq!(tasks(&mut table, *member), [TurnTask::Report]);
    }
    let report = TurnReport { done: 1, ..holds(GPU, 10, 1) };
    table.report(members[1], report, at(1001));
    assert_eq!(tasks(&mut table, members[1]), []);
    let due = table.next_due().expect("the other one is waited for");
    assert!(due <= at(1000) + PATIENCE, "{due:?}");
    let beat = TurnReport { ..asks(GPU, 10, 0) };
    table.report(asking, beat, at(2500));
    table.tick(due);
    assert_eq!(
        given_way(&tasks(&mut table, members[1])),
        Some(10),
        "the silent one costs its deadline alone"
    );
    assert_eq!(tasks(&mut table, members[0]), []);
}

#[test]
fn what_fits_stays() {
    let mut table = TurnTable::default();
    let members = holders(&mut table, &[5, 500]);
    let asking = table.join(at(0));
    table.report(asking, asks(GPU, 16, 16), at(0));
    assert_eq!(tasks(&mut table, asking), [TurnTask::Come { ask: 1, is_last: false }]);
    assert!(members.iter().all(|member| !table.has_order(*member)));
}

#[test]
fn asks_of_different_gpus_do_not_wait_for_each_other() {
    let mut table = TurnTable::default();
    let here = holders(&mut table, &[5])[0];
    let there = table.join(at(0));
    table.report(there, holds(OTHER, 10, 5), at(0));
    for (gpu, holder) in [(GPU, here), (OTHER, there)] {
        let asking = table.join(at(0));
        table.report(asking, asks(gpu, 10, 0), at(1));
        assert_eq!(given_way(&tasks(&mut table, holder)), Some(10));
        let second = table.join(at(0));
        table.report(second, asks(gpu, 10, 0), at(1));
        assert_eq!(tasks(&mut table, second), [TurnTask::Wait], "asks of one GPU do");
    }
}

/// It speaks, and its driver hangs.
#[test]
fn one_that_never_gives_way_costs_a_deadline() {
    let mut table = TurnTable::default();
    let members = holders(&mut table, &[5, 500]);
    let asking = table.join(at(0));
    table.report(asking, asks(GPU, 10, 0), at(1));
    assert_eq!(given_way(&tasks(&mut table, members[1])), Some(10));
    let mut now = at(1);
    while given_way(&tasks(&mut table, members[0])).is_none() {
        now += HEARTBEAT;
        assert!(now < LONGEST + PATIENCE, "{now:?}");
        let leaving = TurnReport { phase: TurnPhase::Leaving, giving: 1, ..holds(GPU, 10, 600) };
        table.report(members[1], leaving, now);
        table.report(members[0], holds(GPU, 10, 5), now);
        table.report(asking, asks(GPU, 10, 0), now);
        let told = tasks(&mut table, asking);
        assert!(told.iter().all(|task| !matches!(task, TurnTask::Come { is_last: true, .. })));
        table.tick(now);
    }
    assert!(now >= LONGEST, "{now:?}");
}

/// The memory of a process that ends is for those that lack some.
#[test]
fn one_that_runs_with_memory_on_the_host_hears_of_room() {
    let mut table = TurnTable::default();
    let holder = holders(&mut table, &[5])[0];
    let spilled = table.join(at(0));
    let report = TurnReport { ask: 0, phase: TurnPhase::Running, ..asks(GPU, 10, 0) };
    table.report(spilled, report, at(1));
    assert_eq!(tasks(&mut table, spilled), []);
    table.gone(holder, at(2));
    assert_eq!(tasks(&mut table, spilled), [TurnTask::Come { ask: 0, is_last: true }]);
    table.gone(spilled, at(3));
    assert_eq!((table.members(), table.next_due()), (0, None));
}

/// Two of 0.8 GPUs each, which launch all the time.
#[test]
fn two_that_launch_all_the_time_alternate_and_move_a_fifth_of_the_time_at_most() {
    let mut world = World::new(1000, [800, 800].map(|size| (size, Doing::Launches)));
    world.run(20_000);
    let [one, other] = [0, 1].map(|index| world.programs[index].ran);
    let together = one + other;
    assert!(one * 10 > together * 4 && other * 10 > together * 4, "{one} and {other} ms");
    let turns = world.programs[0].asks_ended + world.programs[1].asks_ended;
    assert!(turns > 8, "{turns} turns");
    assert!(together * (u64::from(TURN) + 1) >= 20_000 * u64::from(TURN) * 9 / 10, "{together} ms of work");
}

/// A server that is idle gives way at once, also within its turn.
#[test]
fn servers_that_are_idle_give_way_at_once() {
    let bursts = [
        (800, Doing::Bursts { each: 1000, long: 100, first: 0 }),
        (800, Doing::Bursts { each: 1000, long: 100, first: 500 }),
    ];
    let mut world = World::new(1000, bursts);
    world.run(20_000);
    for program in &world.programs {
        assert!(program.asks_ended >= 18, "{}", program.asks_ended);
        // 600 units at 10 a millisecond, both directions at once.
        assert!(program.longest_wait <= 150, "{} ms", program.longest_wait);
    }
}

fn doing() -> impl Strategy<Value = Doing> {
    prop_oneof![
        3 => Just(Doing::Launches),
        2 => (50..2000_u64, 1..200_u64, 0..2000_u64).prop_map(|(each, long, first)| Doing::Bursts { each, long, first }),
        1 => Just(Doing::Nothing),
    ]
}

#[derive(Debug, Clone)]
enum Fate {
    IsStopped,
    GoesOn,
    Dies,
}

fn fates() -> impl Strategy<Value = Vec<(u64, usize, Fate)>> {
    let fate = prop_oneof![2 => Just(Fate::IsStopped), 2 => Just(Fate::GoesOn), 1 => Just(Fate::Dies)];
    proptest::collection::vec((0..20_000_u64, 0..5_usize, fate), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// Processes stop, go on and die at any moment. No ask waits longer than all older asks may
    /// take, and no memory is counted twice.
    #[test]
    fn every_ask_ends_in_time_whatever_the_others_do(
        programs in proptest::collection::vec((50..1000_u64, doing()), 2..5),
        fates in fates(),
    ) {
        // Each older ask costs a turn and a move, of a tenth of a second here, and the silence of
        // all that are stopped.
        let count = programs.len() as u64;
        let of_one = 100 * (u64::from(TURN) + 1) + (PATIENCE + HEARTBEAT).as_millis() as u64;
        let bound = count * (100 * (u64::from(TURN) + 1) + count * of_one);
        let mut world = World::new(1000, programs);
        let mut fates = fates;
        fates.sort_by_key(|(time, ..)| *time);
        for (time, index, fate) in fates {
            world.run_until(time);
            let Some(program) = world.programs.get_mut(index) else { continue };
            match fate {
                Fate::IsStopped => (program.is_stopped, program.was_stopped) = (true, true),
                Fate::GoesOn => program.is_stopped = false,
                Fate::Dies => world.kill(index),
            }
        }
        world.run_until(25_000);
        for program in &mut world.programs {
            program.is_stopped = false;
        }
        world.run_until(25_000 + bound);
        for program in world.programs.iter().filter(|program| !program.is_dead) {
            prop_assert!(program.waits() <= bound, "{} of {} ms", program.waits(), bound);
            prop_assert!(program.was_stopped || program.longest_wait <= bound, "{} ms", program.longest_wait);
            if matches!(program.doing, Doing::Launches) {
                prop_assert!(program.ran > 0, "it never ran");
            }
        }
        prop_assert!(world.problems.is_empty(), "{:?}", world.problems);
        for index in 0..world.programs.len() {
            world.kill(index);
        }
        prop_assert_eq!((world.table.members(), world.table.next_due()), (0, None));
    }
}
