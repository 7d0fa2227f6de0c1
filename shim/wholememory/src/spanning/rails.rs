//! Which rank serves which. Pure.
//!
//! Invariant: all ranks find the same.

use crate::vocabulary::islands::Islands;

/// The rank of an island that serves a rank of another one: that with its number, round and round
/// where the island has fewer ranks.
pub fn server(islands: &Islands, rank: usize, island: usize) -> usize {
    let members = islands.members(island);
    members[islands.number(rank) % members.len()]
}

/// The ranks that a rank serves, ascending.
pub fn clients(islands: &Islands, rank: usize) -> Vec<usize> {
    let own = islands.of(rank);
    let others = (0..islands.count()).filter(|island| *island != own);
    let mut clients: Vec<usize> = others.flat_map(|island| islands.members(island)).copied().collect();
    clients.retain(|client| server(islands, *client, own) == rank);
    clients.sort_unstable();
    clients
}

/// The ranks that one exchanges messages with, ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partners {
    /// Those that serve it.
    pub servers: Vec<usize>,
    /// Those that it serves.
    pub clients: Vec<usize>,
    /// The others of its island, where ranks share rows that have come: of the first division.
    pub mates: Vec<usize>,
}

impl Partners {
    /// A rank's partners, over several ways to divide the ranks into islands: memory of GPUs and
    /// memory of hosts may be divided each in its own way.
    pub fn new(divisions: &[&Islands], rank: usize) -> Self {
        let mut partners = Self::default();
        for islands in divisions {
            let others = (0..islands.count()).filter(|island| *island != islands.of(rank));
            partners.servers.extend(others.map(|island| server(islands, rank, island)));
            partners.clients.extend(clients(islands, rank));
        }
        for ranks in [&mut partners.servers, &mut partners.clients] {
            ranks.sort_unstable();
            ranks.dedup();
        }
        let members = divisions.first().map_or(&[][..], |islands| islands.members(islands.of(rank)));
        partners.mates = members.iter().copied().filter(|member| *member != rank).collect();
        partners
    }
}

/// With how many ranks one exchanges rows in a direction, at most, over all ranks: at least 1.
pub fn most_partners(islands: &Islands) -> usize {
    let ranks = (0..islands.count()).flat_map(|island| islands.members(island));
    let most = ranks.map(|rank| clients(islands, *rank).len()).max().unwrap_or_default();
    most.max(islands.count().saturating_sub(1)).max(1)
}

#[cfg(test)]
mod tests {
    //! Hazard (deadlock): a rank waits for one that does not send to it.
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn partners_know_each_other(
            machines in prop::collection::vec((0_usize..5, 0_usize..5), 1..20),
        ) {
            let size = machines.len();
            let one = Islands::new(size, |a, b| machines[a].0 == machines[b].0);
            let other = Islands::new(size, |a, b| machines[a].1 == machines[b].1);
            let all: Vec<_> = (0..size).map(|rank| Partners::new(&[&one, &other], rank)).collect();
            for (rank, partners) in all.iter().enumerate() {
                for (server, others) in all.iter().enumerate() {
                    let is_server = partners.servers.contains(&server);
                    prop_assert_eq!(is_server, others.clients.contains(&rank));
                    prop_assert_eq!(partners.mates.contains(&server), others.mates.contains(&rank));
                }
                let is_sorted = |ranks: &[usize]| ranks.windows(2).all(|pair| pair[0] < pair[1]);
                prop_assert!(is_sorted(&partners.servers) && is_sorted(&partners.clients));
            }
        }

        #[test]
        fn each_pair_of_rank_and_island_has_one_server(machines in prop::collection::vec(0_usize..5, 1..20)) {
            let islands = Islands::new(machines.len(), |one, other| machines[one] == machines[other]);
            for rank in 0..machines.len() {
                for island in (0..islands.count()).filter(|island| *island != islands.of(rank)) {
                    let servers: Vec<_> = islands.members(island).iter()
                        .filter(|server| clients(&islands, **server).contains(&rank)).collect();
                    prop_assert_eq!(servers, [&server(&islands, rank, island)]);
                }
                prop_assert!(clients(&islands, rank).iter().all(|client| islands.of(*client) != islands.of(rank)));
                prop_assert!(clients(&islands, rank).len() <= most_partners(&islands));
            }
            if islands.are_equal() && islands.count() > 1 {
                prop_assert_eq!(most_partners(&islands), islands.count() - 1);
            }
        }
    }
}
