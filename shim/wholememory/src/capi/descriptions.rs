//! Functions of `tensor_description.h` and `global_reference.h`: values in, values out.

use std::ffi::{c_int, c_void};

use super::exports::exports;
use super::names::ElementCode;
use crate::vocabulary::codes::ElementType;
use crate::vocabulary::description::{ArrayDescription, MatrixDescription, TensorDescription, element_bytes};

/// `wholememory_gref_t`: how a kernel of the caller's finds a byte.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct GlobalReference {
    /// The bytes themselves where `stride` is 0, else an array of each rank's address.
    pub pointer: *mut c_void,
    /// Bytes before each rank's part, and of all; in memory of the device.
    pub rank_memory_offsets: *mut usize,
    /// How many ranks there are.
    pub world_size: c_int,
    /// Bytes of each rank's part but the last one's.
    pub stride: usize,
    /// All parts but the last are as long.
    pub same_chunk: bool,
}

const _: () = assert!(size_of::<GlobalReference>() == 40);

/// Writes a value made from another one; false where there is a null.
///
/// # Safety
/// Both are null, or of values.
unsafe fn convert<A: Copy, B>(from: *const A, to: *mut B, make: impl FnOnce(A) -> Option<B>) -> bool {
    if from.is_null() || to.is_null() {
        return false;
    }
    // SAFETY: the caller's word.
    unsafe { make(from.read()).map(|value| to.write(value)).is_some() }
}

/// A number made from a value; 0 for null.
///
/// # Safety
/// It is null, or of a value.
unsafe fn number<A: Copy>(from: *const A, make: impl FnOnce(A) -> i64) -> i64 {
    // SAFETY: the caller's word.
    if from.is_null() { 0 } else { make(unsafe { from.read() }) }
}

