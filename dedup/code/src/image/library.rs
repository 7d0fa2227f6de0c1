//! The fat binaries in a host program or library: an ELF file of the host with sections of them.

use object::LittleEndian as Le;
use object::elf::{EM_CUDA, FileHeader64};
use object::read::elf::{FileHeader, SectionHeader};

use super::ImageError;

/// The sections of fat binaries: linked at once, and linked as relocatable device code.
const NAMES: [&[u8]; 2] = [b".nv_fatbin", b"__nv_relfatbin"];

/// Is it an ELF file of a host, not one of a GPU?
pub fn is_library(file: &[u8]) -> bool {
    FileHeader64::<Le>::parse(file).is_ok_and(|header| header.e_machine(Le) != EM_CUDA)
}

/// The sections of fat binaries in a file of the host. Each is an image of many containers.
///
/// # Errors
/// The file is no 64-bit ELF file, or a table of it leads out of it.
pub fn sections(file: &[u8]) -> Result<Vec<&[u8]>, ImageError> {
    let header = FileHeader64::<Le>::parse(file).map_err(|_| ImageError::Elf)?;
    let sections = header.sections(Le, file).map_err(|_| ImageError::Elf)?;
    let is_ours = |section: &&object::elf::SectionHeader64<Le>| {
        sections.section_name(Le, section).is_ok_and(|name| NAMES.contains(&name))
    };
    sections
        .iter()
        .filter(is_ours)
        .map(|section| section.data(Le, file).map_err(|_| ImageError::Short))
        .collect()
}
