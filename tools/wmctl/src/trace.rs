//! A recorded trace: a program's allocations, frees and waits, in order.
//!
//! The file is gzip of lines: `a ID BYTES STREAM`, `f ID STREAM`, `s STREAM`; a stream is a number,
//! or `-` for `cuMemAlloc` and `cuMemFree`, or `*` where the host waited for the whole device.
//! Version 2 adds launches, `l STREAM SET`, with the blocks that a kernel's parameters point into.
//! Version 3 adds pieces, memory that the program made itself: see [`pieces`]. Version 4 adds the
//! addresses of blocks, and lines that are no events: times, marks and refusals ([`notes`]). In
//! version 5 an address is written out once, and later blocks there name it by its number, `=N`.
//! The first line is a comment with the format's version and, where the writer knew it, the number
//! of events.
//!
//! A [`Trace`] is checked as it is read: every free and every launch names live blocks, no two live
//! blocks share a name. Names become *slots*, small numbers that are used again after a free, so
//! that a player needs an array and no look-up.
//!
//! A file that ends in the midst of a chunk (a full disk, a copy that was cut short) is read up to
//! there, and says so.

mod notes;
mod pieces;
mod words;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::read::MultiGzDecoder;
pub use notes::{TraceNote, TraceTime};
use pieces::{PieceMemory, RecordedPieces};
use words::number;

const MAGIC: &str = "# wmshim-trace ";
/// The newest version. Version 1 has no launches, version 2 no pieces, version 3 no times, and
/// version 4 no numbers of addresses.
const VERSION: u32 = 5;
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Longest line of an event or the header. A file with a longer line is no trace, and that line is
/// not read to its end.
const LONGEST: u64 = 1 << 17;

/// One thing that the program did. Streams are indices below [`Trace::streams`]; `None` is no
/// stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceEvent {
    /// A block was allocated.
    Allocate {
        /// The slot that the block occupies until its free.
        slot: u32,
        /// Its size as the program asked for it.
        bytes: u64,
        /// The stream of the call.
        stream: Option<u16>,
    },
    /// The block in a slot was freed.
    Free {
        /// Its slot.
        slot: u32,
        /// The stream of the call.
        stream: Option<u16>,
    },
    /// The host waited for a stream, or for the device.
    Wait {
        /// The stream; `None` for the device.
        stream: Option<u16>,
    },
    /// A kernel or a graph was launched.
    Launch {
        /// Index of its blocks in [`Trace::sets`]; `None` if they are not known.
        set: Option<u32>,
    },
    /// The program made physical memory itself.
    MakePiece {
        /// The slot that the piece occupies until its end: one of the pieces' own.
        slot: u32,
        /// Its size.
        bytes: u64,
    },
    /// A piece is neither held nor mapped any more: its memory is gone.
    EndPiece {
        /// Its slot.
        slot: u32,
    },
    /// A piece was mapped, unmapped, released or held again, and its memory is still there.
    KeepPiece,
}

/// A whole recording. Every free is of a block that is live there.
#[derive(Debug, Default)]
pub struct Trace {
    /// In the order of the file.
    pub events: Vec<TraceEvent>,
    /// The address of each allocated block, in the order of the allocations; 0 where it is not
    /// known.
    pub addresses: Vec<u64>,
    /// The times that the file has, in order.
    pub times: Vec<TraceTime>,
    /// The program's marks, and refused requests.
    pub notes: Vec<TraceNote>,
    /// Slots of the blocks that launches use, each set once.
    pub sets: Vec<Box<[u32]>>,
    /// Launches among the events.
    pub launches: u64,
    /// Number of streams.
    pub streams: usize,
    /// Number of slots: most blocks that are live at once.
    pub slots: usize,
    /// Number of slots of pieces: most that are live at once.
    pub piece_slots: usize,
    /// Most bytes that are live at once, as the program asked for them, in blocks and pieces.
    pub peak_live: u64,
    /// The file ends too early: how many lines of it are whole.
    pub whole_lines: Option<usize>,
}

