//! Queries of a pointer.

use std::ffi::{c_uint, c_void};

use wm_abi::*;

use crate::context::current_handle;
use crate::entry::{Outcome, exports, get_all, put, require};
use crate::memory::{AddressMap, Area, Mapping, Owner, Place};
use crate::state::driver;

/// A result, in the width of the attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Word(u32),
    Long(u64),
}

impl Answer {
    /// # Safety
    /// `place` is null or valid for a write of the attribute's type.
    unsafe fn put(self, place: *mut c_void) -> Outcome {
        // SAFETY: by contract.
        unsafe {
            match self {
                Self::Word(value) => put(place.cast(), value),
                Self::Long(value) => put(place.cast(), value),
            }
        }
    }
}

/// The area and the mapping at an address.
struct Subject<'a> {
    address: CUdeviceptr,
    area: &'a Area,
    mapping: Option<(u64, &'a Mapping)>,
}

impl<'a> Subject<'a> {
    /// `None` for addresses that the driver does not know, and for reserved ones without a mapping.
    fn find(memory: &'a AddressMap, address: CUdeviceptr) -> Option<Self> {
        let area = memory.find(address)?;
        let mapping = area.mapping(address);
        let known = match area.owner {
            Owner::Reserved(_) => mapping.is_some(),
            Owner::Pool { live, .. } => live,
            _ => true,
        };
        known.then_some(Self { address, area, mapping })
    }

    fn place(&self) -> Place {
        self.mapping.map_or_else(|| self.area.place(), |(_, mapping)| mapping.physical.place)
    }

    fn is_managed(&self) -> bool {
        matches!(self.area.owner, Owner::Managed { .. })
    }

    fn is_linear(&self) -> bool {
        matches!(self.area.owner, Owner::Linear { .. })
    }

    fn memory_type(&self) -> u32 {
        let on_host = self.place() == Place::Host && !self.is_managed();
        if on_host { CU_MEMORYTYPE_HOST } else { CU_MEMORYTYPE_DEVICE }
    }

    /// Memory of the host, and memory that another process shares, belong to the device of the
    /// context that allocated or opened them.
    fn device(&self) -> u32 {
        match self.place() {
            Place::Device(ordinal) if !matches!(self.area.owner, Owner::Imported { .. }) => ordinal as u32,
            _ => self
                .area
                .context()
                .and_then(|handle| driver().contexts.get(handle))
                .map_or(0, |c| c.device as u32),
        }
    }

    /// Is it memory with the same address on the CPU?
    fn host_address(&self) -> Outcome<u64> {
        let by_owner =
            matches!(self.area.owner, Owner::Host { .. } | Owner::Registered { .. } | Owner::Managed { .. });
        let by_right = self.mapping.is_some_and(|(_, mapping)| mapping.rights.of(Place::Host) != 0);
        require(by_owner || by_right, CUresult::INVALID_VALUE)?;
        Ok(self.address)
    }

    /// The rights of the current context's device. For memory that belongs to a context the driver
    /// reports all rights, with and without peer access.
    fn rights(&self) -> u32 {
        let current = current_handle().and_then(|handle| driver().contexts.get(handle));
        let device = current.map_or(0, |context| context.device);
        if let Some((_, mapping)) = self.mapping {
            return mapping.rights.of(Place::Device(device));
        }
        let own = matches!(self.place(), Place::Host) || self.place() == Place::Device(device);
        if own || self.area.context().is_some() {
            return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        }
        CU_MEM_ACCESS_FLAGS_PROT_NONE
    }

