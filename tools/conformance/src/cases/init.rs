//! Initialisation, versions, devices and their attributes, and the driver's answers before
//! initialisation.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr::{null, null_mut};

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::cu;
use crate::fixture::init;
use crate::must;

pub(super) fn calls_before_init(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (mut number, mut address, mut context, mut bytes) = (0, 0, CUcontext::NULL, 0);
    let refused = CUresult::NOT_INITIALIZED;
    case.expect_code("cuDeviceGetCount", cu!(d, cuDeviceGetCount(&mut number)), refused);
    case.expect_code("cuDeviceGet", cu!(d, cuDeviceGet(&mut number, 0)), refused);
    case.expect_code("cuCtxGetCurrent", cu!(d, cuCtxGetCurrent(&mut context)), refused);
    case.expect_code("cuDevicePrimaryCtxRetain", cu!(d, cuDevicePrimaryCtxRetain(&mut context, 0)), refused);
    case.expect_code("cuMemAlloc", cu!(d, cuMemAlloc_v2(&mut address, 4096)), refused);
    case.expect_code("cuMemFree", cu!(d, cuMemFree_v2(0)), refused);
    case.expect_code("cuMemGetInfo", cu!(d, cuMemGetInfo_v2(&mut bytes, null_mut())), refused);
    case.expect_code("cuMemAllocAsync", cu!(d, cuMemAllocAsync(&mut address, 4096, CUstream::NULL)), refused);
    case.expect_code("cuStreamSynchronize", cu!(d, cuStreamSynchronize(CUstream::NULL)), refused);
    Ok(())
}

pub(super) fn works_before_init(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (mut version, mut name) = (0, null());
    case.expect_ok("cuDriverGetVersion", cu!(d, cuDriverGetVersion(&mut version)));
    case.expect_ok("cuGetErrorName", cu!(d, cuGetErrorName(CUresult::OUT_OF_MEMORY, &mut name)));
    let (code, address, status) = d.ask(c"cuMemAlloc", 12000, 0);
    case.expect_ok("cuGetProcAddress", code);
    case.expect_that("a function is found", !address.is_null() && status == 0);
    Ok(())
}

pub(super) fn init_arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    case.expect_code("flags 1", cu!(d, cuInit(1)), CUresult::INVALID_VALUE);
    case.expect_ok("flags 0", cu!(d, cuInit(0)));
    case.expect_ok("again", cu!(d, cuInit(0)));
    Ok(())
}

pub(super) fn version(case: &mut Case) -> Verdict {
    let d = case.driver;
    let mut version = 0;
    must!(d, cuDriverGetVersion(&mut version));
    case.observe_machine("version", version);
    case.expect(version >= 11040, format!("version {version} is older than the shim supports"));
    case.expect_code("null", cu!(d, cuDriverGetVersion(null_mut())), CUresult::INVALID_VALUE);
    Ok(())
}

pub(super) fn devices(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let (mut count, mut device) = (0, -1);
    must!(d, cuDeviceGetCount(&mut count));
    case.observe_machine("count", count);
    case.expect_that("there is a device", count >= 1);
    for ordinal in 0..count {
        must!(d, cuDeviceGet(&mut device, ordinal));
        case.expect(device == ordinal, format!("device {ordinal} has handle {device}"));
    }
    let wrong = CUresult::INVALID_DEVICE;
    case.expect_code("one past the last", cu!(d, cuDeviceGet(&mut device, count)), wrong);
    case.expect_code("negative", cu!(d, cuDeviceGet(&mut device, -1)), wrong);
    case.expect_code("null handle", cu!(d, cuDeviceGet(null_mut(), 0)), CUresult::INVALID_VALUE);
    case.expect_code("null count", cu!(d, cuDeviceGetCount(null_mut())), CUresult::INVALID_VALUE);
    Ok(())
}

pub(super) fn identities(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let mut count = 0;
    must!(d, cuDeviceGetCount(&mut count));
    let mut seen = BTreeSet::new();
    for device in 0..count {
        let (mut uuid, mut name, mut bus, mut found) = (CUuuid::default(), [0; 64], [0; 32], -1);
        must!(d, cuDeviceGetUuid_v2(&mut uuid, device));
        must!(d, cuDeviceGetName(name.as_mut_ptr(), 64, device));
        must!(d, cuDeviceGetPCIBusId(bus.as_mut_ptr(), 32, device));
        must!(d, cuDeviceGetByPCIBusId(&mut found, bus.as_ptr()));
        case.expect(found == device, format!("bus id of {device} leads to {found}"));
        case.expect(seen.insert(uuid.bytes), format!("device {device} has the UUID of another"));
        case.observe_machine("name", text(&name));
    }
    Ok(())
}

