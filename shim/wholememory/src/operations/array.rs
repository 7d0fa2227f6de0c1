//! Arrays as operations on graphs have them: at one address, or over memory of all ranks.

use wm_abi::CUdeviceptr;

use crate::error::{Error, Result, require};
use crate::tensor::{Place, Tensor};
use crate::vocabulary::codes::ElementType;

/// Types of the numbers of nodes.
pub const NODES: &[ElementType] = &[ElementType::Int, ElementType::Int64];

/// Elements at one address.
#[derive(Debug, Clone, Copy)]
pub struct Array {
    /// Of the first.
    pub address: CUdeviceptr,
    /// Elements.
    pub count: u64,
    /// Their type.
    pub kind: ElementType,
}

impl Array {
    /// # Errors
    /// [`Error::Input`] for what is no array, or of none of the types, or at no one address.
    pub fn new(tensor: &Tensor, kinds: &[ElementType], what: &str) -> Result<Self> {
        let (count, kind) = shape(tensor, kinds, what)?;
        let address = tensor.address()?;
        require(
            address.is_multiple_of(kind.bytes() as u64),
            &format!("{what} are not aligned to their type"),
        )?;
        Ok(Self { address, count, kind })
    }

    /// Bytes of an element.
    pub fn bytes(&self) -> u32 {
        self.kind.bytes() as u32
    }
}

/// Numbers of rows: an array of 32 or 64-bit integers at one address.
pub(crate) struct Numbers {
    /// Of the first.
    pub(crate) address: CUdeviceptr,
    /// How many there are.
    pub(crate) count: u64,
    /// Of one: 4 or 8.
    pub(crate) bytes: u32,
}

impl Numbers {
    /// # Errors
    /// [`Error::Input`] for another shape or type.
    pub(crate) fn new(tensor: &Tensor) -> Result<Self> {
        let (array, kind) = (tensor.description().to_array(), tensor.description().element_type()?);
        require(array.is_some_and(|array| array.size >= 0), "numbers of rows are an array without gaps")?;
        require(matches!(kind, ElementType::Int | ElementType::Int64), "numbers of rows have 32 or 64 bits")?;
        let count = array.map_or(0, |array| array.size.unsigned_abs());
        Ok(Self { address: tensor.address()?, count, bytes: kind.bytes() as u32 })
    }
}

/// Elements that kernels find by their numbers, wherever they are (`table.cuh`).
#[derive(Debug, Clone, Copy)]
pub struct ArrayTable {
    /// Of the first chunk, if there is but one; else 0.
    pub base: CUdeviceptr,
    /// Address of each chunk.
    pub bases: CUdeviceptr,
    /// First element of each chunk.
    pub starts: CUdeviceptr,
    /// Chunks.
    pub chunks: u32,
    /// Elements of each chunk but the last, or 0.
    pub equal: u64,
    /// Bytes from the memory's first element to the table's.
    pub offset: u64,
    /// Elements.
    pub entries: u64,
    /// Their type.
    pub kind: ElementType,
}

impl ArrayTable {
    /// # Errors
    /// As of [`Array::new`], but any memory of all ranks will do.
    pub fn new(tensor: &Tensor, kinds: &[ElementType], what: &str) -> Result<Self> {
        let (entries, kind) = shape(tensor, kinds, what)?;
        let Place::Memory(memory) = tensor.place() else {
            let base = Array::new(tensor, kinds, what)?.address;
            return Ok(Self { base, bases: 0, starts: 0, chunks: 1, equal: 0, offset: 0, entries, kind });
        };
        let offset = tensor.description().storage_offset.unsigned_abs() * kind.bytes() as u64;
        let (tables, partition) = (memory.tables(), memory.partition());
        let is_one = memory.is_one_range();
        let base = if is_one { memory.part(0).address } else { 0 };
        let chunks = if is_one { 1 } else { partition.ranks() as u32 };
        let (bases, starts, equal) = (tables.bases, tables.starts, partition.equal_count());
        Ok(Self { base, bases, starts, chunks, equal, offset, entries, kind })
    }
}

fn shape(tensor: &Tensor, kinds: &[ElementType], what: &str) -> Result<(u64, ElementType)> {
    let kind = tensor.description().element_type()?;
    require(kinds.contains(&kind), &format!("{what} are of type {kind:?}, not one of {kinds:?}"))?;
    let count = tensor.description().to_array().and_then(|array| u64::try_from(array.size).ok());
    Ok((count.ok_or_else(|| Error::Input(format!("{what} are no array without gaps")))?, kind))
}
