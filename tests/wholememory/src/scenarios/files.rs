//! Memory of all ranks from files and to files.
//!
//! Hazards: an entry at another one's place, a byte between entries that changes, a rank that reads
//! while another one has refused, a file that is shorter than it reports.

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::fs;
use std::path::Path;
use std::ptr::null;

use super::folder::{Folder, c_name};
use crate::api::Handle;
use crate::rank::{
    CHUNKED, CONTINUOUS, DEVICE, DISTRIBUTED, HOST, INVALID_INPUT, INVALID_VALUE, Rank, SUCCESS,
    SYSTEM_ERROR, Verdict, byte_at, bytes_at, must, want,
};

/// Bytes of a row of memory in these scenarios.
const ROW: usize = 48;
/// The salt of the bytes in memory before.
const BEFORE: usize = 11;
/// The salt of the bytes in files.
const FILES: usize = 12;

/// The layout of entries in memory: bytes from one to the next, before each, and of each.
#[derive(Debug, Clone, Copy)]
struct Shape {
    stride: usize,
    offset: usize,
    bytes: usize,
}

const PACKED: Shape = Shape { stride: ROW, offset: 0, bytes: ROW };
const GAPS: Shape = Shape { stride: ROW, offset: 8, bytes: 20 };
const THIRDS: Shape = Shape { stride: ROW / 3, offset: 0, bytes: ROW / 3 };
const HALVES: Shape = Shape { stride: ROW / 2, offset: 3, bytes: 17 };

fn load(rank: &Rank, code: c_uint, memory: Handle, shape: Shape, files: &[CString], chunk: c_int) -> Verdict {
    let names: Vec<*const c_char> = files.iter().map(|file| file.as_ptr()).collect();
    let (names, count) = (names.as_ptr(), names.len() as c_int);
    let Shape { stride, offset, bytes } = shape;
    want!(code, rank.wholememory_load_from_file(memory, offset, stride, bytes, names, count, chunk))
        .map_err(|reason| format!("{reason}: {shape:?} in chunks of {chunk} of {files:?}"))
}

fn store(rank: &Rank, code: c_uint, memory: Handle, shape: Shape, file: &CStr) -> Verdict {
    let Shape { stride, offset, bytes } = shape;
    want!(code, rank.wholememory_store_to_file(memory, offset, stride, bytes, file.as_ptr()))
        .map_err(|reason| format!("{reason}: {shape:?} to {file:?}"))
}

/// Writes the initial bytes into this rank's part.
fn reset(rank: &Rank, memory: Handle) -> Verdict<Vec<u8>> {
    let own = rank.own_part(memory)?;
    let bytes = bytes_at(own.offset, own.bytes, BEFORE);
    rank.write(own.address, &bytes)?;
    Ok(bytes)
}

fn contents(rank: &Rank, memory: Handle) -> Verdict<Vec<u8>> {
    let own = rank.own_part(memory)?;
    rank.read(own.address, own.bytes)
}

/// Rank and place of an entry, found by dealing all before it: `starts` has each part's first
/// entry.
fn owner(entry: usize, starts: &[usize], chunk: usize) -> (usize, usize) {
    let ranks = starts.len() - 1;
    if chunk == 0 {
        let rank =
            (0..ranks).rfind(|rank| starts[*rank] <= entry && starts[*rank] < starts[rank + 1]).unwrap_or(0);
        return (rank, entry - starts[rank]);
    }
    let turn = entry / chunk;
    (turn % ranks, turn / ranks * chunk + entry % chunk)
}

/// The expected content of a rank's part after a load of `entries` entries.
fn expected(
    rank: &Rank,
    before: &[u8],
    starts: &[usize],
    shape: Shape,
    entries: usize,
    chunk: usize,
) -> Vec<u8> {
    let mut bytes = before.to_vec();
    for entry in 0..entries {
        let (owner, place) = owner(entry, starts, chunk);
        if owner == rank.number {
            let at = place * shape.stride + shape.offset;
            bytes[at..at + shape.bytes].copy_from_slice(&bytes_at(entry * shape.bytes, shape.bytes, FILES));
        }
    }
    bytes
}

