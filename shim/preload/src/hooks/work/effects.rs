//! The bytes that a copy, a memset or a stream's own operation writes, as ranges of addresses.

use std::ops::Range;

use wm_abi::*;

use crate::hooks::copy::volume::{self, Description};
use crate::launches::Submission;
use crate::registry;
use crate::subsystems::PROCESS;

/// The bytes that a copy writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WriteEffect {
    Loaded(Range<u64>, u64),
    Written(Range<u64>),
    Copied(Range<u64>, u64),
}

impl WriteEffect {
    pub(super) fn tell(self, when: Submission) {
        match self {
            Self::Loaded(to, from) => PROCESS.sharing.loaded(to, from, when),
            Self::Written(to) => PROCESS.sharing.written(to, when),
            Self::Copied(to, from) => PROCESS.sharing.copied(to, from, when),
        }
    }
}

/// The driver takes no more operations at once, and refuses others before it reads one.
const MOST_WORDS: usize = 256;

/// What operations of a stream on single words write (`CUstreamBatchMemOpParams`); `None` for one
/// that is not known.
///
/// # Safety
/// Null, or an array of so many.
pub(super) unsafe fn written_words(operations: *const u8, count: usize) -> Option<Vec<Range<u64>>> {
    const BYTES: usize = 48;
    const ADDRESS: usize = 8;
    let mut words = Vec::new();
    let is_read = !operations.is_null() && count <= MOST_WORDS;
    for index in 0..if is_read { count } else { 0 } {
        // SAFETY: by contract.
        let operation = unsafe { operations.add(index * BYTES) };
        // SAFETY: the same.
        match unsafe { operation.cast::<u32>().read() } {
            CU_STREAM_MEM_OP_WRITE_VALUE_32 | CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
                // SAFETY: the same.
                let to = unsafe { operation.add(ADDRESS).cast::<u64>().read() };
                words.push(range(to, 8));
            }
            CU_STREAM_MEM_OP_WAIT_VALUE_32
            | CU_STREAM_MEM_OP_WAIT_VALUE_64
            | CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES
            | CU_STREAM_MEM_OP_BARRIER => {}
            _ => return None,
        }
    }
    Some(words)
}

/// A copy whose ends are told by addresses alone.
pub(super) fn unified(to: u64, from: u64, bytes: u64) -> WriteEffect {
    let range = range(to, bytes);
    let is_ours = |address: u64| registry::owner(address).is_some();
    match (is_ours(to), is_ours(from)) {
        (true, true) => WriteEffect::Copied(range, from),
        (true, false) if is_of_host(from) => WriteEffect::Loaded(range, from),
        _ => WriteEffect::Written(range),
    }
}

/// Is it memory that the driver knows nothing of, or pinned memory of the host?
fn is_of_host(address: u64) -> bool {
    use wm_driver::Api;
    use wm_driver::api::PointerAttribute;
    let kind = crate::process::driver().pointer_attribute(PointerAttribute::MEMORY_TYPE, address);
    kind.map_or(true, |kind| kind == CU_MEMORYTYPE_HOST)
}

pub(super) fn range(to: u64, bytes: u64) -> Range<u64> {
    to..to.saturating_add(bytes)
}

/// From the first byte of the first row to the last byte of the last one.
pub(super) fn rows(to: u64, pitch: u64, width: u64, height: u64) -> Range<u64> {
    let last = pitch.saturating_mul(height.saturating_sub(1));
    to..to.saturating_add(if height == 0 { 0 } else { last.saturating_add(width) })
}

/// The bytes that a copy of a description writes; `None` if there are none in device memory.
pub(super) fn described<D: Description>(copy: Option<&D>) -> Option<WriteEffect> {
    let copy = volume::filled(&copy?.general());
    let [target, _] = volume::ends(&copy);
    let size = volume::size(&copy);
    let end = target.filter(|_| !size.contains(&0))?;
    let reach = (0..3).fold(1_u64, |reach, axis| {
        reach.saturating_add((size[axis] - 1).saturating_mul(end.bytes.steps[axis]))
    });
    Some(WriteEffect::Written(range(end.address(), reach)))
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a call writes shared memory, and sharing was told of other bytes.
    use super::*;

    #[test]
    fn rows_reach_to_the_end_of_the_last_one() {
        assert_eq!(range(4096, 100), 4096..4196);
        assert_eq!(rows(4096, 512, 20, 3), 4096..4096 + 1024 + 20);
        assert_eq!(rows(4096, 512, 20, 0), 4096..4096);
    }

    #[test]
    fn every_byte_of_a_described_copy_lies_in_what_is_told() {
        for (width, height, pitch, x, y) in [(10, 3, 64, 5, 2), (64, 1, 0, 0, 0), (1, 7, 16, 15, 1)] {
            let copy = CUDA_MEMCPY2D {
                dstMemoryType: CU_MEMORYTYPE_DEVICE,
                dstDevice: 1 << 30,
                dstPitch: pitch,
                dstXInBytes: x,
                dstY: y,
                WidthInBytes: width,
                Height: height,
                // SAFETY: all-zero is a description.
                ..unsafe { std::mem::zeroed() }
            };
            let Some(WriteEffect::Written(range)) = described(Some(&copy)) else { panic!("one range") };
            let pitch = if pitch == 0 { x + width } else { pitch };
            for row in 0..height {
                let start = (1 << 30) + ((y + row) * pitch + x) as u64;
                assert!(range.start <= start && start + width as u64 <= range.end, "{range:?}");
            }
        }
    }

    #[test]
    fn words_that_streams_write_are_told_one_by_one() {
        let mut operations = [[0_u64; 6]; 3];
        operations[0][..2].copy_from_slice(&[CU_STREAM_MEM_OP_WRITE_VALUE_32.into(), 4096]);
        operations[1][..2].copy_from_slice(&[CU_STREAM_MEM_OP_WAIT_VALUE_64.into(), 64]);
        operations[2][..2].copy_from_slice(&[CU_STREAM_MEM_OP_WRITE_VALUE_64.into(), 512]);
        // SAFETY: an array of three.
        let words = || unsafe { written_words(operations.as_ptr().cast(), 3) };
        assert_eq!(words(), Some(vec![4096..4104, 512..520]));
        operations[1][0] = 99;
        // SAFETY: an array of three.
        let unknown = unsafe { written_words(operations.as_ptr().cast(), 3) };
        assert!(unknown.is_none(), "what is new is not known");
    }
}