impl Trace {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// A sentence with the number of the wrong line, and a remedy.
    pub fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Self::read(io::stdin().lock()).context("standard input");
        }
        let file = open(path).with_context(|| {
            format!("{}: record a trace with WMSHIM_TRACE=FILE under `wmctl run`", path.display())
        })?;
        Self::read(BufReader::new(file)).with_context(|| path.display().to_string())
    }

    fn read(mut compressed: impl BufRead) -> Result<Self> {
        if !compressed.fill_buf()?.starts_with(&GZIP) {
            bail!(
                "not a gzip file, so not a trace: compress a plain one with `gzip`, or name the right file"
            );
        }
        Self::parse(BufReader::with_capacity(1 << 18, MultiGzDecoder::new(compressed)))
    }

    pub(crate) fn parse(mut text: impl BufRead) -> Result<Self> {
        let (mut reader, mut line, mut number) = (Reader::default(), String::new(), 0_usize);
        let mut promised = None;
        loop {
            match next(&mut text, &mut line, number)? {
                Next::Line => {}
                Next::End => break,
                Next::CutShort => {
                    (reader.trace.whole_lines, promised) = (Some(number), None);
                    break;
                }
            }
            number += 1;
            match line.trim_end() {
                header if number == 1 => promised = read_header(header)?,
                comment if comment.is_empty() || comment.starts_with('#') => {}
                event => reader.read_line(event).with_context(|| format!("line {number}: `{event}`"))?,
            }
        }
        reader.finish(number, promised)
    }
}

fn open(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
}

/// The place behind a line.
enum Next {
    Line,
    End,
    CutShort,
}

/// Reads a line. `number` lines were good.
fn next(text: &mut impl BufRead, line: &mut String, number: usize) -> Result<Next> {
    line.clear();
    match text.by_ref().take(LONGEST).read_line(line) {
        Ok(0) => Ok(Next::End),
        Ok(bytes) if bytes as u64 == LONGEST && !line.ends_with('\n') => {
            bail!(
                "not a trace: line {} is longer than {LONGEST} bytes; name a file that WMSHIM_TRACE wrote",
                number + 1
            )
        }
        Ok(_) => Ok(Next::Line),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && number > 0 => Ok(Next::CutShort),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            bail!("truncated in its first line: copy the file again, or record again")
        }
        Err(error) => bail!("damaged after line {number} ({error}): copy the file again, or record again"),
    }
}

/// The number of events that the first line promises, if it does.
fn read_header(line: &str) -> Result<Option<u64>> {
    let rest = line.strip_prefix(MAGIC).with_context(|| {
        format!("not a trace: its first line must begin with `{MAGIC}`; name a file that WMSHIM_TRACE wrote")
    })?;
    let mut fields = rest.split(';').map(str::trim);
    let version = fields.next().unwrap_or_default();
    if !version.parse().is_ok_and(|version| (1..=VERSION).contains(&version)) {
        bail!(
            "version {version} of the format, and this wmctl reads versions up to {VERSION}: use the wmctl that came with the shim that recorded it"
        );
    }
    let events = fields.find_map(|field| field.strip_prefix("events "));
    Ok(events.and_then(|count| count.parse().ok()))
}

/// The state of a reader between two lines.
#[derive(Default)]
struct Reader {
    trace: Trace,
    streams: HashMap<String, u16>,
    live: HashMap<u64, (u32, u64)>,
    idle: Vec<u32>,
    pieces: RecordedPieces,
    live_bytes: u64,
    /// The blocks of each set that the trace has written out, by name, and its index.
    sets: Vec<WrittenSet>,
    /// The addresses that the trace has written out, by number.
    places: Vec<u64>,
}

/// A set of blocks as a launch wrote it.
struct WrittenSet {
    ids: Box<[u64]>,
    index: u32,
}

