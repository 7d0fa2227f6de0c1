//! The buffers of one call's exchange: what passes between them and other ranks, and which kernels
//! fill and empty them.

use wm_abi::CUdeviceptr;
use wm_kernels::wholememory::{Numbers, Strided};

use super::{Divided, RowCall};
use crate::error::Result;
use crate::nccl::link::NcclTransfer;
use crate::operations::claims::RowArrival;
use crate::operations::moves::{PackedRows, Places, RowDirection};
use crate::spanning::fabric::Fabric;
use crate::spanning::steps::{Message, Pair, RowChunk, StagingShape, Task, Use};

/// Where the chunks of an exchange lie.
pub(super) struct Buffers<'a> {
    pub(super) call: &'a RowCall<'a>,
    pub(super) divided: &'a Divided,
    pub(super) shape: StagingShape,
    pub(super) fabric: &'a Fabric,
    pub(super) base: CUdeviceptr,
    /// How rows arrive, if ranks of this island borrow rows from each other.
    pub(super) arrival: Option<RowArrival<'a>>,
}

impl Buffers<'_> {
    /// Says where the rows arrive that this rank asks for, if ranks of its island borrow some.
    pub(super) fn place(&self, asking: &[Pair]) -> Result {
        let (Some(claims), Some(arrival)) = (&self.divided.claims, self.arrival) else { return Ok(()) };
        let bytes = self.call.position_bytes();
        asking.iter().try_for_each(|pair| {
            let positions = self.divided.positions(pair.first, pair.rows, bytes);
            claims.place(self.call.workspace, (pair, positions), arrival)
        })
    }

    /// Copies the rows of a chunk that this rank borrows.
    fn borrow(&self, chunk: u64) -> Result {
        let (Some(claims), Some(arrival)) = (&self.divided.claims, self.arrival) else { return Ok(()) };
        let (call, packed) = (self.call, self.call.request.packed);
        claims.borrow(call.workspace, (chunk, arrival), (call.wire, packed), call.multiprocessors)
    }

    fn at(&self, purpose: Use, chunk: &RowChunk) -> CUdeviceptr {
        if let (Use::Arriving, Some(arrival)) = (purpose, &self.arrival) {
            return arrival.landing.buffer_at(chunk.pair.partner, chunk.number);
        }
        self.base + self.shape.at(purpose, chunk.pair.partner, chunk.number)
    }

    pub(super) fn transfer(&self, message: Message) -> NcclTransfer {
        let number_bytes = u64::from(self.call.number_bytes());
        let (chunk, address, row, is_sent) = match message {
            Message::SendNumbers(chunk) => {
                let first = chunk.pair.first + chunk.start;
                (chunk, self.divided.sent + first * number_bytes, number_bytes, true)
            }
            Message::ReceiveNumbers(chunk) => (chunk, self.at(Use::Numbers, &chunk), number_bytes, false),
            Message::SendRows(chunk) => (chunk, self.at(Use::Leaving, &chunk), self.call.row_bytes(), true),
            Message::ReceiveRows(chunk) => {
                (chunk, self.at(Use::Arriving, &chunk), self.call.row_bytes(), false)
            }
        };
        NcclTransfer { peer: chunk.pair.peer, address, bytes: chunk.rows * row, is_sent }
    }

    pub(super) fn run(&self, task: Task) -> Result {
        use RowDirection::{Gather, Scatter};
        let call = self.call;
        let caller = || Places::at(&call.request.packed, call.request.numbers.count);
        match task {
            Task::Serve(chunk) => call.look_up(self.rows(Use::Leaving, &chunk), self.numbers(&chunk)?),
            Task::Apply(chunk) => {
                call.launch(Scatter, call.places, self.rows(Use::Arriving, &chunk), self.numbers(&chunk)?)
            }
            Task::Pack(chunk) => {
                call.launch(Gather, caller(), self.rows(Use::Leaving, &chunk), self.positions(&chunk))
            }
            Task::Deliver(chunk) => {
                call.launch(Scatter, caller(), self.rows(Use::Arriving, &chunk), self.positions(&chunk))
            }
            Task::Locate => {
                self.divided.claims.as_ref().map_or(Ok(()), |claims| claims.locate(call.workspace))
            }
            Task::Borrow(chunk) => self.borrow(chunk),
        }
    }

    /// Rows of a chunk, as they cross.
    fn rows(&self, purpose: Use, chunk: &RowChunk) -> PackedRows {
        let rows = Strided { address: self.at(purpose, chunk), stride: self.call.row_bytes() };
        PackedRows { columns: self.call.places.columns, kind: self.call.wire, rows }
    }

    /// Numbers that have arrived.
    fn numbers(&self, chunk: &RowChunk) -> Result<Numbers> {
        let bytes = self.call.number_bytes();
        let address = match chunk.pair.is_opened {
            true => self.fabric.first_numbers_of(chunk.pair.peer)? + chunk.start * u64::from(bytes),
            false => self.at(Use::Numbers, chunk),
        };
        Ok(Numbers { address, count: chunk.rows, bytes })
    }

    /// Where the rows of a chunk are in the caller's memory.
    fn positions(&self, chunk: &RowChunk) -> Numbers {
        let first = chunk.pair.first + chunk.start;
        self.divided.positions(first, chunk.rows, self.call.position_bytes())
    }
}
