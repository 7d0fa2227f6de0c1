//! The steps of an exchange between islands: in each, what passes over the network and which
//! kernels run beside it. Pure.
//!
//! A pair of ranks, one of which asks and one of which serves, exchanges its rows in chunks of the
//! same number of rows; the pair alone knows how many chunks it has. Buffers of a chunk are two a
//! pair and use, taken in turns.
//!
//! | | the network, in step `t` | kernels, in step `t` |
//! |---|---|---|
//! | gather | numbers of chunk `t`, rows of chunk `t - 2` | serve chunk `t - 1`, deliver chunk `t - 3` |
//! | scatter | numbers and rows of chunk `t` | pack chunk `t + 1`, apply chunk `t - 1` |
//!
//! The numbers of a pair that has few of them have come with the asking rank's record; then they do
//! not pass in steps. A step in which this rank has nothing to do is left out.
//!
//! Where ranks of an island *borrow* rows from each other, each of its ranks makes every step up to
//! the last one of any of them, and they meet in the messages of all steps but the first and the
//! last: the messages of step `t` have passed at a rank only when those of step `t - 1` have at all
//! of them, and the kernels of step `t - 1` have ended. Rows arrive in four buffers in turn there.
//! Ranks find in step 2 which rows they borrow, and read chunk `t - 4` in step `t`.
//!
//! A scatter has a step before the first, which packs chunk 0. Kernels of a step run after the
//! network of the step before; the network of a step runs after the kernels of the step before.
//!
//! Invariants: a buffer is written in a step only if its last use was in an earlier step of the
//! other kind, or two steps before; between two ranks both send and receive in the same order, in
//! each step numbers before rows.

use crate::spanning::rails;
use crate::spanning::record::RowOperation;
use crate::vocabulary::islands::Islands;

/// Buffers of a pair for one use.
const TURNS: u64 = 2;
/// The same for rows that arrive where all ranks of the island read them.
pub const SHARED_TURNS: u64 = 4;
/// Uses: numbers that arrive, rows that leave, rows that arrive.
const USES: u64 = 3;
/// Alignment of a buffer, bytes.
const ALIGNMENT: u64 = 256;

/// What a buffer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Numbers that arrive.
    Numbers = 0,
    /// Rows that leave.
    Leaving = 1,
    /// Rows that arrive.
    Arriving = 2,
}

/// The memory of an exchange: buffers of equal size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagingShape {
    /// Pairs of a rank in a direction.
    partners: u64,
    /// Bytes of a buffer.
    buffer: u64,
}

impl StagingShape {
    /// For so many partners: `bytes` for the chunks of all of them, and room for a row of
    /// `longest_row` bytes in each.
    pub fn new(partners: usize, bytes: u64, longest_row: u64) -> Self {
        let partners = partners as u64;
        let buffer = (bytes / partners).max(longest_row).max(ALIGNMENT).next_multiple_of(ALIGNMENT);
        Self { partners, buffer }
    }

    /// All buffers, bytes.
    pub fn bytes(&self) -> u64 {
        USES * TURNS * self.partners * self.buffer
    }

    /// Where a chunk's buffer begins, for the partner with a number.
    pub fn at(&self, purpose: Use, partner: usize, chunk: u64) -> u64 {
        ((purpose as u64 * TURNS + chunk % TURNS) * self.partners + partner as u64) * self.buffer
    }

    /// Does a row of so many bytes fit into a buffer?
    pub fn fits(&self, row_bytes: u64) -> bool {
        row_bytes <= self.buffer
    }

    /// Bytes of the buffers in which rows of a rank arrive that its island shares.
    pub fn shared_bytes(&self) -> u64 {
        self.shared_buffers() * self.buffer
    }

    /// How many these are.
    pub fn shared_buffers(&self) -> u64 {
        SHARED_TURNS * self.partners
    }

    /// The number of a chunk's buffer among them.
    pub fn shared_buffer(&self, partner: usize, chunk: u64) -> u64 {
        chunk % SHARED_TURNS * self.partners + partner as u64
    }

