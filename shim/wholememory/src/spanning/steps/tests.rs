//! Hazard (deadlock): ranks wait for messages that do not come, a buffer is written
//! while it is in use, or a row is left out. All ranks are played in a model of the network, where
//! messages between two ranks come in the order in which they were sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

/// Row `number` of those that rank `.0` has for island `.1`.
type Row = (usize, usize, u64);

struct RankModel {
    steps: Vec<ExchangeStep>,
    /// Content of buffers.
    buffers: BTreeMap<u64, Vec<Row>>,
    /// Rows at the caller (gather) or at the server (scatter), in the order of their arrival.
    arrived: Vec<Row>,
}

struct Model {
    operation: RowOperation,
    islands: Islands,
    shape: StagingShape,
    ranks: Vec<RankModel>,
    network: BTreeMap<(usize, usize), VecDeque<Vec<Row>>>,
}

impl Model {
    /// `rows` of a chunk, and of those whose numbers come with the records.
    fn new(operation: RowOperation, islands: Islands, counts: &[Vec<u64>], rows: (u64, u64)) -> Self {
        let plan = |rank| ExchangePlan::new(operation, &islands, rank, counts, rows).steps().collect();
        let model = |rank| RankModel { steps: plan(rank), buffers: BTreeMap::new(), arrived: Vec::new() };
        let ranks = (0..counts.len()).map(model).collect();
        let shape = StagingShape::new(rails::most_partners(&islands), 1 << 12, 64);
        Self { operation, islands, shape, ranks, network: BTreeMap::new() }
    }

    fn at(&self, purpose: Use, chunk: &RowChunk) -> u64 {
        self.shape.at(purpose, chunk.pair.partner, chunk.number)
    }

    /// The rows of a chunk for which `rank` asks.
    fn asked(&self, rank: usize, chunk: &RowChunk) -> Vec<Row> {
        let island = self.islands.of(chunk.pair.peer);
        (chunk.start..chunk.start + chunk.rows).map(|row| (rank, island, row)).collect()
    }

    /// The numbers of a chunk that `rank` serves.
    fn numbers(&self, rank: usize, chunk: &RowChunk) -> Vec<Row> {
        match chunk.pair.is_opened {
            true => {
                let own = self.islands.of(rank);
                (chunk.start..chunk.start + chunk.rows).map(|row| (chunk.pair.peer, own, row)).collect()
            }
            false => self.ranks[rank].buffers[&self.at(Use::Numbers, chunk)].clone(),
        }
    }

    fn buffers_of_message(&self, message: Message) -> Option<u64> {
        match message {
            Message::SendNumbers(_) => None,
            Message::ReceiveNumbers(chunk) => Some(self.at(Use::Numbers, &chunk)),
            Message::SendRows(chunk) => Some(self.at(Use::Leaving, &chunk)),
            Message::ReceiveRows(chunk) => Some(self.at(Use::Arriving, &chunk)),
        }
    }

    fn buffers_of_task(&self, task: Task) -> Vec<u64> {
        let numbers = |chunk: &RowChunk| match chunk.pair.is_opened {
            true => vec![],
            false => vec![self.at(Use::Numbers, chunk)],
        };
        match task {
            Task::Serve(chunk) => [numbers(&chunk), vec![self.at(Use::Leaving, &chunk)]].concat(),
            Task::Deliver(chunk) => vec![self.at(Use::Arriving, &chunk)],
            Task::Pack(chunk) => vec![self.at(Use::Leaving, &chunk)],
            Task::Apply(chunk) => [numbers(&chunk), vec![self.at(Use::Arriving, &chunk)]].concat(),
            Task::Locate | Task::Borrow(_) => vec![],
        }
    }

    fn send(&mut self, rank: usize, message: Message) {
        let (chunk, content) = match message {
            Message::SendNumbers(chunk) => (chunk, self.asked(rank, &chunk)),
            Message::SendRows(chunk) => {
                (chunk, self.ranks[rank].buffers[&self.at(Use::Leaving, &chunk)].clone())
            }
            _ => return,
        };
        assert_eq!(content.len() as u64, chunk.rows, "a buffer of another chunk leaves");
        self.network.entry((rank, chunk.pair.peer)).or_default().push_back(content);
    }

    fn receive(&mut self, rank: usize, message: Message) {
        let (chunk, purpose) = match message {
            Message::ReceiveNumbers(chunk) => (chunk, Use::Numbers),
            Message::ReceiveRows(chunk) => (chunk, Use::Arriving),
            _ => return,
        };
        let queue = self.network.get_mut(&(chunk.pair.peer, rank));
        let content = queue.and_then(VecDeque::pop_front).expect("a message that does not come");
        assert_eq!(content.len() as u64, chunk.rows, "messages of different lengths meet");
        let at = self.at(purpose, &chunk);
        self.ranks[rank].buffers.insert(at, content);
    }

    fn run(&mut self, rank: usize, task: Task) {
        let content = |at: u64| self.ranks[rank].buffers[&at].clone();
        let (chunk, rows, to) = match task {
            Task::Serve(chunk) => (chunk, self.numbers(rank, &chunk), Some(self.at(Use::Leaving, &chunk))),
            Task::Pack(chunk) => (chunk, self.asked(rank, &chunk), Some(self.at(Use::Leaving, &chunk))),
            Task::Deliver(chunk) => {
                let rows = content(self.at(Use::Arriving, &chunk));
                assert_eq!(rows, self.asked(rank, &chunk), "rows go to places of others");
                (chunk, rows, None)
            }
            Task::Apply(chunk) => {
                let rows = content(self.at(Use::Arriving, &chunk));
                assert_eq!(rows, self.numbers(rank, &chunk), "rows go to rows of others");
                (chunk, rows, None)
            }
            Task::Locate | Task::Borrow(_) => unreachable!("a plan that shares nothing"),
        };
        assert_eq!(rows.len() as u64, chunk.rows);
        match to {
            Some(to) => drop(self.ranks[rank].buffers.insert(to, rows)),
            None => self.ranks[rank].arrived.extend(rows),
        }
    }

