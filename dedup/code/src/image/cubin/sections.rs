//! The sections of a cubin, by name and by the section that their relocations change.

use std::collections::HashMap;

use object::LittleEndian as Le;
use object::elf::{FileHeader64, SHT_REL, SHT_RELA, SectionHeader64};
use object::read::elf::{SectionHeader, SectionTable};

/// The tables of sections.
#[derive(Debug)]
pub(super) struct Sections<'a> {
    file: &'a [u8],
    all: Vec<&'a SectionHeader64<Le>>,
    by_name: HashMap<&'a [u8], usize>,
    /// Sections of relocations by the section that they change.
    relocating: HashMap<usize, Vec<usize>>,
}

impl<'a> Sections<'a> {
    pub(super) fn of(file: &'a [u8], table: &SectionTable<'a, FileHeader64<Le>>) -> Self {
        let mut sections =
            Self { file, all: Vec::new(), by_name: HashMap::new(), relocating: HashMap::new() };
        for (index, header) in table.iter().enumerate() {
            sections.all.push(header);
            if let Ok(name) = table.section_name(Le, header) {
                sections.by_name.insert(name, index);
            }
            if [SHT_REL, SHT_RELA].contains(&header.sh_type(Le)) {
                sections.relocating.entry(header.sh_info(Le) as usize).or_default().push(index);
            }
        }
        sections
    }

    /// The bytes of a section. `None`: there is no such section, or it leads out of the file.
    pub(super) fn data(&self, index: usize) -> Option<&'a [u8]> {
        self.all.get(index)?.data(Le, self.file).ok()
    }

    /// The number of the section with this name.
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        self.by_name.get(name.as_bytes()).copied()
    }

    /// The bytes of the section with this name.
    pub(super) fn data_of(&self, name: &str) -> Option<&'a [u8]> {
        self.data(self.named(name)?)
    }

    /// The relocations of a section: have they addends, and the bytes of their table.
    pub(super) fn relocations(&self, of: usize) -> impl Iterator<Item = Option<(bool, &'a [u8])>> {
        self.relocating.get(&of).into_iter().flatten().map(|index| {
            let has_addends = self.all.get(*index)?.sh_type(Le) == SHT_RELA;
            Some((has_addends, self.data(*index)?))
        })
    }
}
