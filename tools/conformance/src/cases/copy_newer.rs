//! Copies by the calls of CUDA 12.8 and later: with attributes, and in batches. A program that
//! moves its caches by these must find the same bytes as by the older calls.

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{Memory, Primary, Stream, pattern, synchronize};
use crate::{cu, must, supported};

const BYTES: usize = 96 << 10;
/// `CU_MEMCPY_SRC_ACCESS_ORDER_STREAM`.
const IN_ORDER: u32 = 1;

fn attributes() -> CUmemcpyAttributes {
    CUmemcpyAttributes { srcAccessOrder: IN_ORDER, ..CUmemcpyAttributes::default() }
}

/// Two memories with different bytes, and a stream.
fn pair(driver: &'static Driver) -> Verdict<(Memory, Memory, Stream)> {
    let (from, to) = (Memory::holding(driver, &pattern(BYTES, 1))?, Memory::holding(driver, &[0; BYTES])?);
    Ok((from, to, Stream::non_blocking(driver)?))
}

pub(super) fn with_attributes(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (from, to, stream) = pair(d)?;
    let mut how = attributes();
    supported!(d, cuMemcpyWithAttributesAsync(to.address, from.address, BYTES, &mut how, stream.raw));
    synchronize(d, stream.raw)?;
    case.expect_that("bytes", to.read()? == pattern(BYTES, 1));
    Ok(())
}

pub(super) fn second_batch(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (from, to, stream) = pair(d)?;
    let half = BYTES / 2;
    let mut targets = [to.address + half as u64, to.address];
    let (mut sources, mut sizes) = ([from.address, from.address + half as u64], [half; 2]);
    let (mut how, mut first) = ([attributes()], [0_usize]);
    let (t, f, s) = (targets.as_mut_ptr(), sources.as_mut_ptr(), sizes.as_mut_ptr());
    let (a, i) = (how.as_mut_ptr(), first.as_mut_ptr());
    case.expect_ok("submit", cu!(d, cuMemcpyBatchAsync_v2(t, f, s, 2, a, i, 1, stream.raw)));
    synchronize(d, stream.raw)?;
    let (bytes, wanted) = (to.read()?, pattern(BYTES, 1));
    case.expect_that("bytes", bytes[half..] == wanted[..half] && bytes[..half] == wanted[half..]);
    Ok(())
}

/// `CUDA_MEMCPY3D_BATCH_OP` from address to address: 16 rows of 100 bytes in each of 3 layers.
fn operation(from: CUdeviceptr, to: CUdeviceptr) -> [u64; 14] {
    // An operand: its kind (1: an address), the address, bytes of a row, rows of a layer, a hint of
    // the location.
    let (from, to) = ([1, from, 128, 32, 0], [1, to, 128, 32, 0]);
    let mut words = [0; 14];
    words[..5].copy_from_slice(&from);
    words[5..10].copy_from_slice(&to);
    words[10..].copy_from_slice(&[100, 16, 3, IN_ORDER.into()]);
    words
}

fn is_brick(bytes: &[u8]) -> bool {
    let wanted = pattern(BYTES, 1);
    let inside = |at: usize| at % 128 < 100 && at / 128 % 32 < 16 && at < 3 * 128 * 32;
    bytes.iter().enumerate().all(|(at, byte)| *byte == if inside(at) { wanted[at] } else { 0 })
}

pub(super) fn volumes_in_a_batch(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (from, to, stream) = pair(d)?;
    let (mut list, mut failed) = (operation(from.address, to.address), usize::MAX);
    let code = cu!(d, cuMemcpy3DBatchAsync(1, list.as_mut_ptr().cast(), &mut failed, 0, stream.raw));
    case.expect_ok("submit", code);
    synchronize(d, stream.raw)?;
    case.expect_that("bytes", is_brick(&to.read()?));
    Ok(())
}

pub(super) fn volumes_in_a_second_batch(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (from, to, stream) = pair(d)?;
    let mut list = operation(from.address, to.address);
    let code = cu!(d, cuMemcpy3DBatchAsync_v2(1, list.as_mut_ptr().cast(), 0, stream.raw));
    case.expect_ok("submit", code);
    synchronize(d, stream.raw)?;
    case.expect_that("bytes", is_brick(&to.read()?));
    Ok(())
}

pub(super) fn volume_with_attributes(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (from, to, stream) = pair(d)?;
    let mut one = operation(from.address, to.address);
    supported!(d, cuMemcpy3DWithAttributesAsync(one.as_mut_ptr().cast(), 0, stream.raw));
    synchronize(d, stream.raw)?;
    case.expect_that("bytes", is_brick(&to.read()?));
    must!(d, cuCtxSynchronize());
    Ok(())
}
