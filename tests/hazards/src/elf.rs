//! Reads the library's file: exported names, and the code at their addresses.

use std::collections::BTreeMap;

use object::{Object, ObjectSegment, ObjectSymbol};

/// Exported functions and data of an ELF file, with their addresses.
///
/// # Panics
/// If it is no ELF file.
pub fn exports(data: &[u8]) -> BTreeMap<String, u64> {
    let file = object::File::parse(data).expect("an ELF file");
    let defined = file.dynamic_symbols().filter(|symbol| symbol.is_definition() && symbol.is_global());
    defined.map(|symbol| (symbol.name().expect("a name").to_owned(), symbol.address())).collect()
}

/// The file's bytes that are loaded at an address.
///
/// # Panics
/// If no bytes are.
pub fn bytes_at(data: &[u8], address: u64, count: u64) -> Vec<u8> {
    let file = object::File::parse(data).expect("an ELF file");
    let found = file.segments().find_map(|segment| segment.data_range(address, count).ok().flatten());
    found.unwrap_or_else(|| panic!("nothing is loaded at {address:#x}")).to_vec()
}
