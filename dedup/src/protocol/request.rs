//! A client's packets.

use std::ops::RangeInclusive;

use super::bytes::{Malformed, PacketReader, PacketWriter};
use super::sizes::{BATCH, MAGIC, NOTES, RELEASES};
use super::{copies, turn};
use crate::broker::{LeaseNumber, SegmentNumber};
use crate::chunk::{ChunkName, CopyName};
use crate::turns::message::TurnReport;

/// The use that a client makes of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// To share chunks. The broker stays while there is one.
    User,
    /// To ask for reports.
    Observer,
    /// To take turns at GPUs. The broker stays while there is one.
    Member,
    /// To use copies in host memory. The broker stays while there is one.
    Keeper,
}

/// A packet of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrokerRequest {
    /// The first one.
    Hello {
        /// Of the client's protocol.
        version: u32,
        /// The client's use of the broker.
        role: Role,
    },
    /// Chunks that others may use. As many descriptors come along.
    Offer {
        /// The client held them under an earlier broker.
        again: bool,
        /// At most [`BATCH`].
        names: Vec<ChunkName>,
    },
    /// Chunks that the client would use.
    LookUp {
        /// The client had chunks of these names under an earlier broker.
        again: bool,
        /// At most [`BATCH`].
        names: Vec<ChunkName>,
    },
    /// Leases that it gives back: of chunks that it uses no longer, or waits for no longer.
    Release(Vec<LeaseNumber>),
    /// The broker is to report about itself.
    Report,
    /// Which of the chunks that it waits for were offered?
    Arrivals,
    /// Chunks that it uses alone again are its own from now on.
    TakeBack,
    /// Chunks that the client would share, and has not offered.
    Note {
        /// The names replace the ones that it has noted before.
        anew: bool,
        /// At most [`NOTES`](super::NOTES).
        names: Vec<ChunkName>,
    },
    /// How a member that takes turns is. It has no answer; orders come at any time.
    Turn(TurnReport),
    /// Copies that the client would use: at most [`COPIES`](super::COPIES).
    FindCopies(Vec<CopyName>),
    /// Copies in a new segment, whose descriptor comes along, with their offsets: at most
    /// [`COPIES`](super::COPIES).
    OfferCopies(Vec<(CopyName, u64)>),
    /// Segments that the client uses no longer.
    ReleaseCopies(Vec<SegmentNumber>),
}

impl BrokerRequest {
    /// As bytes. At most [`BATCH`] names or [`RELEASES`] leases or segments, and at least one.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello { version, role } => {
                PacketWriter::of(1).u64(MAGIC).u32(*version).u32(*role as u32).finish()
            }
            Self::Offer { again, names } => with_names(2, *again, names),
            Self::LookUp { again, names } => with_names(3, *again, names),
            Self::Release(leases) => {
                let packet = PacketWriter::new(4, leases.len());
                leases.iter().fold(packet, |packet, lease| packet.u64(lease.0)).finish()
            }
            Self::Report => PacketWriter::new(5, 0).finish(),
            Self::Arrivals => PacketWriter::new(9, 0).finish(),
            Self::Note { anew, names } => with_names(7, *anew, names),
            Self::TakeBack => PacketWriter::new(10, 0).finish(),
            Self::Turn(report) => turn::write_report(8, report),
            Self::FindCopies(names) => copies::write_names(11, names),
            Self::OfferCopies(copies) => copies::write_copies(12, copies),
            Self::ReleaseCopies(segments) => copies::write_segments(13, segments),
        }
    }

    /// From bytes, which may be anything.
    ///
    /// # Errors
    /// They are no request.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut packet = PacketReader::new(bytes);
        let request = match packet.u32()? {
            1 => hello(&mut packet)?,
            2 => {
                let (again, names) = names(&mut packet, 1..=BATCH)?;
                Self::Offer { again, names }
            }
            3 => {
                let (again, names) = names(&mut packet, 1..=BATCH)?;
                Self::LookUp { again, names }
            }
            4 => {
                let count = packet.count(1..=RELEASES)?;
                Self::Release(packet.entries(count, |packet| packet.u64().map(LeaseNumber))?)
            }
            5 => packet.count(0..=0).map(|_| Self::Report)?,
            7 => {
                let (anew, names) = names(&mut packet, 0..=NOTES)?;
                Self::Note { anew, names }
            }
            9 => packet.count(0..=0).map(|_| Self::Arrivals)?,
            10 => packet.count(0..=0).map(|_| Self::TakeBack)?,
            8 => Self::Turn(turn::read_report(&mut packet)?),
            11 => Self::FindCopies(copies::read_names(&mut packet)?),
            12 => Self::OfferCopies(copies::read_copies(&mut packet)?),
            13 => Self::ReleaseCopies(copies::read_segments(&mut packet)?),
            _ => return Err(Malformed),
        };
        packet.end()?;
        Ok(request)
    }

    /// How many descriptors come along.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Offer { names, .. } => names.len(),
            Self::OfferCopies(_) => 1,
            _ => 0,
        }
    }
}

fn with_names(kind: u32, flag: bool, names: &[ChunkName]) -> Vec<u8> {
    let packet = PacketWriter::new(kind, names.len()).u32(u32::from(flag));
    names.iter().fold(packet, PacketWriter::name).finish()
}

/// A flag and names, as many as may be.
fn names(
    packet: &mut PacketReader<'_>,
    count: RangeInclusive<usize>,
) -> Result<(bool, Vec<ChunkName>), Malformed> {
    let count = packet.count(count)?;
    let flag = match packet.u32()? {
        0 => false,
        1 => true,
        _ => return Err(Malformed),
    };
    Ok((flag, packet.entries(count, PacketReader::name)?))
}

fn hello(packet: &mut PacketReader<'_>) -> Result<BrokerRequest, Malformed> {
    if packet.u64()? != MAGIC {
        return Err(Malformed);
    }
    let version = packet.u32()?;
    let role = match packet.u32()? {
        0 => Role::User,
        1 => Role::Observer,
        2 => Role::Member,
        3 => Role::Keeper,
        _ => return Err(Malformed),
    };
    Ok(BrokerRequest::Hello { version, role })
}
