//! Shapes of arrays, matrices and tensors as the C API has them, and the functions on them.
//!
//! They are plain structs of the caller's: a field may be anything, so nothing here trusts one.
//! Sizes and offsets are in elements unless they say bytes.

use crate::error::{Result, require};
use crate::vocabulary::codes::ElementType;

/// Most dimensions of a tensor.
pub const MOST_DIMENSIONS: usize = 8;

/// `wholememory_array_description_t`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct ArrayDescription {
    /// Elements.
    pub size: i64,
    /// Elements before the first.
    pub storage_offset: i64,
    /// `wholememory_dtype_t`
    pub dtype: u32,
}

/// `wholememory_matrix_description_t`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct MatrixDescription {
    /// Rows and columns.
    pub sizes: [i64; 2],
    /// Elements from one row to the next.
    pub stride: i64,
    /// Elements before the first.
    pub storage_offset: i64,
    /// `wholememory_dtype_t`
    pub dtype: u32,
}

/// `wholememory_tensor_description_t`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct TensorDescription {
    /// Elements of each dimension.
    pub sizes: [i64; MOST_DIMENSIONS],
    /// Elements from one index of each dimension to the next.
    pub strides: [i64; MOST_DIMENSIONS],
    /// Elements before the first.
    pub storage_offset: i64,
    /// Dimensions.
    pub dim: i32,
    /// `wholememory_dtype_t`
    pub dtype: u32,
}

const _: () = {
    assert!(size_of::<ArrayDescription>() == 24);
    assert!(size_of::<MatrixDescription>() == 40);
    assert!(size_of::<TensorDescription>() == 144);
};

/// Bytes of a type's element; 0 for a number that is no type.
pub fn element_bytes(dtype: u32) -> usize {
    ElementType::of(dtype).map_or(0, ElementType::bytes)
}

impl ArrayDescription {
    /// Bytes of its elements.
    pub fn bytes(&self) -> i64 {
        self.size.saturating_mul(element_bytes(self.dtype) as i64)
    }

    /// The same as a matrix of one column.
    pub fn to_matrix(self) -> MatrixDescription {
        let Self { size, storage_offset, dtype } = self;
        MatrixDescription { sizes: [size, 1], stride: 1, storage_offset, dtype }
    }
}

impl MatrixDescription {
    /// Elements from the first to the end of the last row, gaps between rows counted.
    pub fn elements(&self) -> i64 {
        self.sizes[0].saturating_mul(self.stride)
    }

    /// Bytes of them.
    pub fn bytes(&self) -> i64 {
        self.elements().saturating_mul(element_bytes(self.dtype) as i64)
    }
}

impl Default for TensorDescription {
    fn default() -> Self {
        Self {
            sizes: [1; MOST_DIMENSIONS],
            strides: [1; MOST_DIMENSIONS],
            storage_offset: 0,
            dim: 0,
            dtype: 0,
        }
    }
}

impl From<ArrayDescription> for TensorDescription {
    fn from(array: ArrayDescription) -> Self {
        let mut tensor =
            Self { storage_offset: array.storage_offset, dim: 1, dtype: array.dtype, ..Self::default() };
        tensor.sizes[0] = array.size;
        tensor
    }
}

impl From<MatrixDescription> for TensorDescription {
    fn from(matrix: MatrixDescription) -> Self {
        let mut tensor =
            Self { storage_offset: matrix.storage_offset, dim: 2, dtype: matrix.dtype, ..Self::default() };
        tensor.sizes[..2].copy_from_slice(&matrix.sizes);
        tensor.strides[0] = matrix.stride;
        tensor
    }
}

impl TensorDescription {
    /// Dimensions, if there are as many as there may be.
    pub fn dimensions(&self) -> Option<usize> {
        usize::try_from(self.dim).ok().filter(|dim| *dim <= MOST_DIMENSIONS)
    }

    /// The type of its elements.
    ///
    /// # Errors
    /// A number that is no type.
    pub fn element_type(&self) -> Result<ElementType> {
        ElementType::of(self.dtype)
    }

    /// Elements from the first to the end of the last one of the first dimension, gaps counted; 1
    /// without dimensions.
    pub fn elements(&self) -> i64 {
        match self.dimensions() {
            None => 0,
            Some(0) => 1,
            Some(_) => self.sizes[0].saturating_mul(self.strides[0]),
        }
    }

    /// Bytes of them.
    pub fn bytes(&self) -> i64 {
        self.elements().saturating_mul(element_bytes(self.dtype) as i64)
    }

    /// The same as an array, if it is one: at most one dimension, without gaps.
    pub fn to_array(&self) -> Option<ArrayDescription> {
        let (storage_offset, dtype) = (self.storage_offset, self.dtype);
        match self.dimensions()? {
            0 => Some(ArrayDescription { size: 1, storage_offset, dtype }),
            1 if self.strides[0] == 1 => {
                Some(ArrayDescription { size: self.sizes[0], storage_offset, dtype })
            }
            _ => None,
        }
    }

