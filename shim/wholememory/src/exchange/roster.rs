//! Which rank hears which: the ranks of a machine are heard by one of them, its *leader*, and the
//! leaders by one of them, the *root*. Pure; the same at every rank.

/// The leader of each rank, by rank, and the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roster {
    root: usize,
    leaders: Vec<usize>,
}

impl Roster {
    /// All ranks on one machine, with this leader.
    pub(super) fn of_one(size: usize, leader: usize) -> Self {
        Self { root: leader, leaders: vec![leader; size] }
    }

    /// Each leader leads itself, and the root is one of them.
    pub(crate) fn new(root: usize, leaders: Vec<usize>) -> Self {
        Self { root, leaders }
    }

    /// The leader of the rank's machine.
    pub fn leader(&self, rank: usize) -> usize {
        self.leaders[rank]
    }

    /// The rank that hears all machines.
    pub(super) fn root(&self) -> usize {
        self.root
    }

    pub(super) fn size(&self) -> usize {
        self.leaders.len()
    }

    /// Are two ranks on one machine?
    pub(super) fn are_together(&self, one: usize, other: usize) -> bool {
        self.leaders[one] == self.leaders[other]
    }

    /// Are there ranks of several machines?
    pub(super) fn spans(&self) -> bool {
        self.leaders.iter().any(|leader| *leader != self.root)
    }

    /// All ranks of a leader's machine, ascending.
    pub(super) fn members(&self, leader: usize) -> Vec<usize> {
        (0..self.size()).filter(|rank| self.leaders[*rank] == leader).collect()
    }

    /// The ranks that hear a machine each, ascending.
    pub(super) fn leaders(&self) -> Vec<usize> {
        (0..self.size()).filter(|rank| self.leaders[*rank] == *rank).collect()
    }

    /// The roster of some of the ranks, by their numbers in that part: the first rank of each
    /// machine leads, and rank 0 is the root.
    pub(super) fn part(&self, ranks: &[usize]) -> Self {
        let first = |rank: &usize| ranks.iter().position(|other| self.are_together(*rank, *other));
        Self { root: 0, leaders: ranks.iter().filter_map(first).collect() }
    }

    /// For a message.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let numbers = std::iter::once(&self.root).chain(&self.leaders);
        numbers.flat_map(|rank| (*rank as u32).to_le_bytes()).collect()
    }

    /// From a message. `None` unless each leader leads itself.
    pub(super) fn of_bytes(bytes: &[u8], size: usize) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<4>();
        let (root, leaders) = words.split_first()?;
        let number = |word: &[u8; 4]| u32::from_le_bytes(*word) as usize;
        let leaders: Vec<_> = leaders.iter().map(number).collect();
        let leads = |rank: usize| leaders.get(rank) == Some(&rank);
        let is_whole = rest.is_empty() && leaders.len() == size;
        let roster = Self { root: number(root), leaders: leaders.clone() };
        (is_whole && leads(roster.root) && leaders.iter().all(|leader| leads(*leader))).then_some(roster)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (deadlock): a rank that no other hears, or two do.
    use proptest::prelude::*;

    use super::*;

    fn roster(machines: &[usize]) -> Roster {
        let all: Vec<_> = (0..machines.len()).collect();
        let leader = |rank: &usize| machines.iter().position(|machine| *machine == machines[*rank]);
        Roster::new(0, all.iter().filter_map(leader).collect())
    }

    proptest! {
        #[test]
        fn each_rank_is_heard_once(machines in prop::collection::vec(0_usize..4, 1..16)) {
            let roster = roster(&machines);
            let mut heard: Vec<_> = roster.leaders().iter().flat_map(|leader| roster.members(*leader)).collect();
            heard.sort_unstable();
            prop_assert_eq!(heard, (0..machines.len()).collect::<Vec<_>>());
            prop_assert_eq!(Roster::of_bytes(&roster.bytes(), machines.len()), Some(roster.clone()));
            prop_assert_eq!(roster.spans(), machines.iter().any(|machine| *machine != machines[0]));
        }

        #[test]
        fn a_part_keeps_machines_apart(machines in prop::collection::vec(0_usize..4, 2..16), order in any::<u64>()) {
            let roster = roster(&machines);
            let mut ranks: Vec<_> = (0..machines.len()).filter(|rank| order >> rank & 1 != 0).collect();
            ranks.sort_by_key(|rank| order.rotate_left(*rank as u32) & 0xff);
            prop_assume!(!ranks.is_empty());
            let part = roster.part(&ranks);
            prop_assert_eq!(part.leader(0), 0);
            for one in 0..ranks.len() {
                for other in 0..ranks.len() {
                    prop_assert_eq!(part.are_together(one, other), machines[ranks[one]] == machines[ranks[other]]);
                }
            }
            prop_assert!(Roster::of_bytes(&part.bytes(), ranks.len()).is_some());
        }
    }

    #[test]
    fn a_roster_without_sense_is_refused() {
        for (root, leaders) in [(1, vec![0, 0]), (0, vec![1, 0]), (0, vec![0, 7])] {
            assert_eq!(Roster::of_bytes(&Roster::new(root, leaders).bytes(), 2), None);
        }
        assert_eq!(Roster::of_bytes(&Roster::of_one(3, 0).bytes(), 2), None);
    }
}
