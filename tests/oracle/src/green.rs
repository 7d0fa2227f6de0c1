//! Green contexts: parts of a device's multiprocessors, with streams of their own.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;

use conformance::cu;
use conformance::driver::Driver;
use wm_abi::{CU_STREAM_NON_BLOCKING, CUcontext, CUresult, CUstream};

use crate::world::{Ready, ready};

/// A `CUdevResource`, larger than any driver's.
#[repr(C, align(16))]
struct Resource([u8; 4096]);

impl Resource {
    const NONE: Self = Self([0; 4096]);

    fn place(&mut self) -> *mut c_void {
        (&raw mut *self).cast()
    }
}

/// `CU_DEV_RESOURCE_TYPE_SM` and `CU_GREEN_CTX_DEFAULT_STREAM`.
const MULTIPROCESSORS: c_uint = 1;
const DEFAULT_STREAM: c_uint = 1;
/// A group of so many multiprocessors can be cut off on every GPU that has green contexts.
const GROUP: c_uint = 16;

/// Two green contexts of the first device that share no multiprocessor.
pub(crate) fn pair(driver: &'static Driver) -> Ready<[*mut c_void; 2]> {
    let (mut all, mut part, mut rest) = (Resource::NONE, Resource::NONE, Resource::NONE);
    ready!(driver, cuDeviceGetDevResource(0, all.place(), MULTIPROCESSORS))?;
    let (mut count, input) = (1_u32, all.place().cast_const());
    ready!(driver, cuDevSmResourceSplitByCount(part.place(), &mut count, input, rest.place(), 0, GROUP))?;
    Ok([create(driver, &mut part)?, create(driver, &mut rest)?])
}

fn create(driver: &'static Driver, resource: &mut Resource) -> Ready<*mut c_void> {
    let (mut description, mut green): (*mut c_void, *mut c_void) = (null_mut(), null_mut());
    ready!(driver, cuDevResourceGenerateDesc((&raw mut description).cast(), resource.place(), 1))?;
    ready!(driver, cuGreenCtxCreate((&raw mut green).cast(), description, 0, DEFAULT_STREAM))?;
    Ok(green)
}

/// Makes one current, and tells it as a context.
pub(crate) fn enter(driver: &'static Driver, green: *mut c_void) -> Ready<CUcontext> {
    let mut context = CUcontext::NULL;
    ready!(driver, cuCtxFromGreenCtx(&mut context, green))?;
    ready!(driver, cuCtxSetCurrent(context))?;
    Ok(context)
}

/// A stream of one. Such streams are non-blocking.
pub(crate) fn stream(driver: &'static Driver, green: *mut c_void, stream: &mut CUstream) -> CUresult {
    cu!(driver, cuGreenCtxStreamCreate(stream, green, CU_STREAM_NON_BLOCKING, 0))
}

pub(crate) fn destroy(driver: &'static Driver, green: *mut c_void) -> CUresult {
    cu!(driver, cuGreenCtxDestroy(green))
}
