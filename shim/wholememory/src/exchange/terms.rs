//! What ranks must agree on before they meet: the number of ranks, and the version of their
//! messages.

use crate::error::{Error, Result};

/// The version of the messages. Ranks of different versions do not meet: the words of a greeting,
/// by which they learn that, are the same in all versions from 4 on.
pub const VERSION: u32 = 4;

/// The terms of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    size: u32,
    version: u32,
}

impl Terms {
    pub(super) fn new(size: usize) -> Self {
        Self { size: u32::try_from(size).unwrap_or(u32::MAX), version: VERSION }
    }

    /// Of a rank whose messages are of another version.
    pub(super) fn of_version(size: usize, version: u32) -> Self {
        Self { version, ..Self::new(size) }
    }

    pub(super) fn word(self) -> u64 {
        u64::from(self.version) << 32 | u64::from(self.size)
    }

    pub(super) fn of_word(word: u64) -> Self {
        Self { size: word as u32, version: (word >> 32) as u32 }
    }

    /// Compares the terms of the rank that listens with those of a rank that has come.
    pub(super) fn compare(self, rank: usize, other: Self) -> Result {
        if self.version != other.version {
            return Err(Error::Communication(format!(
                "one rank has version {} of the library's messages, rank {rank} has {}: let all ranks load the same \
                 library",
                self.version, other.version
            )));
        }
        if self.size != other.size {
            return Err(Error::Input(format!(
                "one rank says that there are {} ranks, rank {rank} says {}: pass the same size on all ranks",
                self.size, other.size
            )));
        }
        Ok(())
    }
}
