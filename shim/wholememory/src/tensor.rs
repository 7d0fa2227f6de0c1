//! Tensors: shapes over memory of all ranks, or over memory of the caller's.
//!
//! A tensor over memory keeps it alive. A part of a tensor is a tensor over the same memory.

use std::sync::Arc;

use crate::communicator::Communicator;
use crate::error::{Error, Result, require};
use crate::memory::{Memory, MemoryRequest};
use crate::vocabulary::codes::{Location, MemoryType};
use crate::vocabulary::description::{MatrixDescription, TensorDescription};

/// The memory of a tensor.
#[derive(Debug, Clone)]
pub enum Place {
    /// Memory of all ranks.
    Memory(Arc<Memory>),
    /// An address of the caller, which guarantees that it is valid.
    Pointer(u64),
}

/// A shape over memory.
#[derive(Debug)]
pub struct Tensor {
    description: TensorDescription,
    place: Place,
    /// The tensor that this is a part of.
    root: Option<Arc<Tensor>>,
    /// Was its memory made with it?
    owns: bool,
}

impl Tensor {
    /// A tensor with memory of its own. A collective call.
    ///
    /// # Errors
    /// As [`Memory::new`]; [`Error::Input`] for a shape that WholeMemory cannot have.
    pub fn new(
        communicator: &Arc<Communicator>,
        description: TensorDescription,
        memory_type: MemoryType,
        location: Location,
        partition: Option<Vec<u64>>,
    ) -> Result<Self> {
        let shape = description.rows().and_then(|matrix| {
            require(matrix.storage_offset == 0, "new memory begins with its first element")?;
            request(&description, matrix, memory_type, location, partition)
        });
        // The others wait for this rank's word.
        let request = match shape {
            Ok(request) => request,
            Err(error) => {
                communicator.agree("malloc", Err(error.clone()), &[])?;
                return Err(error);
            }
        };
        let place = Place::Memory(Arc::new(Memory::new(communicator, request)?));
        Ok(Self { description, place, root: None, owns: true })
    }

    /// A tensor over memory that there is.
    ///
    /// # Errors
    /// [`Error::Input`] for a shape that does not fit into the memory's rows.
    pub fn over(memory: Arc<Memory>, description: TensorDescription) -> Result<Self> {
        let matrix = description.rows()?;
        let row = row_bytes(&description, matrix)?;
        require(row == memory.request().granularity, "a row of the tensor is no row of the memory")?;
        let last = matrix.storage_offset / matrix.stride.max(1) + matrix.sizes[0];
        require(last as u64 <= memory.partition().rows(), "the tensor has more rows than the memory")?;
        Ok(Self { description, place: Place::Memory(memory), root: None, owns: false })
    }

    /// A tensor over memory of the caller's: any shape, and no address where it has no elements.
    ///
    /// # Errors
    /// [`Error::Input`] for more dimensions than there can be, or elements at no address.
    pub fn at(address: u64, description: TensorDescription) -> Result<Self> {
        let dimensions = description.dimensions();
        let sizes = &description.sizes[..dimensions.unwrap_or_default()];
        require(dimensions.is_some() && sizes.iter().all(|size| *size >= 0), "a shape that no tensor has")?;
        let is_empty = sizes.is_empty() || sizes.contains(&0);
        require(address != 0 || is_empty, "elements at no address")?;
        Ok(Self { description, place: Place::Pointer(address), root: None, owns: false })
    }

    /// A part: from `starts` up to `ends`, by dimension; -1 is the beginning, or the end.
    ///
    /// # Errors
    /// [`Error::Input`] for a part that is not inside.
    pub fn slice(self: &Arc<Self>, starts: &[i64], ends: &[i64]) -> Result<Self> {
        let mut description = self.description;
        for (dimension, (start, end)) in starts.iter().zip(ends).enumerate() {
            let size = description.sizes[dimension];
            let start = if *start == -1 { 0 } else { *start };
            let end = if *end == -1 { size } else { *end };
            require(
                0 <= start && start < end && end <= size,
                &format!("{start}..{end} of {size} is no part"),
            )?;
            description.storage_offset += start * description.strides[dimension];
            description.sizes[dimension] = end - start;
        }
        let root = Some(self.root.clone().unwrap_or_else(|| Arc::clone(self)));
        Ok(Self { description, place: self.place.clone(), root, owns: false })
    }

