//! One table, and the operations on it: by each library in turns, and by the plainest kernel
//! between them.
//!
//! A library whose rank fails gets no rate for that operation, and new ranks for the next one. A
//! library whose ranks do not meet is not tried again.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};

use super::group::RankGroup;
use super::islands::IslandShape;
use super::orders::{RankAnswer, RankOrder, TableForm, TableOperation, TableRequest, TableType};
use super::rows::{BenchRow, LibraryOutcome};
use wmctl::bench::comparison::median;

/// Calls before any is timed, and calls by which is estimated how many there are to be.
const WARM_UP: u64 = 2;
const ESTIMATED: u64 = 2;
/// Calls in which a cache learns.
const LEARNING: u64 = 12;
const MOST_CALLS: f64 = 100_000.0;

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    pub(super) seconds: f64,
    pub(super) repeat: usize,
    pub(super) shape: IslandShape,
    pub(super) patience: Duration,
}

/// A library, and its ranks while there are any.
pub(super) struct LibrarySide {
    pub(super) library: PathBuf,
    group: Option<RankGroup>,
    /// Its ranks also meet over NCCL, which is measured by itself.
    pub(super) has_network: bool,
    /// Its ranks did not meet: it is not tried any more.
    is_refused: bool,
    /// Operations over islands that failed: they are not tried on tables of the same type.
    failed: Vec<(TableType, TableOperation)>,
    pub(super) failures: Vec<String>,
}

/// One that takes its turn.
struct Contestant {
    side: usize,
    operation: TableOperation,
    count: u64,
    rates: Vec<f64>,
    outcome: Option<LibraryOutcome>,
}

