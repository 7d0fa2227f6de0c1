//! Memory of the host that all ranks of a machine map and their GPUs use.
//!
//! It is a file without a name (`memfd`), which an island's first rank makes and hands to the
//! others: nothing is left of it when they end, however they do. Each rank fills its own part
//! first, so the part lies near that rank, and pins all of it for its GPU.

use std::os::fd::{AsFd, OwnedFd};

use wm_abi::*;
use wm_driver::Api;
use wm_driver::api::Named;
use wm_driver::api::scope::{Current, Relaxed};

use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::exchange::Part;
use crate::storage::layout::{LayoutPiece, StorageLayout};
use crate::storage::mapping::FileMapping;

/// Pages that pieces are made of, bytes: those of the system, or huge ones.
pub const PAGE: u64 = 2 << 20;

/// A file of all ranks, mapped and pinned.
#[derive(Debug)]
pub struct HostStorage {
    driver: Named<'static>,
    context: CUcontext,
    mapping: Option<FileMapping>,
    is_pinned: bool,
}

impl HostStorage {
    /// Makes the file and maps it at every rank. A collective call.
    ///
    /// # Errors
    /// The same on every rank, with nothing left behind.
    pub fn new(communicator: &Communicator, members: &[usize], layout: &StorageLayout) -> Result<Self> {
        let driver = communicator.driver();
        let mut storage = Self { driver, context: communicator.context(), mapping: None, is_pinned: false };
        let first = members.first().copied().unwrap_or_default();
        let file = if communicator.rank() == first { make(layout.bytes).map(Some) } else { Ok(None) };
        let file = hand_out(communicator, file.as_ref().map(Option::as_ref))?;
        let own = members.iter().position(|rank| *rank == communicator.rank()).unwrap_or_default();
        let filled = storage.fill(&file[first], layout, layout.pieces[own]);
        communicator.agree("fill host memory", filled, &[])?;
        let pinned = storage.pin(communicator.device());
        communicator.agree("pin host memory", pinned, &[])?;
        Ok(storage)
    }

    /// Address of the first byte, for host and device.
    pub fn base(&self) -> u64 {
        self.mapping.as_ref().map_or(0, FileMapping::address)
    }

    fn fill(&mut self, file: &Part, layout: &StorageLayout, own: LayoutPiece) -> Result {
        // Other islands may have rows where this one has none.
        if layout.bytes == 0 {
            return Ok(());
        }
        let lost = || Error::Communication("the first rank of the island sent no file".to_owned());
        let file = file.descriptors.first().ok_or_else(lost)?;
        let mapping = FileMapping::new(file.as_fd(), layout.bytes as usize)?;
        mapping.touch(own.offset as usize, own.bytes as usize);
        self.mapping = Some(mapping);
        Ok(())
    }

    fn pin(&mut self, device: CUdevice) -> Result {
        let same = self
            .driver
            .device_attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, device)?;
        if same == 0 {
            let reason = "this device has other addresses for pinned memory than the host";
            return Err(Error::NotSupported(reason.to_owned()));
        }
        let _current = Current::make(self.driver.0, self.context);
        if let Some(mapping) = &self.mapping {
            mapping.pin(&self.driver)?;
            self.is_pinned = true;
        }
        Ok(())
    }
}

impl Drop for HostStorage {
    fn drop(&mut self) {
        let (true, Some(mapping)) = (self.is_pinned, &self.mapping) else { return };
        let _current = Current::make(self.driver.0, self.context);
        let _relaxed = Relaxed::always(self.driver.0);
        let _ = self.driver.ctx_synchronize_named(self.context);
        mapping.unpin(&self.driver);
    }
}

/// A file for so many bytes, if the machine has them: one that is filled beyond that is ended by
/// the system, not refused.
fn make(bytes: u64) -> Result<OwnedFd> {
    let free = available();
    if free.is_some_and(|free| free < bytes) {
        let free = free.unwrap_or_default() >> 20;
        return Err(Error::Memory(format!(
            "{} MiB of host memory are asked for, {free} MiB are available",
            bytes >> 20
        )));
    }
    let file = rustix::fs::memfd_create("wholememory", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, bytes)?;
    Ok(file)
}

/// Bytes that processes can have before the system has to take some from others.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

fn hand_out(communicator: &Communicator, own: Result<Option<&OwnedFd>, &Error>) -> Result<Vec<Part>> {
    let code = own.err().map_or(0, Error::code);
    let descriptor = own.ok().flatten().map(AsFd::as_fd);
    let parts = communicator.share("make host memory", &code.to_le_bytes(), descriptor)?;
    if let Err(error) = own {
        return Err(error.clone());
    }
    let codes = parts.iter().map(|part| part.bytes.first_chunk().map_or(5, |code| u32::from_le_bytes(*code)));
    match codes.enumerate().find(|(_, code)| *code != 0) {
        None => Ok(parts),
        Some((rank, code)) => Err(Error::of_rank(rank, code)),
    }
}
