//! A rank: a process with a GPU, one library, its communicator, and one table at a time. It
//! executes orders from standard input until that ends.

use std::io::stdin;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::islands::IslandShape;
use super::nccl::PlainNetwork;
use super::orders::{MARK, RankAnswer, RankOrder, TableOperation};
use super::process::RankProcess;
use super::subject::Subject;
use wmctl::output;

/// A rank with its table, once one is made.
struct Rank {
    process: RankProcess,
    subject: Option<Subject>,
}

/// Executes the orders on standard input.
///
/// # Errors
/// Standard input or output that fails. A failed order is an answer.
pub(super) fn serve(library: &Path, number: usize, shape: IslandShape) -> Result<()> {
    let mut rank = match RankProcess::enter(library, number, shape) {
        Ok(process) => Rank { process, subject: None },
        Err(error) => return say(&RankAnswer::Failed(format!("{error:#}"))),
    };
    for line in stdin().lines() {
        let order = serde_json::from_str(&line?).context("an order")?;
        say(&rank.execute(order).unwrap_or_else(|error| RankAnswer::Failed(format!("{error:#}"))))?;
    }
    rank.leave()
}

fn say(answer: &RankAnswer) -> Result<()> {
    output::print(&format!("{MARK}{}\n", serde_json::to_string(answer)?))
}

impl Rank {
    fn execute(&mut self, order: RankOrder) -> Result<RankAnswer> {
        let missing = || "an order for a table that was not made";
        let process = &mut self.process;
        match order {
            RankOrder::Identify => process.identify().map(RankAnswer::Identity),
            RankOrder::Meet(id) => process.meet(&id).map(|()| RankAnswer::Done),
            RankOrder::IdentifyNetwork => PlainNetwork::identify().map(RankAnswer::Identity),
            RankOrder::MeetNetwork(id) => process.meet_network(&id).map(|()| RankAnswer::Done),
            RankOrder::Make(request) => {
                let made = self.subject.insert(Subject::make(process, request)?);
                Ok(RankAnswer::Made { is_mapped: made.is_mapped() })
            }
            RankOrder::Check(operation) => {
                let subject = self.subject.as_mut().with_context(missing)?;
                subject.check(process, operation).map(RankAnswer::Wrong)
            }
            RankOrder::Run(operation, count) => {
                run(process, self.subject.as_ref().with_context(missing)?, operation, count)
            }
            RankOrder::Close => {
                self.subject.take().with_context(missing)?.close(process).map(|()| RankAnswer::Done)
            }
        }
    }

    fn leave(self) -> Result<()> {
        if let Some(subject) = self.subject {
            subject.close(&self.process)?;
        }
        self.process.leave()
    }
}

/// Performs an operation several times. All ranks begin together; the end is this rank's own.
fn run(rank: &RankProcess, subject: &Subject, operation: TableOperation, count: u64) -> Result<RankAnswer> {
    rank.drain()?;
    rank.barrier()?;
    let begin = now();
    (0..count).try_for_each(|turn| subject.perform(rank, operation, turn))?;
    rank.drain()?;
    Ok(RankAnswer::Ran(begin, now()))
}

/// The machine's monotonic clock, which all processes share, in nanoseconds.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer. The clock is one that every Linux has.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
