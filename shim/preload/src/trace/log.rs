//! Events put into words: a block's address becomes a number that is never used again, a stream's
//! identity a small one, and a set of blocks that launches use again and again is written once.

use std::collections::HashMap;
use std::fmt::Write;

use wm_driver::StreamId;

use crate::launches::TouchedBlock;

/// How many events and bytes are live at the end is not known when the first line is written.
const HEADER: &str = "# wmshim-trace 1; events ?; peak_live_bytes ?; a ID BYTES STREAM | f ID STREAM | \
                      s STREAM (host waited for the stream, * all); stream - = cuMemAlloc/cuMemFree\n";

/// Of a recording with launches, which readers of version 1 do not know.
const HEADER_OF_LAUNCHES: &str = "# wmshim-trace 2; events ?; peak_live_bytes ?; a ID BYTES STREAM | f ID STREAM | \
                                  s STREAM (host waited for the stream, * all) | l STREAM SET (a launch's blocks: IDs, \
                                  =N the Nth set of IDs, - none, ? unknown); stream - = cuMemAlloc/cuMemFree\n";

/// Sets that are remembered, at most. Blocks of most are gone by then.
const SETS: usize = 1 << 16;

/// Events in a chunk: what is lost when the process is killed. A chunk takes about 0.5 ms to
/// compress.
const CHUNK: usize = 4096;

/// The chunk under way.
#[derive(Debug)]
pub(super) struct Log {
    text: String,
    events: usize,
    /// Live blocks' numbers by address.
    blocks: HashMap<u64, u64>,
    next: u64,
    /// In order of appearance.
    streams: HashMap<StreamId, usize>,
    /// Numbers of sets by what is in them. Block numbers do not come again, so a set that is met
    /// again has live blocks.
    sets: HashMap<Box<[u64]>, u64>,
    /// Number of the next set.
    next_set: u64,
}

impl Log {
    pub(super) fn new(launches: bool) -> Self {
        let text = if launches { HEADER_OF_LAUNCHES } else { HEADER };
        Self {
            text: text.into(),
            events: 0,
            blocks: HashMap::new(),
            next: 0,
            streams: HashMap::new(),
            sets: HashMap::new(),
            next_set: 0,
        }
    }

    pub(super) fn allocated(&mut self, address: u64, bytes: usize, stream: Option<StreamId>) {
        // A context that ended took its blocks with it, and the addresses are given out again.
        self.freed(address, None);
        let (id, stream) = (self.next, self.stream(stream));
        self.next += 1;
        self.blocks.insert(address, id);
        self.line(format_args!("a {id} {bytes} {stream}"));
    }

    /// An address that no live block starts at is left out: the manager is about to refuse it.
    pub(super) fn freed(&mut self, address: u64, stream: Option<StreamId>) {
        if let Some(id) = self.blocks.remove(&address) {
            let stream = self.stream(stream);
            self.line(format_args!("f {id} {stream}"));
        }
    }

    /// `None`: for the device.
    pub(super) fn waited(&mut self, stream: Option<StreamId>) {
        let stream = stream.map_or(Name::All, |stream| self.stream(Some(stream)));
        self.line(format_args!("s {stream}"));
    }

    /// `None`: it is not known which blocks the launch uses. Blocks from before the recording began
    /// are left out.
    pub(super) fn launched(&mut self, stream: StreamId, blocks: Option<&[TouchedBlock]>) {
        let stream = self.stream(Some(stream));
        let Some(blocks) = blocks else { return self.line(format_args!("l {stream} ?")) };
        let mut ids: Vec<u64> =
            blocks.iter().filter_map(|block| self.blocks.get(&block.address).copied()).collect();
        ids.sort_unstable();
        if ids.is_empty() {
            self.line(format_args!("l {stream} -"));
        } else if let Some(number) = self.sets.get(&*ids) {
            let number = *number;
            self.line(format_args!("l {stream} ={number}"));
        } else {
            self.line(format_args!("l {stream} {}", Listed(&ids)));
            self.note_set(ids);
        }
    }

    fn note_set(&mut self, ids: Vec<u64>) {
        if self.sets.len() >= SETS {
            self.sets.clear();
        }
        self.sets.insert(ids.into(), self.next_set);
        self.next_set += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.events >= CHUNK
    }

    /// The chunk; a new one begins.
    pub(super) fn take(&mut self) -> String {
        self.events = 0;
        let room = self.text.capacity();
        std::mem::replace(&mut self.text, String::with_capacity(room))
    }

    fn stream(&mut self, stream: Option<StreamId>) -> Name {
        let fresh = self.streams.len();
        stream.map_or(Name::None, |stream| Name::Number(*self.streams.entry(stream).or_insert(fresh)))
    }

    fn line(&mut self, words: std::fmt::Arguments<'_>) {
        self.events += 1;
        // A string takes all that memory holds; without memory the process ends elsewhere.
        let _ = writeln!(self.text, "{words}");
    }
}

/// A stream as the format writes it.
enum Name {
    Number(usize),
    None,
    All,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::None => f.write_str("-"),
            Self::All => f.write_str("*"),
        }
    }
}

/// Numbers with commas between them.
struct Listed<'a>(&'a [u64]);

impl std::fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().enumerate().try_for_each(|(index, number)| {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{number}")
        })
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: an address that is used twice gives two blocks one name, and the trace means
    //! something else.
    use super::*;

    #[test]
    fn blocks_and_streams_get_numbers_of_their_own() {
        let (mut log, [one, two]) = (Log::new(false), [StreamId(17), StreamId(4)]);
        assert_eq!(log.take(), HEADER);
        log.allocated(0x1000, 512, Some(one));
        log.freed(0x1000, Some(two));
        log.allocated(0x1000, 7, None);
        log.freed(0x2000, None);
        log.waited(Some(two));
        log.waited(None);
        assert_eq!(log.take(), "a 0 512 0\nf 0 1\na 1 7 -\ns 1\ns *\n");
        assert_eq!(log.take(), "");
    }

    #[test]
    fn a_block_that_went_with_its_context_is_freed_when_its_address_comes_back() {
        let mut log = Log::new(false);
        log.take();
        log.allocated(0x1000, 1, None);
        log.allocated(0x1000, 2, None);
        assert_eq!(log.take(), "a 0 1 -\nf 0 -\na 1 2 -\n");
    }

    #[test]
    fn a_set_is_written_once_and_a_block_that_comes_again_is_another() {
        let block = |address| TouchedBlock { address, bytes: 512, id: address, device: 0 };
        let (mut log, stream) = (Log::new(true), StreamId(9));
        assert_eq!(log.take(), HEADER_OF_LAUNCHES);
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
            log.take().lines().filter(|line| line.starts_with('l')).map(str::to_owned).collect();
        assert_eq!(launches, ["l 0 0,1", "l 0 =0", "l 0 -", "l 0 ?", "l 0 1,2", "l 0 =1"]);
    }
}
