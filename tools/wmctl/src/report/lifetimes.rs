//! A recording as lives of blocks and pieces: what is live between two events, and when. Pure.

use wm_schema::BytesByTier;

use super::model::{HeldRange, TimelinePoint};
use crate::trace::{Trace, TraceEvent, TraceTime};

/// A live block or piece of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordedBlock {
    /// Its address, or for memory without one a number that no other has.
    pub(crate) address: u64,
    pub(crate) has_address: bool,
    pub(crate) bytes: u64,
    pub(crate) stream: Option<u16>,
    pub(crate) is_piece: bool,
    /// When it was allocated.
    pub(crate) at: u64,
}

/// What an event did to live memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryChange {
    Came(RecordedBlock),
    Went(RecordedBlock),
    None,
}

/// Addresses of memory that has none in the recording: above those that a GPU has, and whole
/// numbers to a program that counts in floating point.
const NO_ADDRESS: u64 = 1 << 50;

/// A recording, played event by event.
#[derive(Debug)]
pub(crate) struct Lifetimes<'a> {
    trace: &'a Trace,
    blocks: Vec<Option<RecordedBlock>>,
    pieces: Vec<Option<RecordedBlock>>,
    /// Events so far.
    events: usize,
    allocations: usize,
    /// The last time of the recording, and the next one's index.
    time: TraceTime,
    next_time: usize,
    /// Did the last event free memory?
    is_after_free: bool,
    next_address: u64,
    /// Live bytes now.
    pub(crate) live: u64,
}

impl<'a> Lifetimes<'a> {
    pub(crate) fn new(trace: &'a Trace) -> Self {
        Self {
            trace,
            blocks: vec![None; trace.slots],
            pieces: vec![None; trace.piece_slots],
            events: 0,
            allocations: 0,
            time: TraceTime { event: 0, at_us: 0, live: BytesByTier::default() },
            next_time: 0,
            is_after_free: false,
            next_address: NO_ADDRESS,
            live: 0,
        }
    }

    /// Plays the next event; `None` behind the last one.
    pub(crate) fn step(&mut self) -> Option<MemoryChange> {
        self.keep_time();
        let event = self.trace.events.get(self.events)?;
        self.events += 1;
        let change = match *event {
            TraceEvent::Allocate { slot, bytes, stream } => {
                let address = self.trace.addresses.get(self.allocations).copied().unwrap_or(0);
                self.allocations += 1;
                let block = self.block(address, bytes, stream, false);
                self.blocks[slot as usize] = Some(block);
                MemoryChange::Came(block)
            }
            TraceEvent::MakePiece { slot, bytes } => {
                let piece = self.block(0, bytes, None, true);
                self.pieces[slot as usize] = Some(piece);
                MemoryChange::Came(piece)
            }
            TraceEvent::Free { slot, .. } => gone(self.blocks[slot as usize].take()),
            TraceEvent::EndPiece { slot } => gone(self.pieces[slot as usize].take()),
            TraceEvent::Wait { .. } | TraceEvent::Launch { .. } | TraceEvent::KeepPiece => MemoryChange::None,
        };
        self.is_after_free = matches!(change, MemoryChange::Went(_));
        match change {
            MemoryChange::Came(block) => self.live = self.live.saturating_add(block.bytes),
            MemoryChange::Went(block) => self.live = self.live.saturating_sub(block.bytes),
            MemoryChange::None => {}
        }
        Some(change)
    }

    fn keep_time(&mut self) {
        while let Some(time) = self.trace.times.get(self.next_time).filter(|time| time.event <= self.events) {
            self.time = *time;
            self.next_time += 1;
        }
    }

    fn block(&mut self, address: u64, bytes: u64, stream: Option<u16>, is_piece: bool) -> RecordedBlock {
        let has_address = address > 0;
        let mut place = address;
        if !has_address {
            place = self.next_address;
            self.next_address = place.saturating_add(bytes.next_multiple_of(512));
        }
        RecordedBlock { address: place, has_address, bytes, stream, is_piece, at: self.now() }
    }

    /// The time of the last event, or its number if the recording has no times.
    pub(crate) fn now(&self) -> u64 {
        if self.trace.times.is_empty() { self.events as u64 } else { self.time.at_us }
    }

    /// Events so far.
    pub(crate) fn events(&self) -> usize {
        self.events
    }

    /// Live bytes by tier now. The recording has the tiers at each of its times, which are written
    /// before a free, and after an allocation has been made: so of a free the next time knows.
    pub(crate) fn point(&self) -> TimelinePoint {
        let next = self.trace.times.get(self.next_time).filter(|_| self.is_after_free);
        let BytesByTier { peer, host, .. } = next.unwrap_or(&self.time).live;
        let host = host.min(self.live);
        let peer = peer.min(self.live - host);
        TimelinePoint { at: self.now(), live: BytesByTier { device: self.live - host - peer, peer, host } }
    }

    /// What is live now.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &RecordedBlock> {
        self.blocks.iter().chain(&self.pieces).flatten()
    }
}

fn gone(block: Option<RecordedBlock>) -> MemoryChange {
    block.map_or(MemoryChange::None, MemoryChange::Went)
}

impl RecordedBlock {
    pub(crate) fn range(&self) -> HeldRange {
        HeldRange {
            address: if self.has_address { self.address } else { 0 },
            bytes: self.bytes,
            is_piece: self.is_piece,
            stream: self.stream.map(u64::from),
            ..HeldRange::default()
        }
    }
}
