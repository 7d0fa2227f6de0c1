//! The ranks of one library, as the measuring process sees them: children that get orders and
//! answer them.
//!
//! A rank may abort, or wait for ever for one that did. So the measuring process reads from all at
//! once, with a time limit, and kills the rest of a group that failed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use super::islands::IslandShape;
use super::orders::{MARK, RankAnswer, RankOrder};

/// How long ranks may take to leave after their last order.
const FAREWELL: Duration = Duration::from_secs(10);

/// A message from a rank.
enum Heard {
    RankAnswer(RankAnswer),
    Ended,
}

/// All ranks of one library. Dropped, they are killed.
pub(super) struct RankGroup {
    ranks: Vec<RankChild>,
    heard: Receiver<(usize, Heard)>,
    patience: Duration,
}

struct RankChild {
    process: Child,
    /// Closed, it ends the rank.
    orders: Option<ChildStdin>,
}

impl RankGroup {
    /// Starts ranks, which meet.
    ///
    /// # Errors
    /// The reason of the first rank that fails.
    pub(super) fn start(library: &Path, shape: IslandShape, patience: Duration) -> Result<Self> {
        let mut group = Self::spawn(library, shape.ranks, shape, patience)?;
        let id = group.identify(&RankOrder::Identify)?;
        group.together(&RankOrder::Meet(id))?;
        Ok(group)
    }

    /// Lets one rank open the library and begin.
    ///
    /// # Errors
    /// The reason if it fails.
    pub(super) fn probe(library: &Path, shape: IslandShape, patience: Duration) -> Result<()> {
        let mut group = Self::spawn(library, 1, shape, patience)?;
        group.identify(&RankOrder::Identify)?;
        group.end();
        Ok(())
    }

    /// Lets the ranks meet over NCCL, too.
    ///
    /// # Errors
    /// The reason of the first rank that fails. The group is of no use then.
    pub(super) fn meet_network(&mut self) -> Result<()> {
        let id = self.identify(&RankOrder::IdentifyNetwork)?;
        self.together(&RankOrder::MeetNetwork(id)).map(drop)
    }

    fn spawn(library: &Path, count: usize, shape: IslandShape, patience: Duration) -> Result<Self> {
        let (sender, heard) = channel();
        let start = |number| RankChild::start(library, number, shape, sender.clone());
        let ranks = (0..count).map(start).collect::<Result<_>>()?;
        Ok(Self { ranks, heard, patience })
    }

    /// A unique id, of the first rank.
    fn identify(&mut self, order: &RankOrder) -> Result<String> {
        let answers = self.order(order, 1)?;
        let [RankAnswer::Identity(id)] = &answers[..] else { bail!("rank 0 answered {answers:?}") };
        Ok(id.clone())
    }

    /// Gives all ranks an order; their answers, by rank.
    ///
    /// # Errors
    /// The reason of the first rank that fails. The group is of no use then.
    pub(super) fn together(&mut self, order: &RankOrder) -> Result<Vec<RankAnswer>> {
        self.order(order, self.ranks.len())
    }

    /// The same for the first ranks.
    fn order(&mut self, order: &RankOrder, count: usize) -> Result<Vec<RankAnswer>> {
        let line = serde_json::to_string(order)?;
        for rank in self.ranks.iter_mut().take(count).filter_map(|rank| rank.orders.as_mut()) {
            // Of a rank that has ended, the end is heard.
            let _ = writeln!(rank, "{line}");
        }
        let (mut answers, deadline) = (vec![None; count], Instant::now() + self.patience);
        while answers.iter().any(Option::is_none) {
            let (number, answer) = self.next_answer(deadline)?;
            *answers.get_mut(number).with_context(|| format!("rank {number} was not asked"))? = Some(answer);
        }
        Ok(answers.into_iter().flatten().collect())
    }

    fn next_answer(&mut self, deadline: Instant) -> Result<(usize, RankAnswer)> {
        match self.heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((number, Heard::RankAnswer(RankAnswer::Failed(reason)))) => bail!("rank {number}: {reason}"),
            Ok((number, Heard::RankAnswer(answer))) => Ok((number, answer)),
            Ok((number, Heard::Ended)) => {
                let status = self.ranks[number].process.wait()?;
                Err(anyhow!("rank {number} ended ({status}): its output is above"))
            }
            Err(_) => bail!("no answer in {} s", self.patience.as_secs()),
        }
    }

    /// Lets ranks leave in peace.
    pub(super) fn end(mut self) {
        for rank in &mut self.ranks {
            rank.orders = None;
        }
        let (mut left, deadline) = (self.ranks.len(), Instant::now() + FAREWELL);
        while left > 0 {
            match self.heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok((_, Heard::Ended)) => left -= 1,
                Ok((number, Heard::RankAnswer(answer))) => eprintln!("rank {number} at its end: {answer:?}"),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

impl RankChild {
    fn start(
        library: &Path,
        number: usize,
        shape: IslandShape,
        heard: Sender<(usize, Heard)>,
    ) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["wholememory", "--rank", &number.to_string(), "--ranks", &shape.ranks.to_string()]);
        command.args(["--islands", &shape.islands.to_string()]).envs(shape.settings(number));
        command.arg("--library").arg(library).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("a rank")?;
        let (orders, answers) =
            (process.stdin.take(), process.stdout.take().context("a rank without pipes")?);
        thread::spawn(move || listen(number, answers, &heard));
        Ok(Self { process, orders })
    }
}

impl Drop for RankChild {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Forwards a rank's answers until it ends; its other lines go to standard error.
fn listen(number: usize, answers: ChildStdout, heard: &Sender<(usize, Heard)>) {
    for line in BufReader::new(answers).lines().map_while(Result::ok) {
        match line.strip_prefix(MARK).map(serde_json::from_str) {
            Some(Ok(answer)) => drop(heard.send((number, Heard::RankAnswer(answer)))),
            _ => eprintln!("rank {number}: {line}"),
        }
    }
    let _ = heard.send((number, Heard::Ended));
}