fn text(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|byte| byte.cast_unsigned()).collect();
    CStr::from_bytes_until_nul(&bytes)
        .map_or_else(|_| "unterminated".into(), |text| text.to_string_lossy().into())
}

/// Attributes that memory managers depend on, with the answers of every supported device.
const WANTED: &[(c_uint, &str, c_int)] = &[
    (CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "UNIFIED_ADDRESSING", 1),
    (CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", 1),
    (CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, "MEMORY_POOLS_SUPPORTED", 1),
    (CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "POSIX_FILE_DESCRIPTOR_SUPPORTED", 1),
    (CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, "CAN_MAP_HOST_MEMORY", 1),
    (CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, "HOST_REGISTER_SUPPORTED", 1),
    (CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED, "WIN32_HANDLE_SUPPORTED", 0),
    (CU_DEVICE_ATTRIBUTE_WARP_SIZE, "WARP_SIZE", 32),
    (CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, "CONCURRENT_KERNELS", 1),
    (CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, "STREAM_PRIORITIES_SUPPORTED", 1),
    (CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "HOST_NUMA_VMM_SUPPORTED", 1),
];

pub(super) fn attributes(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    for (attribute, name, wanted) in WANTED {
        let mut value = -1;
        must!(d, cuDeviceGetAttribute(&mut value, *attribute, 0));
        case.expect_eq(name, value, *wanted);
    }
    for attribute in 1..=CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED {
        let mut value = -1;
        let code = cu!(d, cuDeviceGetAttribute(&mut value, attribute, 0));
        case.observe_machine(format!("attribute {attribute}"), format!("{code} {value}"));
    }
    Ok(())
}

pub(super) fn attribute_arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let mut value = -1;
    let warp = CU_DEVICE_ATTRIBUTE_WARP_SIZE;
    let wrong = CUresult::INVALID_VALUE;
    case.expect_code("attribute 0", cu!(d, cuDeviceGetAttribute(&mut value, 0, 0)), wrong);
    case.expect_code("attribute 99999", cu!(d, cuDeviceGetAttribute(&mut value, 99_999, 0)), wrong);
    case.expect_code("null", cu!(d, cuDeviceGetAttribute(null_mut(), warp, 0)), wrong);
    let code = cu!(d, cuDeviceGetAttribute(&mut value, warp, 4096));
    case.expect_code("device 4096", code, CUresult::INVALID_DEVICE);
    Ok(())
}

pub(super) fn total_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = crate::fixture::Primary::new(d)?;
    let (mut total, mut free, mut of_context) = (0, 0, 0);
    must!(d, cuDeviceTotalMem_v2(&mut total, primary.device));
    must!(d, cuMemGetInfo_v2(&mut free, &mut of_context));
    case.observe_machine("total", total as u64);
    case.expect_that("cuMemGetInfo's total is cuDeviceTotalMem", total == of_context);
    case.expect_that("free is at most total", free <= total);
    case.expect_code("null", cu!(d, cuDeviceTotalMem_v2(null_mut(), 0)), CUresult::INVALID_VALUE);
    case.expect_code("device 4096", cu!(d, cuDeviceTotalMem_v2(&mut total, 4096)), CUresult::INVALID_DEVICE);
    Ok(())
}

pub(super) fn error_names(case: &mut Case) -> Verdict {
    let d = case.driver;
    let mut name = null();
    for code in
        [0, 1, 2, 3, 4, 100, 101, 200, 201, 209, 218, 400, 500, 600, 700, 704, 712, 719, 801, 900, 999]
    {
        let code = CUresult(code);
        must!(d, cuGetErrorName(code, &mut name));
        // SAFETY: the driver succeeded, so `name` is one of its constant strings.
        let said = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        case.expect(Some(&*said) == code.name(), format!("{} is called {said}", code.0));
        must!(d, cuGetErrorString(code, &mut name));
        case.expect(!name.is_null(), format!("{code} has no text"));
    }
    let unknown = CUresult(123_456);
    case.expect_code("unknown name", cu!(d, cuGetErrorName(unknown, &mut name)), CUresult::INVALID_VALUE);
    case.expect_that("unknown name is null", name.is_null());
    case.expect_code("unknown text", cu!(d, cuGetErrorString(unknown, &mut name)), CUresult::INVALID_VALUE);
    Ok(())
}
