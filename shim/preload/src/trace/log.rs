//! Events put into words: a block's address becomes a number that is never used again, a stream's
//! identity a small one, and a set of blocks that launches use again and again is written once.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use wm_driver::StreamId;
use wm_schema::BytesByTier;

use crate::events::PieceStep;
use crate::launches::TouchedBlock;
use crate::recording::EventText;

/// How many events and bytes are live at the end is not known when the first line is written.
const HEADER: &str = "# wmshim-trace 4; events ?; peak_live_bytes ?; a ID BYTES STREAM ADDRESS | f ID STREAM | \
                      s STREAM (host waited for the stream, * all) | l STREAM SET (a launch's blocks: IDs, =N the Nth \
                      set of IDs, - none, ? unknown); stream - = cuMemAlloc/cuMemFree; c ID BYTES (memory that the \
                      program made) | m ID (mapped) | u ID (unmapped) | r ID (released) | h ID (held again); t US \
                      DEVICE PEER HOST (time since the first line, live bytes by tier) | k TEXT (the program's mark) | \
                      o BYTES (refused request)\n";

/// Sets that are remembered, at most. Blocks of most are gone by then.
const SETS: usize = 1 << 16;

/// Events in a chunk: as many are lost when the process is killed. A chunk takes about 0.5 ms to
/// compress.
const CHUNK: usize = 4096;

/// Microseconds between two lines of the time, at least: a line for each event would double the
/// file.
const TIME_STEP: u64 = 100;

/// Bytes of the longest line of the time: four numbers of 20 digits.
const LONGEST_TIME: usize = 2 + 4 * 21;

/// A set of blocks, lowest number first. A launch with more blocks than fit inline allocates memory
/// under the log's lock.
type BlockNumbers = SmallVec<[u64; 8]>;

/// The chunk under way.
#[derive(Debug)]
pub(super) struct Log {
    text: Vec<u8>,
    events: usize,
    /// Live blocks' numbers by address.
    blocks: FxHashMap<u64, u64>,
    next: u64,
    /// In order of appearance.
    streams: FxHashMap<StreamId, u64>,
    /// The stream of the last event that has one: mostly the next one's, too.
    last_stream: Option<(StreamId, u64)>,
    /// The beginning of a launch's line in that stream.
    launch_begin: ShortText,
    /// Ends of the lines of launches by their sets of blocks. Block numbers do not come again, so a
    /// set that is met again has live blocks.
    sets: FxHashMap<BlockNumbers, ShortText>,
    /// Number of the next set.
    next_set: u64,
    /// No line of the time is due before this microsecond.
    next_time: u64,
}

impl Log {
    pub(super) fn new() -> Self {
        Self {
            text: HEADER.into(),
            events: 0,
            blocks: FxHashMap::default(),
            next: 0,
            streams: FxHashMap::default(),
            last_stream: None,
            launch_begin: ShortText::default(),
            sets: FxHashMap::default(),
            next_set: 0,
            next_time: 0,
        }
    }

    /// The time since the recording began, in front of the event that happens then, and what the
    /// process holds. Written if the last such line is old enough, or the event is to have its own.
    #[inline]
    pub(super) fn time(&mut self, microseconds: u64, is_exact: bool, live: impl FnOnce() -> BytesByTier) {
        if is_exact || microseconds >= self.next_time {
            self.next_time = microseconds + TIME_STEP;
            let BytesByTier { device, peer, host } = live();
            self.note(b"t ", [microseconds, device, peer, host].map(TraceWord::Number));
        }
    }

    /// Can a line of the time be added without memory of the allocator?
    pub(super) fn has_room_for_time(&self) -> bool {
        self.text.capacity() - self.text.len() >= LONGEST_TIME
    }

    /// A line of the program's own, which has no line's end in it.
    pub(super) fn marked(&mut self, text: &str) {
        [b"k ", text.as_bytes(), b"\n"].into_iter().for_each(|part| self.text.extend_from_slice(part));
    }

    /// A request was refused, because all tiers were full.
    pub(super) fn refused(&mut self, bytes: u64) {
        self.note(b"o ", [TraceWord::Number(bytes)]);
    }

