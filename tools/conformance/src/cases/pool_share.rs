//! Pools that a program makes: all their attributes, the names of CUDA 13 for choosing one, and
//! their export to another process. The driver serves such pools; only the default pool is served
//! from mappings.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use wm_abi::*;

use super::pool::{create, default_pool, properties};
use crate::case::{Case, Halt, Verdict, short};
use crate::driver::Driver;
use crate::fixture::process::{Channel, Partner};
use crate::fixture::{Memory, Primary, Stream, alloc_async, pattern, read, synchronize, write};
use crate::{cu, must, supported};

const BYTES: usize = 1 << 20;
const DESCRIPTOR: u32 = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

pub(super) fn every_attribute(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    for (name, pool) in [("default", default_pool(d)?), ("own", create(d, 0)?)] {
        for attribute in 1..=CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED + 1 {
            let mut value = 0_u64;
            let code = cu!(d, cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()));
            case.observe_machine(format!("{name}: {attribute}"), format!("{} {value}", short(code)));
        }
        for attribute in [CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT] {
            let mut zero = 0_u64;
            let code = cu!(d, cuMemPoolSetAttribute(pool, attribute, (&raw mut zero).cast()));
            case.expect_code(&format!("{name}: set {attribute}"), code, CUresult::INVALID_VALUE);
        }
        let mut one = 1_u64;
        let attribute = CU_MEMPOOL_ATTR_USED_MEM_HIGH;
        let code = cu!(d, cuMemPoolSetAttribute(pool, attribute, (&raw mut one).cast()));
        case.expect_code(&format!("{name}: a mark other than zero"), code, CUresult::INVALID_VALUE);
    }
    Ok(())
}

