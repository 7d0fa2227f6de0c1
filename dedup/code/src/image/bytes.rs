//! Little-endian numbers at an offset of bytes that may be too few.

/// `N` bytes at an offset.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

pub(super) fn u16(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

pub(super) fn u32(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn u64(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// The same as a size; `None` also if it is no size of this machine.
pub(super) fn size(bytes: &[u8], at: usize) -> Option<usize> {
    u64(bytes, at)?.try_into().ok()
}
