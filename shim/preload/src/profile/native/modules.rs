//! The loaded objects of the process: where each lies, and its tables for unwinding.
//!
//! The tables are read from the object's file, which is mapped once more: the program may unload
//! an object while its tables are read. A file that is not the one that was loaded, by its build
//! id, is not used. The loader is asked by `dl_iterate_phdr` alone: its lock is held by no
//! constructor.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::fs::File;
use std::ops::{Deref, Range};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::{Module, ModuleSectionInfo};
use object::{Object, ObjectSection};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// An object as the loader describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoadedObject {
    pub(super) path: PathBuf,
    /// In hexadecimal digits; empty without one.
    pub(super) build_id: String,
    /// The difference between its addresses in the process and in the file.
    pub(super) base: u64,
    pub(super) range: Range<u64>,
}

/// How often objects were loaded and unloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Loads {
    added: u64,
    removed: u64,
}

/// The loader's counts of now.
pub(super) fn loads() -> Loads {
    let mut loads = Loads::default();
    // SAFETY: the visitor gets back the pointer to `loads`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(count), (&raw mut loads).cast()) };
    loads
}

unsafe extern "C" fn count(object: *mut libc::dl_phdr_info, _: usize, loads: *mut c_void) -> c_int {
    // SAFETY: the loader's description of an object, and the value that `loads` handed over.
    unsafe {
        let added = (*object).dlpi_adds;
        *loads.cast::<Loads>() = Loads { added, removed: (*object).dlpi_subs };
    }
    1
}

/// Every object, by address.
pub(super) fn all() -> Vec<LoadedObject> {
    let mut objects: Vec<LoadedObject> = Vec::new();
    // SAFETY: the visitor gets back the pointer to `objects`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(describe), (&raw mut objects).cast()) };
    objects.sort_unstable_by_key(|object| object.range.start);
    objects
}

unsafe extern "C" fn describe(object: *mut libc::dl_phdr_info, _: usize, list: *mut c_void) -> c_int {
    // SAFETY: the list that `all` handed over, and the loader's description of an object, with as
    // many headers as it says and a name that lives as long.
    let (list, base, headers, name) = unsafe {
        let object = &*object;
        let headers = std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
        let name = if object.dlpi_name.is_null() { c"" } else { CStr::from_ptr(object.dlpi_name) };
        (&mut *list.cast::<Vec<LoadedObject>>(), object.dlpi_addr, headers, name)
    };
    let segments = |kind| headers.iter().filter(move |header| header.p_type == kind);
    let ranges = || segments(libc::PT_LOAD).map(|it| (base + it.p_vaddr, base + it.p_vaddr + it.p_memsz));
    let Some(start) = ranges().map(|range| range.0).min() else { return 0 };
    let end = ranges().map(|range| range.1).max().unwrap_or(start);
    let is_loaded = |note: &&libc::Elf64_Phdr| {
        let is_around = |load: &libc::Elf64_Phdr| {
            let end = load.p_vaddr.saturating_add(load.p_filesz);
            load.p_flags & libc::PF_R != 0
                && load.p_vaddr <= note.p_vaddr
                && note.p_vaddr.saturating_add(note.p_memsz) <= end
        };
        segments(libc::PT_LOAD).any(is_around)
    };
    let notes = segments(libc::PT_NOTE).filter(is_loaded).find_map(|header| {
        // SAFETY: in a segment that the loader has mapped to be read, and does not unmap during
        // this call.
        let notes = unsafe {
            std::slice::from_raw_parts((base + header.p_vaddr) as *const u8, header.p_memsz as usize)
        };
        build_id(notes, header.p_align as usize)
    });
    let path = match name.to_bytes() {
        b"" => PathBuf::from("/proc/self/exe").canonicalize().unwrap_or_default(),
        name => PathBuf::from(OsStr::from_bytes(name)),
    };
    let build_id = notes.map(hexadecimal).unwrap_or_default();
    list.push(LoadedObject { path, build_id, base, range: start..end });
    0
}

