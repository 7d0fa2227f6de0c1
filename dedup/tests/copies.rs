//! Hazard (resource leak): a segment of copies outlives its last user, or the uses of a process
//! that has ended stay. Hazard (use after free): a segment is dropped while a keeper uses it.
//!
//! Hazard (privilege boundary): a keeper gets a segment that it did not ask for.
//!
//! Random keepers against a model that is a list of segments and nothing else.

use std::rc::{Rc, Weak};

use proptest::collection::vec;
use proptest::prelude::*;
use wm_dedup::broker::{CopyLimits, CopyPlace, CopyTable, KeeperNumber, SegmentNumber};
use wm_dedup::chunk::{CopyName, Fingerprint};

const LIMITS: CopyLimits = CopyLimits { keepers: 3, segments: 5, names: 9, segments_of_one: 3 };

/// Names differ in the fingerprint or in the number of bytes.
fn name(number: u8) -> CopyName {
    CopyName { fingerprint: Fingerprint(u128::from(number / 2)), bytes: 1 + u64::from(number % 2) }
}

/// A keeper is named by its turn of joining, a segment by the turn of its offer: both may be gone,
/// or another's.
#[derive(Debug, Clone)]
enum Step {
    Join,
    Gone(usize),
    Find(usize, Vec<u8>, usize),
    Offer(usize, Vec<u8>),
    Release(usize, usize),
    Forge(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let names = || vec(0..12_u8, 0..5);
    prop_oneof![
        2 => Just(Step::Join),
        1 => (0..6_usize).prop_map(Step::Gone),
        6 => (0..6_usize, names(), 0..4_usize)
            .prop_map(|(keeper, names, most)| Step::Find(keeper, names, most)),
        6 => (0..6_usize, names()).prop_map(|(keeper, names)| Step::Offer(keeper, names)),
        4 => (0..6_usize, 0..12_usize).prop_map(|(keeper, segment)| Step::Release(keeper, segment)),
        1 => (0..6_usize, any::<u64>()).prop_map(|(keeper, segment)| Step::Forge(keeper, segment)),
    ]
}

/// A segment with users.
struct ModelSegment {
    number: SegmentNumber,
    users: Vec<KeeperNumber>,
    copies: Vec<(CopyName, u64)>,
}

struct Run {
    table: CopyTable<Rc<usize>>,
    live: Vec<KeeperNumber>,
    held: Vec<ModelSegment>,
    joined: Vec<KeeperNumber>,
    /// All segments so far, dead or alive. The descriptor of each says its turn.
    accepted: Vec<SegmentNumber>,
    descriptors: Vec<Weak<usize>>,
}

impl Run {
    fn new() -> Self {
        let (joined, accepted, descriptors) = (Vec::new(), Vec::new(), Vec::new());
        let (table, live, held) = (CopyTable::new(LIMITS), Vec::new(), Vec::new());
        Self { table, live, held, joined, accepted, descriptors }
    }

    fn take(&mut self, step: &Step) {
        let keeper = |turn: &usize| self.joined.iter().rev().nth(*turn).copied();
        match step {
            Step::Join => self.join(),
            Step::Gone(turn) => keeper(turn).into_iter().for_each(|keeper| self.gone(keeper)),
            Step::Find(turn, names, most) => {
                keeper(turn).into_iter().for_each(|keeper| self.find(keeper, names, *most));
            }
            Step::Offer(turn, names) => {
                keeper(turn).into_iter().for_each(|keeper| self.offer(keeper, names));
            }
            Step::Release(turn, segment) => {
                let segment = self.accepted.iter().rev().nth(*segment).copied();
                let both = keeper(turn).zip(segment);
                both.into_iter().for_each(|(keeper, segment)| self.release(keeper, segment));
            }
            Step::Forge(turn, segment) => {
                let segment = SegmentNumber(*segment);
                keeper(turn).into_iter().for_each(|keeper| self.release(keeper, segment));
            }
        }
    }

    fn join(&mut self) {
        let joined = self.table.join();
        assert_eq!(joined.is_some(), self.live.len() < LIMITS.keepers);
        assert!(joined.is_none_or(|keeper| !self.joined.contains(&keeper)), "a number is given once");
        self.live.extend(joined);
        self.joined.extend(joined);
    }

    fn gone(&mut self, keeper: KeeperNumber) {
        self.table.gone(keeper);
        self.live.retain(|live| *live != keeper);
        self.held.iter_mut().for_each(|held| held.users.retain(|user| *user != keeper));
        self.held.retain(|held| !held.users.is_empty());
    }

    fn used_by(&self, keeper: KeeperNumber) -> usize {
        self.held.iter().filter(|held| held.users.contains(&keeper)).count()
    }

    fn place(&self, name: CopyName) -> Option<CopyPlace> {
        let mut places = self.held.iter().flat_map(|held| {
            held.copies
                .iter()
                .filter(move |(copy, _)| *copy == name)
                .map(|(_, offset)| CopyPlace { segment: held.number, offset: *offset })
        });
        let place = places.next();
        assert!(places.next().is_none(), "a name has one place");
        place
    }