    pub(super) fn allocated(&mut self, address: u64, bytes: usize, stream: Option<StreamId>) {
        // A context that ended took its blocks with it, and the addresses are given out again.
        self.freed(address, None);
        let (id, stream) = (self.next, self.stream(stream));
        self.next += 1;
        self.blocks.insert(address, id);
        let numbers = [id, bytes as u64, address].map(TraceWord::Number);
        self.line(b"a ", [numbers[0], numbers[1], stream, numbers[2]]);
    }

    /// An address that no live block starts at is left out: the manager is about to refuse it.
    pub(super) fn freed(&mut self, address: u64, stream: Option<StreamId>) {
        if let Some(id) = self.blocks.remove(&address) {
            let stream = self.stream(stream);
            self.line(b"f ", [TraceWord::Number(id), stream]);
        }
    }

    /// `None`: for the device.
    pub(super) fn waited(&mut self, stream: Option<StreamId>) {
        let stream = stream.map_or(TraceWord::Sign(b'*'), |stream| self.stream(Some(stream)));
        self.line(b"s ", [stream]);
    }

    /// Its number is its name: no other piece of the process had it.
    pub(super) fn piece(&mut self, piece: u64, step: PieceStep) {
        let id = TraceWord::Number(piece);
        match step {
            PieceStep::Made { bytes } => self.line(b"c ", [id, TraceWord::Number(bytes)]),
            PieceStep::Mapped => self.line(b"m ", [id]),
            PieceStep::Unmapped => self.line(b"u ", [id]),
            PieceStep::Released => self.line(b"r ", [id]),
            PieceStep::Held => self.line(b"h ", [id]),
        }
    }

    /// `None`: it is not known which blocks the launch uses. Blocks from before the recording began
    /// are left out.
    pub(super) fn launched(&mut self, stream: StreamId, blocks: Option<&[TouchedBlock]>) {
        let stream = self.stream(Some(stream));
        let Some(blocks) = blocks else { return self.line(b"l ", [stream, TraceWord::Sign(b'?')]) };
        let mut ids = BlockNumbers::new();
        for block in blocks {
            self.blocks.get(&block.address).into_iter().for_each(|id| ids.push(*id));
        }
        if ids.len() > 1 {
            ids.sort_unstable();
        }
        if ids.is_empty() {
            self.line(b"l ", [stream, TraceWord::Sign(b'-')]);
        } else if let Some(end) = self.sets.get(&*ids) {
            self.events += 1;
            self.text.extend_from_slice(self.launch_begin.bytes());
            self.text.extend_from_slice(end.bytes());
        } else {
            self.list_line(stream, &ids);
            self.note_set(ids);
        }
    }

    fn note_set(&mut self, ids: BlockNumbers) {
        if self.sets.len() >= SETS {
            self.sets.clear();
        }
        self.sets.insert(ids, ShortText::of([TraceWord::Set(self.next_set), TraceWord::Sign(b'\n')]));
        self.next_set += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.events >= CHUNK
    }

    #[inline]
    fn stream(&mut self, stream: Option<StreamId>) -> TraceWord {
        let Some(stream) = stream else { return TraceWord::Sign(b'-') };
        if let Some((last, number)) = self.last_stream
            && last == stream
        {
            return TraceWord::Number(number);
        }
        let fresh = self.streams.len() as u64;
        let number = *self.streams.entry(stream).or_insert(fresh);
        self.last_stream = Some((stream, number));
        let words = [b'l', b' '].map(TraceWord::Sign);
        self.launch_begin = ShortText::of([words[0], words[1], TraceWord::Number(number), words[1]]);
        TraceWord::Number(number)
    }

    /// A line of an event.
    #[inline]
    fn line<const WORDS: usize>(&mut self, kind: &[u8; 2], words: [TraceWord; WORDS]) {
        self.events += 1;
        self.note(kind, words);
    }

    /// A line that is no event: a replay has nothing to do there.
    #[inline]
    fn note<const WORDS: usize>(&mut self, kind: &[u8; 2], words: [TraceWord; WORDS]) {
        let mut line = LineEnd::new();
        line.prepend(b'\n');
        for (index, word) in words.into_iter().enumerate().rev() {
            line.prepend_word(word);
            if index > 0 {
                line.prepend(b' ');
            }
        }
        kind.iter().rev().for_each(|byte| line.prepend(*byte));
        self.text.extend_from_slice(line.bytes());
    }

