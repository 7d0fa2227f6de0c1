//! Lines of a recording that are no events, so that a replay passes over them: times, the program's
//! marks, and refused requests.
//!
//! | line | meaning |
//! |---|---|
//! | `t US DEVICE PEER HOST` | microseconds since the recording began, and live bytes by tier then |
//! | `k TEXT` | the program's mark, to the end of the line |
//! | `o BYTES` | a request was refused because all tiers were full |

use anyhow::{Result, bail};
use wm_schema::BytesByTier;

use super::words::number;

/// A time, and what the program held then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceTime {
    /// Events before it.
    pub event: usize,
    /// Microseconds since the recording began.
    pub at_us: u64,
    /// Live bytes by tier.
    pub live: BytesByTier,
}

impl TraceTime {
    /// Reads the words behind `t`. `earlier`: the time before it.
    pub(super) fn read(event: usize, words: &str, earlier: u64) -> Result<Self> {
        let mut words = words.split_ascii_whitespace();
        let mut next = |what| number(words.next().unwrap_or_default(), what);
        let at_us = next("US")?;
        let live = BytesByTier { device: next("DEVICE")?, peer: next("PEER")?, host: next("HOST")? };
        if words.next().is_some() {
            bail!("too many words: a time is `t US DEVICE PEER HOST`");
        }
        if at_us < earlier {
            bail!("earlier than the time before it: the trace is damaged, record it again");
        }
        Ok(Self { event, at_us, live })
    }
}

/// A mark or a refused request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceNote {
    /// Events before it.
    pub event: usize,
    /// What the program said; `None` for a refused request.
    pub mark: Option<String>,
    /// The bytes of a refused request.
    pub asked: u64,
}

impl TraceNote {
    pub(super) fn mark(event: usize, text: &str) -> Self {
        Self { event, mark: Some(text.to_owned()), asked: 0 }
    }

    pub(super) fn refused(event: usize, asked: u64) -> Self {
        Self { event, mark: None, asked }
    }
}
