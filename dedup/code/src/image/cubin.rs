//! A cubin: an ELF file with the machine code of one architecture.
//!
//! Each kernel is a symbol of a section `.text.NAME`. Its attributes are in `.nv.info.NAME`, its
//! constants in `.nv.constantBANK.NAME`, those of the module in `.nv.constantBANK`.

mod sections;

use std::ops::Range;

use object::LittleEndian as Le;
use object::elf::{EM_CUDA, FileHeader64, STT_FUNC, STT_OBJECT, Sym64};
use object::read::SymbolIndex;
use object::read::elf::{FileHeader, Sym, SymbolTable};

use super::attributes::{self, Attributes};
use super::bytes::{size, u32};
use super::error::ImageError;
use crate::kernel::{Constants, FunctionRange, KernelCode, Relocation, Target};
use sections::Sections;

/// In the field `st_other` of a symbol: a kernel, which the driver can launch.
const ENTRY: u8 = 0x10;

/// The banks with constants, but the parameters' own.
const BANKS: [u32; 4] = [1, 2, 3, 4];

/// An ELF file of a GPU with its tables read.
#[derive(Debug)]
pub struct Cubin<'a> {
    sm: u32,
    sections: Sections<'a>,
    symbols: SymbolTable<'a, FileHeader64<Le>>,
    /// The functions, each with the number of its section, ordered by section and place.
    functions: Vec<(usize, &'a Sym64<Le>)>,
    /// The constants of the module.
    constants: Vec<Constants<'a>>,
}

impl<'a> Cubin<'a> {
    /// Reads the tables of a file.
    ///
    /// # Errors
    /// The file is no ELF file of a GPU, or a table of it leads out of it.
    pub fn parse(file: &'a [u8]) -> Result<Self, ImageError> {
        let refused = |_| ImageError::Elf;
        let header = FileHeader64::<Le>::parse(file).map_err(refused)?;
        if header.e_machine(Le) != EM_CUDA {
            return Err(ImageError::Elf);
        }
        let table = header.sections(Le, file).map_err(refused)?;
        let symbols = table.symbols(Le, file, object::elf::SHT_SYMTAB).map_err(refused)?;
        let sections = Sections::of(file, &table);
        let constants = constants(&sections, "");
        Ok(Self { sm: architecture(header), sections, symbols, functions: functions(&symbols), constants })
    }

    /// The architecture: 80, 86, 89, 90, 100, 103, 120.
    pub fn sm(&self) -> u32 {
        self.sm
    }

    /// The kernels. One that the tables describe in a wrong way comes with its name only.
    pub fn kernels(&self) -> impl Iterator<Item = Result<KernelCode<'a>, &'a str>> {
        let entries = self.functions.iter().filter(|(_, symbol)| symbol.st_other().0 & ENTRY != 0);
        entries.filter_map(|(section, symbol)| {
            let name = self.name(symbol)?;
            Some(self.kernel(name, *section, symbol).ok_or(name))
        })
    }

    fn kernel(&self, name: &'a str, section: usize, symbol: &Sym64<Le>) -> Option<KernelCode<'a>> {
        let text = self.sections.data(section)?;
        let Attributes { parameters, indirect_branches } =
            match self.sections.data_of(&format!(".nv.info.{name}")) {
                Some(section) => attributes::read(section)?,
                None => Attributes::default(),
            };
        let mut constants = constants(&self.sections, &format!(".{name}"));
        constants.extend(&self.constants);
        Some(KernelCode {
            name,
            sm: self.sm,
            text,
            entry: range(symbol, text)?,
            functions: self.beside(section, symbol, text)?,
            parameters,
            relocations: self.relocations(section)?,
            addresses: self.addresses(name)?,
            indirect_branches,
            constants,
        })
    }

    /// The other functions of a section.
    fn beside(&self, section: usize, kernel: &Sym64<Le>, text: &[u8]) -> Option<Vec<FunctionRange<'a>>> {
        let first = self.functions.partition_point(|(of, _)| *of < section);
        let here = self.functions[first..].iter().take_while(|(of, _)| *of == section);
        let others = here.filter(|(_, symbol)| !std::ptr::eq(*symbol, kernel));
        let function = |(_, symbol): &(usize, &'a Sym64<Le>)| {
            let Range { start, end } = range(symbol, text)?;
            Some(FunctionRange { name: self.name(symbol)?, at: start, bytes: end - start })
        };
        others.map(function).collect()
    }

    fn relocations(&self, section: usize) -> Option<Vec<Relocation<'a>>> {
        let mut found = Vec::new();
        for table in self.sections.relocations(section) {
            let (has_addends, table) = table?;
            for entry in table.chunks_exact(if has_addends { 24 } else { 16 }) {
                found.push(self.relocation(entry)?);
            }
        }
        Some(found)
    }

    /// What the driver fills in in bank 4, of the kernel's own and of the module.
    fn addresses(&self, name: &str) -> Option<Vec<Relocation<'a>>> {
        let mut found = Vec::new();
        for section in [format!(".nv.constant4.{name}"), ".nv.constant4".to_owned()] {
            if let Some(section) = self.sections.named(&section) {
                found.extend(self.relocations(section)?);
            }
        }
        Some(found)
    }

    /// Place (64 bits), kind (32), symbol (32).
    fn relocation(&self, entry: &[u8]) -> Option<Relocation<'a>> {
        let (at, kind, symbol) = (size(entry, 0)?, u32(entry, 8)?, u32(entry, 12)?);
        let symbol = self.symbols.symbol(SymbolIndex(symbol as usize)).ok()?;
        let of = match symbol.st_type() {
            STT_FUNC => Target::Function,
            STT_OBJECT => Target::Variable,
            _ => Target::Other,
        };
        Some(Relocation { at, symbol: self.name(symbol)?, of, kind })
    }

    fn name(&self, symbol: &Sym64<Le>) -> Option<&'a str> {
        std::str::from_utf8(self.symbols.symbol_name(Le, symbol).ok()?).ok()
    }
}

/// Newer files (version 8 of the ABI) keep the architecture in the second byte of the flags, older
/// ones in the first.
fn architecture(header: &FileHeader64<Le>) -> u32 {
    let flags = header.e_flags(Le);
    let flags = u32::from_le_bytes(flags.0.to_le_bytes());
    if header.e_ident().abi_version >= 8 { flags >> 8 & 0xff } else { flags & 0xff }
}

fn functions<'a>(symbols: &SymbolTable<'a, FileHeader64<Le>>) -> Vec<(usize, &'a Sym64<Le>)> {
    let mut found = Vec::new();
    for (index, symbol) in symbols.enumerate().filter(|(_, symbol)| symbol.st_type() == STT_FUNC) {
        if let Ok(Some(section)) = symbols.symbol_section(Le, symbol, index) {
            found.push((section.0, symbol));
        }
    }
    found.sort_by_key(|(section, symbol)| (*section, symbol.st_value(Le)));
    found
}

/// The bytes of a function in its section.
fn range(symbol: &Sym64<Le>, text: &[u8]) -> Option<Range<usize>> {
    let start = usize::try_from(symbol.st_value(Le)).ok()?;
    let end = start.checked_add(usize::try_from(symbol.st_size(Le)).ok()?)?;
    (end <= text.len()).then_some(start..end)
}

fn constants<'a>(sections: &Sections<'a>, suffix: &str) -> Vec<Constants<'a>> {
    let bank = |bank| {
        let bytes = sections.data_of(&format!(".nv.constant{bank}{suffix}"))?;
        Some(Constants { bank, bytes })
    };
    BANKS.into_iter().filter_map(bank).collect()
}
