//! Reads the dynamic loader's cache (`/etc/ld.so.cache`) for one library's paths.
//!
//! `ldconfig` writes the file: after an optional old part, a header with the magic string, a count,
//! and entries of 24 bytes whose offsets point into a string table. Everything is bounds-checked: a
//! malformed cache yields no path.

use std::path::PathBuf;

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER: usize = 48;
const ENTRY: usize = 24;

/// Absolute paths that the loader's cache has for a library's name, in its order; empty without a
/// readable cache.
pub(crate) fn lookup(name: &str) -> Vec<PathBuf> {
    std::fs::read("/etc/ld.so.cache").map(|cache| parse(&cache, name)).unwrap_or_default()
}

fn parse(cache: &[u8], name: &str) -> Vec<PathBuf> {
    let Some(start) = cache.windows(MAGIC.len()).position(|window| window == MAGIC) else {
        return Vec::new();
    };
    let cache = &cache[start..];
    let count = word(cache, MAGIC.len()).unwrap_or(0) as usize;
    (0..count.min(cache.len() / ENTRY))
        .filter_map(|entry| path(cache, HEADER + entry * ENTRY, name))
        .collect()
}

/// The path of one entry, if it is for `name` and for this machine's word size.
fn path(cache: &[u8], entry: usize, name: &str) -> Option<PathBuf> {
    let (key, value) = (word(cache, entry + 4)?, word(cache, entry + 8)?);
    (string(cache, key)? == name.as_bytes() && is_native(word(cache, entry)?)).then(|| {
        PathBuf::from(String::from_utf8_lossy(string(cache, value).unwrap_or_default()).into_owned())
    })
}

/// The second byte of an entry's flags names the machine: 3 is x86-64, 10 is 64-bit Arm.
fn is_native(flags: u32) -> bool {
    let machine = if cfg!(target_arch = "x86_64") { 3 } else { 10 };
    (flags >> 8) & 0xff == machine
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn string(bytes: &[u8], at: u32) -> Option<&[u8]> {
    let rest = bytes.get(at as usize..)?;
    rest.split(|byte| *byte == 0).next()
}

#[cfg(test)]
mod tests {
    //! Hazard: the cache belongs to the system; a truncated or foreign one must not bring the host
    //! program down.
    use super::*;

    fn cache() -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(1u32.to_le_bytes());
        bytes.resize(HEADER, 0);
        let strings = (HEADER + ENTRY) as u32;
        bytes.extend(0x0303u32.to_le_bytes());
        bytes.extend(strings.to_le_bytes());
        bytes.extend((strings + 8).to_le_bytes());
        bytes.resize(HEADER + ENTRY, 0);
        bytes.extend(b"libx.so\0/lib/libx.so\0");
        bytes
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn finds_a_library_by_name() {
        assert_eq!(parse(&cache(), "libx.so"), [PathBuf::from("/lib/libx.so")]);
        assert!(parse(&cache(), "liby.so").is_empty());
    }

    #[test]
    fn every_truncation_is_survived() {
        let whole = cache();
        for length in 0..whole.len() {
            parse(&whole[..length], "libx.so");
        }
    }
}