    /// Where one of them begins.
    pub fn shared_at(&self, buffer: u64) -> u64 {
        buffer * self.buffer
    }

    /// From one buffer of a pair to the next, by their numbers.
    pub fn shared_apart(&self) -> u64 {
        self.partners
    }

    /// Rows of a chunk, whose numbers and rows fit into a buffer each.
    pub fn chunk_rows(&self, row_bytes: u64, number_bytes: u64) -> u64 {
        (self.buffer / row_bytes.max(number_bytes).max(1)).max(1)
    }
}

/// A pair that this rank is one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The other rank.
    pub peer: usize,
    /// Its number among the pairs of this direction.
    pub partner: usize,
    /// Rows that are exchanged.
    pub rows: u64,
    /// Of a pair in which this rank asks: its first number among all that are sent.
    pub first: u64,
    /// All its numbers have come with the asking rank's record.
    pub is_opened: bool,
}

/// A part of a pair's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowChunk {
    /// The pair.
    pub pair: Pair,
    /// The chunk's number, from 0.
    pub number: u64,
    /// The first of its rows, among those of the pair.
    pub start: u64,
    /// Rows.
    pub rows: u64,
}

/// Something that passes over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Numbers of a chunk leave for the server.
    SendNumbers(RowChunk),
    /// Numbers of a chunk arrive at the server.
    ReceiveNumbers(RowChunk),
    /// Rows of a chunk leave.
    SendRows(RowChunk),
    /// Rows of a chunk arrive.
    ReceiveRows(RowChunk),
}

impl Message {
    /// What passes.
    pub fn chunk(&self) -> RowChunk {
        match *self {
            Self::SendNumbers(chunk)
            | Self::ReceiveNumbers(chunk)
            | Self::SendRows(chunk)
            | Self::ReceiveRows(chunk) => chunk,
        }
    }
}

/// Work on a chunk by a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// The server's table to rows that leave (gather).
    Serve(RowChunk),
    /// Rows that have arrived to the caller's memory (gather).
    Deliver(RowChunk),
    /// The caller's memory to rows that leave (scatter).
    Pack(RowChunk),
    /// Rows that have arrived to the server's table (scatter).
    Apply(RowChunk),
    /// The ranks of the island have said where the rows arrive that they ask for: this rank finds
    /// those that it borrows.
    Locate,
    /// Rows of the chunks with a number that have arrived at ranks of the island, to this rank's
    /// caller (gather).
    Borrow(u64),
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeStep {
    /// What passes, in order.
    pub messages: Vec<Message>,
    /// With the messages the ranks of this island meet.
    pub meets: bool,
    /// Kernels.
    pub tasks: Vec<Task>,
}

/// The exchange of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangePlan {
    operation: RowOperation,
    chunk_rows: u64,
    /// This rank asks.
    asking: Vec<Pair>,
    /// This rank serves.
    serving: Vec<Pair>,
    /// The chunks that a rank of this island asks for at most, if ranks of it borrow rows; else 0.
    shared: i64,
}

impl ExchangePlan {
    /// The plan of a rank; `counts[rank][island]` are the rows that each rank has for each island.
    /// Records bring numbers of `opening_rows` rows a pair.
    pub fn new(
        operation: RowOperation,
        islands: &Islands,
        rank: usize,
        counts: &[Vec<u64>],
        (chunk_rows, opening_rows): (u64, u64),
    ) -> Self {
        let own = islands.of(rank);
        let mut first = 0;
        let others = (0..islands.count()).filter(|island| *island != own).enumerate();
        let asking = others.map(|(partner, island)| {
            let rows = counts[rank][island];
            let (peer, is_opened) = (rails::server(islands, rank, island), rows <= opening_rows);
            let pair = Pair { peer, partner, rows, first, is_opened };
            first += rows;
            pair
        });
        let asking = asking.collect();
        let clients = rails::clients(islands, rank).into_iter().enumerate();
        let serve = |(partner, peer): (usize, usize)| {
            let rows = counts[peer][own];
            Pair { peer, partner, rows, first: 0, is_opened: rows <= opening_rows }
        };
        Self { operation, chunk_rows, asking, serving: clients.map(serve).collect(), shared: 0 }
    }