const EVENTS: &str = "an event is `a ID BYTES STREAM [ADDRESS]`, `f ID STREAM`, `s STREAM`; in version 2 also \
                      `l STREAM SET`; in version 3 also `c ID BYTES`, `m ID`, `u ID`, `r ID`, `h ID`; in version 4 also \
                      `t US DEVICE PEER HOST`, `k TEXT`, `o BYTES`; in version 5 an ADDRESS may be `=N`";

impl Reader {
    fn read_line(&mut self, line: &str) -> Result<()> {
        let event = self.trace.events.len();
        match line.split_once(' ') {
            Some(("k", text)) => self.trace.notes.push(TraceNote::mark(event, text)),
            Some(("o", bytes)) => {
                self.trace.notes.push(TraceNote::refused(event, number(bytes, "BYTES")?));
            }
            Some(("t", words)) => {
                let earlier = self.trace.times.last().map_or(0, |time| time.at_us);
                self.trace.times.push(TraceTime::read(event, words, earlier)?);
            }
            _ => return self.read_event(line),
        }
        Ok(())
    }

    fn read_event(&mut self, line: &str) -> Result<()> {
        let mut words = line.split_ascii_whitespace();
        let mut word = || words.next().unwrap_or_default();
        let event = match word() {
            "a" => {
                let event = self.allocate(word(), word(), word())?;
                let address = words.next().map_or(Ok(0), |word| self.address(word))?;
                self.trace.addresses.push(address);
                event
            }
            "f" => self.free(word(), word())?,
            "s" => self.wait(word())?,
            "l" => self.launch(word(), word())?,
            "c" => self.make_piece(word(), word())?,
            step @ ("m" | "u" | "r" | "h") => self.change_piece(step, word())?,
            _ => bail!("{EVENTS}"),
        };
        if words.next().is_some() {
            bail!("too many words: {EVENTS}");
        }
        self.trace.events.push(event);
        Ok(())
    }

    fn allocate(&mut self, id: &str, bytes: &str, stream: &str) -> Result<TraceEvent> {
        let (id, bytes) = (number(id, "ID")?, number(bytes, "BYTES")?);
        let stream = self.stream(stream)?;
        if bytes == 0 {
            bail!("an allocation of 0 bytes: the driver refuses it, so no program has it");
        }
        let slot = self.idle.pop().unwrap_or(self.live.len() as u32);
        if self.live.insert(id, (slot, bytes)).is_some() {
            bail!("block {id} is allocated again while it is live: the trace is damaged, record it again");
        }
        self.trace.slots = self.trace.slots.max(self.live.len());
        self.add_live(bytes)?;
        Ok(TraceEvent::Allocate { slot, bytes, stream })
    }

    fn address(&mut self, word: &str) -> Result<u64> {
        if let Some(earlier) = word.strip_prefix('=') {
            let place = number(earlier, "ADDRESS")?;
            let place = usize::try_from(place).ok().and_then(|place| self.places.get(place));
            return place.copied().with_context(|| format!("address {word} has not been written before"));
        }
        let address = number(word, "ADDRESS")?;
        self.places.push(address);
        Ok(address)
    }

    fn add_live(&mut self, bytes: u64) -> Result<()> {
        self.live_bytes =
            self.live_bytes.checked_add(bytes).context("more bytes than there are addresses")?;
        self.trace.peak_live = self.trace.peak_live.max(self.live_bytes);
        Ok(())
    }

    fn make_piece(&mut self, id: &str, bytes: &str) -> Result<TraceEvent> {
        let made = self.pieces.make(number(id, "ID")?, number(bytes, "BYTES")?)?;
        self.count_piece(made)
    }

    fn change_piece(&mut self, step: &str, id: &str) -> Result<TraceEvent> {
        let changed = self.pieces.change(step, number(id, "ID")?)?;
        self.count_piece(changed)
    }

