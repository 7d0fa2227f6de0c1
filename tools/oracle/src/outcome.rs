//! What a run of a program tells, as a value that one process writes and another reads.

use std::fmt;
use std::io::Write;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A call that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refused {
    /// The step; none for what comes after the last one.
    pub(crate) step: Option<usize>,
    pub(crate) call: String,
    pub(crate) code: u32,
}

/// A place where the host waited for longer than the limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stay {
    /// The step; none for what is before the first or after the last one.
    pub(crate) step: Option<usize>,
    pub(crate) place: String,
    /// It stayed after all gates were opened, and the process ended with it.
    pub(crate) for_good: bool,
}

impl fmt::Display for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = if self.for_good { "for good" } else { "until the gates were opened" };
        write!(f, "stayed {until}, at {}", self.place)
    }
}

/// A run that came to its end, or to a place where it stayed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    pub(crate) refused: Vec<Refused>,
    /// Bytes that are not as they were written.
    pub(crate) wrong: Vec<String>,
    /// Streams that were said to be done while they were held.
    pub(crate) early: Vec<String>,
    /// Where the host waited for too long. The steps after it were left out.
    pub(crate) hang: Option<Stay>,
    /// Steps whose copies went through other devices, as far as the library tells.
    #[serde(default)]
    pub(crate) relayed: Vec<usize>,
    /// Bytes that were looked at.
    pub(crate) checked: u64,
    pub(crate) took: Took,
}

impl Outcome {
    /// Writes it to standard output, for the process that judges.
    pub(crate) fn hand_over(&self) {
        let line = serde_json::to_string(self).unwrap_or_default();
        let mut out = std::io::stdout().lock();
        // If the parent has closed its end, it needs no outcome.
        let _written = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

/// Where the time of a run went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Took {
    /// Contexts and streams were made.
    pub(crate) prepare: Duration,
    pub(crate) steps: Duration,
    /// All was waited for and given back.
    pub(crate) finish: Duration,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Run {
    Over(Outcome),
    /// The process ended before: how, and its last words.
    Died(String),
    /// The time for all of it was over before.
    Cut,
}

impl Run {
    /// Is the process of no use after it?
    pub(crate) fn ends_the_process(&self) -> bool {
        match self {
            Self::Over(outcome) => {
                outcome.hang.as_ref().is_some_and(|stay| stay.for_good)
                    || outcome.refused.iter().any(|refused| is_sticky(refused.code))
            }
            Self::Died(_) | Self::Cut => true,
        }
    }
}

/// Whether an error is the context's from now on: programs that came after it would fail for
/// nothing of their own.
fn is_sticky(code: u32) -> bool {
    code == wm_abi::CUresult::ILLEGAL_ADDRESS.0 || (710..=719).contains(&code)
}

/// What is wrong with a run, by kind: a smaller program must fail in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    Wrong(String),
    Hang(String),
    Died(String),
    Answer(String),
}

impl Fault {
    /// Its kind, in a word.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Wrong(_) => "wrong bytes",
            Self::Hang(_) => "hang",
            Self::Died(text) if text.contains("a race: ") => "race",
            Self::Died(_) => "death",
            Self::Answer(_) => "answer",
        }
    }

    fn text(&self) -> &str {
        let (Self::Wrong(text) | Self::Hang(text) | Self::Died(text) | Self::Answer(text)) = self;
        text
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind(), self.text())
    }
}

const OUT_OF_MEMORY: u32 = 2;

/// What is wrong with a run by itself. Memory may be short in some runs.
pub(crate) fn alone(run: &Run, scarce: bool) -> Option<Fault> {
    let outcome = match run {
        Run::Died(how) => return Some(Fault::Died(how.clone())),
        Run::Cut => return None,
        Run::Over(outcome) => outcome,
    };
    if let Some(wrong) = outcome.wrong.first() {
        return Some(Fault::Wrong(wrong.clone()));
    }
    if let Some(hang) = &outcome.hang {
        return Some(Fault::Hang(hang.to_string()));
    }
    if let Some(early) = outcome.early.first() {
        return Some(Fault::Answer(early.clone()));
    }
    let counts = |refused: &&Refused| !(scarce && refused.code == OUT_OF_MEMORY);
    outcome.refused.iter().find(counts).map(|refused| Fault::Answer(told(refused)))
}

/// What is wrong with a run beside one that is right by definition.
pub(crate) fn beside(bare: &Run, run: &Run, scarce: bool) -> Option<Fault> {
    let (Run::Over(right), Run::Over(outcome)) = (bare, run) else { return alone(run, scarce) };
    match alone(run, scarce) {
        Some(Fault::Answer(_)) if outcome.early.is_empty() => {}
        None => {}
        fault => return fault,
    }
    let matters = |refused: &&Refused| !(scarce && refused.code == OUT_OF_MEMORY);
    let more = outcome.refused.iter().filter(matters).find(|refused| !right.refused.contains(refused));
    let less = right.refused.iter().filter(matters).find(|refused| !outcome.refused.contains(refused));
    // Where memory is short, what is skipped in one run is not in the other.
    let answers = if scarce { None } else { more.or(less) };
    answers.map(|refused| Fault::Answer(format!("only one of the two: {}", told(refused))))
}

fn told(refused: &Refused) -> String {
    let Refused { step, call, code } = refused;
    let at = step.map_or("at the end".to_owned(), |step| format!("at step {step}"));
    format!("{call} {at}: {}", wm_abi::CUresult(*code))
}
