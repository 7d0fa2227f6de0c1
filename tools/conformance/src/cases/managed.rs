//! Calls for managed memory, on managed memory and on other memory. The driver's memory and mapped
//! memory give the same answers, so none of these calls needs interception: the cases check that
//! this stays so.

use wm_abi::*;

use crate::case::{Case, Verdict, short};
use crate::driver::Driver;
use crate::fixture::{Memory, Primary, Stream, alloc_async, synchronize};
use crate::{cu, must};

const BYTES: usize = 2 << 20;
/// `CU_MEM_ADVISE_SET_READ_MOSTLY` and `CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY`.
const READ_MOSTLY: u32 = 1;
const HERE: CUmemLocation = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };

/// Every call, by name.
fn answers(d: &'static Driver, address: CUdeviceptr, stream: CUstream) -> Vec<(&'static str, CUresult)> {
    let (mut one, mut other) = (0_u32, 0_u32);
    let mut places = [(&raw mut one).cast(), (&raw mut other).cast()];
    let (mut sizes, mut attributes) = ([4, 4], [READ_MOSTLY, READ_MOSTLY]);
    vec![
        ("cuMemAdvise", cu!(d, cuMemAdvise(address, BYTES, READ_MOSTLY, 0))),
        ("cuMemAdvise_v2", cu!(d, cuMemAdvise_v2(address, BYTES, READ_MOSTLY, HERE))),
        ("cuMemPrefetchAsync", cu!(d, cuMemPrefetchAsync(address, BYTES, 0, stream))),
        ("cuMemPrefetchAsync_v2", cu!(d, cuMemPrefetchAsync_v2(address, BYTES, HERE, 0, stream))),
        (
            "cuMemRangeGetAttribute",
            cu!(d, cuMemRangeGetAttribute((&raw mut one).cast(), 4, READ_MOSTLY, address, BYTES)),
        ),
        (
            "cuMemRangeGetAttributes",
            cu!(
                d,
                cuMemRangeGetAttributes(
                    places.as_mut_ptr(),
                    sizes.as_mut_ptr(),
                    attributes.as_mut_ptr(),
                    2,
                    address,
                    BYTES
                )
            ),
        ),
        // CU_MEM_ATTACH_SINGLE: only memory that the CPU can access too can be attached to one
        // stream.
        ("cuStreamAttachMemAsync", cu!(d, cuStreamAttachMemAsync(stream, address, 0, 4))),
    ]
}

pub(super) fn calls_on_other_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let plain = Memory::new(d, BYTES)?;
    let ordered = alloc_async(d, BYTES, stream.raw)?;
    synchronize(d, stream.raw)?;
    for (family, address) in [("cuMemAlloc memory", plain.address), ("pool memory", ordered)] {
        for (call, code) in answers(d, address, stream.raw) {
            case.observe_machine(format!("{call} of {family}"), short(code));
            case.expect(code != CUresult::SUCCESS, format!("{call} took {family} for managed"));
        }
    }
    case.expect_ok("free of pool memory", cu!(d, cuMemFreeAsync(ordered, stream.raw)));
    case.expect_ok("the context lives on", cu!(d, cuCtxSynchronize()));
    Ok(())
}

pub(super) fn calls_on_managed_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let mut address = 0;
    must!(d, cuMemAllocManaged(&mut address, BYTES, CU_MEM_ATTACH_GLOBAL));
    for (call, code) in answers(d, address, stream.raw) {
        case.observe_machine(call, short(code));
    }
    case.expect_ok("the stream ends well", cu!(d, cuStreamSynchronize(stream.raw)));
    case.expect_ok("free", cu!(d, cuMemFree_v2(address)));
    Ok(())
}

/// Prefetches and discards in batches.
pub(super) fn batches(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (stream, memory) = (Stream::non_blocking(d)?, Memory::new(d, BYTES)?);
    let (mut addresses, mut sizes, mut places, mut indices) = ([memory.address], [BYTES], [HERE], [0_usize]);
    let (a, s) = (addresses.as_mut_ptr(), sizes.as_mut_ptr());
    let (p, i) = (places.as_mut_ptr(), indices.as_mut_ptr());
    let code = cu!(d, cuMemPrefetchBatchAsync(a, s, 1, p, i, 1, 0, stream.raw));
    if code == CUresult::NOT_SUPPORTED {
        return Err(crate::case::Halt::Skipped("needs cuMemPrefetchBatchAsync".into()));
    }
    case.observe_machine("prefetch", short(code));
    let code = cu!(d, cuMemDiscardBatchAsync(a, s, 1, 0, stream.raw));
    case.observe_machine("discard", short(code));
    let code = cu!(d, cuMemDiscardAndPrefetchBatchAsync(a, s, 1, p, i, 1, 0, stream.raw));
    case.observe_machine("discard and prefetch", short(code));
    case.expect_ok("the context lives on", cu!(d, cuCtxSynchronize()));
    Ok(())
}
