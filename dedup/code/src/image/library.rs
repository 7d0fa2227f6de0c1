//! The fat binaries in a program or library of the host. Most lie in a section of their own, and
//! some beside other data, so that the whole file is searched for their first bytes.

use memchr::memmem;

use super::container;

/// The fat binaries in a file, each up to the end that it states or the end of the file.
pub fn embedded(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let rest = file.get(from..)?;
        let found = &rest[memmem::find(rest, &container::FIRST_BYTES)?..];
        let image = &found[..container::length(found).unwrap_or(found.len()).min(found.len())];
        from = file.len() - found.len() + image.len().max(1);
        Some(image)
    })
}
