//! A recorded trace: a program's allocations, frees and waits, in order.
//!
//! The file is gzip of lines: `a ID BYTES STREAM`, `f ID STREAM`, `s STREAM`; a stream is a number,
//! or `-` for `cuMemAlloc` and `cuMemFree`, or `*` where the host waited for the whole device.
//! Version 2 adds launches, `l STREAM SET`, with the blocks that a kernel's parameters point into.
//! Version 3 adds pieces, memory that the program made itself: see [`pieces`].
//! The first line is a comment with the format's version and, where the writer knew it, the number
//! of events.
//!
//! A [`Trace`] is checked as it is read: every free and every launch names live blocks, no two live
//! blocks share a name. Names become *slots*, small numbers that are used again after a free, so
//! that a player needs an array and no look-up.
//!
//! A file that ends in the midst of a chunk (a full disk, a copy that was cut short) is read up to
//! there, and says so.

mod pieces;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use flate2::read::MultiGzDecoder;
use pieces::{PieceMemory, RecordedPieces};

const MAGIC: &str = "# wmshim-trace ";
/// The newest version. Version 1 has no launches, version 2 no pieces.
const VERSION: u32 = 3;
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

    fn parse(mut text: impl BufRead) -> Result<Self> {
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
                event => reader.read_event(event).with_context(|| format!("line {number}: `{event}`"))?,
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
}

/// A set of blocks as a launch wrote it.
struct WrittenSet {
    ids: Box<[u64]>,
    index: u32,
}

const EVENTS: &str = "an event is `a ID BYTES STREAM`, `f ID STREAM`, `s STREAM`; in version 2 also `l STREAM SET`; in \
                      version 3 also `c ID BYTES`, `m ID`, `u ID`, `r ID`, `h ID`";

