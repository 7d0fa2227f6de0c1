//! Can the loader put the library into this program? A reason against it is reported here in plain
//! words.
//!
//! A preload is the dynamic loader's work. A program without one runs bare in silence; one for
//! another C library does not start at all; one of another word size makes the loader complain at
//! each start. The first bytes of the file tell.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A program's fitness for a preload.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProgramCheck {
    /// It gets the library.
    Fit,
    /// It runs, and runs without. A sentence.
    Bare(String),
    /// It would not start. A sentence.
    Fails(String),
}

/// Interpreters that scripts name may be scripts.
const DEPTH: usize = 5;

/// Looks at a program as it would be started with this `PATH`.
pub(super) fn examine(program: &OsStr, path: Option<OsString>) -> ProgramCheck {
    let found = locate(program, path.as_deref());
    found.map_or(ProgramCheck::Fit, |file| check_file(&file, path.as_deref(), DEPTH))
}

/// The file behind a name.
fn locate(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let folders = std::env::split_paths(path?).map(|folder| folder.join(program));
    folders
        .into_iter()
        .find(|file| fs::metadata(file).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0))
}

fn check_file(file: &Path, path: Option<&OsStr>, depth: usize) -> ProgramCheck {
    let mut head = Vec::new();
    let read = File::open(file).and_then(|opened| opened.take(4096).read_to_end(&mut head));
    if read.is_err() || depth == 0 {
        return ProgramCheck::Fit;
    }
    if let Some(line) = head.strip_prefix(b"#!") {
        let interpreter = interpreter(line, path);
        return interpreter.map_or(ProgramCheck::Fit, |file| check_file(&file, path, depth - 1));
    }
    if head.starts_with(b"\x7fELF") { elf(file, &head) } else { ProgramCheck::Fit }
}

/// The interpreter in a script's first line; behind `env` the first word that is a program.
fn interpreter(line: &[u8], path: Option<&OsStr>) -> Option<PathBuf> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words =
        line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(OsStr::from_bytes);
    let first = words.next()?;
    if Path::new(first).file_name() != Some(OsStr::new("env")) {
        return Some(first.into());
    }
    let is_program = |word: &&OsStr| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'=');
    locate(words.find(is_program)?, path)
}

fn elf(file: &Path, head: &[u8]) -> ProgramCheck {
    const X86_64: u16 = 62;
    let name = file.display();
    if head.get(4) != Some(&2) {
        return ProgramCheck::Bare(format!(
            "{name} is a 32-bit program: it runs without wmshim, which serves 64-bit programs, and the loader says so at \
             each start"
        ));
    }
    if word(head, 18) != X86_64 {
        return ProgramCheck::Fails(format!(
            "{name} is a program for another processor; wmshim is for x86-64"
        ));
    }
    let Some(loader) = loader(file, head) else {
        return ProgramCheck::Bare(format!(
            "{name} is linked statically: it runs without wmshim, and the dynamic programs that it starts run with it"
        ));
    };
    if loader.contains("ld-musl") {
        return ProgramCheck::Fails(format!(
            "{name} is a musl program ({loader}): wmshim needs glibc, and with its preload the program would not start; use an \
             image with glibc (Debian, Ubuntu, RHEL), or run it without wmshim"
        ));
    }
    if fs::metadata(file).is_ok_and(|it| it.mode() & 0o6000 != 0) && rustix::process::geteuid().as_raw() != 0
    {
        return ProgramCheck::Bare(format!(
            "{name} is set-user-ID or set-group-ID: the loader ignores a preload there, so it runs without wmshim"
        ));
    }
    ProgramCheck::Fit
}

/// The dynamic loader that the program names (`PT_INTERP`).
fn loader(file: &Path, head: &[u8]) -> Option<String> {
    const INTERPRETER: u32 = 3;
    let (table, size, count) = (long(head, 32), word(head, 54), word(head, 56));
    let file = File::open(file).ok()?;
    for index in 0..u64::from(count.min(512)) {
        let mut row = [0; 56];
        file.read_exact_at(&mut row, table.checked_add(index * u64::from(size))?).ok()?;
        if u32::from_le_bytes(row[..4].try_into().ok()?) == INTERPRETER {
            let mut name = vec![0; usize::try_from(long(&row, 32)).ok()?.min(4096)];
            file.read_exact_at(&mut name, long(&row, 8)).ok()?;
            name.retain(|byte| *byte != 0);
            return Some(String::from_utf8_lossy(&name).into_owned());
        }
    }
    None
}

fn word(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|it| it.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|it| it.try_into().ok()).map_or(0, u64::from_le_bytes)
}