/// Files with this many entries each.
fn files(folder: &Folder, name: &str, shape: Shape, each: &[usize]) -> Verdict<Vec<CString>> {
    let mut begin = 0;
    let mut names = Vec::new();
    for (number, entries) in each.iter().enumerate() {
        let name = format!("{name}_part_{number}_of_{}", each.len());
        folder.write(&name, &bytes_at(begin * shape.bytes, entries * shape.bytes, FILES))?;
        names.push(folder.name(&name));
        begin += entries;
    }
    Ok(names)
}

/// A load: how entries lie, entries of each file, and the chunk of round robin.
type Case = (Shape, Vec<usize>, usize);

fn cases(ranks: usize) -> Vec<Case> {
    let rows = 42 * ranks;
    vec![
        (PACKED, vec![rows], 0),
        (PACKED, vec![7, 0, 1, rows - 20, 12, 0], 0),
        (PACKED, vec![5], 0),
        (PACKED, vec![0], 0),
        (GAPS, vec![rows / 2, rows - rows / 2], 0),
        (HALVES, vec![3, rows, rows / 3], 0),
        (PACKED, vec![10, rows - 10], 1),
        (PACKED, vec![rows - 3, 3], 7),
        (GAPS, vec![11, 0, 40 * ranks - 9], 5),
        (HALVES, vec![13, 2 * rows - 13], 12),
        (GAPS, vec![30], c_int::MAX as usize),
    ]
}

pub(super) fn loads(rank: &Rank) -> Verdict {
    let folder = Folder::new(rank)?;
    let cases: Vec<_> = cases(rank.size).into_iter().enumerate().collect();
    let names = cases
        .iter()
        .map(|(number, (shape, each, _))| files(&folder, &format!("case_{number}"), *shape, each));
    let names = names.collect::<Verdict<Vec<_>>>()?;
    rank.barrier()?;
    // Uneven parts have the same room in all: round robin fits if the smallest part has room.
    let uneven: Vec<usize> =
        (0..rank.size).map(|other| if other == 0 { 30 + 12 * rank.size } else { 30 }).collect();
    for kind in rank.kinds().iter().copied() {
        for each in [None, Some(uneven.as_slice())] {
            let memory = rank.malloc(42 * rank.size, ROW, kind, each)?;
            let rows = (0..rank.size).map(|other| each.map_or(42, |each| each[other]));
            let fits = |(_, chunk): (Shape, usize)| each.is_none() || chunk == 0 || rank.size == 1;
            for (number, (shape, each, chunk)) in
                cases.iter().filter(|(_, (shape, _, chunk))| fits((*shape, *chunk)))
            {
                let starts = starts(rows.clone().map(|rows| rows * ROW / shape.stride));
                let before = reset(rank, memory)?;
                load(rank, SUCCESS, memory, *shape, &names[*number], *chunk as c_int)?;
                let wanted = expected(rank, &before, &starts, *shape, each.iter().sum(), *chunk);
                must(contents(rank, memory)? == wanted, || {
                    format!("kind {kind:?}, case {number}: other bytes")
                })?;
            }
            rank.free(memory)?;
        }
    }
    folder.end(rank)
}

fn starts(each: impl Iterator<Item = usize>) -> Vec<usize> {
    let sums = each.scan(0, |sum, count| {
        *sum += count;
        Some(*sum)
    });
    std::iter::once(0).chain(sums).collect()
}

/// Rows of each rank: the first has nearly all.
fn first_has(rank: &Rank, rows: usize) -> Vec<usize> {
    (0..rank.size).map(|other| if other == 0 { rows } else { 1 }).collect()
}