impl Reader {
    fn read_event(&mut self, line: &str) -> Result<()> {
        let mut words = line.split_ascii_whitespace();
        let mut word = || words.next().unwrap_or_default();
        let event = match word() {
            "a" => self.allocate(word(), word(), word())?,
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

fn number(word: &str, what: &str) -> Result<u64> {
    word.parse().map_err(|_| match word {
        "" => anyhow!("{what} is missing"),
        _ => anyhow!("{what} is a number, not `{word}`"),
    })
}

#[cfg(test)]
mod tests {
    //! Hazard: a damaged or foreign file is replayed in part and its figures believed.
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const HEAD: &str = "# wmshim-trace 1; events ?; peak_live_bytes ?\n";

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).expect("memory");
        encoder.finish().expect("memory")
    }

    fn complaint(file: &[u8]) -> String {
        format!("{:#}", Trace::read(file).expect_err("a file that is wrong"))
    }

    #[test]
    fn a_trace_is_read_and_measured() {
        let text = format!("{HEAD}a 7 100 3\na 9 50 -\nf 7 3\ns 3\na 12 60 4\nf 9 -\ns *\n");
        let trace = Trace::read(&*gzip(&text)).expect("a good trace");
        assert_eq!((trace.streams, trace.slots, trace.peak_live), (2, 2, 150));
        assert_eq!(trace.events[0], TraceEvent::Allocate { slot: 0, bytes: 100, stream: Some(0) });
        assert_eq!(trace.events[4], TraceEvent::Allocate { slot: 0, bytes: 60, stream: Some(1) });
        assert_eq!(trace.events[6], TraceEvent::Wait { stream: None });
    }

    #[test]
    fn members_behind_each_other_are_one_trace() {
        let file = [gzip(&format!("{HEAD}a 0 1 0\n")), gzip("f 0 0\n")].concat();
        assert_eq!(Trace::read(&*file).expect("two members").events.len(), 2);
    }

    /// A slot that is used again must not be taken for the block that an earlier set named.
    #[test]
    fn launches_are_read_with_their_blocks() {
        let head = HEAD.replace("trace 1", "trace 2");
        let text = format!("{head}a 7 100 0\na 8 100 0\nl 0 7,8\nl 0 -\nl 0 ?\nl 1 =0\nl 0 8\n");
        let trace = Trace::read(&*gzip(&text)).expect("a good trace");
        let sets: Vec<_> = trace.events[2..]
            .iter()
            .map(|event| match event {
                TraceEvent::Launch { set } => set.map(|set| &*trace.sets[set as usize]),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(sets, [Some(&[0, 1][..]), Some(&[]), None, Some(&[0, 1]), Some(&[1])]);
        assert_eq!((trace.launches, trace.streams), (5, 2));
        let said = complaint(&gzip(&format!("{text}f 7 0\na 9 1 0\nl 0 =0\n")));
        assert!(said.contains("block 7 is used by a launch and not live"), "{said}");
    }

    #[test]
    fn pieces_count_among_the_live_bytes() {
        let head = HEAD.replace("trace 1", "trace 3");
        let text = format!("{head}c 7 100\nm 7\na 7 50 -\nu 7\nr 7\nc 8 60\nf 7 -\n");
        let trace = Trace::read(&*gzip(&text)).expect("a good trace");
        assert_eq!((trace.slots, trace.piece_slots, trace.peak_live), (1, 1, 150));
        let [made, ended] = [TraceEvent::MakePiece { slot: 0, bytes: 100 }, TraceEvent::EndPiece { slot: 0 }];
        assert_eq!([trace.events[0], trace.events[1], trace.events[4]], [made, TraceEvent::KeepPiece, ended]);
        assert!(complaint(&gzip(&format!("{text}r 7\n"))).contains("piece 7"));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (line, words) in [
            ("b 1", "an event is"),
            ("a 1 2", "STREAM is missing"),
            ("a 1 many 0", "BYTES is a number"),
            ("a 1 -5 0", "BYTES is a number"),
            ("a 1 0 0", "0 bytes"),
            ("a 0 5 0", "while it is live"),
            ("f 4 0", "block 4 is freed and not live"),
            ("f 0 0 0", "too many words"),
            ("l 0", "ID is missing"),
            ("l 0 5", "block 5 is used by a launch and not live"),
            ("l 0 =0", "set 0 has not been written"),
            ("l 0 0,,0", "ID is missing"),
            ("s", "STREAM is missing"),
        ] {
            let said = complaint(&gzip(&format!("{HEAD}a 0 8 0\n{line}\n")));
            assert!(said.contains("line 3") && said.contains(words), "{line}: {said}");
        }
    }

    #[test]
    fn a_file_that_is_no_trace_is_told_from_a_damaged_one() {
        assert!(complaint(b"a 0 1 0\n").contains("not a gzip file"));
        assert!(complaint(b"").contains("not a gzip file"));
        assert!(complaint(&gzip("hello\n")).contains("not a trace"));
        assert!(complaint(&gzip("# wmshim-trace 9; events 1\na 0 1 0\n")).contains("version 9"));
        assert!(complaint(&gzip(HEAD)).contains("no events"));
        assert!(complaint(&gzip("# wmshim-trace 1; events 2\na 0 1 0\n")).contains("promises 2"));
    }

    #[test]
    fn every_truncation_is_noticed_and_what_is_whole_is_read() {
        let text: String = (0..500).map(|id| format!("a {id} {} 0\n", 512 * (id % 17 + 1))).collect();
        let whole = gzip(&format!("{HEAD}{text}"));
        let mut read = 0;
        for length in (0..whole.len()).step_by(7) {
            let Ok(trace) = Trace::read(&whole[..length]) else { continue };
            let lines = trace.whole_lines.unwrap_or_else(|| panic!("{length} of {} bytes", whole.len()));
            assert_eq!(trace.events.len() + 2, lines + 1, "the header is a line too");
            read = trace.events.len();
        }
        assert!(read > 0, "nothing of a file that is nearly whole was read");
    }

    /// Found by its peak of memory, which a line without an end must not be.
    #[test]
    fn a_line_without_an_end_is_not_read_to_its_end() {
        let said = complaint(&gzip(&"x".repeat(1 << 20)));
        assert!(said.contains("longer than 131072 bytes"), "{said}");
    }
}