    /// A launch with a new set.
    fn list_line(&mut self, stream: TraceWord, ids: &[u64]) {
        self.line(b"l ", [stream]);
        for (index, id) in ids.iter().enumerate() {
            // In place of the line's end, or behind the number before.
            if index == 0 {
                self.text.pop();
            }
            let mut word = LineEnd::new();
            word.prepend_word(TraceWord::Number(*id));
            word.prepend(if index == 0 { b' ' } else { b',' });
            self.text.extend_from_slice(word.bytes());
        }
        self.text.push(b'\n');
    }
}

impl EventText for Log {
    fn text(&self) -> &[u8] {
        &self.text
    }

    fn clear(&mut self) {
        self.events = 0;
        self.text.clear();
    }

    /// The next chunk begins with as much room.
    fn take(&mut self) -> Vec<u8> {
        self.events = 0;
        let room = self.text.capacity();
        std::mem::replace(&mut self.text, Vec::with_capacity(room))
    }
}

/// A word of a line.
#[derive(Debug, Clone, Copy)]
enum TraceWord {
    Number(u64),
    Sign(u8),
    /// The set of that number.
    Set(u64),
}

/// Digits of the largest number.
const DIGITS: usize = u64::MAX.ilog10() as usize + 1;

/// A part of a launch's line that many lines have.
#[derive(Debug, Clone, Copy, Default)]
struct ShortText {
    bytes: [u8; Self::MOST],
    length: u8,
}

impl ShortText {
    /// A kind with its blank, a number, and a blank, or less.
    const MOST: usize = 2 + DIGITS + 1;

