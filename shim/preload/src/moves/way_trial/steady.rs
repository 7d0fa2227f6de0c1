//! Which period is believed. Pure.

/// A period is believed if it has stayed the same for its own length, up to one part in so many. A
/// loop within a step passes for a period at times.
const PART: u64 = 16;

/// The period that was told last, and the event at which it became about as long as it is.
#[derive(Debug, Default)]
pub(super) struct SteadyPeriod(Option<(u64, u64)>);

impl SteadyPeriod {
    /// At an event this period is told, or none. Returns it if it is believed.
    pub(super) fn at(&mut self, event: u64, period: Option<u64>) -> Option<u64> {
        let is_like = |before: u64| period.is_some_and(|now| now.abs_diff(before) <= before / PART);
        match self.0.filter(|(before, _)| is_like(*before)) {
            Some((_, since)) => period.filter(|period| event - since >= *period),
            None => {
                self.0 = period.map(|period| (period, event));
                None
            }
        }
    }
}
