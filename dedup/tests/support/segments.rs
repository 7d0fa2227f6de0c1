//! Segments with copies, in place of paused memory.
#![allow(dead_code, reason = "each test file uses its part")]

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use wm_dedup::chunk::{CopyName, Fingerprint};

/// Bytes of each copy.
pub(crate) const BYTES: u64 = 8192;

pub(crate) fn copy_name(number: u64) -> CopyName {
    CopyName { fingerprint: Fingerprint(number.into()), bytes: BYTES }
}

/// A file without a name, of so many bytes, which may be written and shrink.
pub(crate) fn unsealed(bytes: u64) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("segment", flags).expect("a memfd");
    rustix::fs::ftruncate(&file, bytes).expect("there is room");
    file
}

/// The same, and it can do neither.
pub(crate) fn sealed(bytes: u64) -> OwnedFd {
    seal(unsealed(bytes))
}

fn seal(file: OwnedFd) -> OwnedFd {
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::WRITE).expect("sealed");
    file
}

/// A segment with copies of these numbers, each of which says its number.
pub(crate) fn segment(numbers: &[u64]) -> (OwnedFd, Vec<(CopyName, u64)>) {
    let file = unsealed(BYTES * numbers.len() as u64);
    let copies: Vec<_> = numbers.iter().copied().map(copy_name).zip((0..).step_by(BYTES as usize)).collect();
    for (number, (_, offset)) in numbers.iter().zip(&copies) {
        rustix::io::pwrite(&file, &number.to_le_bytes(), *offset).expect("written");
    }
    (seal(file), copies)
}

/// The number that a copy says.
pub(crate) fn said_at(segment: impl AsFd, offset: u64) -> u64 {
    let mut number = [0; 8];
    rustix::io::pread(segment, &mut number, offset).expect("read");
    u64::from_le_bytes(number)
}
