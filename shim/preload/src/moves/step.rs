//! A step of moves that an operator or the program asks for: its terms, and what it did.

use std::time::{Duration, Instant};

use wm_driver::Tier;
use wm_memory::RangeMove;

/// How a step is made.
pub(crate) struct StepTerms<'a> {
    /// No batch begins after that.
    pub(crate) until: Instant,
    /// May calls of the program be held until the GPU has no work left? The calling thread must not
    /// be one of the program's.
    pub(crate) drains: bool,
    /// Gives so many bytes of the device's unused memory to the driver, as far as there are;
    /// returns how many.
    pub(crate) give_back: &'a dyn Fn(u64) -> u64,
}

impl StepTerms<'_> {
    pub(super) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }
}

/// What a step did.
#[derive(Debug, Default)]
pub(crate) struct StepEnd {
    /// Bytes that left the device.
    pub(crate) out: u64,
    /// Bytes that came to it.
    pub(crate) back: u64,
    /// Bytes that went to the driver.
    pub(crate) given: u64,
    /// Bytes that stay, by reason, as far as the step has tried.
    pub(crate) stays: Vec<(&'static str, u64)>,
    /// Another step may do more.
    pub(crate) goes_on: bool,
}

impl StepEnd {
    pub(super) fn note(&mut self, why: &'static str, bytes: u64) {
        match self.stays.iter_mut().find(|(known, _)| *known == why) {
            Some((_, sum)) => *sum += bytes,
            None if bytes > 0 => self.stays.push((why, bytes)),
            None => {}
        }
    }

    pub(super) fn moved(&mut self, ranges: &[RangeMove]) -> u64 {
        let to = |tier| ranges.iter().filter(move |range| range.order.to == tier);
        let bytes = |tier| to(tier).map(|range| range.moved.bytes).sum::<u64>();
        let [out, back] = [Tier::Host, Tier::Device].map(bytes);
        (self.out, self.back) = (self.out + out, self.back + back);
        out + back
    }
}