    /// Its shape. It stays where it is as long as the tensor.
    pub fn description(&self) -> &TensorDescription {
        &self.description
    }

    /// Its memory.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Was its memory made with it?
    pub fn owns(&self) -> bool {
        self.owns
    }

    /// The tensor that it is a part of.
    pub fn root(&self) -> Option<&Arc<Self>> {
        self.root.as_ref()
    }

    /// The memory that it is over.
    ///
    /// # Errors
    /// [`Error::Input`] for one over memory of the caller's.
    pub fn memory(&self) -> Result<&Arc<Memory>> {
        match &self.place {
            Place::Memory(memory) => Ok(memory),
            Place::Pointer(_) => Err(Error::Input("this tensor is not over WholeMemory".to_owned())),
        }
    }

    /// The address of its first element, where it has one address.
    ///
    /// # Errors
    /// As [`Memory::global_pointer`].
    pub fn address(&self) -> Result<u64> {
        let base = match &self.place {
            Place::Memory(memory) => memory.global_pointer()?,
            Place::Pointer(address) => *address,
        };
        let element = self.description.element_type()?.bytes() as u64;
        Ok(if base == 0 { 0 } else { base + self.description.storage_offset.unsigned_abs() * element })
    }

    /// First row and number of rows of this rank's part of the memory.
    ///
    /// # Errors
    /// [`Error::Input`] for one over memory of the caller's.
    pub fn own_rows(&self) -> Result<(u64, u64)> {
        let memory = self.memory()?;
        let rank = memory.communicator().rank();
        Ok((memory.partition().start(rank), memory.partition().count(rank)))
    }

    /// This rank's rows as a tensor of their own, over their address.
    ///
    /// # Errors
    /// [`Error::Input`] for one over memory of the caller's, or for a part of a tensor that leaves
    /// rows out.
    pub fn own_part(&self) -> Result<Self> {
        let memory = self.memory()?;
        let matrix = self.description.rows()?;
        require(
            matrix.storage_offset < matrix.stride.max(1),
            "the tensor does not begin with the memory's first row",
        )?;
        let rank = memory.communicator().rank();
        let (start, count) = (memory.partition().start(rank), memory.partition().count(rank));
        let inside = (matrix.sizes[0] as u64).saturating_sub(start).min(count);
        let mut description = self.description;
        description.sizes[0] = inside as i64;
        let address = if inside == 0 { 0 } else { memory.own_part().address };
        Ok(Self { description, place: Place::Pointer(address), root: None, owns: false })
    }
}

fn row_bytes(description: &TensorDescription, matrix: MatrixDescription) -> Result<u64> {
    let stride = if description.dim == 1 { 1 } else { matrix.stride };
    let bytes = (stride as u64).checked_mul(description.element_type()?.bytes() as u64);
    let bytes = bytes.filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| Error::Input(format!("rows of {stride} elements")))
}

fn request(
    description: &TensorDescription,
    matrix: MatrixDescription,
    memory_type: MemoryType,
    location: Location,
    partition: Option<Vec<u64>>,
) -> Result<MemoryRequest> {
    let granularity = row_bytes(description, matrix)?;
    let bytes = granularity.checked_mul(matrix.sizes[0] as u64);
    let bytes =
        bytes.ok_or_else(|| Error::Memory(format!("{} rows of {granularity} bytes", matrix.sizes[0])))?;
    Ok(MemoryRequest { bytes, memory_type, location, granularity, partition })
}
