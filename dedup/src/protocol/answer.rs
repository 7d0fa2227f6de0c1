//! The broker's packets.

use super::bytes::{Malformed, PacketReader, PacketWriter};
use super::report::BrokerReport;
use super::sizes::{BATCH, MAGIC, NOTES, RELEASES};
use super::{copies, turn};
use crate::broker::{CopyPlace, LeaseNumber, SegmentNumber};
use crate::chunk::ChunkName;
use crate::turns::message::TurnOrder;

/// In place of a lease, if there is none.
const NONE: u64 = 0;
/// In place of a lease, if a limit is reached.
const FULL: u64 = u64::MAX;
/// Beside a lease that waits for a chunk.
const WAITING: u64 = 1 << 63;

/// The outcome for one chunk that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// It is held.
    Accepted(LeaseNumber),
    /// One of that name is held already.
    Present,
    /// A limit is reached.
    Full,
}

/// The outcome for one chunk that was looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookedUp {
    /// Its descriptor comes along.
    Chunk(LeaseNumber),
    /// The broker has no chunk of that name, and another client waits for one.
    Wanted,
    /// The broker has none, and no other client asked for it. This one waits from now on.
    Waiting(LeaseNumber),
    /// A limit is reached.
    Full,
}

/// A packet of the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrokerAnswer {
    /// To a hello of any version.
    Hello {
        /// Of the broker's protocol.
        version: u32,
        /// The broker's process, as it sees it itself.
        process: u32,
    },
    /// To an offer: one for each chunk.
    Offered(Vec<Offered>),
    /// To a question: one for each name.
    Found(Vec<LookedUp>),
    /// To a release: how many leases were the client's.
    Released(u32),
    /// To a request for one.
    Report(BrokerReport),
    /// No more clients are taken.
    Refused,
    /// To notes: how many there are of each name.
    Noted(Vec<u32>),
    /// To a question about arrivals: at most [`NOTES`](super::NOTES) names. There may be more.
    Arrived(Vec<ChunkName>),
    /// To a request to take chunks back: at most [`RELEASES`] leases, which are over. There may be
    /// more.
    TakenBack(Vec<LeaseNumber>),
    /// An order to a member that takes turns. It is not asked for.
    Turn(TurnOrder),
    /// To a question about copies.
    CopiesFound {
        /// One for each name. `None`: there is no such copy, or a limit is reached.
        places: Vec<Option<CopyPlace>>,
        /// Segments that the client uses from now on, at most [`BATCH`]. A descriptor of each comes
        /// along.
        segments: Vec<SegmentNumber>,
    },
    /// To an offer of copies.
    CopiesOffered {
        /// `None`: it is not held, because no name is accepted.
        segment: Option<SegmentNumber>,
        /// One for each name.
        accepted: Vec<bool>,
    },
    /// To a release of copies: how many segments the client used.
    CopiesReleased(u32),
}

impl BrokerAnswer {
    /// As bytes. At most as many entries as a request has.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello { version, process } => {
                PacketWriter::of(1).u64(MAGIC).u32(*version).u32(*process).finish()
            }
            Self::Offered(outcomes) => with_leases(2, outcomes.iter().map(Offered::number)),
            Self::Found(outcomes) => with_leases(3, outcomes.iter().map(LookedUp::number)),
            Self::Released(count) => PacketWriter::new(4, *count as usize).finish(),
            Self::Report(report) => report.write(PacketWriter::of(5)).finish(),
            Self::Refused => PacketWriter::new(6, 0).finish(),
            Self::Noted(counts) => {
                let packet = PacketWriter::new(7, counts.len());
                counts.iter().fold(packet, |packet, count| packet.u32(*count)).finish()
            }
            Self::Arrived(names) => {
                names.iter().fold(PacketWriter::new(9, names.len()), PacketWriter::name).finish()
            }
            Self::TakenBack(leases) => with_leases(10, leases.iter().map(|lease| lease.0)),
            Self::Turn(order) => turn::write_order(8, order),
            Self::CopiesFound { places, segments } => copies::write_found(11, places, segments),
            Self::CopiesOffered { segment, accepted } => copies::write_offered(12, *segment, accepted),
            Self::CopiesReleased(count) => PacketWriter::new(13, *count as usize).finish(),
        }
    }

    /// From bytes, which may be anything.
    ///
    /// # Errors
    /// They are no answer.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut packet = PacketReader::new(bytes);
        let answer = match packet.u32()? {
            1 if packet.u64()? == MAGIC => Self::Hello { version: packet.u32()?, process: packet.u32()? },
            2 => Self::Offered(leases(&mut packet, Offered::from_number)?),
            3 => Self::Found(leases(&mut packet, LookedUp::from_number)?),
            4 => Self::Released(packet.count(0..=RELEASES)? as u32),
            5 => Self::Report(BrokerReport::read(&mut packet)?),
            6 => packet.count(0..=0).map(|_| Self::Refused)?,
            7 => {
                let count = packet.count(0..=NOTES)?;
                Self::Noted(packet.entries(count, PacketReader::u32)?)
            }
            9 => {
                let count = packet.count(0..=NOTES)?;
                Self::Arrived(packet.entries(count, PacketReader::name)?)
            }
            10 => {
                let count = packet.count(0..=RELEASES)?;
                Self::TakenBack(packet.entries(count, |packet| packet.u64().map(LeaseNumber))?)
            }
            8 => Self::Turn(turn::read_order(&mut packet)?),
            11 => {
                let (places, segments) = copies::read_found(&mut packet)?;
                Self::CopiesFound { places, segments }
            }
            12 => {
                let (segment, accepted) = copies::read_offered(&mut packet)?;
                Self::CopiesOffered { segment, accepted }
            }
            13 => Self::CopiesReleased(packet.count(0..=RELEASES)? as u32),
            _ => return Err(Malformed),
        };
        packet.end()?;
        Ok(answer)
    }

    /// How many descriptors come along.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Found(outcomes) => {
                outcomes.iter().filter(|outcome| matches!(outcome, LookedUp::Chunk(_))).count()
            }
            Self::CopiesFound { segments, .. } => segments.len(),
            _ => 0,
        }
    }
}

impl Offered {
    fn number(&self) -> u64 {
        match self {
            Self::Accepted(lease) => lease.0,
            Self::Present => NONE,
            Self::Full => FULL,
        }
    }

    fn from_number(number: u64) -> Self {
        match number {
            NONE => Self::Present,
            FULL => Self::Full,
            lease => Self::Accepted(LeaseNumber(lease)),
        }
    }
}

impl LookedUp {
    fn number(&self) -> u64 {
        match self {
            Self::Chunk(lease) => lease.0,
            Self::Waiting(lease) => lease.0 | WAITING,
            Self::Wanted => NONE,
            Self::Full => FULL,
        }
    }

    fn from_number(number: u64) -> Self {
        match number {
            NONE => Self::Wanted,
            FULL => Self::Full,
            lease if lease & WAITING != 0 => Self::Waiting(LeaseNumber(lease & !WAITING)),
            lease => Self::Chunk(LeaseNumber(lease)),
        }
    }
}

fn with_leases(kind: u32, numbers: impl ExactSizeIterator<Item = u64>) -> Vec<u8> {
    let packet = PacketWriter::new(kind, numbers.len());
    numbers.fold(packet, PacketWriter::u64).finish()
}

fn leases<T>(packet: &mut PacketReader<'_>, entry: fn(u64) -> T) -> Result<Vec<T>, Malformed> {
    let count = packet.count(1..=BATCH)?;
    packet.entries(count, |packet| packet.u64().map(entry))
}
