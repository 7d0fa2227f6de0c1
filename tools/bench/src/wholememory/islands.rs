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

/// Ranks, dealt to islands of one size and to the machine's GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IslandShape {
    pub(super) ranks: usize,
    pub(super) islands: usize,
    wire: IslandWire,
    gpus: usize,
}

impl IslandShape {
    /// # Errors
    /// Islands of different sizes, or links between ranks that share a GPU.
    pub(super) fn new(ranks: usize, islands: usize, wire: IslandWire, gpus: usize) -> Result<Self> {
        ensure!(
            islands > 0 && ranks.is_multiple_of(islands),
            "--islands divides the number of ranks ({ranks})"
        );
        let shape = Self { ranks, islands, wire, gpus: gpus.max(1) };
        ensure!(
            islands == 1 || wire != IslandWire::Links || !shape.shares_gpus(),
            "NCCL has no links for two ranks on one GPU ({ranks} ranks, {gpus} GPUs): take --wire network"
        );
        Ok(shape)
    }

    pub(super) fn size(&self) -> usize {
        self.ranks / self.islands
    }

    /// The island of a rank.
    pub(super) fn of(&self, rank: usize) -> usize {
        rank / self.size()
    }

    /// The GPU of a rank: GPUs in turn, or where islands have to share them, those of one island as
    /// few as can be.
    pub(super) fn gpu_of(&self, rank: usize) -> usize {
        if self.islands > 1 && self.shares_gpus() { rank * self.gpus / self.ranks } else { rank % self.gpus }
    }

    fn shares_gpus(&self) -> bool {
        self.ranks > self.gpus
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
        // NCCL refuses two ranks of one machine on one GPU.
        let host = if self.shares_gpus() { format!("{name}-{rank}") } else { name };
        let switched_off = ["NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"].map(|key| (key, "1".to_owned()));
        // Within an island of several GPUs NCCL uses their links, as it does on a real machine.
        let is_alone = self.size() == 1 || self.shares_gpus();
        match (self.islands, self.wire) {
            (1, _) => Vec::new(),
            (_, IslandWire::Links) => both.to_vec(),
            (_, IslandWire::Network) => {
                let mut all = both.to_vec();
                all.push(("NCCL_HOSTID", host));
                all.extend(is_alone.then_some(switched_off).into_iter().flatten());
                all
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (vacuous test): ranks that were to be on several machines are on one.
    use super::*;

    #[test]
    fn ranks_of_an_island_share_its_names_and_others_have_other_ones() {
        let shape = IslandShape::new(6, 3, IslandWire::Network, 6).expect("a shape");
        assert_eq!((0..6).map(|rank| shape.of(rank)).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2]);
        assert_eq!(shape.partners(3).collect::<Vec<_>>(), [1, 5]);
        assert_eq!(shape.settings(2), shape.settings(3));
        let alone = IslandShape::new(3, 3, IslandWire::Network, 3).expect("a shape");
        for shape in [shape, alone] {
            for (one, other) in shape.settings(1).iter().zip(shape.settings(2)) {
                let is_switch = one.0.ends_with("_DISABLE");
                assert!(one.0 == other.0 && (one.1 == other.1) == is_switch, "{one:?}, {other:?}");
            }
        }
        let has_switches = |shape: IslandShape| shape.settings(0).len() == 5;
        assert!(has_switches(alone) && !has_switches(shape), "links within an island stay");
        let linked = IslandShape::new(2, 2, IslandWire::Links, 2).expect("a shape").settings(0);
        assert!(linked.iter().all(|(key, _)| !key.starts_with("NCCL")), "{linked:?}");
        let one = IslandShape::new(2, 1, IslandWire::Network, 2).expect("a shape");
        assert!(one.settings(0).is_empty() && one.partners(1).next().is_none());
        assert!(IslandShape::new(4, 3, IslandWire::Links, 4).is_err());
    }

    /// Hazard (error handling): NCCL refuses ranks that are two on one GPU of one machine.
    #[test]
    fn an_island_that_has_to_share_is_on_one_gpu_and_its_ranks_are_machines_to_nccl() {
        let gpus = |shape: IslandShape| (0..4).map(|rank| shape.gpu_of(rank)).collect::<Vec<_>>();
        let shared = IslandShape::new(4, 2, IslandWire::Network, 2).expect("a shape");
        assert_eq!(gpus(shared), [0, 0, 1, 1]);
        assert_ne!(shared.settings(0), shared.settings(1));
        assert_eq!(shared.settings(0)[..2], shared.settings(1)[..2], "one machine to both libraries");
        assert!(IslandShape::new(4, 2, IslandWire::Links, 2).is_err());
        let whole = IslandShape::new(4, 1, IslandWire::Network, 2).expect("a shape");
        assert_eq!(gpus(whole), [0, 1, 0, 1]);
    }
}
