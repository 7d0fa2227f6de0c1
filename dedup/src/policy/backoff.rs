//! A question that is asked from time to time, less often while the answer is that there is
//! nothing.

use std::time::{Duration, Instant};

/// See above.
#[derive(Debug)]
pub struct Backoff {
    shortest: Duration,
    longest: Duration,
    pause: Duration,
    next: Option<Instant>,
}

impl Backoff {
    /// Due at once. The pauses double from the first one to the second one.
    pub const fn new((shortest, longest): (Duration, Duration)) -> Self {
        Self { shortest, longest, pause: shortest, next: None }
    }

    /// Is it time to ask?
    pub fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// It was asked, and there was something or nothing.
    pub fn end(&mut self, now: Instant, was_any: bool) {
        self.pause = if was_any { self.shortest } else { (self.pause * 2).min(self.longest) };
        self.next = Some(now + self.pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_there_is_something() {
        let (mut now, millis) = (Instant::now(), Duration::from_millis);
        let mut backoff = Backoff::new((millis(50), millis(300)));
        for (was_any, pause) in [(false, 100), (false, 200), (false, 300), (false, 300), (true, 50)] {
            assert!(backoff.is_due(now));
            backoff.end(now, was_any);
            assert!(!backoff.is_due(now + millis(pause) - millis(1)));
            now += millis(pause);
        }
        assert!(backoff.is_due(now));
    }
}