    /// The same gather, where ranks of this rank's island borrow rows from each other.
    pub fn sharing(self, islands: &Islands, rank: usize, counts: &[Vec<u64>]) -> Self {
        let own = islands.of(rank);
        let others = |member: &usize| {
            let all = counts[*member].iter().take(islands.count()).enumerate();
            all.filter(|(island, _)| *island != own).map(|(_, rows)| rows.div_ceil(self.chunk_rows)).max()
        };
        let most = islands.members(own).iter().filter_map(others).max().unwrap_or_default();
        Self { shared: most.cast_signed(), ..self }
    }

    /// The pairs in which this rank asks.
    pub fn asking(&self) -> &[Pair] {
        &self.asking
    }

    /// All numbers have come with the records, and the rows of each pair are one chunk: kernels
    /// have nothing to do beside the network.
    pub fn is_short(&self) -> bool {
        self.pairs().all(|pair| pair.is_opened && pair.rows <= self.chunk_rows)
    }

    fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.asking.iter().chain(&self.serving)
    }

    /// The steps, in order.
    pub fn steps(&self) -> impl Iterator<Item = ExchangeStep> + '_ {
        let chunks = self.pairs().map(|pair| pair.rows.div_ceil(self.chunk_rows));
        let most = chunks.max().unwrap_or_default().cast_signed();
        let steps = match self.operation {
            RowOperation::Gather => 0..(most + 3).max(self.shared + 4),
            RowOperation::Scatter => -1..most + 1,
        };
        let steps = steps.filter(move |_| most > 0 || self.shared > 0).map(|step| self.step(step));
        steps.filter(|step| step.meets || !step.messages.is_empty() || !step.tasks.is_empty())
    }

    fn step(&self, step: i64) -> ExchangeStep {
        let asked = |number| chunks(&self.asking, self.chunk_rows, number);
        let served = |number| chunks(&self.serving, self.chunk_rows, number);
        let numbers = asked(step).map(Message::SendNumbers).chain(served(step).map(Message::ReceiveNumbers));
        let numbers = numbers.filter(|message| !message.chunk().pair.is_opened);
        match self.operation {
            RowOperation::Gather => ExchangeStep {
                messages: numbers
                    .chain(served(step - 2).map(Message::SendRows))
                    .chain(asked(step - 2).map(Message::ReceiveRows))
                    .collect(),
                meets: self.shared > 0 && (1..self.shared + 3).contains(&step),
                tasks: served(step - 1)
                    .map(Task::Serve)
                    .chain(asked(step - 3).map(Task::Deliver))
                    .chain(self.borrowed(step))
                    .collect(),
            },
            RowOperation::Scatter => ExchangeStep {
                messages: numbers
                    .chain(asked(step).map(Message::SendRows))
                    .chain(served(step).map(Message::ReceiveRows))
                    .collect(),
                meets: false,
                tasks: asked(step + 1).map(Task::Pack).chain(served(step - 1).map(Task::Apply)).collect(),
            },
        }
    }

    fn borrowed(&self, step: i64) -> impl Iterator<Item = Task> {
        let locate = (self.shared > 0 && step == 2).then_some(Task::Locate);
        let chunk = u64::try_from(step - 4).ok().filter(|chunk| chunk.cast_signed() < self.shared);
        locate.into_iter().chain(chunk.map(Task::Borrow))
    }
}

/// The chunks with a number of those pairs that have so many.
fn chunks(pairs: &[Pair], rows: u64, number: i64) -> impl Iterator<Item = RowChunk> + '_ {
    let number = u64::try_from(number).ok();
    pairs.iter().filter_map(move |pair| {
        let number = number?;
        let start = number.checked_mul(rows).filter(|start| *start < pair.rows)?;
        Some(RowChunk { pair: *pair, number, start, rows: rows.min(pair.rows - start) })
    })
}

#[cfg(test)]
mod shared_tests;
#[cfg(test)]
mod tests;
