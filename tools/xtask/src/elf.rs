//! The requirements of a shared object or program on its machine, read from its ELF file.
//!
//! `dist/` promises glibc 2.31 and nothing else. The promise is checked on the finished files,
//! because the linker, not the source, decides it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol};

/// A version of glibc, as in `GLIBC_2.31`.
pub(crate) type Glibc = (u32, u32);

/// Libraries that glibc itself brings.
const OF_GLIBC: [&str; 6] =
    ["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"];

/// The facts of one file.
#[derive(Debug, Default)]
pub(crate) struct Demands {
    /// `DT_NEEDED`: libraries that must be there.
    pub(crate) needed: Vec<String>,
    /// `DT_SONAME`.
    pub(crate) soname: Option<String>,
    /// `DT_RPATH` and `DT_RUNPATH`.
    pub(crate) search: Vec<String>,
    /// The newest glibc that a symbol asks for.
    pub(crate) glibc: Option<Glibc>,
    /// Is there a table of symbols besides the dynamic one?
    pub(crate) has_symbols: bool,
}

impl Demands {
    /// Reads them from the dynamic section and the table of needed versions.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let data = fs::read(path).with_context(|| path.display().to_string())?;
        let file = ElfFile64::<Endianness>::parse(&*data).with_context(|| path.display().to_string())?;
        let has_symbols = file.symbols().next().is_some();
        let mut demands = Self { glibc: newest_glibc(&file, &data)?, has_symbols, ..Self::default() };
        demands.read_dynamic(&file, &data)?;
        Ok(demands)
    }

    fn read_dynamic(&mut self, file: &ElfFile64<'_>, data: &[u8]) -> Result<()> {
        let table = file.elf_section_table().dynamic_table(file.endian(), data)?;
        for entry in &table {
            let text =
                || -> Result<String> { Ok(String::from_utf8_lossy(table.string(entry)?).into_owned()) };
            match entry.tag {
                DT_NEEDED => self.needed.push(text()?),
                DT_SONAME => self.soname = Some(text()?),
                DT_RPATH | DT_RUNPATH => self.search.push(text()?),
                _ => {}
            }
        }
        Ok(())
    }

    /// Fails when the file would not start on a machine with glibc `limit` and nothing else.
    pub(crate) fn meet(&self, limit: Glibc) -> Result<()> {
        if let Some(foreign) = self.needed.iter().find(|name| !OF_GLIBC.contains(&name.as_str())) {
            bail!("needs {foreign}, which is not part of glibc");
        }
        match self.glibc {
            Some(version) if version > limit => bail!("needs glibc {}.{}", version.0, version.1),
            _ => Ok(()),
        }
    }
}

/// The names that a shared object defines for others.
pub(crate) fn exports(path: &Path) -> Result<BTreeSet<String>> {
    let data = fs::read(path).with_context(|| path.display().to_string())?;
    let file = ElfFile64::<Endianness>::parse(&*data).with_context(|| path.display().to_string())?;
    let defined = file.dynamic_symbols().filter(|symbol| symbol.is_definition() && symbol.is_global());
    defined.map(|symbol| Ok(symbol.name()?.to_owned())).collect()
}

fn newest_glibc(file: &ElfFile64<'_>, data: &[u8]) -> Result<Option<Glibc>> {
    let endian = file.endian();
    let sections = file.elf_section_table();
    let Some((mut libraries, link)) = sections.gnu_verneed(endian, data)? else { return Ok(None) };
    let strings = sections.strings(endian, data, link)?;
    let mut newest = None;
    while let Some((_, mut versions)) = libraries.next()? {
        while let Some(version) = versions.next()? {
            let name = version.name(endian, strings)?;
            newest = newest.max(glibc(&String::from_utf8_lossy(name)));
        }
    }
    Ok(newest)
}

/// `GLIBC_2.31` → (2, 31). `GLIBC_PRIVATE` and other libraries' versions are none.
fn glibc(name: &str) -> Option<Glibc> {
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert_eq!(glibc("GLIBC_2.31"), Some((2, 31)));
        assert_eq!(glibc("GLIBC_2.2.5"), Some((2, 2)));
        assert_eq!(glibc("GLIBC_PRIVATE"), None);
        assert_eq!(glibc("GCC_3.0"), None);
        assert!(glibc("GLIBC_2.4") < glibc("GLIBC_2.31"));
    }

    #[test]
    fn a_foreign_library_and_a_newer_glibc_are_refused() {
        let plain =
            || Demands { needed: vec!["libc.so.6".into()], glibc: Some((2, 31)), ..Demands::default() };
        assert!(plain().meet((2, 31)).is_ok());
        assert!(plain().meet((2, 30)).is_err());
        let foreign = Demands { needed: vec!["libgcc_s.so.1".into()], ..plain() };
        assert!(foreign.meet((2, 31)).unwrap_err().to_string().contains("libgcc_s"));
    }
}