exports! {
    // tensor_description.h: Types and shapes.
    // tensor_description.h: Types and shapes.
    // tensor_description.h: Types and shapes.
    /// Returns the bytes of an element.
    ///
    /// * On failure: 0, for a number that is no type.
    fn wholememory_dtype_get_element_size(dtype: ElementCode) -> usize {
        element_bytes(dtype)
    }

    /// Returns whether a type is a floating-point number.
    ///
    /// * On failure: false, for a number that is no type.
    fn wholememory_dtype_is_floating_number(dtype: ElementCode) -> bool {
        ElementType::of(dtype).is_ok_and(ElementType::is_float)
    }

    /// Returns whether a type is an integer.
    ///
    /// * On failure: false, for a number that is no type.
    fn wholememory_dtype_is_integer_number(dtype: ElementCode) -> bool {
        ElementType::of(dtype).is_ok_and(|kind| !kind.is_float())
    }

    /// Returns the description of an array: `size` elements, of which the first is `storage_offset`
    /// elements behind the memory's beginning.
    ///
    /// * On failure: it does not fail, and checks nothing.
    fn wholememory_create_array_desc(
        size: i64, storage_offset: i64, dtype: ElementCode,
    ) -> ArrayDescription {
        ArrayDescription { size, storage_offset, dtype }
    }

    /// Returns the description of a matrix: `sizes` are the numbers of rows and columns, `stride`
    /// the elements from a row to the next one.
    ///
    /// * On failure: it does not fail, and checks nothing; sizes at null are 0.
    fn wholememory_create_matrix_desc(
        sizes: *mut i64, stride: i64, storage_offset: i64, dtype: ElementCode,
    ) -> MatrixDescription {
        // SAFETY: null, or two numbers.
        let sizes = if sizes.is_null() { [0; 2] } else { unsafe { sizes.cast::<[i64; 2]>().read() } };
        MatrixDescription { sizes, stride, storage_offset, dtype }
    }

    /// Writes a tensor without dimensions and type; all sizes and strides are 1.
    ///
    /// * On failure: null is left alone.
    fn wholememory_initialize_tensor_desc(tensor: *mut TensorDescription) {
        if !tensor.is_null() {
            // SAFETY: not null; the caller's word for the rest.
            unsafe { tensor.write(TensorDescription::default()) };
        }
    }

    /// Writes an array as a matrix of one column.
    ///
    /// * On failure: null is left alone.
    fn wholememory_copy_array_desc_to_matrix(
        to: *mut MatrixDescription, from: *mut ArrayDescription,
    ) {
        // SAFETY: the caller's word; null is left alone.
        unsafe { convert(from, to, |array| Some(array.to_matrix())) };
    }

    /// Writes an array as a tensor of one dimension.
    ///
    /// * On failure: null is left alone.
    fn wholememory_copy_array_desc_to_tensor(
        to: *mut TensorDescription, from: *mut ArrayDescription,
    ) {
        // SAFETY: the caller's word; null is left alone.
        unsafe { convert(from, to, |array| Some(array.into())) };
    }

    /// Writes a matrix as a tensor of two dimensions.
    ///
    /// * On failure: null is left alone.
    fn wholememory_copy_matrix_desc_to_tensor(
        to: *mut TensorDescription, from: *mut MatrixDescription,
    ) {
        // SAFETY: the caller's word; null is left alone.
        unsafe { convert(from, to, |matrix| Some(matrix.into())) };
    }

    /// Writes a tensor as an array, if it has at most one dimension and no gaps.
    ///
    /// * On failure: false, and nothing is written.
    fn wholememory_convert_tensor_desc_to_array(
        to: *mut ArrayDescription, from: *mut TensorDescription,
    ) -> bool {
        // SAFETY: the caller's word; null is left alone.
        unsafe { convert(from, to, |tensor| tensor.to_array()) }
    }

    /// Writes a tensor as a matrix, if it has at most two dimensions and no gaps in a row.
    ///
    /// * On failure: false, and nothing is written.
    fn wholememory_convert_tensor_desc_to_matrix(
        to: *mut MatrixDescription, from: *mut TensorDescription,
    ) -> bool {
        // SAFETY: the caller's word; null is left alone.
        unsafe { convert(from, to, |tensor| tensor.to_matrix()) }
    }

    /// Returns the number of elements.
    ///
    /// * On failure: 0, for null.
    fn wholememory_get_memory_element_count_from_array(array: *mut ArrayDescription) -> i64 {
        // SAFETY: the caller's word.
        unsafe { number(array, |array| array.size) }
    }

    /// Returns the bytes of the elements.
    ///
    /// * On failure: 0, for null or no type.
    fn wholememory_get_memory_size_from_array(array: *mut ArrayDescription) -> i64 {
        // SAFETY: the caller's word.
        unsafe { number(array, |array| array.bytes()) }
    }

    /// Returns the number of elements, with the gaps between rows: rows times stride.
    ///
    /// * On failure: 0, for null.
    fn wholememory_get_memory_element_count_from_matrix(matrix: *mut MatrixDescription) -> i64 {
        // SAFETY: the caller's word.
        unsafe { number(matrix, |matrix| matrix.elements()) }
    }

    /// Returns the bytes of these elements.
    ///
    /// * On failure: 0, for null or no type.
    fn wholememory_get_memory_size_from_matrix(matrix: *mut MatrixDescription) -> i64 {
        // SAFETY: the caller's word.
        unsafe { number(matrix, |matrix| matrix.bytes()) }
    }

    /// Returns the number of elements, with gaps: the first size times the first stride, and 1
    /// without dimensions.
    ///
    /// * On failure: 0, for null or a number of dimensions that there cannot be.
    fn wholememory_get_memory_element_count_from_tensor(tensor: *mut TensorDescription) -> i64 {
        // SAFETY: the caller's word.
        unsafe { number(tensor, |tensor| tensor.elements()) }
    }

    /// Returns the bytes of these elements.
    ///
    /// * On failure: 0, as above or for no type.
    fn wholememory_get_memory_size_from_tensor(tensor: *mut TensorDescription) -> i64 {
        // SAFETY: the caller's word.
        unsafe { number(tensor, |tensor| tensor.bytes()) }
    }

    /// Removes dimension `dim`, whose size is 1.
    ///
    /// * On failure: false, if the tensor has no such dimension, or its size is not 1.
    fn wholememory_squeeze_tensor(tensor: *mut TensorDescription, dim: c_int) -> bool {
        // SAFETY: not null; the caller's word for the rest.
        !tensor.is_null() && unsafe { (*tensor).squeeze(dim) }
    }

    /// Puts a dimension of size 1 before dimension `dim`, or behind the last one.
    ///
    /// * On failure: false, if there is no such place, or the tensor has 8 dimensions.
    fn wholememory_unsqueeze_tensor(tensor: *mut TensorDescription, dim: c_int) -> bool {
        // SAFETY: not null; the caller's word for the rest.
        !tensor.is_null() && unsafe { (*tensor).unsqueeze(dim) }
    }

    // global_reference.h: References for kernels.
    // global_reference.h: References for kernels.
    // global_reference.h: References for kernels.
    /// Returns a reference to memory at one address, for kernels that take a `wholememory_gref_t`.
    ///
    /// * On failure: it does not fail.
    fn wholememory_create_continuous_global_reference(pointer: *mut c_void) -> GlobalReference {
        let none = std::ptr::null_mut();
        GlobalReference { pointer, rank_memory_offsets: none, world_size: 1, stride: 0, same_chunk: true }
    }
}
