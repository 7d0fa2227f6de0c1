//! The subject of a verdict: one pointer among the parameters of one function. Its key is the same
//! in every process and version.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

/// The first bytes that are hashed. Another version of the key has others.
const VERSION: &[u8] = b"wmshim function 1\0";

/// A function of a code image. The hash is no secret: a process that forges a key gets verdicts
/// that a fault or a private copy refutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionKey(pub u128);

impl FunctionKey {
    /// Of the image whose bytes have this hash, and the function's name in it.
    pub fn of(image_hash: u128, name: &str) -> Self {
        let mut hasher = SipHasher24::new();
        hasher.write(VERSION);
        hasher.write(&image_hash.to_le_bytes());
        hasher.write(name.as_bytes());
        Self(hasher.finish128().as_u128())
    }

    /// Of a function whose code is unknown, in this process alone: a handle, and the number of the
    /// unload of code after which the driver gave it out. No hash of code is that small.
    pub fn of_handle(unloads: u64, handle: usize) -> Self {
        Self(u128::from(unloads) << 64 | handle as u128)
    }

    /// Does the key name code, so that other processes have the same key?
    pub fn has_code(self) -> bool {
        self.0 >> 96 != 0
    }
}

/// A pointer among a function's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParameterKey {
    /// The function that has the parameter.
    pub function: FunctionKey,
    /// Bytes from the start of the parameter buffer to the pointer, which may lie inside a
    /// structure.
    pub offset: u32,
}

/// Does a kernel only read through a parameter?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ParameterVerdict {
    /// Its code was not judged: it may write.
    #[default]
    Unknown,
    /// Its code only reads through the parameter.
    Reader,
    /// Its code may write, or a byte changed while it was launched. The verdict is final.
    Writer,
}

#[cfg(test)]
mod tests {
    //! Hazard: a key that another version computes in another way finds no verdict, or another
    //! function's.
    use super::*;

    #[test]
    fn a_key_is_what_it_was() {
        assert_eq!(FunctionKey::of(0, ""), FunctionKey(179076228709124912123160056451332431626));
        assert_eq!(FunctionKey::of(7, "gemm"), FunctionKey(302183491099571608426844132206481367810));
    }

    #[test]
    fn a_handle_is_no_code_and_is_new_after_an_unload() {
        let key = FunctionKey::of_handle(1, usize::MAX);
        assert!(!key.has_code() && FunctionKey::of(7, "gemm").has_code());
        assert_ne!(key, FunctionKey::of_handle(2, usize::MAX));
    }

    #[test]
    fn image_and_name_both_count() {
        let keys = [FunctionKey::of(7, "gemm"), FunctionKey::of(8, "gemm"), FunctionKey::of(7, "gemm2")];
        assert!(keys[0] != keys[1] && keys[0] != keys[2] && keys[1] != keys[2]);
    }
}
