//! Hazard (wrong result): a byte of a copy from or to one kind of memory does not arrive, or
//! memory that can use several links uses one.

use std::ffi::c_void;

use super::support::{BYTES, MIB, Program, alone, bytes, cu, relayed};

/// Sends the program's pattern from `host` to `device` and back to `to`. Returns the number of
/// relayed copies.
fn through(p: &Program, what: &str, host: u64, device: u64, count: usize) -> u64 {
    let before = relayed();
    cu!(cuMemsetD8Async(device, 0, count, p.stream));
    cu!(cuMemcpyHtoDAsync_v2(device, host as *const c_void, count, p.stream));
    cu!(cuMemcpyDtoHAsync_v2(p.to as *mut c_void, device, count, p.stream));
    cu!(cuStreamSynchronize(p.stream));
    assert!(bytes(p.to)[..count] == bytes(p.from)[..count], "{what}");
    bytes(p.to).fill(0);
    relayed() - before
}

#[test]
fn host_memory_of_every_kind() {
    alone("memory::host_memory_of_every_kind", "0,1", &[], || {
        let p = &Program::warm();
        p.fill(7);
        assert_eq!(through(p, "allocated pinned", p.from, p.device, BYTES), 2);
        // At odd addresses of both ends.
        p.fill(11);
        bytes(p.from).copy_within(1..BYTES, 0);
        let mut pageable = vec![0; BYTES + 1];
        pageable[1..].copy_from_slice(bytes(p.from));
        let (odd, count) = (pageable[1..].as_ptr() as u64, BYTES - 4097);
        let before = relayed();
        through(p, "pageable, odd", odd, p.device + 4097, count);
        assert!(relayed() - before >= 1, "the way out is pinned");
        cu!(cuMemHostRegister_v2(pageable.as_mut_ptr().cast(), BYTES + 1, 0));
        assert_eq!(through(p, "registered", odd, p.device + 4097, count), 2);
        cu!(cuMemHostUnregister(pageable.as_mut_ptr().cast()));
        // The driver copies pages that are registered in part.
        let half = BYTES / 2 / 4096 * 4096;
        cu!(cuMemHostRegister_v2(pageable.as_mut_ptr().cast(), half, 0));
        through(p, "registered in part", odd, p.device, count);
        cu!(cuMemHostUnregister(pageable.as_mut_ptr().cast()));
    });
}

#[test]
fn device_memory_of_every_kind() {
    alone("memory::device_memory_of_every_kind", "0,1", &[], || {
        let p = &Program::warm();
        p.fill(13);
        let mut pooled = 0;
        cu!(cuMemAllocAsync(&mut pooled, BYTES, p.stream));
        assert_eq!(through(p, "in stream order", p.from, pooled, BYTES), 2);
        cu!(cuMemFreeAsync(pooled, p.stream));
        let (mut managed, mut pitched, mut pitch) = (0, 0, 0);
        cu!(cuMemAllocManaged(&mut managed, BYTES, 1));
        assert_eq!(through(p, "managed", p.from, managed, BYTES), 0);
        cu!(cuMemAllocPitch_v2(&mut pitched, &mut pitch, 4096, BYTES / 4096, 16));
        assert_eq!(through(p, "pitched", p.from, pitched, BYTES), 2);
        // Many blocks are freed and a large one is stitched from their pieces.
        let mut pieces = [0; 6];
        pieces.iter_mut().for_each(|piece| cu!(cuMemAlloc_v2(piece, 2 * MIB)));
        pieces.iter().step_by(2).for_each(|piece| cu!(cuMemFree_v2(*piece)));
        let mut stitched = 0;
        cu!(cuMemAlloc_v2(&mut stitched, BYTES));
        assert_eq!(through(p, "stitched", p.from, stitched, BYTES), 2);
    });
}

/// A relay is another device: a copy of its own must not touch two tiers in one call, which crashes
/// the driver. Within one tier it may.
#[test]
fn blocks_that_overflowed_to_the_host() {
    let small = [("SIMCUDA_MEMORY", "96MiB"), ("WMSHIM_HEADROOM", "32MiB"), ("WMSHIM_DEVICE_LIMIT", "20MiB")];
    alone("memory::blocks_that_overflowed_to_the_host", "0,1", &small, || {
        let p = &Program::warm();
        p.fill(17);
        let mut spills = 0;
        cu!(cuMemAlloc_v2(&mut spills, BYTES));
        assert_eq!(through(p, "part device, part host", p.from, spills, BYTES), 0);
        let last = spills + (BYTES - 4 * MIB) as u64;
        assert_eq!(through(p, "the device's part", p.from, spills + 3, 3 * MIB), 2);
        assert_eq!(through(p, "the host's part", p.from, last + 3, 3 * MIB), 2);
    });
}