    fn count_piece(&mut self, memory: PieceMemory) -> Result<TraceEvent> {
        Ok(match memory {
            PieceMemory::Came { slot, bytes } => {
                self.add_live(bytes)?;
                TraceEvent::MakePiece { slot, bytes }
            }
            PieceMemory::Went { slot, bytes } => {
                self.live_bytes -= bytes;
                TraceEvent::EndPiece { slot }
            }
            PieceMemory::Stayed => TraceEvent::KeepPiece,
        })
    }

    fn free(&mut self, id: &str, stream: &str) -> Result<TraceEvent> {
        let id = number(id, "ID")?;
        let stream = self.stream(stream)?;
        let (slot, bytes) = self.live.remove(&id).with_context(|| {
            format!("block {id} is freed and not live: the trace is damaged, record it again")
        })?;
        self.idle.push(slot);
        self.live_bytes -= bytes;
        Ok(TraceEvent::Free { slot, stream })
    }

    fn wait(&mut self, stream: &str) -> Result<TraceEvent> {
        let stream = if stream == "*" { None } else { self.stream(stream)? };
        Ok(TraceEvent::Wait { stream })
    }

    fn launch(&mut self, stream: &str, set: &str) -> Result<TraceEvent> {
        self.stream(stream)?;
        self.trace.launches += 1;
        let set = match set {
            "?" => None,
            "-" => Some(self.add_set(Box::default())?),
            set => Some(match set.strip_prefix('=') {
                Some(earlier) => self.earlier_set(number(earlier, "SET")?)?,
                None => self.written_set(set)?,
            }),
        };
        Ok(TraceEvent::Launch { set })
    }

    fn written_set(&mut self, set: &str) -> Result<u32> {
        let ids = set.split(',').map(|id| number(id, "ID")).collect::<Result<Box<[u64]>>>()?;
        let slots = ids.iter().map(|id| self.slot_of(*id)).collect::<Result<_>>()?;
        let index = self.add_set(slots)?;
        self.sets.push(WrittenSet { ids, index });
        Ok(index)
    }

    /// Its blocks must be live still: their slots would be others' by now.
    fn earlier_set(&self, number: u64) -> Result<u32> {
        let set = usize::try_from(number).ok().and_then(|number| self.sets.get(number));
        let set = set.with_context(|| format!("set {number} has not been written before"))?;
        set.ids.iter().try_for_each(|id| self.slot_of(*id).map(drop))?;
        Ok(set.index)
    }

    fn slot_of(&self, id: u64) -> Result<u32> {
        let live = self.live.get(&id).map(|(slot, _)| *slot);
        live.with_context(|| {
            format!("block {id} is used by a launch and not live: the trace is damaged, record it again")
        })
    }

    fn add_set(&mut self, slots: Box<[u32]>) -> Result<u32> {
        let index = u32::try_from(self.trace.sets.len()).context("more sets than a trace has")?;
        self.trace.sets.push(slots);
        Ok(index)
    }

    /// Streams are numbered anew, by their first appearance.
    fn stream(&mut self, name: &str) -> Result<Option<u16>> {
        if name == "-" {
            return Ok(None);
        }
        if let Some(stream) = self.streams.get(name) {
            return Ok(Some(*stream));
        }
        number(name, "STREAM")?;
        let stream = u16::try_from(self.streams.len()).context("more than 65536 streams")?;
        self.streams.insert(name.to_owned(), stream);
        Ok(Some(stream))
    }

    fn finish(mut self, lines: usize, promised: Option<u64>) -> Result<Trace> {
        let events = self.trace.events.len() as u64;
        if let Some(promised) = promised.filter(|promised| *promised != events) {
            bail!("truncated: {events} events, and the first line promises {promised}; copy the file again");
        }
        if events == 0 {
            bail!("no events in {lines} lines: the program allocated nothing that the shim served");
        }
        self.trace.streams = self.streams.len();
        self.trace.piece_slots = self.pieces.slots();
        Ok(self.trace)
    }
}

#[cfg(test)]
mod tests;
