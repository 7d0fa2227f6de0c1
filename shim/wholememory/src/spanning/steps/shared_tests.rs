//! Hazards: a rank reads a row that it borrows before the row has arrived at another rank, or when
//! the next one is there already (data race); ranks that meet wait for each other for ever
//! (deadlock). All orders are tried at once: of each two events it is asked whether one must come
//! before the other.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// What a rank does in one of its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RankEvent {
    /// It says where its rows arrive: before its steps.
    Place,
    /// Its messages begin, in a step.
    Begin(i64),
    /// They have passed.
    Passed(i64),
    /// Its kernels have begun and ended.
    Kernels(i64),
    /// It gives its claims back: behind its steps.
    Release,
}

type Node = (usize, RankEvent);

/// Which events come directly before an event.
#[derive(Default)]
struct EventOrder(BTreeMap<Node, Vec<Node>>);

impl EventOrder {
    fn after(&mut self, event: Node, before: Node) {
        self.0.entry(event).or_default().push(before);
    }

    /// Must one event come before another one?
    fn is_before(&self, before: Node, event: Node) -> bool {
        let (mut left, mut seen) = (vec![event], std::collections::BTreeSet::new());
        while let Some(node) = left.pop() {
            for other in self.0.get(&node).into_iter().flatten() {
                if *other == before {
                    return true;
                }
                if seen.insert(*other) {
                    left.push(*other);
                }
            }
        }
        false
    }
}

/// The steps of a rank, with their numbers.
fn numbered(plan: &ExchangePlan) -> Vec<(i64, ExchangeStep)> {
    let is_empty = |step: &ExchangeStep| !step.meets && step.messages.is_empty() && step.tasks.is_empty();
    (0..200).map(|at| (at, plan.step(at))).filter(|(_, step)| !is_empty(step)).collect()
}

/// The order of all ranks' events, as streams and messages give it.
fn order(islands: &Islands, plans: &[ExchangePlan]) -> EventOrder {
    use RankEvent::{Begin, Kernels, Passed, Place, Release};
    let mut order = EventOrder::default();
    for (rank, plan) in plans.iter().enumerate() {
        let mut last = None;
        for (at, step) in numbered(plan) {
            order.after((rank, Passed(at)), (rank, Begin(at)));
            match last {
                None => order.after((rank, Begin(at)), (rank, Place)),
                Some(last) => {
                    order.after((rank, Begin(at)), (rank, Passed(last)));
                    order.after((rank, Begin(at)), (rank, Kernels(last)));
                    order.after((rank, Kernels(at)), (rank, Passed(last)));
                    order.after((rank, Kernels(at)), (rank, Kernels(last)));
                }
            }
            order.after((rank, Kernels(at)), (rank, Place));
            for message in &step.messages {
                if matches!(message, Message::ReceiveNumbers(_) | Message::ReceiveRows(_)) {
                    order.after((rank, Passed(at)), (message.chunk().pair.peer, Begin(at)));
                }
            }
            if step.meets {
                for mate in islands.members(islands.of(rank)) {
                    order.after((rank, Passed(at)), (*mate, Begin(at)));
                }
            }
            order.after((rank, Release), (rank, Kernels(at)));
            last = Some(at);
        }
    }
    order
}

proptest! {
    #[test]
    fn rows_are_borrowed_while_they_are_there(
        machines in prop::collection::vec(0_usize..3, 2..7),
        draws in prop::collection::vec(prop_oneof![Just(0_u64), 0_u64..40], 21),
        (rows, opening) in (4_u64..12, prop_oneof![Just(0_u64), 0_u64..50]),
        sharing in any::<[bool; 3]>(),
    ) {
        use RankEvent::{Begin, Kernels, Passed, Place, Release};
        let islands = Islands::new(machines.len(), |one, other| machines[one] == machines[other]);
        let counts: Vec<Vec<u64>> = (0..machines.len())
            .map(|rank| (0..islands.count()).map(|island| draws[(rank * 3 + island) % draws.len()]).collect())
            .collect();
        let plan = |rank| {
            let plan = ExchangePlan::new(RowOperation::Gather, &islands, rank, &counts, (rows, opening));
            if sharing[islands.of(rank)] { plan.sharing(&islands, rank, &counts) } else { plan }
        };
        let plans: Vec<_> = (0..machines.len()).map(plan).collect();
        let order = order(&islands, &plans);
        let all = |rank: usize| numbered(&plans[rank]);
        for rank in 0..plans.len() {
            for (at, step) in all(rank) {
                prop_assert!(!order.is_before((rank, Passed(at)), (rank, Passed(at))), "ranks wait for each other");
                let mates = islands.members(islands.of(rank)).iter().copied().filter(|mate| *mate != rank);
                for mate in mates {
                    // Both meet in the same steps.
                    let met = all(mate).into_iter().find(|(other, _)| *other == at).map(|(_, step)| step.meets);
                    prop_assert_eq!(met.unwrap_or_default(), step.meets);
                    if step.tasks.contains(&Task::Locate) {
                        prop_assert!(order.is_before((mate, Place), (rank, Kernels(at))));
                        prop_assert!(order.is_before((rank, Kernels(at)), (mate, Release)));
                    }
                    for task in &step.tasks {
                        let Task::Borrow(chunk) = *task else { continue };
                        for (other, step) in all(mate) {
                            let arriving = step.messages.iter().filter(|message| matches!(message, Message::ReceiveRows(_)));
                            for arrived in arriving.map(|message| message.chunk().number) {
                                if arrived == chunk {
                                    prop_assert!(order.is_before((mate, Passed(other)), (rank, Kernels(at))));
                                }
                                if arrived == chunk + SHARED_TURNS {
                                    prop_assert!(order.is_before((rank, Kernels(at)), (mate, Begin(other))));
                                }
                            }
                        }
                    }
                }
            }
            // Each chunk of each rank of the island is borrowed, behind the search for places.
            let tasks: Vec<_> = all(rank).into_iter().flat_map(|(_, step)| step.tasks).collect();
            let borrowed: Vec<_> = tasks.iter().filter(|task| matches!(task, Task::Locate | Task::Borrow(_))).collect();
            let chunks = |mate: &usize| plans[*mate].asking().iter().map(|pair| pair.rows.div_ceil(rows)).max();
            let most = islands.members(islands.of(rank)).iter().filter_map(chunks).max().unwrap_or_default();
            let wanted: Vec<_> = [Task::Locate].into_iter().chain((0..most).map(Task::Borrow)).collect();
            match sharing[islands.of(rank)] && most > 0 {
                true => prop_assert_eq!(borrowed, wanted.iter().collect::<Vec<_>>()),
                false => prop_assert!(borrowed.is_empty()),
            }
        }
    }
}
