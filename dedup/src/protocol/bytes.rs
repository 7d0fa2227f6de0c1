//! Packets as bytes: a writer, and a reader that any bytes may be handed to.

use crate::chunk::{ChunkName, CopyName, Fingerprint};

/// The packet does not follow the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a packet that is none of the protocol's")
    }
}

impl std::error::Error for Malformed {}

impl From<Malformed> for std::io::Error {
    fn from(error: Malformed) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, error)
    }
}

/// A packet that is being written.
#[derive(Debug, Default)]
pub(super) struct PacketWriter(Vec<u8>);

impl PacketWriter {
    /// A packet of a kind, with a count.
    pub(super) fn new(kind: u32, count: usize) -> Self {
        Self::default().u32(kind).u32(count as u32)
    }

    /// A packet of a kind that has no count.
    pub(super) fn of(kind: u32) -> Self {
        Self::default().u32(kind)
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(super) fn name(self, name: &ChunkName) -> Self {
        self.bytes(&name.device).bytes(&name.fingerprint.0.to_le_bytes())
    }

    pub(super) fn copy_name(self, name: &CopyName) -> Self {
        self.bytes(&name.fingerprint.0.to_le_bytes()).u64(name.bytes)
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// The rest of a packet that is being read.
#[derive(Debug)]
pub(super) struct PacketReader<'a>(&'a [u8]);

impl<'a> PacketReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], Malformed> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*array)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn name(&mut self) -> Result<ChunkName, Malformed> {
        let device = self.array()?;
        let fingerprint = Fingerprint(u128::from_le_bytes(self.array()?));
        Ok(ChunkName { device, fingerprint })
    }

    pub(super) fn copy_name(&mut self) -> Result<CopyName, Malformed> {
        let fingerprint = Fingerprint(u128::from_le_bytes(self.array()?));
        Ok(CopyName { fingerprint, bytes: self.u64()? })
    }

    /// A count in the allowed range.
    pub(super) fn count(&mut self, allowed: std::ops::RangeInclusive<usize>) -> Result<usize, Malformed> {
        let count = self.u32()? as usize;
        if allowed.contains(&count) { Ok(count) } else { Err(Malformed) }
    }

    /// `count` entries of a kind.
    pub(super) fn entries<T>(
        &mut self,
        count: usize,
        entry: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        (0..count).map(|_| entry(self)).collect()
    }

    /// The packet ends here.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}