impl LibrarySide {
    pub(super) fn new(library: PathBuf) -> Self {
        Self {
            library,
            group: None,
            has_network: false,
            is_refused: false,
            failed: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Opens the library in a rank of its own.
    ///
    /// # Errors
    /// Why that rank does not come as far as to make a unique id.
    pub(super) fn probe(&self, effort: &Effort) -> Result<()> {
        RankGroup::probe(&self.library, effort.shape, effort.patience)
    }

    /// Ends its ranks. The next table gets fresh ones.
    pub(super) fn rest(&mut self) {
        if let Some(group) = self.group.take() {
            group.end();
        }
    }

    /// Makes a table, with fresh ranks if there are none. Does a plain kernel reach all of it?
    fn make(&mut self, request: TableRequest, effort: &Effort) -> Result<bool> {
        if self.group.is_none() {
            let group = RankGroup::start(&self.library, effort.shape, effort.patience);
            let mut group = group.inspect_err(|_| self.is_refused = true)?;
            if self.has_network {
                group.meet_network()?;
            }
            self.group = Some(group);
        }
        let answers = self.together(&RankOrder::Make(request))?;
        Ok(answers.iter().all(|answer| *answer == RankAnswer::Made { is_mapped: true }))
    }

    /// An order to all ranks. Where one fails, all end.
    fn together(&mut self, order: &RankOrder) -> Result<Vec<RankAnswer>> {
        let Some(mut group) = self.group.take() else { bail!("its ranks have ended") };
        let answers = group.together(order)?;
        self.group = Some(group);
        Ok(answers)
    }

    /// Elements that were not right, of all ranks.
    fn check(&mut self, operation: TableOperation) -> Result<u64> {
        let answers = self.together(&RankOrder::Check(operation))?;
        Ok(answers
            .iter()
            .map(|answer| if let RankAnswer::Wrong(elements) = answer { *elements } else { 0 })
            .sum())
    }

    /// Seconds from the first rank's begin to the last one's end.
    fn run(&mut self, operation: TableOperation, count: u64) -> Result<f64> {
        let answers = self.together(&RankOrder::Run(operation, count))?;
        let times = answers.iter().filter_map(|answer| {
            if let RankAnswer::Ran(begin, end) = answer { Some((*begin, *end)) } else { None }
        });
        let (begin, end) = times.fold((u64::MAX, 0), |all, one| (all.0.min(one.0), all.1.max(one.1)));
        Ok(end.saturating_sub(begin).max(1) as f64 / 1e9)
    }

    fn record_failure(&mut self, what: &str, reason: &anyhow::Error) {
        let sentence = format!("{}, {what}: {reason:#}", self.library.display());
        eprintln!("failed: {sentence}");
        self.failures.push(sentence);
    }
}

/// Measures operations on one table; a row for each.
pub(super) fn measure(
    sides: &mut [LibrarySide],
    request: TableRequest,
    operations: &[TableOperation],
    effort: &Effort,
) -> Vec<BenchRow> {
    let mut mapped = Vec::new();
    for side in sides.iter_mut() {
        let made = if side.is_refused { Ok(false) } else { side.make(request, effort) };
        mapped.push(made.as_ref().copied().unwrap_or(false));
        let _ = made.inspect_err(|reason| side.record_failure("a table", reason));
    }
    let row = |operation: &TableOperation| compare(sides, request, *operation, mapped[0], effort);
    let rows = operations.iter().map(row).collect();
    for side in sides.iter_mut().filter(|side| side.group.is_some()) {
        let _ = side
            .together(&RankOrder::Close)
            .inspect_err(|reason| side.record_failure("closing a table", reason));
    }
    rows
}

fn compare(
    sides: &mut [LibrarySide],
    request: TableRequest,
    operation: TableOperation,
    is_mapped: bool,
    effort: &Effort,
) -> BenchRow {
    let entry = |side, operation| Contestant { side, operation, count: 0, rates: Vec::new(), outcome: None };
    let mut contestants: Vec<_> = (0..sides.len()).map(|side| entry(side, operation)).collect();
    contestants.extend(plainest(operation, request.form, is_mapped).map(|plain| entry(0, plain)));
    for contestant in &mut contestants {
        contestant.attempt(sides, request, |contestant, side| contestant.prepare(side, request.form, effort));
    }
    for _ in 0..effort.repeat.max(1) {
        for contestant in &mut contestants {
            contestant.attempt(sides, request, |contestant, side| contestant.take_turn(side, request));
        }
    }
    let mut outcomes = contestants.into_iter().map(Contestant::outcome);
    let ours = outcomes.next().unwrap_or(LibraryOutcome::Failed);
    let beside = if sides.len() > 1 { outcomes.next() } else { None };
    let row = BenchRow::new(operation, request, ours, beside, outcomes.next());
    row.tell();
    row
}

/// The plainest way to do the same: by a kernel that reaches all of the table, or by NCCL.
fn plainest(operation: TableOperation, form: TableForm, is_mapped: bool) -> Option<TableOperation> {
    match operation {
        // As many bytes pass to the owners of rows as pass from them.
        TableOperation::Gather | TableOperation::Scatter if form == TableForm::Spanning => {
            Some(TableOperation::PlainExchange)
        }
        TableOperation::Gather if is_mapped => Some(TableOperation::PlainGather),
        TableOperation::Scatter if is_mapped => Some(TableOperation::PlainScatter),
        _ => None,
    }
}

impl Contestant {
    /// Does something unless it is out already; where that fails it is out.
    fn attempt(
        &mut self,
        sides: &mut [LibrarySide],
        request: TableRequest,
        body: impl FnOnce(&mut Self, &mut LibrarySide) -> Result<()>,
    ) {
        let side = &mut sides[self.side];
        if self.outcome.is_some() {
            return;
        }
        let tried = (request.memory_type, self.operation);
        if side.group.is_none() || side.failed.contains(&tried) {
            self.outcome = Some(LibraryOutcome::Failed);
        } else if let Err(reason) = body(self, side) {
            side.record_failure(&format!("{:?}", self.operation), &reason);
            self.outcome = Some(LibraryOutcome::Failed);
            // Ranks that meet again over NCCL take seconds.
            if request.form == TableForm::Spanning {
                side.failed.push(tried);
            }
        }
    }

    /// Lets a cache learn, compares bytes, warms up, and finds out how many calls take as long as
    /// they are to.
    fn prepare(&mut self, side: &mut LibrarySide, form: TableForm, effort: &Effort) -> Result<()> {
        // So that the rows of a cache are compared, too.
        if matches!(form, TableForm::Cached(_)) {
            side.run(TableOperation::Warm, LEARNING)?;
        }
        let wrong = side.check(self.operation)?;
        if wrong > 0 {
            eprintln!("wrong: {}, {:?}: {wrong} elements", side.library.display(), self.operation);
            self.outcome = Some(LibraryOutcome::Wrong);
            return Ok(());
        }
        side.run(self.operation, WARM_UP)?;
        let one = side.run(self.operation, ESTIMATED)? / ESTIMATED as f64;
        self.count = (effort.seconds / one).ceil().clamp(1.0, MOST_CALLS) as u64;
        Ok(())
    }

    fn take_turn(&mut self, side: &mut LibrarySide, request: TableRequest) -> Result<()> {
        let seconds = side.run(self.operation, self.count)?;
        let unit = if self.operation == TableOperation::Step { 1 } else { request.row_bytes };
        self.rates.push((self.count * request.count * unit) as f64 / seconds);
        Ok(())
    }

    fn outcome(self) -> LibraryOutcome {
        self.outcome.unwrap_or_else(|| LibraryOutcome::Rate(median(self.rates)))
    }
}