/// The build id among notes.
fn build_id(mut notes: &[u8], align: usize) -> Option<&[u8]> {
    const BUILD_ID: u32 = 3;
    let align = if align == 8 { 8 } else { 4 };
    let number = |bytes: &[u8]| Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?));
    while notes.len() >= 12 {
        let (name, content) = (number(notes)? as usize, number(&notes[4..])? as usize);
        let kind = number(&notes[8..])?;
        let content_at = (12 + name).next_multiple_of(align);
        let content_end = content_at.checked_add(content)?;
        if kind == BUILD_ID && notes.get(12..12 + name)? == b"GNU\0" {
            return notes.get(content_at..content_end);
        }
        notes = notes.get(content_end.next_multiple_of(align)..)?;
    }
    None
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file that is mapped to be read.
#[derive(Debug)]
struct MappedFile {
    start: *mut c_void,
    length: usize,
}

// SAFETY: memory that is only read, from any thread.
unsafe impl Send for MappedFile {}
// SAFETY: the same.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    fn open(path: &Path) -> Option<Arc<Self>> {
        let file = File::open(path).ok()?;
        let status = file.metadata().ok().filter(|status| status.is_file() && status.len() > 0)?;
        let length = usize::try_from(status.len()).ok()?;
        // SAFETY: a new mapping, which lives as long as this value.
        let start =
            unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::PRIVATE, &file, 0) };
        Some(Arc::new(Self { start: start.ok()?, length }))
    }

    fn content(&self) -> &[u8] {
        // SAFETY: the mapping, which is as long. A program whose libraries are cut short while it
        // runs ends at its next page of code, too.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.length) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: the mapping that `open` made; nothing refers to it any more.
        let _stays_mapped = unsafe { munmap(self.start, self.length) };
    }
}

/// A section of a mapped file.
#[derive(Debug, Clone)]
pub(super) struct MappedSection {
    file: Arc<MappedFile>,
    range: Range<usize>,
}

impl Deref for MappedSection {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.file.content().get(self.range.clone()).unwrap_or_default()
    }
}

impl LoadedObject {
    /// Its tables, if its file has some and is the one that was loaded.
    pub(super) fn tables(&self) -> Option<Module<MappedSection>> {
        let file = MappedFile::open(&self.path)?;
        let parsed = object::File::parse(file.content()).ok()?;
        let id = parsed.build_id().ok().flatten().map(hexadecimal).unwrap_or_default();
        if id != self.build_id {
            return None;
        }
        let sections = FileSections { parsed: &parsed, file: &file };
        Some(Module::new(String::new(), self.range.clone(), self.base, sections))
    }
}

/// The sections of a file, as the unwinder asks for them.
struct FileSections<'a> {
    parsed: &'a object::File<'a>,
    file: &'a Arc<MappedFile>,
}

impl ModuleSectionInfo<MappedSection> for FileSections<'_> {
    fn base_svma(&self) -> u64 {
        0
    }

    fn section_svma_range(&mut self, name: &[u8]) -> Option<Range<u64>> {
        let section = self.parsed.section_by_name_bytes(name)?;
        Some(section.address()..section.address().checked_add(section.size())?)
    }

    fn section_data(&mut self, name: &[u8]) -> Option<MappedSection> {
        let (at, length) = self.parsed.section_by_name_bytes(name)?.file_range()?;
        let range = usize::try_from(at).ok()?..usize::try_from(at.checked_add(length)?).ok()?;
        Some(MappedSection { file: Arc::clone(self.file), range })
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): tables of another file.
    use super::*;

    fn own() -> LoadedObject {
        let address = own as *const () as u64;
        all().into_iter().find(|object| object.range.contains(&address)).expect("this program")
    }

    #[test]
    fn this_program_is_found_with_its_tables() {
        let own = own();
        assert!(own.path.is_file() && own.tables().is_some(), "{own:?}");
        let other = LoadedObject { build_id: "00".to_owned(), ..own.clone() };
        assert!(other.tables().is_none(), "another build");
        let none = LoadedObject { path: "/no/such/file".into(), ..own };
        assert!(none.tables().is_none());
    }

    #[test]
    fn a_build_id_is_found_behind_other_notes() {
        let mut notes = Vec::new();
        for (kind, name, content) in [(1u32, &b"Linux\0"[..], &[9; 3][..]), (3, b"GNU\0", &[0xab, 1])] {
            [name.len() as u32, content.len() as u32, kind]
                .iter()
                .for_each(|word| notes.extend(word.to_ne_bytes()));
            for part in [name, content] {
                notes.extend(part);
                notes.resize(notes.len().next_multiple_of(4), 0);
            }
        }
        assert_eq!(build_id(&notes, 4).map(hexadecimal).as_deref(), Some("ab01"));
        assert!((0..notes.len() - 2).all(|end| build_id(&notes[..end], 4).is_none()));
    }
}