fn pool_of(driver: &'static Driver, address: CUdeviceptr) -> Verdict<CUmemoryPool> {
    let mut pool = CUmemoryPool::NULL;
    let place = (&raw mut pool).cast();
    must!(driver, cuPointerGetAttribute(place, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    Ok(pool)
}

/// CUDA 13 names a device's pool by location. The chosen pool is that of `cuMemAllocAsync`, by any
/// name.
pub(super) fn chosen_by_location(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let mut place = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    let (mut default, mut current, own) = (CUmemoryPool::NULL, CUmemoryPool::NULL, create(d, 0)?);
    let kind = CU_MEM_ALLOCATION_TYPE_PINNED;
    case.expect_ok("ask for the default", cu!(d, cuMemGetDefaultMemPool(&mut default, &mut place, kind)));
    case.expect_that("it is the device's", default == default_pool(d)?);
    case.expect_ok("choose", cu!(d, cuMemSetMemPool(&mut place, kind, own)));
    case.expect_ok("ask", cu!(d, cuMemGetMemPool(&mut current, &mut place, kind)));
    case.expect_that("the chosen one comes back", current == own);
    must!(d, cuDeviceGetMemPool(&mut current, 0));
    case.expect_that("by the older name too", current == own);
    let address = alloc_async(d, BYTES, stream.raw)?;
    case.expect_that("memory comes from the chosen pool", pool_of(d, address)? == own);
    must!(d, cuMemSetMemPool(&mut place, kind, default));
    let other = alloc_async(d, BYTES, stream.raw)?;
    case.expect_that("and from the default pool again", pool_of(d, other)? == default);
    must!(d, cuMemFreeAsync(address, stream.raw));
    must!(d, cuMemFreeAsync(other, stream.raw));
    synchronize(d, stream.raw)?;
    case.expect_ok("destroy", cu!(d, cuMemPoolDestroy(own)));
    Ok(())
}

fn export(driver: &'static Driver, pool: CUmemoryPool) -> Verdict<OwnedFd> {
    let mut descriptor = -1_i32;
    let out = (&raw mut descriptor).cast();
    must!(driver, cuMemPoolExportToShareableHandle(out, pool, DESCRIPTOR, 0));
    // SAFETY: the driver made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

pub(super) fn exported(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let (mut pool, wish) = (CUmemoryPool::NULL, CUmemPoolProps { handleTypes: DESCRIPTOR, ..properties(0) });
    supported!(d, cuMemPoolCreate(&mut pool, &wish));
    let mut address = 0;
    must!(d, cuMemAllocFromPoolAsync(&mut address, BYTES, pool, stream.raw));
    synchronize(d, stream.raw)?;
    write(d, address, &pattern(BYTES, 1))?;
    let exported = export(d, pool)?;
    let mut share = CUmemPoolPtrExportData { reserved: [0; 64] };
    case.expect_ok("export a pointer", cu!(d, cuMemPoolExportPointer(&mut share, address)));
    let mut partner = Partner::start("pool")?;
    partner.channel.send_descriptor(exported.as_raw_fd())?;
    partner.channel.send(&share.reserved)?;
    case.expect_ok("import the pool", partner.channel.receive_code()?);
    case.expect_ok("import the pointer", partner.channel.receive_code()?);
    case.expect_eq("the partner reads our bytes", partner.channel.receive_number()?, 1);
    case.expect_ok("the partner's free", partner.channel.receive_code()?);
    partner.finish()?;
    case.expect_that("we read the partner's", read(d, address, BYTES)? == pattern(BYTES, 2));
    case.expect_ok("our free", cu!(d, cuMemFreeAsync(address, stream.raw)));
    synchronize(d, stream.raw)?;
    case.expect_ok("destroy", cu!(d, cuMemPoolDestroy(pool)));
    Ok(())
}

pub(super) fn import(driver: &'static Driver, channel: &mut Channel) -> Verdict {
    let primary = Primary::new(driver)?;
    let descriptor = channel.receive_descriptor()?;
    let mut share = CUmemPoolPtrExportData { reserved: channel.receive()? };
    let (mut pool, os_handle) = (CUmemoryPool::NULL, descriptor.as_raw_fd() as usize as *mut _);
    channel
        .send_code(cu!(driver, cuMemPoolImportFromShareableHandle(&mut pool, os_handle, DESCRIPTOR, 0)))?;
    let location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: primary.device };
    let access = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    must!(driver, cuMemPoolSetAccess(pool, &access, 1));
    let mut address = 0;
    channel.send_code(cu!(driver, cuMemPoolImportPointer(&mut address, pool, &mut share)))?;
    let same = read(driver, address, BYTES)? == pattern(BYTES, 1);
    write(driver, address, &pattern(BYTES, 2))?;
    channel.send_number(same.into())?;
    channel.send_code(cu!(driver, cuMemFreeAsync(address, CUstream::NULL)))?;
    synchronize(driver, CUstream::NULL)
}

/// Memory that cannot be exported: the default pool, and memory in no exportable pool.
pub(super) fn not_exportable(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let mut descriptor = -1_i32;
    let out = (&raw mut descriptor).cast();
    let code = cu!(d, cuMemPoolExportToShareableHandle(out, default_pool(d)?, DESCRIPTOR, 0));
    if code == CUresult::NOT_SUPPORTED {
        return Err(Halt::Skipped("needs cuMemPoolExportToShareableHandle".into()));
    }
    case.code("the default pool", code);
    case.expect(code != CUresult::SUCCESS, "the default pool was exported");
    let (ordered, plain) = (alloc_async(d, BYTES, stream.raw)?, Memory::new(d, BYTES)?);
    synchronize(d, stream.raw)?;
    for (name, address) in [("pool", ordered), ("plain", plain.address), ("no", 8)] {
        let mut share = CUmemPoolPtrExportData { reserved: [0; 64] };
        let code = cu!(d, cuMemPoolExportPointer(&mut share, address));
        case.code(format!("pointer to {name} memory"), code);
        case.expect(code != CUresult::SUCCESS, format!("a pointer to {name} memory was exported"));
    }
    case.expect_ok("free", cu!(d, cuMemFreeAsync(ordered, stream.raw)));
    Ok(())
}
