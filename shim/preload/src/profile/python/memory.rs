//! Reads of this process's own memory that cannot fault.
//!
//! The kernel copies, and says how much of it was there. So a pointer that leads nowhere gives no
//! value, where a load would end the program. Each copy is a system call, so it is made for a block
//! of memory, and blocks are kept while one stack is read.

use std::cell::RefCell;

use crate::process::own_memory;

/// Longest text that is read, in characters; more of it is left out.
const LONGEST: usize = 1024;

/// Reads at an address.
pub(super) trait ReadableMemory {
    /// Fills the whole buffer, or says that it cannot.
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()>;

    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Some(u64::from_ne_bytes(bytes))
    }

    fn half(&self, address: u64) -> Option<i32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Some(i32::from_ne_bytes(bytes))
    }

    fn byte(&self, address: u64) -> Option<u8> {
        let mut bytes = [0];
        self.read(address, &mut bytes)?;
        Some(bytes[0])
    }

    /// An object's address if it has this type.
    fn object(&self, address: u64, kind: u64) -> Option<u64> {
        (self.word(address.wrapping_add(8))? == kind).then_some(address)
    }

    /// The content of an object of bytes, at most so many.
    fn bytes(&self, object: u64, most: usize) -> Option<Vec<u8>> {
        let length =
            usize::try_from(self.word(object.wrapping_add(16))?).ok().filter(|length| *length <= most)?;
        let mut content = vec![0; length];
        self.read(object.wrapping_add(32), &mut content)?;
        Some(content)
    }

    /// The content of a text. `heads`: sizes of the head of one of ASCII, and of any other.
    fn text(&self, object: u64, heads: [u64; 2]) -> Option<String> {
        const COMPACT: u32 = 1 << 5;
        const ASCII: u32 = 1 << 6;
        let state = self.half(object.wrapping_add(32))? as u32;
        let length = usize::try_from(self.word(object.wrapping_add(16))?).ok()?.min(LONGEST);
        if state & COMPACT == 0 {
            return None;
        }
        let unit = match (state >> 2) & 7 {
            kind @ (1 | 2 | 4) => kind as usize,
            _ => return None,
        };
        let mut content = vec![0; length * unit];
        self.read(object.wrapping_add(heads[usize::from(state & ASCII == 0)]), &mut content)?;
        let characters = content.chunks_exact(unit).map(|character| {
            let mut code = [0; 4];
            code[..unit].copy_from_slice(character);
            char::from_u32(u32::from_le_bytes(code)).unwrap_or(char::REPLACEMENT_CHARACTER)
        });
        Some(characters.collect())
    }
}

/// Bytes of a block. A page of memory is a whole number of them, so a block is there or not.
const BLOCK: usize = 512;

/// Blocks that are kept.
const KEPT: usize = 32;

/// Addresses and contents, and the place of the next one.
type KeptBlocks = (Vec<(u64, [u8; BLOCK])>, usize);

/// The memory of this process, as it was when it was read first.
#[derive(Default)]
pub(super) struct KeptMemory {
    blocks: RefCell<KeptBlocks>,
}

impl ReadableMemory for KeptMemory {
    fn read(&self, address: u64, mut into: &mut [u8]) -> Option<()> {
        let mut at = address;
        while !into.is_empty() {
            let (start, offset) = (at - at % BLOCK as u64, (at % BLOCK as u64) as usize);
            let (part, rest) = into.split_at_mut(into.len().min(BLOCK - offset));
            self.copy(start, offset, part)?;
            at = at.checked_add(part.len() as u64)?;
            into = rest;
        }
        Some(())
    }
}

impl KeptMemory {
    /// From the block at an address.
    fn copy(&self, start: u64, offset: usize, into: &mut [u8]) -> Option<()> {
        let (blocks, next) = &mut *self.blocks.borrow_mut();
        let known = blocks.iter().position(|block| block.0 == start);
        let index = match known {
            Some(index) => index,
            None => {
                let mut content = [0; BLOCK];
                OwnMemory.read(start, &mut content)?;
                let index = *next;
                *next = (index + 1) % KEPT;
                match blocks.get_mut(index) {
                    Some(block) => *block = (start, content),
                    None => blocks.push((start, content)),
                }
                index
            }
        };
        into.copy_from_slice(blocks.get(index)?.1.get(offset..offset + into.len())?);
        Some(())
    }
}

/// The memory of this process as it is.
pub(super) struct OwnMemory;

impl ReadableMemory for OwnMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        own_memory::read(address, into).then_some(())
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (process crash): an address that leads nowhere.
    use super::*;

    #[test]
    fn what_is_not_there_gives_no_value() {
        assert!(own_memory::is_readable());
        for address in [0, 8, 0x1234_5678, u64::MAX - 3, 1 << 47] {
            assert_eq!(OwnMemory.word(address), None, "{address:x}");
            assert_eq!(OwnMemory.text(address.wrapping_sub(64) & (u64::MAX >> 1), [40, 56]), None);
        }
    }

    #[test]
    fn blocks_give_what_is_there() {
        let content: Vec<u8> = (0..100 * BLOCK).map(|index| (index * 7 + index / 256) as u8).collect();
        let (memory, start) = (KeptMemory::default(), content.as_ptr() as u64);
        for round in 0..3 {
            for at in (0..98 * BLOCK).step_by(331 + round) {
                let mut read = [0; BLOCK + 90];
                memory.read(start + at as u64, &mut read).expect("there");
                assert_eq!(read, content[at..at + read.len()]);
            }
        }
        assert_eq!(memory.blocks.borrow().0.len(), KEPT);
        for address in [8, 1 << 47, u64::MAX - 3] {
            assert_eq!(memory.word(address), None, "{address:x}");
        }
    }

    #[test]
    fn a_text_is_read_in_each_of_its_forms() {
        fn object(state: u32, head: usize, length: u64, content: &[u8]) -> Vec<u8> {
            let mut bytes = vec![0; head];
            bytes[16..24].copy_from_slice(&length.to_ne_bytes());
            bytes[32..36].copy_from_slice(&state.to_ne_bytes());
            bytes.extend_from_slice(content);
            bytes
        }
        let kind = |unit: u32| unit << 2 | 1 << 5;
        let wide: Vec<u8> = "né€".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let texts = [
            (object(kind(1) | 1 << 6, 40, 4, b"main"), "main"),
            (object(kind(1), 56, 2, b"\xe9t"), "ét"),
            (object(kind(2), 56, 3, &wide), "né€"),
            (object(kind(4), 56, 1, &0x1F600_u32.to_le_bytes()), "😀"),
        ];
        for (bytes, expected) in texts {
            assert_eq!(OwnMemory.text(bytes.as_ptr() as u64, [40, 56]).as_deref(), Some(expected));
        }
        let strange = object(kind(3), 56, 1, b"abcd");
        assert_eq!(OwnMemory.text(strange.as_ptr() as u64, [40, 56]), None);
    }
}
