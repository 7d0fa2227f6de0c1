//! The memory of an operation's first messages: the records of all ranks, and the first row numbers
//! for each server. Where a rank has no more numbers than these, none follow.

use wm_abi::CUdeviceptr;
use wm_driver::Api;
use wm_driver::api::Failed;

use crate::error::Result;
use crate::nccl::link::{NcclGather, NcclTransfer};
use crate::spanning::gpu::RankGpu;
use crate::spanning::memory::FixedMemory;
use crate::spanning::rails::Partners;
use crate::spanning::record::{self, HEADER_WORDS};
use crate::vocabulary::islands::Islands;

/// Alignment of numbers, bytes.
const ALIGNMENT: u64 = 256;
/// Bytes of a rank's first numbers, for all servers: as many as cost little beside the latency of
/// messages.
const ALL_BYTES: u64 = 16 << 10;
/// Bytes of a rank in a barrier, of no content.
const BARRIER_BYTES: u64 = 8;
/// Bytes for a server, at least.
const LEAST_BYTES: u64 = 2 << 10;

/// Bytes of the first numbers for a server, with so many islands: alike on all ranks.
fn opening_bytes(islands: usize) -> u64 {
    let share = ALL_BYTES / (islands.max(2) as u64 - 1);
    (share & !(ALIGNMENT - 1)).max(LEAST_BYTES)
}

/// Where an operation's kernels write, by the GPU's addresses.
#[derive(Debug, Clone, Copy)]
pub struct OpeningPlaces {
    /// How many rows this rank has for each island.
    pub counts: CUdeviceptr,
    /// The first numbers for each island.
    pub numbers: CUdeviceptr,
    /// Bytes of an island's.
    pub bytes: u64,
}

/// See the file's text.
#[derive(Debug)]
pub(super) struct Opening {
    /// Words of a record.
    words: usize,
    ranks: usize,
    islands: usize,
    partners: Partners,
    /// Numbers that leave by island, numbers that arrive by client, and the barrier's messages.
    numbers: FixedMemory,
    /// Pinned memory: this rank's record, and those of all. They are so short that a copy to the
    /// GPU and back would take longer than the GPU's access to the host.
    records: *mut u64,
}

// SAFETY: the pointer is to memory of the driver's, which any thread may use; calls that do have
// the fabric for themselves.
unsafe impl Send for Opening {}

impl Opening {
    /// For so many ranks on so many islands at most. The context is current.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn new(place: RankGpu, islands: usize, ranks: usize, partners: Partners) -> Result<Self> {
        let words = record::words(islands);
        let slots = (islands + partners.clients.len()) as u64;
        let numbers = slots * opening_bytes(islands) + (ranks as u64 + 1) * BARRIER_BYTES;
        let numbers = FixedMemory::new(place.driver, place.device, numbers)?;
        let bytes = words * (ranks + 1) * size_of::<u64>();
        let records = place.driver.mem_host_alloc(bytes, 0)?.cast();
        Ok(Self { words, ranks, islands, partners, numbers, records })
    }

    /// How many islands a record has counts for.
    pub(super) fn islands(&self) -> usize {
        self.islands
    }

    /// Bytes of a record.
    pub(super) fn record_bytes(&self) -> u64 {
        (self.words * size_of::<u64>()) as u64
    }

    /// Bytes of the first numbers of a rank for another one.
    pub(super) fn bytes(&self) -> u64 {
        opening_bytes(self.islands)
    }

    /// Begins this rank's record, with no rows for any island. The records of the operation before
    /// have been read.
    pub(super) fn begin(&self) -> OpeningPlaces {
        // SAFETY: the memory has room for a record, which neither the GPU nor NCCL uses now.
        unsafe { self.records.write_bytes(0, self.words) };
        let counts = self.records.wrapping_add(HEADER_WORDS) as CUdeviceptr;
        OpeningPlaces { counts, numbers: self.numbers.address(), bytes: self.bytes() }
    }

    /// Writes the header of this rank's record.
    pub(super) fn write(&self, header: [u64; HEADER_WORDS]) {
        // SAFETY: the memory has room for a record, and kernels write to the counts only.
        unsafe { self.records.copy_from_nonoverlapping(header.as_ptr(), HEADER_WORDS) };
    }

    /// The gather of all ranks' records.
    pub(super) fn gather(&self) -> NcclGather {
        let (from, bytes) = (self.records as CUdeviceptr, self.record_bytes());
        NcclGather { from, to: from + bytes, bytes }
    }

    /// The records of all ranks, when they have been gathered.
    pub(super) fn read(&self) -> Vec<u64> {
        let all = self.words..self.words * (self.ranks + 1);
        // SAFETY: the memory has room for them, and NCCL has written them.
        all.map(|at| unsafe { self.records.add(at).read_volatile() }).collect()
    }

    /// A gather that is a barrier: the bytes are of no use.
    pub(super) fn barrier(&self) -> NcclGather {
        let from = self.slot(self.islands + self.partners.clients.len());
        NcclGather { from, to: from + BARRIER_BYTES, bytes: BARRIER_BYTES }
    }

    /// Messages by which the ranks of an island wait for each other: the bytes are of no use.
    pub(super) fn meeting(&self) -> impl Iterator<Item = NcclTransfer> {
        let NcclGather { from, to, bytes } = self.barrier();
        let sent = move |mate: &usize| NcclTransfer { peer: *mate, address: from, bytes, is_sent: true };
        let received = move |mate: &usize| {
            let address = to + *mate as u64 * bytes;
            NcclTransfer { peer: *mate, address, bytes, is_sent: false }
        };
        let mates = &self.partners.mates;
        mates.iter().map(sent).chain(mates.iter().map(received))
    }

    fn slot(&self, number: usize) -> CUdeviceptr {
        self.numbers.address() + number as u64 * self.bytes()
    }

    /// The place of a client's first numbers.
    pub(super) fn arriving(&self, client: usize) -> CUdeviceptr {
        let at = self.partners.clients.partition_point(|other| *other < client);
        self.slot(self.islands + at)
    }

    /// The messages with the first numbers. They are the same in every operation, so ranks that
    /// make different calls learn of it by their records. A rank that serves memory divided in
    /// another way gets bytes of no use.
    pub(super) fn transfers(&self, islands: &Islands) -> impl Iterator<Item = NcclTransfer> {
        let message =
            move |peer, address, is_sent| NcclTransfer { peer, address, bytes: self.bytes(), is_sent };
        let place = |server| self.slot(islands.of(server));
        let sent = self.partners.servers.iter().map(move |server| message(*server, place(*server), true));
        let received = self.partners.clients.iter();
        sent.chain(received.map(move |client| message(*client, self.arriving(*client), false)))
    }

    /// Frees the memory; the context is current, and nothing uses it any more.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn free(self, place: RankGpu) -> Result<(), Failed> {
        // SAFETY: made by the driver; no work uses it.
        unsafe { place.driver.mem_free_host(self.records.cast()) }
    }
}
