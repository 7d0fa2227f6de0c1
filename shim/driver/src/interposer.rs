//! Finds out whether a file is the preloaded library, under any name.
//!
//! Every build of it carries an ELF note. The note is read through the file's program headers, so a
//! driver of a hundred megabytes costs two short reads, and a build with debug information is
//! recognised at any size.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::{ReadCache, Result};

/// The name of a note's owner, NUL included, padded to ELF's alignment.
const OWNER: [u8; 8] = *b"wmshim\0\0";

/// The kind of the note. No other one is planned: its presence is the mark.
const KIND: u32 = 1;

/// An ELF note without a description (`Elf64_Nhdr` and a name).
#[repr(C, align(4))]
#[derive(Debug)]
pub struct Note {
    name_size: u32,
    description_size: u32,
    kind: u32,
    name: [u8; 8],
}

/// The note that the preloaded library keeps in its section `.note.wmshim`.
pub const NOTE: Note = Note { name_size: OWNER.len() as u32, description_size: 0, kind: KIND, name: OWNER };

/// Is this file the preloaded library? The content decides, so that a copy is recognised too.
pub fn is_interposer(path: &Path) -> bool {
    is_self(path) || carries_note(path)
}

fn is_self(path: &Path) -> bool {
    let Some((own, other)) = own_path().zip(fs::metadata(path).ok()) else { return false };
    fs::metadata(own).is_ok_and(|own| (own.dev(), own.ino()) == (other.dev(), other.ino()))
}

/// The file that this code was loaded from: in the preloaded library, the library itself.
pub fn own_path() -> Option<PathBuf> {
    // SAFETY: all zero is a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be passed; the answer is written into our structure.
    if unsafe { libc::dladdr(own_path as *const () as *const _, &mut info) } == 0 || info.dli_fname.is_null()
    {
        return None;
    }
    // SAFETY: a non-null dli_fname is the loader's own NUL-terminated string.
    let name = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(name.to_string_lossy().into_owned()))
}

/// An unreadable file and one that is not ELF carry none; the loader reports the reason.
fn carries_note(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| has_note(&ReadCache::new(file)).unwrap_or(false))
}

fn has_note(file: &ReadCache<File>) -> Result<bool> {
    let header = FileHeader64::<Endianness>::parse(file)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, file)? {
        let Some(mut notes) = segment.notes(endian, file)? else { continue };
        while let Some(note) = notes.next()? {
            if note.n_type(endian).0 == KIND && note.name() == b"wmshim" {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