    /// Plays each rank's steps in their order. A rank waits in a step until all messages that it
    /// receives there have been sent.
    fn play(&mut self) {
        let mut at = vec![0; self.ranks.len()];
        let mut has_sent = vec![false; self.ranks.len()];
        while let Some(rank) = (0..at.len()).find(|rank| self.goes_on(*rank, at[*rank], has_sent[*rank])) {
            let ExchangeStep { messages, tasks, .. } = self.ranks[rank].steps[at[rank]].clone();
            if !has_sent[rank] {
                self.check_buffers(&messages, &tasks);
                messages.iter().for_each(|message| self.send(rank, *message));
                has_sent[rank] = true;
            } else {
                messages.iter().for_each(|message| self.receive(rank, *message));
                tasks.iter().for_each(|task| self.run(rank, *task));
                (at[rank], has_sent[rank]) = (at[rank] + 1, false);
            }
        }
        let ends: Vec<_> = self.ranks.iter().map(|rank| rank.steps.len()).collect();
        assert_eq!(at, ends, "ranks wait for messages that do not come");
    }

    /// Has a rank a step in which it can go on?
    fn goes_on(&self, rank: usize, step: usize, has_sent: bool) -> bool {
        let Some(step) = self.ranks[rank].steps.get(step) else { return false };
        let mut wanted = BTreeMap::<usize, usize>::new();
        for message in &step.messages {
            if matches!(message, Message::ReceiveNumbers(_) | Message::ReceiveRows(_)) {
                *wanted.entry(message.chunk().pair.peer).or_default() += 1;
            }
        }
        let sent = |peer| self.network.get(&(peer, rank)).map_or(0, VecDeque::len);
        !has_sent || wanted.iter().all(|(peer, count)| sent(*peer) >= *count)
    }

    fn check_buffers(&self, messages: &[Message], tasks: &[Task]) {
        let used: Vec<_> = messages.iter().filter_map(|message| self.buffers_of_message(*message)).collect();
        let tasks: Vec<_> = tasks.iter().flat_map(|task| self.buffers_of_task(*task)).collect();
        let apart: BTreeSet<_> = used.iter().chain(&tasks).collect();
        assert_eq!(apart.len(), used.len() + tasks.len(), "a buffer has two uses in a step");
    }

    fn check(&self, counts: &[Vec<u64>]) {
        assert!(self.network.values().all(VecDeque::is_empty), "messages that no rank takes");
        let mut found: Vec<Row> = self.ranks.iter().flat_map(|rank| rank.arrived.iter().copied()).collect();
        found.sort_unstable();
        let all = |rank: usize| {
            let others = (0..self.islands.count()).filter(move |island| *island != self.islands.of(rank));
            others.flat_map(move |island| (0..counts[rank][island]).map(move |row| (rank, island, row)))
        };
        let mut wanted: Vec<Row> = (0..counts.len()).flat_map(all).collect();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
        for (rank, model) in self.ranks.iter().enumerate() {
            let is_here = |row: &Row| match self.operation {
                RowOperation::Gather => row.0 == rank,
                RowOperation::Scatter => row.1 == self.islands.of(rank),
            };
            assert!(model.arrived.iter().all(is_here), "rows that arrive at another rank");
        }
    }
}

proptest! {
    #[test]
    fn every_row_arrives_once(
        machines in prop::collection::vec(0_usize..4, 1..9),
        draws in prop::collection::vec(prop_oneof![Just(0_u64), 0_u64..40], 36),
        rows in 1_u64..12, opening in prop_oneof![Just(0_u64), 0_u64..50], is_gather in any::<bool>(),
    ) {
        let islands = Islands::new(machines.len(), |one, other| machines[one] == machines[other]);
        let counts: Vec<Vec<u64>> = (0..machines.len())
            .map(|rank| (0..islands.count()).map(|island| draws[(rank * 4 + island) % draws.len()]).collect())
            .collect();
        let operation = if is_gather { RowOperation::Gather } else { RowOperation::Scatter };
        let mut model = Model::new(operation, islands, &counts, (rows, opening));
        model.play();
        model.check(&counts);
    }

    #[test]
    fn chunks_fit_their_buffers(
        partners in 1_usize..70, bytes in 1_u64..1 << 24, longest in 1_u64..1 << 20, row in 1_u64..1 << 20,
    ) {
        let (shape, row) = (StagingShape::new(partners, bytes, longest), row.min(longest));
        let chunk = shape.chunk_rows(row, 8);
        let mut begins = BTreeSet::new();
        for purpose in [Use::Numbers, Use::Leaving, Use::Arriving] {
            for (partner, number) in (0..partners).flat_map(|partner| [(partner, 6), (partner, 7)]) {
                begins.insert(shape.at(purpose, partner, number));
            }
        }
        prop_assert_eq!(begins.len(), 6 * partners);
        let ends = begins.iter().skip(1).copied().chain([shape.bytes()]);
        for (begin, end) in begins.iter().zip(ends) {
            prop_assert!(begin + chunk * row.max(8) <= end, "{} rows of {}", chunk, row);
        }
    }
}
