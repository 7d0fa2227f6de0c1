//! Functions of `wholegraph_op.h` that draw random numbers on the host. They are the numbers that
//! sampling draws on the GPU, so that a caller can repeat a sample.

use super::call::answer;
use super::exports::exports;
use super::names::{ErrorCode, TensorHandle};
use super::registry::TENSORS;
use crate::error::{Error, Result, require};
use crate::tensor::{Place, Tensor};
use crate::vocabulary::codes::{ElementType, Location};
use wm_kernels::random::Pcg;

/// Address and number of elements of an array in memory of the host, of one of some types.
fn array(tensor: &Tensor, types: &[ElementType]) -> Result<(u64, usize, ElementType)> {
    let description = tensor.description();
    let element = description.element_type()?;
    require(types.contains(&element), &format!("elements of type {element:?} are not drawn here"))?;
    let array = description.to_array().filter(|_| description.dim == 1);
    let array =
        array.ok_or_else(|| Error::Input("random numbers go into one dimension without gaps".to_owned()))?;
    if let Place::Memory(memory) = tensor.place() {
        require(
            memory.request().location == Location::Host,
            "random numbers are drawn into memory of the host",
        )?;
    }
    require(array.storage_offset >= 0 && array.size >= 0, "a shape that no tensor has")?;
    Ok((tensor.address()?, array.size as usize, element))
}

/// Writes as many drawn values as an array has.
///
/// # Safety
/// The address has this number of elements on the host, and no other code uses them.
unsafe fn fill<T>(address: u64, count: usize, mut draw: impl FnMut() -> T) {
    for at in 0..count {
        // SAFETY: the caller's word.
        unsafe { (address as *mut T).add(at).write_unaligned(draw()) };
    }
}

exports! {
    // wholegraph_op.h: Sampling.
    // wholegraph_op.h: Sampling.
    // wholegraph_op.h: Sampling.
    /// Writes integers that are not negative into `output`, an array of `INT` or `INT64` in memory
    /// of the host. They are the numbers that sampling draws on the GPU for this seed and
    /// subsequence.
    ///
    /// * Errors: `INVALID_INPUT` for another type, gaps, or memory of a GPU.
    fn generate_random_positive_int_cpu(
        random_seed: i64, subsequence: i64, output: TensorHandle,
    ) -> ErrorCode {
        answer("generate_random_positive_int_cpu", || {
            let tensor = TENSORS.get(output)?;
            let (address, count, element) = array(&tensor, &[ElementType::Int, ElementType::Int64])?;
            let mut generator = Pcg::new(random_seed.cast_unsigned(), subsequence.cast_unsigned());
            // SAFETY: the caller's word that there is memory where the tensor says.
            unsafe {
                match element {
                    ElementType::Int => fill(address, count, || generator.positive_i32()),
                    _ => fill(address, count, || generator.positive_i64()),
                }
            }
            Ok(())
        })
    }

    /// Writes keys of weighted sampling for edges of weight 1 into `output`, an array of `FLOAT` in
    /// memory of the host: logarithms to base 2 of uniform numbers.
    ///
    /// * Errors: `INVALID_INPUT` for another type, gaps, or memory of a GPU.
    fn generate_exponential_distribution_negative_float_cpu(
        random_seed: i64, subsequence: i64, output: TensorHandle,
    ) -> ErrorCode {
        answer("generate_exponential_distribution_negative_float_cpu", || {
            let tensor = TENSORS.get(output)?;
            let (address, count, _) = array(&tensor, &[ElementType::Float])?;
            let mut generator = Pcg::new(random_seed.cast_unsigned(), subsequence.cast_unsigned());
            // SAFETY: as above.
            unsafe { fill(address, count, || generator.log2_of_uniform()) };
            Ok(())
        })
    }
}
