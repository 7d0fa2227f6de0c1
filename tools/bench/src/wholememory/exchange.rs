//! The rows of a gather that pass between islands, moved by NCCL alone: packed already, from memory
//! to memory. No library that uses this wire is faster on the same rows.

use anyhow::{Context as _, Result};
use wm_abi::CUdeviceptr;
use wm_driver::Api;

use super::islands::IslandShape;
use super::nccl::Parcel;
use super::numbers;
use super::orders::TableRequest;
use super::process::RankProcess;

/// Parcels of a rank, to and from its partners, and their memory.
#[derive(Debug)]
pub(super) struct PlainExchange {
    out: Vec<Parcel>,
    into: Vec<Parcel>,
    memory: [CUdeviceptr; 2],
}

/// The row numbers of a rank's batch.
pub(super) fn drawn(request: &TableRequest, rank: usize, batch: u64) -> Vec<i64> {
    numbers::draw(request.numbers, request.count, request.rows, [rank as u64, request.row_bytes, batch])
}

/// The rows that a rank's first batch has in an island, bytes.
fn crossing(request: &TableRequest, shape: &IslandShape, rank: usize, island: usize) -> usize {
    let rows_each = (request.rows / shape.ranks as u64).max(1);
    let is_there = |number: &&i64| shape.of((number.unsigned_abs() / rows_each) as usize) == island;
    drawn(request, rank, 0).iter().filter(is_there).count() * request.row_bytes as usize
}

impl PlainExchange {
    pub(super) fn make(rank: &RankProcess, request: &TableRequest) -> Result<Self> {
        let (shape, own) = (&rank.shape, rank.number);
        let partners = || shape.partners(own);
        let asked = partners().map(|peer| (peer, crossing(request, shape, peer, shape.of(own)))).collect();
        let wanted = partners().map(|peer| (peer, crossing(request, shape, own, shape.of(peer)))).collect();
        let (out, into) = (Self::lay_out(rank, asked)?, Self::lay_out(rank, wanted)?);
        Ok(Self { out: out.1, into: into.1, memory: [out.0, into.0] })
    }

    /// Memory for parcels of these sizes, one behind the other.
    fn lay_out(rank: &RankProcess, sizes: Vec<(usize, usize)>) -> Result<(CUdeviceptr, Vec<Parcel>)> {
        let all: usize = sizes.iter().map(|(_, bytes)| bytes).sum();
        let memory = rank.driver.mem_alloc(all.max(4))?;
        let mut address = memory;
        let parcel = |(peer, bytes): (usize, usize)| {
            let parcel = Parcel { peer, address, bytes };
            address += bytes as CUdeviceptr;
            parcel
        };
        Ok((memory, sizes.into_iter().map(parcel).collect()))
    }

    /// Begins the exchange in the rank's stream.
    pub(super) fn perform(&self, rank: &RankProcess) -> Result<()> {
        let network = rank.network.as_ref().context("the ranks have not met over NCCL")?;
        network.exchange(&self.out, &self.into, rank.stream)
    }

    /// Does it once, and counts the words that are not those of the rank that sent them.
    pub(super) fn check(&self, rank: &RankProcess) -> Result<u64> {
        let own = rank.number as u32 + 1;
        for (parcel, word) in self.out.iter().map(|it| (it, own)).chain(self.into.iter().map(|it| (it, 0))) {
            // SAFETY: memory of as many bytes, rows of whole words; the stream orders the memset.
            unsafe { rank.driver.memset_d32_async(parcel.address, word, parcel.bytes / 4, rank.stream) }?;
        }
        self.perform(rank)?;
        rank.drain()?;
        let mut wrong = 0;
        for Parcel { peer, address, bytes } in self.into.iter().filter(|parcel| parcel.bytes > 0) {
            let mut found = vec![0_u32; bytes / 4];
            // SAFETY: a vector of as many bytes; the call returns when they are there.
            unsafe { rank.driver.memcpy_dtoh(found.as_mut_ptr().cast(), *address, *bytes) }?;
            wrong += found.iter().filter(|word| **word != *peer as u32 + 1).count();
        }
        Ok(wrong as u64)
    }

    pub(super) fn close(self, rank: &RankProcess) -> Result<()> {
        self.memory.into_iter().try_for_each(|address| Ok(rank.driver.mem_free(address)?))
    }
}
