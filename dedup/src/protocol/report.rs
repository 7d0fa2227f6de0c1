//! The broker's report about itself.

use super::bytes::{Malformed, PacketReader, PacketWriter};
use super::sizes::REPORTED;
use crate::chunk::CHUNK_BYTES;

/// The chunks that the broker holds, and its clients.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BrokerReport {
    /// Its package's version, as numbers.
    pub release: [u32; 3],
    /// Its process, as it sees it itself.
    pub process: u32,
    /// Seconds since it started.
    pub uptime: u64,
    /// Chunks that it has room for.
    pub capacity: u64,
    /// The clients that share, at most [`REPORTED`].
    pub clients: Vec<ClientReport>,
    /// Segments of host memory that hold copies for paused programs.
    pub segments: u64,
    /// Bytes of these copies.
    pub copy_bytes: u64,
    /// Devices of which it holds chunks, at most [`REPORTED`].
    pub devices: Vec<DeviceReport>,
}

/// One process that shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientReport {
    /// As the broker sees it; 0 if it does not see the process, which is in another container.
    pub process: u32,
    /// Uses of chunks.
    pub leases: u64,
}

/// The chunks of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceReport {
    /// UUID.
    pub device: [u8; 16],
    /// Chunks.
    pub chunks: u64,
    /// Uses of them.
    pub leases: u64,
}

impl DeviceReport {
    /// Bytes of device memory that are held once for all.
    pub fn held_bytes(&self) -> u64 {
        self.chunks.saturating_mul(CHUNK_BYTES)
    }

    /// Bytes that its users would hold more, if each had a copy for each use.
    pub fn saved_bytes(&self) -> u64 {
        self.leases.saturating_sub(self.chunks).saturating_mul(CHUNK_BYTES)
    }
}

impl BrokerReport {
    pub(super) fn write(&self, packet: PacketWriter) -> PacketWriter {
        let (clients, devices) = (
            self.clients.iter().take(REPORTED),
            self.devices.iter().take(REPORTED - self.clients.len().min(REPORTED)),
        );
        let packet = packet.u32(clients.len() as u32).u32(devices.len() as u32);
        let packet = self.release.iter().fold(packet, |packet, number| packet.u32(*number));
        let packet = packet.u32(self.process).u64(self.uptime).u64(self.capacity);
        let packet = packet.u64(self.segments).u64(self.copy_bytes);
        let packet = clients.fold(packet, |packet, client| packet.u32(client.process).u64(client.leases));
        devices
            .fold(packet, |packet, device| packet.bytes(&device.device).u64(device.chunks).u64(device.leases))
    }

    pub(super) fn read(packet: &mut PacketReader<'_>) -> Result<Self, Malformed> {
        let clients = packet.count(0..=REPORTED)?;
        let devices = packet.count(0..=REPORTED - clients)?;
        Ok(Self {
            release: [packet.u32()?, packet.u32()?, packet.u32()?],
            process: packet.u32()?,
            uptime: packet.u64()?,
            capacity: packet.u64()?,
            segments: packet.u64()?,
            copy_bytes: packet.u64()?,
            clients: packet.entries(clients, |packet| {
                Ok(ClientReport { process: packet.u32()?, leases: packet.u64()? })
            })?,
            devices: packet.entries(devices, |packet| {
                Ok(DeviceReport { device: packet.array()?, chunks: packet.u64()?, leases: packet.u64()? })
            })?,
        })
    }
}