    /// The same as a matrix, if it is one: at most two dimensions, rows without gaps.
    pub fn to_matrix(&self) -> Option<MatrixDescription> {
        let (storage_offset, dtype) = (self.storage_offset, self.dtype);
        match self.dimensions()? {
            0 | 1 => self.to_array().map(ArrayDescription::to_matrix),
            2 if self.strides[1] == 1 => {
                let sizes = [self.sizes[0], self.sizes[1]];
                Some(MatrixDescription { sizes, stride: self.strides[0], storage_offset, dtype })
            }
            _ => None,
        }
    }

    /// Removes a dimension of size 1. Whether there was one.
    pub fn squeeze(&mut self, dim: i32) -> bool {
        let (Some(dimensions), Ok(dim)) = (self.dimensions(), usize::try_from(dim)) else { return false };
        if dim >= dimensions || self.sizes[dim] != 1 {
            return false;
        }
        self.sizes.copy_within(dim + 1..dimensions, dim);
        self.strides.copy_within(dim + 1..dimensions, dim);
        self.dim -= 1;
        true
    }

    /// Puts a dimension of size 1 before another one, or at the end. Whether there was room.
    pub fn unsqueeze(&mut self, dim: i32) -> bool {
        let (Some(dimensions), Ok(dim)) = (self.dimensions(), usize::try_from(dim)) else { return false };
        if dim > dimensions || dimensions == MOST_DIMENSIONS {
            return false;
        }
        self.sizes.copy_within(dim..dimensions, dim + 1);
        self.strides.copy_within(dim..dimensions, dim + 1);
        self.sizes[dim] = 1;
        // A dimension of one index: its stride is the extent of the dimensions inside it.
        self.strides[dim] =
            if dim < dimensions { self.strides[dim + 1].saturating_mul(self.sizes[dim + 1]) } else { 1 };
        self.dim += 1;
        true
    }

    /// Rows and columns of a tensor that may be WholeMemory: one or two dimensions, rows without
    /// gaps, no negative number.
    ///
    /// # Errors
    /// [`crate::error::Error::Input`], with the condition that does not hold.
    pub fn rows(&self) -> Result<MatrixDescription> {
        self.element_type()?;
        require(matches!(self.dim, 1 | 2), "a tensor of WholeMemory has one or two dimensions")?;
        let matrix = self.to_matrix();
        require(matrix.is_some(), "the elements of a row must lie side by side")?;
        let matrix = matrix.unwrap_or(ArrayDescription { size: 0, storage_offset: 0, dtype: 0 }.to_matrix());
        require(
            matrix.sizes.iter().all(|size| *size >= 0) && matrix.storage_offset >= 0,
            "a size is negative",
        )?;
        let in_row = matrix.storage_offset % matrix.stride.max(1);
        let inside = in_row.checked_add(matrix.sizes[1]).is_some_and(|end| end <= matrix.stride);
        require(inside || matrix.sizes[0] <= 1, "a row is longer than the distance to the next one")?;
        Ok(matrix)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a shape that becomes another one on its way through the forms it is given in.
    use super::*;

    fn matrix() -> MatrixDescription {
        MatrixDescription { sizes: [7, 5], stride: 8, storage_offset: 3, dtype: 1 }
    }

    #[test]
    fn forms_turn_into_each_other() {
        let array = ArrayDescription { size: 9, storage_offset: 2, dtype: 6 };
        assert_eq!(TensorDescription::from(array).to_array(), Some(array));
        assert_eq!(TensorDescription::from(matrix()).to_matrix(), Some(matrix()));
        assert_eq!(TensorDescription::from(matrix()).to_array(), None);
        assert_eq!(TensorDescription::from(array).to_matrix(), Some(array.to_matrix()));
    }

    #[test]
    fn gaps_are_counted() {
        assert_eq!((matrix().elements(), matrix().bytes()), (56, 224));
        assert_eq!(TensorDescription::from(matrix()).bytes(), 224);
        assert_eq!(TensorDescription { dtype: 1, ..TensorDescription::default() }.bytes(), 4);
    }

    #[test]
    fn a_dimension_that_is_put_in_can_be_taken_out() {
        for dim in 0..=2 {
            let mut tensor = TensorDescription::from(matrix());
            assert!(tensor.unsqueeze(dim) && tensor.dim == 3 && tensor.sizes[dim as usize] == 1);
            assert!(tensor.squeeze(dim));
            assert_eq!((tensor.sizes[..2].to_vec(), tensor.strides[..2].to_vec()), (vec![7, 5], vec![8, 1]));
        }
        let mut tensor = TensorDescription::from(matrix());
        assert!(!tensor.squeeze(0) && !tensor.squeeze(2) && !tensor.squeeze(-1) && !tensor.unsqueeze(3));
    }

    #[test]
    fn nonsense_is_refused_and_breaks_nothing() {
        for (dim, dtype) in [(9, 1), (-1, 1), (2, 0), (3, 1), (0, 1)] {
            let tensor = TensorDescription { dim, dtype, ..TensorDescription::from(matrix()) };
            assert!(tensor.rows().is_err(), "{dim} {dtype}");
        }
        let mut short = TensorDescription::from(matrix());
        short.strides[0] = 4;
        assert!(short.rows().is_err());
        let mut negative = TensorDescription::from(matrix());
        negative.sizes[0] = -1;
        assert!(negative.rows().is_err());
    }
}
