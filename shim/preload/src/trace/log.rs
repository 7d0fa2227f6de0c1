//! Events put into words: a block's address becomes a number that is never used again, a stream's
//! identity a small one, and a set of blocks that launches use again and again is written once.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use wm_driver::StreamId;
use wm_schema::BytesByTier;

use super::line::{ShortText, TraceLine, TraceWord};
use super::places::BlockPlaces;
use crate::events::PieceStep;
use crate::launches::TouchedBlock;
use crate::recording::EventText;

/// How many events and bytes are live at the end is not known when the first line is written.
const HEADER: &str = "# wmshim-trace 5; events ?; peak_live_bytes ?; a ID BYTES STREAM ADDRESS (=N the Nth address that \
                      was written out) | f ID STREAM | \
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

/// A set of blocks, lowest number first. A launch with more blocks than fit inline allocates memory
/// under the log's lock.
type BlockNumbers = SmallVec<[u64; 8]>;

/// The chunk under way.
#[derive(Debug)]
pub(super) struct Log {
    text: Vec<u8>,
    events: usize,
    blocks: BlockPlaces,
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
            blocks: BlockPlaces::new(),
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
        self.text.capacity() - self.text.len() >= TraceLine::ROOM
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
        let id = self.next;
        self.next += 1;
        let (gone, place) = self.blocks.allocated(address, id);
        // A context that ended took its blocks with it, and the addresses are given out again.
        if let Some(gone) = gone {
            self.line(b"f ", [TraceWord::Number(gone), TraceWord::Sign(b'-')]);
        }
        let stream = self.stream(stream);
        self.line(b"a ", [TraceWord::Number(id), TraceWord::Number(bytes as u64), stream, place]);
    }

    /// An address that no live block starts at is left out: the manager is about to refuse it.
    pub(super) fn freed(&mut self, address: u64, stream: Option<StreamId>) {
        if let Some(id) = self.blocks.freed(address) {
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
            self.blocks.block(block.address).into_iter().for_each(|id| ids.push(id));
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
        self.sets.insert(ids, ShortText::of([TraceWord::Earlier(self.next_set), TraceWord::Sign(b'\n')]));
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
        let mut line = TraceLine::new();
        kind.iter().for_each(|byte| line.push(*byte));
        for (index, word) in words.into_iter().enumerate() {
            if index > 0 {
                line.push(b' ');
            }
            line.push_word(word);
        }
        line.push(b'\n');
        line.append_to(&mut self.text);
    }

    /// A launch with a new set.
    fn list_line(&mut self, stream: TraceWord, ids: &[u64]) {
        self.line(b"l ", [stream]);
        for (index, id) in ids.iter().enumerate() {
            // In place of the line's end, or behind the number before.
            if index == 0 {
                self.text.pop();
            }
            let mut word = TraceLine::new();
            word.push(if index == 0 { b' ' } else { b',' });
            word.push_word(TraceWord::Number(*id));
            word.append_to(&mut self.text);
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

#[cfg(test)]
mod tests {
    //! Hazard: an address that is used twice gives two blocks one name, and the trace means
    //! something else.
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
        assert_eq!(text(&mut log), "a 0 512 0 4096\nf 0 1\na 1 7 - =0\ns 1\ns *\n");
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
        assert_eq!(text(&mut log), "a 0 1 - 4096\nf 0 -\na 1 2 - =0\n");
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
    }
}
