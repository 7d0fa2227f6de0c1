//! How the ranks of a communicator lie on islands. Pure.
//!
//! An *island* is a set of ranks that map each other's memory. Inside an island an operation
//! reaches rows by their addresses; between islands rows are sent.
//!
//! Invariants: each rank is in one island, and all members of an island reach each other. Islands
//! are numbered by their lowest ranks, and the ranks of an island by their numbers in the
//! communicator. Equal facts give equal islands, so all ranks have the same.

/// Islands of a communicator's ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Islands {
    /// By rank: its island, and its number there.
    places: Vec<(usize, usize)>,
    /// By island: its ranks, ascending.
    members: Vec<Vec<usize>>,
}

impl Islands {
    /// The islands of `ranks` ranks, of which two may be in one island if they `reach` each other.
    /// `reach` is asked in both directions. Each rank goes into the first island where it reaches
    /// all members.
    pub fn new(ranks: usize, reach: impl Fn(usize, usize) -> bool) -> Self {
        let (mut places, mut members) = (Vec::with_capacity(ranks), Vec::<Vec<usize>>::new());
        for rank in 0..ranks {
            let is_of = |island: &Vec<usize>| {
                island.iter().all(|member| reach(*member, rank) && reach(rank, *member))
            };
            let island = members.iter().position(is_of).unwrap_or_else(|| {
                members.push(Vec::new());
                members.len() - 1
            });
            places.push((island, members[island].len()));
            members[island].push(rank);
        }
        Self { places, members }
    }

    /// How many islands there are.
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// A rank's island.
    pub fn of(&self, rank: usize) -> usize {
        self.places[rank].0
    }

    /// An island's ranks, ascending.
    pub fn members(&self, island: usize) -> &[usize] {
        &self.members[island]
    }

    /// A rank's number in its island, from 0.
    pub fn number(&self, rank: usize) -> usize {
        self.places[rank].1
    }

    /// Do all islands have the same number of ranks?
    pub fn are_equal(&self) -> bool {
        self.members.windows(2).all(|pair| pair[0].len() == pair[1].len())
    }

    /// The ranks that have a number in their islands, by island. An island with fewer ranks has
    /// none.
    pub fn rail(&self, number: usize) -> Vec<usize> {
        self.members.iter().filter_map(|members| members.get(number).copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): ranks disagree about an island, or one is taken to reach memory that
    //! it does not reach.
    use proptest::prelude::*;

    use super::*;

    fn of_machines(machines: &[usize]) -> Islands {
        Islands::new(machines.len(), |one, other| machines[one] == machines[other])
    }

    proptest! {
        #[test]
        fn each_rank_is_in_one_island_under_its_number(machines in prop::collection::vec(0_usize..5, 1..20)) {
            let islands = of_machines(&machines);
            for rank in 0..machines.len() {
                prop_assert_eq!(islands.members(islands.of(rank))[islands.number(rank)], rank);
            }
            let mut all: Vec<_> = (0..islands.count()).flat_map(|island| islands.members(island).to_vec()).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..machines.len()).collect::<Vec<_>>());
            let lowest: Vec<_> = (0..islands.count()).map(|island| islands.members(island)[0]).collect();
            prop_assert!(lowest.is_sorted());
            for island in 0..islands.count() {
                prop_assert!(islands.members(island).is_sorted());
            }
        }

        #[test]
        fn ranks_of_one_machine_are_one_island(machines in prop::collection::vec(0_usize..5, 1..20)) {
            let islands = of_machines(&machines);
            for one in 0..machines.len() {
                for other in 0..machines.len() {
                    prop_assert_eq!(islands.of(one) == islands.of(other), machines[one] == machines[other]);
                }
            }
        }

        /// Also where reach is neither mutual nor transitive.
        #[test]
        fn members_reach_each_other(reach in prop::collection::vec(any::<u16>(), 1..16)) {
            let reaches = |one: usize, other: usize| one == other || reach[one] >> other & 1 != 0;
            let islands = Islands::new(reach.len(), reaches);
            for island in 0..islands.count() {
                for one in islands.members(island) {
                    prop_assert!(islands.members(island).iter().all(|other| reaches(*one, *other)));
                }
            }
        }

        #[test]
        fn rails_are_all_ranks_once(machines in prop::collection::vec(0_usize..4, 1..20)) {
            let islands = of_machines(&machines);
            let rails: Vec<_> = (0..machines.len()).map(|number| islands.rail(number)).collect();
            for (number, rail) in rails.iter().enumerate() {
                prop_assert!(rail.iter().all(|rank| islands.number(*rank) == number));
                prop_assert!(rail.windows(2).all(|pair| islands.of(pair[0]) < islands.of(pair[1])));
            }
            prop_assert_eq!(rails.iter().map(Vec::len).sum::<usize>(), machines.len());
            let is_whole = |rail: &Vec<usize>| rail.is_empty() || rail.len() == islands.count();
            prop_assert_eq!(islands.are_equal(), rails.iter().all(is_whole));
        }
    }

    #[test]
    fn ranks_that_reach_no_other_are_islands_of_one() {
        let islands = Islands::new(3, |one, other| one == other);
        assert_eq!((islands.count(), islands.are_equal(), islands.rail(0)), (3, true, vec![0, 1, 2]));
    }
}