/// The others have no file to read meanwhile.
pub(super) fn more_than_a_buffer(rank: &Rank) -> Verdict {
    let folder = Folder::new(rank)?;
    let (stride, bytes, entries) = (5000, 4096, 700);
    let shape = Shape { stride, offset: 900, bytes };
    let byte = |entry: usize| byte_at(entry, FILES);
    let of = |entries: std::ops::Range<usize>| {
        entries.flat_map(|entry| vec![byte(entry); bytes]).collect::<Vec<u8>>()
    };
    folder.write("first", &of(0..301))?;
    folder.write("second", &of(301..entries))?;
    rank.barrier()?;
    for kind in [(CHUNKED, DEVICE), (CONTINUOUS, HOST)] {
        let each = first_has(rank, entries);
        let memory = rank.malloc(each.iter().sum(), stride, kind, Some(&each))?;
        let own = rank.own_part(memory)?;
        rank.write(own.address, &vec![0xa5; own.bytes])?;
        load(rank, SUCCESS, memory, shape, &[folder.name("first"), folder.name("second")], 0)?;
        let found = contents(rank, memory)?;
        for (entry, row) in found.chunks_exact(stride).enumerate() {
            let mut wanted = vec![0xa5; stride];
            if rank.number == 0 {
                wanted[900..900 + bytes].fill(byte(entry));
            }
            must(row == wanted, || format!("kind {kind:?}, entry {entry}: other bytes in it or around it"))?;
        }
        store(rank, SUCCESS, memory, shape, &folder.name(&format!("back_{}", rank.number)))?;
        let back = fs::read(folder.path("back_0")).map_err(|error| error.to_string())?;
        must(back == of(0..entries), || format!("kind {kind:?}: other bytes were stored"))?;
        rank.barrier()?;
        rank.free(memory)?;
    }
    folder.end(rank)
}

/// One rank reads over slow links for longer than the others would wait.
pub(super) fn longer_than_ranks_wait(rank: &Rank) -> Verdict {
    let folder = Folder::new(rank)?;
    let (row, rows) = (4096, 768);
    let byte = |entry: usize| byte_at(entry, FILES);
    folder.write("file", &(0..rows).map(|entry| vec![byte(entry); row]).collect::<Vec<_>>().concat())?;
    rank.barrier()?;
    let each = first_has(rank, rows);
    let memory = rank.malloc(each.iter().sum(), row, (CONTINUOUS, DEVICE), Some(&each))?;
    let shape = Shape { stride: row, offset: 0, bytes: row };
    load(rank, SUCCESS, memory, shape, &[folder.name("file")], 0)?;
    let own = rank.own_part(memory)?;
    for entry in (0..rows).step_by(100).filter(|_| rank.number == 0) {
        let found = rank.read(own.address + (entry * row) as u64, 16)?;
        must(found == [byte(entry); 16], || format!("entry {entry}: other bytes"))?;
    }
    rank.barrier()?;
    rank.free(memory)?;
    folder.end(rank)
}

pub(super) fn stores(rank: &Rank) -> Verdict {
    let folder = Folder::new(rank)?;
    let rows = 42 * rank.size - rank.size / 2;
    for kind in rank.kinds().iter().copied() {
        let memories = [rank.malloc(rows, ROW, kind, None)?, rank.malloc(rows, ROW, kind, None)?];
        for shape in [PACKED, GAPS, HALVES] {
            let name = |other| folder.name(&format!("stored_part_{other}_of_{}", rank.size));
            let own = rank.own_part(memories[0])?;
            let bytes = bytes_at(own.offset, own.bytes, FILES);
            rank.write(own.address, &bytes)?;
            store(rank, SUCCESS, memories[0], shape, &name(rank.number))?;
            let entries = bytes
                .chunks_exact(shape.stride)
                .map(|entry| &entry[shape.offset..shape.offset + shape.bytes]);
            let stored = fs::read(Path::new(&*name(rank.number).to_string_lossy()))
                .map_err(|error| error.to_string())?;
            must(stored == entries.collect::<Vec<_>>().concat(), || {
                format!("kind {kind:?}: other bytes in the file")
            })?;
            must(contents(rank, memories[0])? == bytes, || {
                format!("kind {kind:?}: memory is not as it was")
            })?;
            // The bytes that the others stored are there, without a barrier of the caller's.
            let mut wanted = reset(rank, memories[1])?;
            load(rank, SUCCESS, memories[1], shape, &(0..rank.size).map(name).collect::<Vec<_>>(), 0)?;
            for (to, from) in wanted.chunks_exact_mut(shape.stride).zip(bytes.chunks_exact(shape.stride)) {
                let inside = shape.offset..shape.offset + shape.bytes;
                to[inside.clone()].copy_from_slice(&from[inside]);
            }
            must(contents(rank, memories[1])? == wanted, || format!("kind {kind:?}: other bytes came back"))?;
            rank.barrier()?;
        }
        memories.into_iter().try_for_each(|memory| rank.free(memory))?;
    }
    folder.end(rank)
}

