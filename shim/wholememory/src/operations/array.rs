//! Arrays as operations on graphs have them: at one address, or over memory of all ranks.

use wm_abi::CUdeviceptr;
use wm_kernels::wholememory::{Numbers, Table};

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
    /// [`Error::Input`] for a tensor that is no array, that has none of the types, or that
    /// has not one address.
    pub fn new(tensor: &Tensor, kinds: &[ElementType], what: &str) -> Result<Self> {
        let (count, kind) = shape(tensor, kinds, what)?;
        let address = tensor.address()?;
        require(
            address.is_multiple_of(kind.bytes() as u64),
            &format!("{what} are not aligned to their type"),
        )?;
        Ok(Self { address, count, kind })
    }

    /// The elements, as kernels find them.
    pub fn numbers(&self) -> Numbers {
        Numbers { address: self.address, count: self.count, bytes: self.kind.bytes() as u32 }
    }
}

/// Numbers of rows: an array of 32 or 64-bit integers at one address.
///
/// # Errors
/// [`Error::Input`] for another shape or type.
pub(crate) fn numbers(tensor: &Tensor) -> Result<Numbers> {
    let (array, kind) = (tensor.description().to_array(), tensor.description().element_type()?);
    let count = array.and_then(|array| u64::try_from(array.size).ok());
    let count = count.ok_or_else(|| Error::Input("numbers of rows are an array without gaps".to_owned()))?;
    require(NODES.contains(&kind), "numbers of rows have 32 or 64 bits")?;
    Ok(Numbers { address: tensor.address()?, count, bytes: kind.bytes() as u32 })
}

/// An array of a graph: at one address, or over any memory of all ranks.
#[derive(Debug, Clone, Copy)]
pub struct GraphArray<'a> {
    /// The array itself.
    pub tensor: &'a Tensor,
    /// Elements.
    pub count: u64,
    /// Their type.
    pub kind: ElementType,
    /// The elements, as kernels find them; none where they span islands.
    pub table: Option<Table>,
}

impl<'a> GraphArray<'a> {
    /// # Errors
    /// As of [`Array::new`].
    pub fn new(tensor: &'a Tensor, kinds: &[ElementType], what: &str) -> Result<Self> {
        let (count, kind) = shape(tensor, kinds, what)?;
        let bytes = kind.bytes() as u64;
        let table = match tensor.place() {
            Place::Memory(memory) if memory.span().is_some() => None,
            Place::Memory(memory) => {
                let offset = tensor.description().storage_offset.unsigned_abs() * bytes;
                Some(memory.table(count, bytes, offset)?)
            }
            Place::Pointer(_) => Some(Table::at(Array::new(tensor, kinds, what)?.address, count, bytes)),
        };
        Ok(Self { tensor, count, kind, table })
    }
}

fn shape(tensor: &Tensor, kinds: &[ElementType], what: &str) -> Result<(u64, ElementType)> {
    let kind = tensor.description().element_type()?;
    require(kinds.contains(&kind), &format!("{what} are of type {kind:?}, not one of {kinds:?}"))?;
    let count = tensor.description().to_array().and_then(|array| u64::try_from(array.size).ok());
    Ok((count.ok_or_else(|| Error::Input(format!("{what} are no array without gaps")))?, kind))
}
