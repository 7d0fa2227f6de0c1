//! A trial as a line of the log.

use std::fmt;

use super::{Phase, WayTrial};

impl fmt::Display for WayTrial {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = match self.phase {
            Phase::Untold => "nothing is measured yet".to_owned(),
            Phase::Settling(way) => format!("{way:?} is tried"),
            Phase::Measuring(way) => format!("{way:?} is measured"),
            Phase::Chosen(way, rest) => format!("{way:?} is the best for {rest} periods"),
        };
        write!(out, "{now}; us an event:")?;
        for way in self.ways().iter().copied() {
            let cost = self.cost(way).map_or_else(|| "?".to_owned(), |cost| format!("{:.1}", cost * 1e6));
            write!(out, " {way:?} {cost}")?;
        }
        Ok(())
    }
}