/// After a refusal: no byte was written, and a correct load works.
fn as_before(rank: &Rank, memory: Handle, before: &[u8], good: &[CString]) -> Verdict {
    must(contents(rank, memory)? == before, || "a load that was refused has written".to_owned())?;
    load(rank, SUCCESS, memory, PACKED, good, 0)?;
    must(contents(rank, memory)? != before, || "a load that is right did nothing".to_owned())?;
    must(reset(rank, memory)? == before, || "another part".to_owned())
}

/// Shapes that no entry has.
const BAD_SHAPES: [Shape; 8] = [
    Shape { bytes: 0, ..PACKED },
    Shape { offset: 1, ..PACKED },
    Shape { bytes: ROW + 1, ..PACKED },
    Shape { offset: usize::MAX, ..GAPS },
    Shape { bytes: usize::MAX, ..GAPS },
    Shape { stride: 0, offset: 0, bytes: 0 },
    Shape { stride: 36, offset: 0, bytes: 36 },
    Shape { stride: 2 * ROW, offset: 0, bytes: 2 * ROW },
];

pub(super) fn misuse(rank: &Rank) -> Verdict {
    let folder = Folder::new(rank)?;
    let good = files(&folder, "good", PACKED, &[42 * rank.size])?;
    let memory = rank.malloc(42 * rank.size, ROW, (DISTRIBUTED, DEVICE), None)?;
    let before = reset(rank, memory)?;
    rank.barrier()?;
    for shape in BAD_SHAPES {
        load(rank, INVALID_INPUT, memory, shape, &good, 0)?;
        store(rank, INVALID_INPUT, memory, shape, &folder.name(&format!("none_{}", rank.number)))?;
    }
    must(!folder.path(&format!("none_{}", rank.number)).exists(), || {
        "a refused store made a file".to_owned()
    })?;
    load(rank, INVALID_INPUT, memory, PACKED, &good, -1)?;
    load(rank, INVALID_INPUT, memory, PACKED, &[], 0)?;
    load(rank, INVALID_INPUT, memory, PACKED, &[CString::default()], 0)?;
    store(rank, INVALID_INPUT, memory, PACKED, c"")?;
    let (names, nothing) = ([good[0].as_ptr(), null()], null());
    for (names, count) in
        [(names.as_ptr(), 2), (names.as_ptr(), 0), (names.as_ptr(), -1), (null(), 1), (null(), c_int::MAX)]
    {
        want!(INVALID_INPUT, rank.wholememory_load_from_file(memory, 0, ROW, ROW, names, count, 0))?;
    }
    want!(INVALID_INPUT, rank.wholememory_store_to_file(memory, 0, ROW, ROW, nothing))?;
    load(rank, INVALID_INPUT, rank.comm, PACKED, &good, 0)?;
    store(rank, INVALID_INPUT, rank.comm, PACKED, &folder.name("none"))?;
    as_before(rank, memory, &before, &good)?;
    rank.barrier()?;
    rank.free(memory)?;
    folder.end(rank)
}

