//! Memory of the ranks' GPUs, mapped at every rank.
//!
//! Each rank makes one handle for its piece: few and large ones have large pages, and descriptors
//! are few. Handles go as soon as they are mapped; the mappings keep the physical memory.

use std::os::fd::{AsFd, OwnedFd};

use wm_abi::*;
use wm_driver::Api;
use wm_driver::api::Named;
use wm_driver::api::owned::PhysicalMemory;
use wm_driver::api::scope::{Current, Relaxed};

use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::exchange::Part;
use crate::storage::layout::{LayoutPiece, StorageLayout};

/// A range of addresses with the physical memory of all ranks.
#[derive(Debug)]
pub struct DeviceStorage {
    driver: Named<'static>,
    context: CUcontext,
    base: CUdeviceptr,
    bytes: usize,
    /// From the start.
    mapped: usize,
}

/// The location of a rank's piece, and the way in which it is shared.
fn property(device: CUdevice) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location: CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: device },
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationFlags::default(),
    }
}

/// The largest of the ranks' smallest pages, bytes. A collective call.
///
/// # Errors
/// The driver's.
pub fn page(communicator: &Communicator) -> Result<u64> {
    let driver = communicator.driver();
    let own = driver.mem_granularity(&property(communicator.device()), CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    communicator.agree("page", own.as_ref().map(drop).map_err(|error| Error::from(*error)), &[])?;
    let told = communicator.round("page", &(own? as u64).to_le_bytes())?;
    let pages =
        told.iter().filter_map(|part| part.bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)));
    Ok(pages.max().unwrap_or(2 << 20))
}

impl DeviceStorage {
    /// Makes this rank's piece and maps the pieces of all members of its island. A collective call.
    ///
    /// # Errors
    /// The same on every rank, with nothing left behind.
    pub fn new(communicator: &Communicator, members: &[usize], layout: &StorageLayout) -> Result<Self> {
        let driver = communicator.driver();
        let (_current, _relaxed) = enter(communicator)?;
        let own = own_piece(communicator, members, layout);
        let own = make(&driver, communicator, own);
        let parts = hand_out(communicator, own.as_ref().map(Option::as_ref))?;
        // If mapping fails, the memory is released when it is dropped, here and at the other ranks.
        let memory = own?.map(|(memory, _)| memory);
        let mapped = Self::map(communicator, (members, layout), memory.as_ref(), &parts);
        communicator.agree("map", mapped.as_ref().map(drop).map_err(Clone::clone), &[])?;
        mapped
    }

    /// Address of the first byte.
    pub fn base(&self) -> u64 {
        self.base
    }

    fn map(
        communicator: &Communicator,
        (members, layout): (&[usize], &StorageLayout),
        own: Option<&PhysicalMemory<'_, Named<'static>>>,
        parts: &[Part],
    ) -> Result<Self> {
        let driver = communicator.driver();
        let bytes = layout.bytes as usize;
        let mut storage = Self { driver, context: communicator.context(), base: 0, bytes, mapped: 0 };
        if bytes == 0 {
            return Ok(storage);
        }
        storage.base = driver.mem_address_reserve_aligned(bytes, layout.alignment as usize)?;
        for (rank, piece) in members.iter().zip(&layout.pieces).filter(|(_, piece)| piece.bytes > 0) {
            match own {
                Some(own) if *rank == communicator.rank() => storage.add(own.raw(), piece.bytes as usize)?,
                _ => {
                    let descriptor = parts[*rank].descriptors.first();
                    let lost = || Error::Communication(format!("rank {rank} sent no memory"));
                    let handle = driver.mem_import(descriptor.ok_or_else(lost)?.as_fd())?;
                    let memory = PhysicalMemory::from_raw(&driver, handle);
                    storage.add(memory.raw(), piece.bytes as usize)?;
                }
            }
        }
        let location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: communicator.device() };
        let access = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        driver.mem_set_access(storage.base, bytes, &[access])?;
        Ok(storage)
    }

    fn add(&mut self, handle: u64, bytes: usize) -> Result {
        self.driver.mem_map(self.base + self.mapped as u64, bytes, handle)?;
        self.mapped += bytes;
        Ok(())
    }
}

impl Drop for DeviceStorage {
    fn drop(&mut self) {
        if self.base == 0 {
            return;
        }
        let _current = Current::make(self.driver.0, self.context);
        let _relaxed = Relaxed::always(self.driver.0);
        // Like the driver's own free, this waits for work that may still use the memory.
        let _ = self.driver.ctx_synchronize_named(self.context);
        if self.mapped > 0 {
            let _ = self.driver.mem_unmap(self.base, self.mapped);
        }
        let _ = self.driver.mem_address_free(self.base, self.bytes);
    }
}

fn enter(communicator: &Communicator) -> Result<(Current<'static>, Relaxed<'static>)> {
    let driver = communicator.driver();
    let current = Current::make(driver.0, communicator.context());
    let current =
        current.map_err(|code| Error::Cuda(format!("the communicator's context is not usable: {code}")))?;
    Ok((current, Relaxed::always(driver.0)))
}

/// This rank's piece.
fn own_piece(communicator: &Communicator, members: &[usize], layout: &StorageLayout) -> LayoutPiece {
    let own = members.iter().position(|rank| *rank == communicator.rank());
    own.map_or(LayoutPiece { offset: 0, bytes: 0 }, |own| layout.pieces[own])
}

type Made<'a> = (PhysicalMemory<'a, Named<'static>>, OwnedFd);

fn make<'a>(
    driver: &'a Named<'static>,
    communicator: &Communicator,
    piece: LayoutPiece,
) -> Result<Option<Made<'a>>> {
    if piece.bytes == 0 {
        return Ok(None);
    }
    let memory = PhysicalMemory::new(driver, piece.bytes as usize, &property(communicator.device()))?;
    let descriptor = driver.mem_export(memory.raw())?;
    Ok(Some((memory, descriptor)))
}

/// All ranks' descriptors, or the error of one that has none to give.
fn hand_out(communicator: &Communicator, own: Result<Option<&Made<'_>>, &Error>) -> Result<Vec<Part>> {
    let code = own.err().map_or(0, Error::code);
    let descriptor = own.ok().flatten().map(|(_, descriptor)| descriptor.as_fd());
    let parts = communicator.share("make memory", &code.to_le_bytes(), descriptor)?;
    if let Err(error) = own {
        return Err(error.clone());
    }
    let failed =
        parts.iter().map(|part| part.bytes.first_chunk().map_or(5, |code| u32::from_le_bytes(*code)));
    match failed.enumerate().find(|(_, code)| *code != 0) {
        None => Ok(parts),
        Some((rank, code)) => Err(Error::of_rank(rank, code)),
    }
}
