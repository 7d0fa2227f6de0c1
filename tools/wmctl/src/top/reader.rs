//! Reads all programs again and again: their figures each time, what changes seldom less often.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;

use super::history::PastUse;
use super::reading::{Change, ProgramFigures, Sample};
use crate::client::{self, IdentityReader, ProcessIdentity, processes};
use crate::programs::{self, Finder, Program, ToldFigures};

/// Readings between two looks at a program's identity: a program may change its command line.
const STAYS: u64 = 10;

/// What changes seldom of a program.
#[derive(Debug)]
struct KnownProgram {
    identity: ProcessIdentity,
    ancestors: Vec<u32>,
    /// The number of the reading that looked.
    looked: u64,
}

/// All programs, as they were read last.
#[derive(Debug)]
pub(super) struct ProgramReader {
    finder: Finder,
    identities: IdentityReader,
    known: HashMap<(u32, u64), KnownProgram>,
    before: Option<Sample>,
    patience: Duration,
    count: u64,
}

impl ProgramReader {
    /// `patience`: how long a program may take that has to be asked.
    pub(super) fn new(hides_arguments: bool, patience: Duration) -> Self {
        Self {
            finder: Finder::default(),
            identities: IdentityReader::new(hides_arguments),
            known: HashMap::new(),
            before: None,
            patience,
            count: 0,
        }
    }

    /// Reads all programs. The first reading has no rates.
    pub(super) fn next(&mut self) -> Change {
        self.read().0
    }

    /// The same, and what the programs held in the last minute, by their own notes.
    pub(super) fn first(&mut self) -> (Change, PastUse) {
        let (change, running) = self.read();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let past = running.iter().map(|program| (program.pid, program.past())).collect();
        (change, PastUse { now, programs: past })
    }

    fn read(&mut self) -> (Change, Vec<Program>) {
        self.count += 1;
        let found = self.finder.find();
        let figures = programs::figures(&found.running, self.patience);
        let program = |(program, figures): (&Program, Result<ToldFigures>)| {
            let stats = figures.ok().map(|told| told.stats);
            (program.pid, ProgramFigures { is_stopped: program.is_stopped, stats })
        };
        let processes: BTreeMap<_, _> = found.running.iter().zip(figures).map(program).collect();
        let sample = Sample { at: Instant::now(), processes, closed: client::closed_line(found.closed) };
        let mut change = sample.since(self.before.as_ref());
        self.before = Some(sample);
        self.identify(&mut change, &found.running);
        (change, found.running)
    }

    fn identify(&mut self, change: &mut Change, running: &[Program]) {
        let keys: HashMap<u32, (u32, u64)> =
            running.iter().map(|program| (program.pid, program.incarnation())).collect();
        self.known.retain(|key, _| keys.get(&key.0) == Some(key));
        for process in &mut change.processes {
            let known = self.known(keys.get(&process.pid).copied().unwrap_or((process.pid, 0)));
            (process.identity, process.ancestors) = (known.identity.clone(), known.ancestors.clone());
        }
    }

    fn known(&mut self, key: (u32, u64)) -> &KnownProgram {
        let (count, pid) = (self.count, key.0);
        // Not all in one reading.
        let is_due =
            |known: &KnownProgram| known.looked < count && (count + u64::from(pid)).is_multiple_of(STAYS);
        if self.known.get(&key).is_none_or(is_due) {
            let (identity, ancestors) = (self.identities.of(pid), processes::ancestors(pid));
            self.known.insert(key, KnownProgram { identity, ancestors, looked: count });
        }
        &self.known[&key]
    }
}
