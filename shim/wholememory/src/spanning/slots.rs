//! Which slots of gradients pass between islands. Pure.
//!
//! Each island has a slot for every rank. A rank sends its own one to its server in each other
//! island.

use crate::spanning::rails;
use crate::vocabulary::islands::Islands;

/// The content of a slot that passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotMessage {
    /// The rank whose slot it is.
    pub slot: usize,
    /// The other rank of the message.
    pub peer: usize,
    /// This rank sends it; else it receives it.
    pub is_sent: bool,
}

/// The messages of a rank, in order. Slots with nothing in them do not pass; `counts` says how much
/// each rank has.
pub fn messages(islands: &Islands, rank: usize, counts: &[u64]) -> Vec<SlotMessage> {
    let own = islands.of(rank);
    let others = (0..islands.count()).filter(|island| *island != own);
    let sent = others.map(|island| SlotMessage {
        slot: rank,
        peer: rails::server(islands, rank, island),
        is_sent: true,
    });
    let clients = rails::clients(islands, rank).into_iter();
    let received = clients.map(|client| SlotMessage { slot: client, peer: client, is_sent: false });
    sent.chain(received).filter(|message| counts[message.slot] > 0).collect()
}

#[cfg(test)]
mod tests {
    //! Hazard (deadlock): a slot is received and not sent, or an island lacks one.
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_island_gets_the_slots_of_all_others_once(
            ranks in prop::collection::vec((0_usize..5, 0_u64..3), 1..20),
        ) {
            let (machines, counts): (Vec<_>, Vec<_>) = ranks.into_iter().unzip();
            let islands = Islands::new(machines.len(), |one, other| machines[one] == machines[other]);
            let all: Vec<_> = (0..machines.len()).map(|rank| messages(&islands, rank, &counts)).collect();
            for (rank, own) in all.iter().enumerate() {
                for message in own {
                    let back = SlotMessage { peer: rank, is_sent: !message.is_sent, ..*message };
                    prop_assert_eq!(all[message.peer].iter().filter(|other| **other == back).count(), 1);
                }
            }
            for island in 0..islands.count() {
                let members = islands.members(island).iter();
                let received = members.flat_map(|rank| &all[*rank]).filter(|message| !message.is_sent);
                let mut slots: Vec<_> = received.map(|message| message.slot).collect();
                slots.sort_unstable();
                let is_sent = |rank: &usize| islands.of(*rank) != island && counts[*rank] > 0;
                prop_assert_eq!(slots, (0..machines.len()).filter(is_sent).collect::<Vec<_>>());
            }
        }
    }
}
