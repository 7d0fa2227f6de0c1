//! Batches of copies.
//!
//! Every copy of a batch is checked before any of them starts, so that a bad one has no effect.

use std::ffi::{c_uint, c_void};

use wm_abi::{CUdeviceptr, CUmemLocation, CUmemcpyAttributes, CUresult, CUstream};

use crate::copy::{self, Said, Shape, Side};
use crate::entry::{Call, Outcome, get_all, put_optional, require};

/// No single copy of the batch is at fault.
const ALL: usize = usize::MAX;

/// A batch of flat copies.
pub(crate) struct Flat {
    to: Vec<CUdeviceptr>,
    from: Vec<CUdeviceptr>,
    sizes: Vec<usize>,
}

impl Flat {
    /// Reads and checks the arguments of `cuMemcpyBatchAsync`.
    ///
    /// # Safety
    /// The arrays are null or valid for reads of their counts.
    ///
    /// # Errors
    /// `INVALID_VALUE` for an empty batch, or attributes that do not cover it.
    pub(crate) unsafe fn read(
        to: *const CUdeviceptr,
        from: *const CUdeviceptr,
        sizes: *const usize,
        count: usize,
        attributes: *const CUmemcpyAttributes,
        indices: *const usize,
        attribute_count: usize,
    ) -> Outcome<Self> {
        let covered = count > 0 && (1..=count).contains(&attribute_count);
        require(covered, CUresult::INVALID_VALUE)?;
        // SAFETY: by contract.
        let (attributes, indices) =
            unsafe { (get_all(attributes, attribute_count)?, get_all(indices, attribute_count)?) };
        attributes.iter().try_for_each(|attribute| check_order(attribute.srcAccessOrder))?;
        let ascending = indices.windows(2).all(|pair| pair[0] < pair[1]);
        let inside = indices[0] == 0 && indices[attribute_count - 1] < count;
        require(ascending && inside, CUresult::INVALID_VALUE)?;
        // SAFETY: by contract.
        unsafe {
            Ok(Self { to: get_all(to, count)?, from: get_all(from, count)?, sizes: get_all(sizes, count)? })
        }
    }

    /// The copies.
    ///
    /// # Errors
    /// `INVALID_VALUE` for an empty copy.
    pub(crate) fn shapes(&self) -> Outcome<Vec<Shape>> {
        require(self.sizes.iter().all(|size| *size > 0), CUresult::INVALID_VALUE)?;
        let side = |address: &CUdeviceptr| Side::flat(*address, Said::Anything);
        let pairs = self.to.iter().zip(&self.from).zip(&self.sizes);
        Ok(pairs.map(|((to, from), bytes)| Shape::flat(side(to), side(from), *bytes)).collect())
    }
}

/// `CUmemcpySrcAccessOrder`: stream, during the call, any.
///
/// # Errors
/// `INVALID_VALUE` for others.
pub(crate) fn check_order(order: c_uint) -> Outcome {
    require((1..=3).contains(&order), CUresult::INVALID_VALUE)
}

/// A `CUmemcpy3DOperand` whose kind is a pointer.
#[repr(C)]
#[derive(Clone, Copy)]
struct Operand {
    kind: c_uint,
    address: CUdeviceptr,
    row_length: usize,
    layer_height: usize,
    hint: CUmemLocation,
}

/// `CUDA_MEMCPY3D_BATCH_OP`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    from: Operand,
    to: Operand,
    width: usize,
    height: usize,
    depth: usize,
    order: c_uint,
    flags: c_uint,
}

const _: () = assert!(size_of::<Operand>() == 40 && size_of::<Operation>() == 112);

impl Operand {
    fn side(&self, operation: &Operation) -> Outcome<Side> {
        // CU_MEMCPY_OPERAND_TYPE_POINTER.
        require(self.kind == 1, CUresult::NOT_SUPPORTED)?;
        let pitch = if self.row_length == 0 { operation.width } else { self.row_length };
        let rows = if self.layer_height == 0 { operation.height } else { self.layer_height };
        require(pitch >= operation.width && rows >= operation.height, CUresult::INVALID_VALUE)?;
        let layer = pitch.checked_mul(rows).ok_or(CUresult::INVALID_VALUE)?;
        Ok(Side { pitch, layer, ..Side::flat(self.address, Said::Anything) })
    }
}

impl Operation {
    /// The copy.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` for arrays, `INVALID_VALUE` for rows that overlap.
    pub(crate) fn shape(&self) -> Outcome<Shape> {
        check_order(self.order)?;
        let (to, from) = (self.to.side(self)?, self.from.side(self)?);
        Ok(Shape { to, from, width: self.width, height: self.height, depth: self.depth })
    }
}

/// The copies of a batch of three-dimensional ones.
///
/// # Safety
/// `operations` is null or valid for reads of `count` operations.
///
/// # Errors
/// As [`Operation::shape`].
pub(crate) unsafe fn shapes_3d(operations: *const c_void, count: usize, flags: u64) -> Outcome<Vec<Shape>> {
    require(count > 0 && flags == 0, CUresult::INVALID_VALUE)?;
    // SAFETY: by contract.
    let operations = unsafe { get_all(operations.cast::<Operation>(), count)? };
    operations.iter().map(Operation::shape).collect()
}

/// Starts all copies in a stream, or none.
///
/// # Safety
/// `fail_index` is null or valid for a write.
///
/// # Errors
/// That of the first bad copy, whose index is written.
pub(crate) unsafe fn start(
    call: &Call,
    stream: CUstream,
    shapes: Outcome<Vec<Shape>>,
    fail_index: *mut usize,
) -> Outcome {
    let fail = |index: usize| {
        // SAFETY: by contract.
        unsafe { put_optional(fail_index, index) };
    };
    let shapes = shapes.inspect_err(|_| fail(ALL))?;
    let context = call.context().inspect_err(|_| fail(ALL))?;
    // A batch needs a stream of its own: the null stream is refused.
    require(!stream.is_null() && stream != CUstream::LEGACY, CUresult::INVALID_VALUE)
        .inspect_err(|_| fail(ALL))?;
    let stream = call.stream(stream).inspect_err(|_| fail(ALL))?;
    for (index, shape) in shapes.iter().enumerate() {
        copy::work(&context, *shape).inspect_err(|_| fail(index))?;
    }
    shapes
        .iter()
        .try_for_each(|shape| copy::start(&context, &stream, *shape, false))
        .inspect_err(|_| fail(ALL))
}