    fn find(&mut self, keeper: KeeperNumber, numbers: &[u8], most: usize) {
        let names: Vec<_> = numbers.iter().copied().map(name).collect();
        let found = self.table.find(keeper, &names, most);
        assert_eq!(found.places.len(), names.len());
        let mut new = Vec::new();
        for (name, place) in names.iter().zip(found.places) {
            let there = self.place(*name).filter(|_| self.live.contains(&keeper));
            let Some(there) = there else {
                assert_eq!(place, None, "there is none");
                continue;
            };
            let has_room = new.len() < most && self.used_by(keeper) < LIMITS.segments_of_one;
            let held = self.held.iter_mut().find(|held| held.number == there.segment).expect("a segment");
            if held.users.contains(&keeper) {
                assert_eq!(place, Some(there));
            } else if has_room {
                assert_eq!(place, Some(there));
                held.users.push(keeper);
                new.push(there.segment);
            } else {
                assert_eq!(place, None, "a limit is reached");
            }
        }
        let given: Vec<_> = found.segments.iter().map(|(segment, _)| *segment).collect();
        assert_eq!(given, new, "a keeper gets what it asked for and did not have, and nothing else");
        for (segment, descriptor) in &found.segments {
            assert_eq!(self.accepted[**descriptor], *segment, "the descriptor of another segment");
        }
    }

    fn offer(&mut self, keeper: KeeperNumber, numbers: &[u8]) {
        let turn = self.accepted.len();
        let offset = |number: u8| u64::from(number) + 100 * turn as u64;
        let copies: Vec<_> = numbers.iter().map(|number| (name(*number), offset(*number))).collect();
        let has_room = self.live.contains(&keeper)
            && self.held.len() < LIMITS.segments
            && self.used_by(keeper) < LIMITS.segments_of_one;
        let (mut expected, mut taken) = (Vec::new(), Vec::<(CopyName, u64)>::new());
        for copy in &copies {
            let all = self.held.iter().map(|held| held.copies.len()).sum::<usize>() + taken.len();
            let is_new = self.place(copy.0).is_none() && taken.iter().all(|(name, _)| *name != copy.0);
            let is_accepted = has_room && is_new && all < LIMITS.names;
            expected.push(is_accepted);
            taken.extend(is_accepted.then_some(*copy));
        }
        let descriptor = Rc::new(turn);
        let weak = Rc::downgrade(&descriptor);
        let offered = self.table.offer(keeper, descriptor, &copies);
        assert_eq!(offered.accepted, expected);
        assert_eq!(offered.segment.is_some(), !taken.is_empty(), "one without a copy is not kept");
        let Some(number) = offered.segment else { return assert_eq!(weak.strong_count(), 0) };
        assert!(!self.accepted.contains(&number), "a number is given once");
        self.accepted.push(number);
        self.descriptors.push(weak);
        self.held.push(ModelSegment { number, users: vec![keeper], copies: taken });
    }

    fn release(&mut self, keeper: KeeperNumber, segment: SegmentNumber) {
        let before = self.used_by(keeper);
        for held in self.held.iter_mut().filter(|held| held.number == segment) {
            held.users.retain(|user| *user != keeper);
        }
        self.held.retain(|held| !held.users.is_empty());
        assert_eq!(self.table.release(keeper, segment), self.used_by(keeper) < before);
    }

    fn check(&self) {
        let copies = || self.held.iter().flat_map(|held| &held.copies);
        assert_eq!(self.table.keepers(), self.live.len());
        assert_eq!((self.table.segments(), self.table.names()), (self.held.len(), copies().count()));
        assert_eq!(self.table.bytes(), copies().map(|(name, _)| name.bytes).sum::<u64>());
        for (number, descriptor) in self.accepted.iter().zip(&self.descriptors) {
            let is_held = self.held.iter().any(|held| held.number == *number);
            assert_eq!(descriptor.strong_count() > 0, is_held, "it lives as long as its users");
        }
        for keeper in &self.joined {
            assert_eq!(self.table.segments_of(*keeper), self.used_by(*keeper));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_table_does_what_a_list_of_segments_does(steps in vec(step(), 1..120)) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
            run.check();
        }
        for keeper in run.joined.clone() {
            run.gone(keeper);
        }
        run.check();
        prop_assert_eq!((run.table.segments(), run.table.names(), run.table.bytes()), (0, 0, 0));
    }
}

/// Hazard (corrupt input): the sum of sizes that a client made up overflows.
#[test]
fn sizes_of_any_sum_are_counted() {
    let mut table = CopyTable::new(LIMITS);
    let keeper = table.join().expect("there is room");
    let huge = |number| (CopyName { fingerprint: Fingerprint(number), bytes: u64::MAX }, 0);
    let one = table.offer(keeper, (), &[huge(1), huge(2)]).segment.expect("it is held");
    let other = table.offer(keeper, (), &[(name(1), 0)]).segment.expect("it is held");
    assert_eq!(table.bytes(), u64::MAX);
    assert!(table.release(keeper, one));
    assert_eq!(table.bytes(), name(1).bytes);
    assert!(table.release(keeper, other) && !table.release(keeper, other));
}