pub(super) fn wrong_files(rank: &Rank) -> Verdict {
    let folder = Folder::new(rank)?;
    let rows = 42 * rank.size.max(4);
    let good = files(&folder, "good", PACKED, &[rows])?;
    let part = &files(&folder, "part", PACKED, &[5])?[0];
    let more = &files(&folder, "more", PACKED, &[rows + 1])?[0];
    folder.write("odd", &[7; ROW + 1])?;
    // It reports a page, and has a few bytes.
    let shrunk = c_name(Path::new("/sys/devices/system/cpu/online"));
    for kind in rank.kinds().iter().copied() {
        let memory = rank.malloc(rows, ROW, kind, None)?;
        let before = reset(rank, memory)?;
        rank.barrier()?;
        for bad in ["missing", "odd", "."] {
            load(rank, INVALID_INPUT, memory, PACKED, &[part.clone(), folder.name(bad)], 0)?;
        }
        load(rank, INVALID_INPUT, memory, PACKED, &[c"/dev/zero".to_owned()], 0)?;
        load(rank, INVALID_VALUE, memory, PACKED, std::slice::from_ref(more), 0)?;
        load(rank, INVALID_VALUE, memory, PACKED, &[good[0].clone(), part.clone()], 1)?;
        as_before(rank, memory, &before, &good)?;
        if rank.size > 1 {
            load(rank, INVALID_VALUE, memory, PACKED, &good, 41)?;
            as_before(rank, memory, &before, &good)?;
        }
        // Ranks that read none of it get the error, too.
        for shape in [Shape { bytes: 32, ..PACKED }, THIRDS] {
            load(rank, SYSTEM_ERROR, memory, shape, std::slice::from_ref(&shrunk), 0)?;
        }
        load(rank, SUCCESS, memory, PACKED, &good, 0)?;
        rank.free(memory)?;
    }
    folder.end(rank)
}

pub(super) fn misuse_of_one_rank(rank: &Rank) -> Verdict {
    let folder = Folder::new(rank)?;
    let good = files(&folder, "good", PACKED, &[42 * rank.size])?;
    let fewer = files(&folder, "fewer", PACKED, &[42 * rank.size - 1])?;
    let more = files(&folder, "more", PACKED, &[42 * rank.size + 1])?;
    let missing = [folder.name("missing")];
    let memory = rank.malloc(42 * rank.size, ROW, (CONTINUOUS, DEVICE), None)?;
    let before = reset(rank, memory)?;
    rank.barrier()?;
    for who in 0..rank.size {
        let is_other = rank.number == who;
        for (code, files) in [
            (INVALID_INPUT, &missing[..]),
            (INVALID_INPUT, &fewer),
            (INVALID_VALUE, &more),
            (INVALID_INPUT, &[]),
        ] {
            load(rank, code, memory, PACKED, if is_other { files } else { &good }, 0)?;
        }
        for shape in BAD_SHAPES.into_iter().chain([THIRDS]) {
            load(rank, INVALID_INPUT, memory, if is_other { shape } else { PACKED }, &good, 0)?;
        }
        load(rank, INVALID_INPUT, memory, PACKED, &good, if is_other { 1 } else { 0 })?;
        load(rank, INVALID_INPUT, memory, PACKED, &good, if is_other { -1 } else { 0 })?;
        let (names, count) = ([good[0].as_ptr()], 1);
        let names = if is_other { null() } else { names.as_ptr() };
        want!(INVALID_INPUT, rank.wholememory_load_from_file(memory, 0, ROW, ROW, names, count, 0))?;
        as_before(rank, memory, &before, &good)?;
    }
    rank.barrier()?;
    rank.free(memory)?;
    folder.end(rank)
}

/// A store that fails at one rank fails at all, and all old files stay.
pub(super) fn a_store_fails(rank: &Rank) -> Verdict {
    let folder = Folder::new(rank)?;
    for kind in [(CONTINUOUS, DEVICE), (CONTINUOUS, HOST)] {
        let memory = rank.malloc(42 * rank.size, ROW, kind, None)?;
        let bytes = reset(rank, memory)?;
        let name = format!("stored_{}", rank.number);
        let (path, name) = (folder.path(&name), folder.name(&name));
        let nowhere = folder.name("no folder/file");
        let has = |wanted: &[u8]| {
            let stored = fs::read(&path).map_err(|error| error.to_string())?;
            must(stored == wanted, || format!("kind {kind:?}: other bytes in the file"))
        };
        fs::write(&path, "the last good file").map_err(|error| error.to_string())?;
        for who in 0..rank.size {
            let is_other = rank.number == who;
            let bad = Shape { bytes: 0, ..PACKED };
            store(rank, INVALID_INPUT, memory, if is_other { bad } else { PACKED }, &name)?;
            for file in [c"/dev/full", &nowhere] {
                store(rank, SYSTEM_ERROR, memory, PACKED, if is_other { file } else { &name })?;
            }
        }
        has(b"the last good file")?;
        store(rank, SUCCESS, memory, PACKED, &name)?;
        has(&bytes)?;
        rank.free(memory)?;
    }
    only_stored(rank, &folder)?;
    folder.end(rank)
}

