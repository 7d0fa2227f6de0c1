//! The packets about copies in host memory.

use super::bytes::{Malformed, PacketReader, PacketWriter};
use super::sizes::{BATCH, COPIES, RELEASES};
use crate::broker::{CopyPlace, SegmentNumber};
use crate::chunk::CopyName;

/// In place of a segment, if there is none.
const NONE: u64 = 0;

pub(super) fn write_names(kind: u32, names: &[CopyName]) -> Vec<u8> {
    names.iter().fold(PacketWriter::new(kind, names.len()), PacketWriter::copy_name).finish()
}

pub(super) fn read_names(packet: &mut PacketReader<'_>) -> Result<Vec<CopyName>, Malformed> {
    let count = packet.count(1..=COPIES)?;
    packet.entries(count, PacketReader::copy_name)
}

pub(super) fn write_copies(kind: u32, copies: &[(CopyName, u64)]) -> Vec<u8> {
    let packet = PacketWriter::new(kind, copies.len());
    copies.iter().fold(packet, |packet, (name, offset)| packet.copy_name(name).u64(*offset)).finish()
}

pub(super) fn read_copies(packet: &mut PacketReader<'_>) -> Result<Vec<(CopyName, u64)>, Malformed> {
    let count = packet.count(1..=COPIES)?;
    packet.entries(count, |packet| Ok((packet.copy_name()?, packet.u64()?)))
}

pub(super) fn write_segments(kind: u32, segments: &[SegmentNumber]) -> Vec<u8> {
    let packet = PacketWriter::new(kind, segments.len());
    segments.iter().fold(packet, |packet, segment| packet.u64(segment.0)).finish()
}

pub(super) fn read_segments(packet: &mut PacketReader<'_>) -> Result<Vec<SegmentNumber>, Malformed> {
    let count = packet.count(1..=RELEASES)?;
    packet.entries(count, |packet| packet.u64().map(SegmentNumber))
}

pub(super) fn write_found(kind: u32, places: &[Option<CopyPlace>], segments: &[SegmentNumber]) -> Vec<u8> {
    let packet = PacketWriter::new(kind, places.len()).u32(segments.len() as u32);
    let packet = places.iter().fold(packet, |packet, place| match place {
        Some(place) => packet.u64(place.segment.0).u64(place.offset),
        None => packet.u64(NONE).u64(0),
    });
    segments.iter().fold(packet, |packet, segment| packet.u64(segment.0)).finish()
}

/// Places, one for each name, and the segments that are new to the client.
pub(super) fn read_found(
    packet: &mut PacketReader<'_>,
) -> Result<(Vec<Option<CopyPlace>>, Vec<SegmentNumber>), Malformed> {
    let (places, segments) = (packet.count(1..=COPIES)?, packet.count(0..=BATCH)?);
    let places = packet.entries(places, |packet| match (packet.u64()?, packet.u64()?) {
        (NONE, 0) => Ok(None),
        (NONE, _) => Err(Malformed),
        (segment, offset) => Ok(Some(CopyPlace { segment: SegmentNumber(segment), offset })),
    })?;
    Ok((places, packet.entries(segments, |packet| packet.u64().map(SegmentNumber))?))
}

pub(super) fn write_offered(kind: u32, segment: Option<SegmentNumber>, accepted: &[bool]) -> Vec<u8> {
    let packet = PacketWriter::new(kind, accepted.len()).u64(segment.map_or(NONE, |segment| segment.0));
    accepted.iter().fold(packet, |packet, accepted| packet.u32(u32::from(*accepted))).finish()
}

/// A segment, if any name is accepted, and whether each one is.
pub(super) fn read_offered(
    packet: &mut PacketReader<'_>,
) -> Result<(Option<SegmentNumber>, Vec<bool>), Malformed> {
    let (count, segment) = (packet.count(1..=COPIES)?, packet.u64()?);
    let accepted = packet.entries(count, |packet| match packet.u32()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    })?;
    if (segment != NONE) != accepted.contains(&true) {
        return Err(Malformed);
    }
    Ok(((segment != NONE).then_some(SegmentNumber(segment)), accepted))
}