    /// The words without blanks between them.
    fn of<const WORDS: usize>(words: [TraceWord; WORDS]) -> Self {
        let mut line = LineEnd::new();
        words.into_iter().rev().for_each(|word| line.prepend_word(word));
        let mut text = Self { length: line.bytes().len() as u8, ..Self::default() };
        text.bytes[..line.bytes().len()].copy_from_slice(line.bytes());
        text
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The end of a line, written from its last byte to its first, as the digits of a number come: a
/// launch cannot pay for `write!`, nor for a copy of each word.
struct LineEnd {
    bytes: [u8; Self::MOST],
    first: usize,
}

impl LineEnd {
    /// A kind, four words with a sign or a blank before each, and the line's end.
    const MOST: usize = 2 + 4 * (DIGITS + 1) + 1;

    #[inline]
    fn new() -> Self {
        Self { bytes: [0; Self::MOST], first: Self::MOST }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.first..]
    }

    #[inline]
    fn prepend(&mut self, byte: u8) {
        self.first -= 1;
        self.bytes[self.first] = byte;
    }

    #[inline]
    fn prepend_word(&mut self, word: TraceWord) {
        match word {
            TraceWord::Number(number) => self.prepend_number(number),
            TraceWord::Sign(sign) => self.prepend(sign),
            TraceWord::Set(number) => {
                self.prepend_number(number);
                self.prepend(b'=');
            }
        }
    }

    /// Decimal digits, without leading zeros.
    #[inline]
    fn prepend_number(&mut self, mut number: u64) {
        loop {
            self.prepend(b'0' + (number % 10) as u8);
            number /= 10;
            if number == 0 {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: an address that is used twice gives two blocks one name, and the trace means
    //! something else.
    use proptest::prelude::*;

    use super::*;

    fn text(log: &mut Log) -> String {
        String::from_utf8(log.take()).expect("text")
    }

    #[test]
    fn blocks_and_streams_get_numbers_of_their_own() {
        let (mut log, [one, two]) = (Log::new(), [StreamId(17), StreamId(4)]);
        assert_eq!(text(&mut log), HEADER);
        log.allocated(0x1000, 512, Some(one));
        log.freed(0x1000, Some(two));
        log.allocated(0x1000, 7, None);
        log.freed(0x2000, None);
        log.waited(Some(two));
        log.waited(None);
        assert_eq!(text(&mut log), "a 0 512 0 4096\nf 0 1\na 1 7 - 4096\ns 1\ns *\n");
        assert_eq!(text(&mut log), "");
    }

    #[test]
    fn the_time_is_written_where_it_has_changed_enough() {
        let mut log = Log::new();
        text(&mut log);
        let live = BytesByTier { device: 7, peer: 0, host: u64::MAX };
        for (at, is_exact) in [(0, false), (99, false), (99, true), (150, false), (200, false)] {
            log.time(at, is_exact, || live);
        }
        log.marked("step 1");
        log.refused(5);
        assert_eq!(log.events, 0, "a replay has nothing to do");
        let most = u64::MAX;
        let times = [0, 99, 200].map(|at| format!("t {at} 7 0 {most}\n")).concat();
        assert_eq!(text(&mut log), format!("{times}k step 1\no 5\n"));
    }

    #[test]
    fn pieces_have_names_of_their_own() {
        let mut log = Log::new();
        text(&mut log);
        log.allocated(0x1000, 512, None);
        let steps = [PieceStep::Made { bytes: 2048 }, PieceStep::Mapped, PieceStep::Released];
        steps.into_iter().chain([PieceStep::Held, PieceStep::Unmapped]).for_each(|step| log.piece(0, step));
        assert_eq!(log.events, 6, "each line counts for the chunk");
        assert_eq!(text(&mut log), "a 0 512 - 4096\nc 0 2048\nm 0\nr 0\nh 0\nu 0\n");
    }

    #[test]
    fn a_block_that_went_with_its_context_is_freed_when_its_address_comes_back() {
        let mut log = Log::new();
        text(&mut log);
        log.allocated(0x1000, 1, None);
        log.allocated(0x1000, 2, None);
        assert_eq!(text(&mut log), "a 0 1 - 4096\nf 0 -\na 1 2 - 4096\n");
    }

    #[test]
    fn a_set_is_written_once_and_a_block_that_comes_again_is_another() {
        let block = |address| TouchedBlock { address, bytes: 512, id: address, device: 0 };
        let (mut log, stream) = (Log::new(), StreamId(9));
        assert_eq!(text(&mut log), HEADER);
        log.allocated(0x1000, 1, None);
        log.allocated(0x2000, 1, None);
        log.launched(stream, Some(&[block(0x2000), block(0x1000)]));
        log.launched(stream, Some(&[block(0x1000), block(0x2000)]));
        log.launched(stream, Some(&[block(0x9000)]));
        log.launched(stream, None);
        log.freed(0x1000, None);
        log.allocated(0x1000, 1, None);
        log.launched(stream, Some(&[block(0x1000), block(0x2000)]));
        log.launched(stream, Some(&[block(0x1000), block(0x2000)]));
        let launches: Vec<_> =
            text(&mut log).lines().filter(|line| line.starts_with('l')).map(str::to_owned).collect();
        assert_eq!(launches, ["l 0 0,1", "l 0 =0", "l 0 -", "l 0 ?", "l 0 1,2", "l 0 =1"]);
    }

    #[test]
    fn a_set_that_is_met_again_is_written_for_the_stream_of_the_launch() {
        let block = |address| TouchedBlock { address, bytes: 512, id: address, device: 0 };
        let (mut log, streams) = (Log::new(), [StreamId(9), StreamId(3)]);
        (0..12).for_each(|index| log.allocated(0x1000 * (index + 1), 1, None));
        text(&mut log);
        let mut expected = Vec::new();
        for round in 0..3 {
            for index in 0..12_u64 {
                let name = (index % 2) as usize;
                log.launched(streams[name], Some(&[block(0x1000 * (index + 1))]));
                expected.push(format!("l {name} {}{index}", if round == 0 { "" } else { "=" }));
            }
        }
        assert_eq!(log.events, 12 * 3, "each line counts for the chunk");
        assert_eq!(text(&mut log).lines().collect::<Vec<_>>(), expected);
        let longest = ShortText::of([
            TraceWord::Sign(b'l'),
            TraceWord::Sign(b' '),
            TraceWord::Number(u64::MAX),
            TraceWord::Sign(b' '),
        ]);
        assert_eq!(longest.bytes(), format!("l {} ", u64::MAX).as_bytes());
    }

    proptest! {
        #[test]
        fn numbers_are_written_as_the_standard_library_does(number in any::<u64>(), shift in 0..64_u32) {
            let mut line = LineEnd::new();
            line.prepend_number(number >> shift);
            let digits = String::from_utf8(line.bytes().to_vec()).expect("digits");
            prop_assert_eq!(digits, (number >> shift).to_string());
        }
    }
}
