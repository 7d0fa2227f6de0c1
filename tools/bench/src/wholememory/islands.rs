//! Ranks of one machine that pose as ranks of several, to either library and to NCCL. Pure.

use anyhow::{Result, ensure};
use clap::ValueEnum;

/// The wire between ranks that pose as ranks of several machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum IslandWire {
    /// NCCL takes what it finds: links between GPUs, if there are any. An upper bound
    Links,
    /// NCCL knows the ranks as those of other machines: its network, such as sockets
    Network,
}

/// Ranks, dealt to islands of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IslandShape {
    pub(super) ranks: usize,
    pub(super) islands: usize,
    wire: IslandWire,
}

impl IslandShape {
    /// # Errors
    /// Islands of different sizes.
    pub(super) fn new(ranks: usize, islands: usize, wire: IslandWire) -> Result<Self> {
        ensure!(
            islands > 0 && ranks.is_multiple_of(islands),
            "--islands divides the number of ranks ({ranks})"
        );
        Ok(Self { ranks, islands, wire })
    }

    pub(super) fn size(&self) -> usize {
        self.ranks / self.islands
    }

    /// The island of a rank.
    pub(super) fn of(&self, rank: usize) -> usize {
        rank / self.size()
    }

    /// The ranks of other islands that have the same number there.
    pub(super) fn partners(&self, rank: usize) -> impl Iterator<Item = usize> {
        let (own, size) = (self.of(rank), self.size());
        (0..self.islands).filter(move |island| *island != own).map(move |island| island * size + rank % size)
    }

    /// The environment in which a rank poses as one of its island's machine: to this library, to
    /// RAPIDS', and to NCCL if its network is wanted.
    pub(super) fn settings(&self, rank: usize) -> Vec<(&'static str, String)> {
        let name = format!("island{}", self.of(rank));
        let both = ["WMSHIM_WHOLEMEMORY_NODE", "WHOLEMEMORY_BOOTID"].map(|key| (key, name.clone()));
        let network = [("NCCL_HOSTID", &*name), ("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1")]
            .map(|(key, value)| (key, value.to_owned()));
        match (self.islands, self.wire) {
            (1, _) => Vec::new(),
            (_, IslandWire::Links) => both.to_vec(),
            (_, IslandWire::Network) => [&both[..], &network].concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (vacuous test): ranks that were to be on several machines are on one.
    use super::*;

    #[test]
    fn ranks_of_an_island_share_its_names_and_others_have_other_ones() {
        let shape = IslandShape::new(6, 3, IslandWire::Network).expect("a shape");
        assert_eq!((0..6).map(|rank| shape.of(rank)).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2]);
        assert_eq!(shape.partners(3).collect::<Vec<_>>(), [1, 5]);
        assert_eq!(shape.settings(2), shape.settings(3));
        for (one, other) in shape.settings(1).iter().zip(shape.settings(2)) {
            let is_switch = one.0.ends_with("_DISABLE");
            assert!(one.0 == other.0 && (one.1 == other.1) == is_switch, "{one:?}, {other:?}");
        }
        let linked = IslandShape::new(2, 2, IslandWire::Links).expect("a shape").settings(0);
        assert!(linked.iter().all(|(key, _)| !key.starts_with("NCCL")), "{linked:?}");
        let alone = IslandShape::new(2, 1, IslandWire::Network).expect("a shape");
        assert!(alone.settings(0).is_empty() && alone.partners(1).next().is_none());
        assert!(IslandShape::new(4, 3, IslandWire::Links).is_err());
    }
}
