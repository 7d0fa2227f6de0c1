//! Functions of `tensor_description.h` and `global_reference.h`: values in, values out.

use std::ffi::c_int;

use super::exports::exports;
use crate::vocabulary::codes::ElementType;
use crate::vocabulary::description::{ArrayDescription, MatrixDescription, TensorDescription, element_bytes};

/// `wholememory_gref_t`: how a kernel of the caller's finds a byte.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct GlobalReference {
    /// The bytes themselves where `stride` is 0, else an array of each rank's address.
    pub pointer: *mut std::ffi::c_void,
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
    /// Bytes of an element; 0 for a number that is no type.
    fn wholememory_dtype_get_element_size(dtype: u32) -> usize {
        element_bytes(dtype)
    }

    /// Is a type a floating-point number?
    fn wholememory_dtype_is_floating_number(dtype: u32) -> bool {
        ElementType::of(dtype).is_ok_and(ElementType::is_float)
    }

    /// Is a type an integer?
    fn wholememory_dtype_is_integer_number(dtype: u32) -> bool {
        ElementType::of(dtype).is_ok_and(|kind| !kind.is_float())
    }

    /// An array.
    fn wholememory_create_array_desc(size: i64, storage_offset: i64, dtype: u32) -> ArrayDescription {
        ArrayDescription { size, storage_offset, dtype }
    }

    /// A matrix. `sizes` are two numbers.
    fn wholememory_create_matrix_desc(sizes: *const [i64; 2], stride: i64, storage_offset: i64, dtype: u32) -> MatrixDescription {
        // SAFETY: null, or two numbers.
        let sizes = if sizes.is_null() { [0; 2] } else { unsafe { sizes.read() } };
        MatrixDescription { sizes, stride, storage_offset, dtype }
    }

    /// A tensor without dimensions.
    fn wholememory_initialize_tensor_desc(tensor: *mut TensorDescription) {
        if !tensor.is_null() {
            // SAFETY: not null; the caller's word for the rest.
            unsafe { tensor.write(TensorDescription::default()) };
        }
    }

    /// An array as a matrix of one column.
    fn wholememory_copy_array_desc_to_matrix(to: *mut MatrixDescription, from: *const ArrayDescription) {
        // SAFETY: the caller's word; null is left alone.
        unsafe { convert(from, to, |array| Some(array.to_matrix())) };
    }

    /// An array as a tensor.
    fn wholememory_copy_array_desc_to_tensor(to: *mut TensorDescription, from: *const ArrayDescription) {
        // SAFETY: the caller's word; null is left alone.
        unsafe { convert(from, to, |array| Some(array.into())) };
    }

    /// A matrix as a tensor.
    fn wholememory_copy_matrix_desc_to_tensor(to: *mut TensorDescription, from: *const MatrixDescription) {
        // SAFETY: the caller's word; null is left alone.
        unsafe { convert(from, to, |matrix| Some(matrix.into())) };
    }

    /// A tensor as an array, if it is one.
    fn wholememory_convert_tensor_desc_to_array(to: *mut ArrayDescription, from: *const TensorDescription) -> bool {
        // SAFETY: the caller's word; null is left alone.
        unsafe { convert(from, to, |tensor| tensor.to_array()) }
    }

    /// A tensor as a matrix, if it is one.
    fn wholememory_convert_tensor_desc_to_matrix(to: *mut MatrixDescription, from: *const TensorDescription) -> bool {
        // SAFETY: the caller's word; null is left alone.
        unsafe { convert(from, to, |tensor| tensor.to_matrix()) }
    }

    /// Elements of an array.
    fn wholememory_get_memory_element_count_from_array(array: *const ArrayDescription) -> i64 {
        // SAFETY: the caller's word.
        unsafe { number(array, |array| array.size) }
    }

    /// Bytes of an array.
    fn wholememory_get_memory_size_from_array(array: *const ArrayDescription) -> i64 {
        // SAFETY: the caller's word.
        unsafe { number(array, |array| array.bytes()) }
    }

    /// Elements of a matrix, gaps between rows counted.
    fn wholememory_get_memory_element_count_from_matrix(matrix: *const MatrixDescription) -> i64 {
        // SAFETY: the caller's word.
        unsafe { number(matrix, |matrix| matrix.elements()) }
    }

    /// Bytes of a matrix, gaps between rows counted.
    fn wholememory_get_memory_size_from_matrix(matrix: *const MatrixDescription) -> i64 {
        // SAFETY: the caller's word.
        unsafe { number(matrix, |matrix| matrix.bytes()) }
    }

    /// Elements of a tensor, gaps counted.
    fn wholememory_get_memory_element_count_from_tensor(tensor: *const TensorDescription) -> i64 {
        // SAFETY: the caller's word.
        unsafe { number(tensor, |tensor| tensor.elements()) }
    }

    /// Bytes of a tensor, gaps counted.
    fn wholememory_get_memory_size_from_tensor(tensor: *const TensorDescription) -> i64 {
        // SAFETY: the caller's word.
        unsafe { number(tensor, |tensor| tensor.bytes()) }
    }

    /// Removes a dimension of size 1.
    fn wholememory_squeeze_tensor(tensor: *mut TensorDescription, dim: c_int) -> bool {
        // SAFETY: not null; the caller's word for the rest.
        !tensor.is_null() && unsafe { (*tensor).squeeze(dim) }
    }

    /// Puts in a dimension of size 1.
    fn wholememory_unsqueeze_tensor(tensor: *mut TensorDescription, dim: c_int) -> bool {
        // SAFETY: not null; the caller's word for the rest.
        !tensor.is_null() && unsafe { (*tensor).unsqueeze(dim) }
    }

    /// A reference to memory at one address.
    fn wholememory_create_continuous_global_reference(pointer: *mut std::ffi::c_void) -> GlobalReference {
        let none = std::ptr::null_mut();
        GlobalReference { pointer, rank_memory_offsets: none, world_size: 1, stride: 0, same_chunk: true }
    }
}
