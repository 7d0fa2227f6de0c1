//! Memory of the program's own: pieces that are made, mapped side by side, mapped again, and given
//! up, as programs do that make their memory themselves.

use std::os::fd::{FromRawFd, OwnedFd};

use conformance::cu;
use conformance::driver::Driver;
use wm_abi::*;

use crate::program::Renewal;

/// Pieces are multiples of this.
const UNIT: u64 = 2 << 20;

/// A block of pieces.
#[derive(Debug)]
pub(crate) struct MappedBlock {
    pub(crate) address: CUdeviceptr,
    /// Of one piece.
    piece: u64,
    handles: Vec<u64>,
    device: CUdevice,
}

impl MappedBlock {
    /// Reserves addresses, and makes and maps pieces there.
    pub(crate) fn make(
        d: &Driver,
        bytes: u64,
        parts: u64,
        device: CUdevice,
        for_cards: bool,
    ) -> Result<Self, CUresult> {
        let piece = bytes.div_ceil(parts).next_multiple_of(UNIT);
        let count = bytes.div_ceil(piece);
        let mut block = Self { address: 0, piece, handles: Vec::new(), device };
        let reserved = cu!(d, cuMemAddressReserve(&mut block.address, (count * piece) as usize, 0, 0, 0));
        reserved.ok()?;
        // SAFETY: all zero is a valid value of every field.
        let mut property: CUmemAllocationProp = unsafe { std::mem::zeroed() };
        property.type_ = CU_MEM_ALLOCATION_TYPE_PINNED;
        property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        property.location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: device };
        property.allocFlags.gpuDirectRDMACapable = for_cards.into();
        let mut filled = Ok(());
        while filled.is_ok() && (block.handles.len() as u64) < count {
            let mut handle = 0;
            filled = cu!(d, cuMemCreate(&mut handle, piece as usize, &property, 0)).ok();
            block.handles.extend(filled.is_ok().then_some(handle));
        }
        let missing = count - block.handles.len() as u64;
        if let Err(code) = filled.and_then(|()| block.map(d)) {
            let _given_up = block.give_up(d, missing);
            return Err(code);
        }
        Ok(block)
    }

    fn bytes(&self) -> usize {
        (self.handles.len() as u64 * self.piece) as usize
    }

    fn at(&self, piece: usize) -> CUdeviceptr {
        self.address + piece as u64 * self.piece
    }

    fn map(&self, d: &Driver) -> Result<(), CUresult> {
        for (number, handle) in self.handles.iter().enumerate() {
            cu!(d, cuMemMap(self.at(number), self.piece as usize, 0, *handle, 0)).ok()?;
        }
        let location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: self.device };
        let access = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        cu!(d, cuMemSetAccess(self.address, self.bytes(), &access, 1)).ok()
    }

    fn unmap(&self, d: &Driver) -> Result<(), CUresult> {
        cu!(d, cuMemUnmap(self.address, self.bytes())).ok()
    }

    /// `missing`: pieces that were not made.
    pub(crate) fn give_up(self, d: &Driver, missing: u64) -> Result<(), CUresult> {
        let unmapped = if self.handles.is_empty() { Ok(()) } else { self.unmap(d) };
        let released = self.handles.iter().map(|handle| cu!(d, cuMemRelease(*handle)).ok());
        let released = released.collect::<Vec<_>>().into_iter().collect::<Result<(), _>>();
        let range = self.bytes() + (missing * self.piece) as usize;
        let freed = cu!(d, cuMemAddressFree(self.address, range)).ok();
        unmapped.and(released).and(freed)
    }

    fn retained(d: &Driver, at: CUdeviceptr) -> Result<u64, CUresult> {
        let mut handle = 0;
        cu!(d, cuMemRetainAllocationHandle(&mut handle, at as *mut _)).ok()?;
        Ok(handle)
    }

    fn passed(d: &Driver, handle: u64) -> Result<u64, CUresult> {
        let (mut descriptor, mut imported) = (-1, 0);
        let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        cu!(d, cuMemExportToShareableHandle((&raw mut descriptor).cast(), handle, kind, 0)).ok()?;
        // SAFETY: the driver has made it for the caller.
        let _closed = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let shared = descriptor as usize as *mut _;
        cu!(d, cuMemImportFromShareableHandle(&mut imported, shared, kind)).ok()?;
        Ok(imported)
    }

    /// Maps it again at its addresses. A piece that cannot be passed on keeps its handle.
    pub(crate) fn renew(&mut self, d: &Driver, how: Renewal) -> Result<(), CUresult> {
        let retained: Option<Vec<u64>> = match how {
            Renewal::Retained => {
                let all = (0..self.handles.len()).map(|piece| Self::retained(d, self.at(piece)));
                Some(all.collect::<Result<_, _>>()?)
            }
            Renewal::Kept | Renewal::Passed => None,
        };
        self.unmap(d)?;
        let mut refused = Ok(());
        for (number, handle) in self.handles.iter_mut().enumerate() {
            let new = match how {
                Renewal::Kept => continue,
                Renewal::Retained => Ok(retained.as_ref().map_or(*handle, |retained| retained[number])),
                Renewal::Passed => Self::passed(d, *handle),
            };
            match new {
                Ok(new) => {
                    refused = refused.and(cu!(d, cuMemRelease(*handle)).ok());
                    *handle = new;
                }
                Err(code) => refused = Err(code),
            }
        }
        self.map(d).and(refused)
    }
}