/// No temporary file is left.
fn only_stored(rank: &Rank, folder: &Folder) -> Verdict {
    rank.barrier()?;
    let files = fs::read_dir(folder.path("")).map_err(|error| error.to_string())?;
    let names: Vec<_> =
        files.flatten().map(|file| file.file_name().into_string().unwrap_or_default()).collect();
    must(names.iter().all(|name| name.starts_with("stored_")), || format!("left: {names:?}"))?;
    rank.barrier()
}

/// A disk that becomes full at one rank, as a limit on the size of its files makes it.
pub(super) fn no_room(rank: &Rank) -> Verdict {
    let folder = Folder::new(rank)?;
    let memory = rank.malloc(4200 * rank.size, ROW, (CHUNKED, DEVICE), None)?;
    let bytes = reset(rank, memory)?;
    let name = format!("stored_{}", rank.number);
    let (path, name) = (folder.path(&name), folder.name(&name));
    store(rank, SUCCESS, memory, PACKED, &name)?;
    rank.write(rank.own_part(memory)?.address, &[0x77; ROW])?;
    let limit = |most| {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a live local, and a signal that is ignored.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
        }
    };
    if rank.number == 0 {
        limit(bytes.len() as u64 / 2);
    }
    store(rank, SYSTEM_ERROR, memory, PACKED, &name)?;
    limit(libc::RLIM_INFINITY);
    must(fs::read(&path).is_ok_and(|stored| stored == bytes), || "the old file is lost".to_owned())?;
    only_stored(rank, &folder)?;
    store(rank, SUCCESS, memory, PACKED, &name)?;
    must(fs::read(&path).is_ok_and(|stored| stored[..ROW] == [0x77; ROW]), || "not stored".to_owned())?;
    rank.free(memory)?;
    folder.end(rank)
}

/// One driver call fails on one rank, which the environment chooses.
pub(super) fn a_copy_fails(rank: &Rank) -> Verdict {
    let folder = Folder::new(rank)?;
    let good = files(&folder, "good", GAPS, &[42 * rank.size])?;
    let memory = rank.malloc(42 * rank.size, ROW, (CHUNKED, DEVICE), None)?;
    let name = folder.name(&format!("stored_{}", rank.number));
    let starts = starts((0..rank.size).map(|_| 42));
    let (mut loads, mut stores) = (0, 0);
    for _ in 0..2 {
        let before = reset(rank, memory)?;
        rank.barrier()?;
        let (names, count) = ([good[0].as_ptr()], 1);
        // SAFETY: a handle, and names that live.
        let code = unsafe {
            (rank.library.wholememory_load_from_file)(memory, 8, ROW, 20, names.as_ptr(), count, 0)
        };
        if code == SUCCESS {
            let wanted = expected(rank, &before, &starts, GAPS, 42 * rank.size, 0);
            must(contents(rank, memory)? == wanted, || "other bytes".to_owned())?;
        }
        loads += u8::from(code != SUCCESS);
        // SAFETY: as above.
        let code = unsafe { (rank.library.wholememory_store_to_file)(memory, 8, ROW, 20, name.as_ptr()) };
        stores += u8::from(code != SUCCESS);
    }
    // A load fails on all ranks or on none, and a store too.
    let told = |other| folder.path(&format!("told_{other}"));
    fs::write(told(rank.number), [loads * 2 + stores]).map_err(|error| error.to_string())?;
    rank.barrier()?;
    let told = (0..rank.size).map(|other| fs::read(told(other))).collect::<Result<Vec<_>, _>>();
    let told = told.map_err(|error| error.to_string())?.concat();
    let is_load = told.iter().all(|told| *told == 2);
    let is_store = told.iter().all(|told| *told == 1);
    must(is_load || is_store, || format!("two for each load that failed, one for each store: {told:?}"))?;
    rank.barrier()?;
    rank.free(memory)?;
    folder.end(rank)
}
