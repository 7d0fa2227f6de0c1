//! The result of a run, as a value that one process writes and another reads.

use std::fmt;
use std::io::Write;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A call that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refused {
    /// The step; none for a call after the last one.
    pub(crate) step: Option<usize>,
    pub(crate) call: String,
    pub(crate) code: u32,
}

/// A call that exceeded the limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stay {
    /// The step; none before the first or after the last one.
    pub(crate) step: Option<usize>,
    pub(crate) place: String,
    /// It lasted after all gates were opened, and the process ended.
    pub(crate) for_good: bool,
}

impl fmt::Display for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = if self.for_good { "for good" } else { "until the gates were opened" };
        write!(f, "stayed {until}, at {}", self.place)
    }
}

/// A run that reached its end, or a hang.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    pub(crate) refused: Vec<Refused>,
    /// Bytes with a wrong value.
    pub(crate) wrong: Vec<String>,
    /// Streams that were reported as done while a gate held them.
    pub(crate) early: Vec<String>,
    /// The call that exceeded the limit. Later steps were skipped.
    pub(crate) hang: Option<Stay>,
    /// Steps whose copies went through other devices, as the library reports.
    #[serde(default)]
    pub(crate) relayed: Vec<usize>,
    /// Bytes that moved between the device and the host, as the library reports.
    #[serde(default)]
    pub(crate) moved: u64,
    /// How often it has asked for its turn, as the library reports.
    #[serde(default)]
    pub(crate) asks: u64,
    /// The time of each step.
    #[serde(default)]
    pub(crate) times: Vec<Duration>,
    /// Bytes that were checked.
    pub(crate) checked: u64,
    pub(crate) took: Took,
}

impl Outcome {
    /// Writes it to standard output, for the judging process.
    pub(crate) fn hand_over(&self) {
        let line = serde_json::to_string(self).unwrap_or_default();
        let mut out = std::io::stdout().lock();
        // If the parent has closed its end, it needs no outcome.
        let _written = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

/// The time spent in the phases of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Took {
    /// Contexts and streams were made.
    pub(crate) prepare: Duration,
    pub(crate) steps: Duration,
    /// The waits for all work, and the releases.
    pub(crate) finish: Duration,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "one value a run, and most are of the large variant")]
pub(crate) enum Run {
    Over(Outcome),
    /// The process ended early: its status, and the end of its standard error.
    Died(String),
    /// The deadline came first.
    Cut,
}

impl Run {
    /// Is its process useless after it?
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

/// Does an error belong to the context from now on? Later programs would fail without a fault of
/// their own.
fn is_sticky(code: u32) -> bool {
    code == wm_abi::CUresult::ILLEGAL_ADDRESS.0 || (710..=719).contains(&code)
}

/// The fault of a run, by kind: a smaller program must fail in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    Wrong(String),
    Hang(String),
    Died(String),
    Answer(String),
    /// A call takes longer than it may.
    Late(String),
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
            Self::Late(_) => "late call",
        }
    }

    fn text(&self) -> &str {
        let (Self::Wrong(text) | Self::Hang(text) | Self::Died(text) | Self::Answer(text) | Self::Late(text)) =
            self;
        text
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind(), self.text())
    }
}

const OUT_OF_MEMORY: u32 = 2;

/// The fault of a run by itself. In some runs memory is scarce.
pub(crate) fn own_fault(run: &Run, scarce: bool) -> Option<Fault> {
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

/// The fault of a run beside one that is right by definition.
pub(crate) fn beside(bare: &Run, run: &Run, scarce: bool) -> Option<Fault> {
    let (Run::Over(right), Run::Over(outcome)) = (bare, run) else { return own_fault(run, scarce) };
    match own_fault(run, scarce) {
        Some(Fault::Answer(_)) if outcome.early.is_empty() => {}
        None => {}
        fault => return fault,
    }
    let matters = |refused: &&Refused| !(scarce && refused.code == OUT_OF_MEMORY);
    let more = outcome.refused.iter().filter(matters).find(|refused| !right.refused.contains(refused));
    let less = right.refused.iter().filter(matters).find(|refused| !outcome.refused.contains(refused));
    // If memory is scarce, the two runs skip different steps.
    let answers = if scarce { None } else { more.or(less) };
    answers.map(|refused| Fault::Answer(format!("only one of the two: {}", told(refused))))
}

fn told(refused: &Refused) -> String {
    let Refused { step, call, code } = refused;
    let at = step.map_or("at the end".to_owned(), |step| format!("at step {step}"));
    format!("{call} {at}: {}", wm_abi::CUresult(*code))
}