    fn answer(&self, attribute: c_uint) -> Outcome<Answer> {
        let mapping =
            self.mapping.map_or((self.area.start, self.area.size), |(start, m)| (start, m.physical.size));
        Ok(match attribute {
            CU_POINTER_ATTRIBUTE_CONTEXT => Answer::Long(self.area.context().unwrap_or(0) as u64),
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Answer::Word(self.memory_type()),
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER => Answer::Long(self.address),
            CU_POINTER_ATTRIBUTE_HOST_POINTER => Answer::Long(self.host_address()?),
            CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => {
                Answer::Word((self.area.sync_memops || self.is_managed()).into())
            }
            CU_POINTER_ATTRIBUTE_BUFFER_ID => Answer::Long(self.mapping.map_or(self.area.id, |(_, m)| m.id)),
            CU_POINTER_ATTRIBUTE_IS_MANAGED => Answer::Word(self.is_managed().into()),
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Answer::Word(self.device()),
            CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => Answer::Word(self.is_linear().into()),
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => Answer::Long(self.area.start),
            CU_POINTER_ATTRIBUTE_RANGE_SIZE => Answer::Long(self.area.size),
            CU_POINTER_ATTRIBUTE_MAPPED => Answer::Word(1),
            CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => {
                Answer::Long(self.mapping.map_or(0, |(_, m)| u64::from(m.physical.handle_types)))
            }
            CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
            | CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => Answer::Word(0),
            CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => Answer::Word(self.rights()),
            CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => match self.area.owner {
                Owner::Pool { pool, .. } => Answer::Long(pool as u64),
                _ => Answer::Long(0),
            },
            CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => Answer::Long(mapping.0),
            CU_POINTER_ATTRIBUTE_MAPPING_SIZE => Answer::Long(mapping.1),
            CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => {
                let physical = self.mapping.map(|(_, m)| &m.physical).or(self.area.physical());
                Answer::Long(physical.map_or(self.area.id, |physical| physical.id))
            }
            CU_POINTER_ATTRIBUTE_P2P_TOKENS => return Err(CUresult::NOT_SUPPORTED),
            _ => return Err(CUresult::INVALID_VALUE),
        })
    }
}

/// The result of `cuPointerGetAttributes` for an unknown pointer.
fn nothing(attribute: c_uint) -> Answer {
    match attribute {
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Answer::Word(-2_i32 as u32),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        | CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        | CU_POINTER_ATTRIBUTE_IS_MANAGED
        | CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
        | CU_POINTER_ATTRIBUTE_MAPPED
        | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
        | CU_POINTER_ATTRIBUTE_ACCESS_FLAGS
        | CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => Answer::Word(0),
        _ => Answer::Long(0),
    }
}

exports! {
    fn cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, ptr: CUdeviceptr) |call| {
        require(!data.is_null(), CUresult::INVALID_VALUE)?;
        let memory = driver().memory();
        Subject::find(&memory, ptr).ok_or(CUresult::INVALID_VALUE)?.answer(attribute)?.put(data)
    }

    fn cuPointerGetAttributes(numAttributes: c_uint, attributes: *mut c_uint, data: *mut *mut c_void, ptr: CUdeviceptr) |call| {
        require(numAttributes > 0, CUresult::INVALID_VALUE)?;
        let attributes = get_all(attributes, numAttributes as usize)?;
        let places = get_all(data, numAttributes as usize)?;
        let memory = driver().memory();
        let subject = Subject::find(&memory, ptr);
        for (attribute, place) in attributes.iter().zip(places) {
            require((1..=CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL).contains(attribute), CUresult::INVALID_VALUE)?;
            let answer = subject.as_ref().and_then(|subject| subject.answer(*attribute).ok());
            answer.unwrap_or_else(|| nothing(*attribute)).put(place)?;
        }
        Ok(())
    }

    fn cuPointerSetAttribute(value: *const c_void, attribute: c_uint, ptr: CUdeviceptr) |call| {
        require(attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUresult::INVALID_VALUE)?;
        let wanted = crate::entry::get(value.cast::<c_uint>())?;
        let mut memory = driver().memory_mut();
        let subject = Subject::find(&memory, ptr).ok_or(CUresult::INVALID_VALUE)?;
        // Memory of the virtual-memory calls has no such attribute.
        require(subject.mapping.is_none(), CUresult::NOT_SUPPORTED)?;
        memory.find_mut(ptr).ok_or(CUresult::INVALID_VALUE)?.sync_memops = wanted != 0;
        Ok(())
    }
}
