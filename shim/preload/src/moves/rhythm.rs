//! The period of a program as its kernels tell it, for a program whose memory does not: a framework
//! may give a step's tensors other addresses in each step, while the kernels are the same.
//!
//! The last kernels are one number, a *window*. Where the program repeats itself, windows come
//! again after so many launches. A loop within a step repeats itself, too, so the longest such
//! distance is the period, once it has stayed so for its own length, or for some hundred launches.
//! A loop without a wait of the host is no step. In a program that does not repeat itself, as where
//! a router chooses experts for each token, parts of what it does come again, too; so nearly all
//! kernels have to be those of a period before.
//!
//! A plain value. Invariant: a launch costs a bounded number of looks, and what is kept is bounded.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// Launches of a window.
const WINDOW: usize = 32;

/// Launches in a row of which each window came the same distance ago.
const PROOF: u32 = 16;

/// Distances that differ by one part in so many are about the same.
const PART: u64 = 16;

/// Launches for which a period has to stay as it is, where it is shorter: the same part may come a
/// few times in a row.
const STEADY: u64 = 512;

/// Kernels that are compared with those of a period before, and how many of them may differ.
const COMPARED: u64 = 64;
const DIFFERENT: usize = 6;

/// Windows that are kept, and so the launches of the longest period.
const KEPT: usize = 1 << 15;

/// An odd number, by which the number of a window is multiplied for each launch.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A launch is forgotten so many launches later, when it leaves the window.
const LEAVING: u64 = power(FACTOR, WINDOW);

/// A window that came again.
#[derive(Debug, Clone, Copy)]
struct Recurrence {
    launches: u64,
    /// The same in the events of the placer.
    events: u64,
    /// Number of the launch at which it was seen last.
    seen: u64,
    /// Number of the launch at which the distance became about as long as it is.
    since: u64,
    /// The host has waited in between.
    has_wait: bool,
}

/// See above.
#[derive(Debug, Default)]
pub(super) struct LaunchRhythm {
    /// Number of the next launch, and of the first that was recorded without a break.
    next: u64,
    since: u64,
    window: u64,
    /// The last ones, of two of the longest periods.
    kernels: VecDeque<u64>,
    /// Number of the launch and of the event at which a window was last complete.
    windows: FxHashMap<u64, (u64, u64)>,
    /// Those windows, the oldest first.
    order: VecDeque<u64>,
    /// Launches in a row that came this distance ago.
    run: (u64, u32),
    longest: Option<Recurrence>,
    /// Waits of the host so far, and the launch at which there was one more.
    waits: u64,
    waited: u64,
}

impl LaunchRhythm {
    /// A kernel or a graph is launched; `event` is the number of the placer's next event.
    pub(super) fn launched(&mut self, kernel: u64, event: u64) {
        let number = self.next;
        self.next += 1;
        self.window = self.window.wrapping_mul(FACTOR).wrapping_add(mixed(kernel));
        if let Some(oldest) = self.before(WINDOW as u64) {
            self.window = self.window.wrapping_sub(mixed(oldest).wrapping_mul(LEAVING));
        }
        self.kernels.push_back(kernel);
        if self.kernels.len() > 2 * KEPT {
            self.kernels.pop_front();
        }
        if self.next - self.since < WINDOW as u64 {
            return;
        }
        let before = self.windows.insert(self.window, (number, event));
        self.order.push_back(self.window);
        if self.order.len() > KEPT {
            self.forget_oldest(number);
        }
        match before {
            Some((then, event_then)) => self.came_again(number - then, event - event_then, number),
            None => self.run = (0, 0),
        }
    }

    /// The kernel of so many launches ago, 1 for the last one.
    fn before(&self, launches: u64) -> Option<u64> {
        let at = self.kernels.len().checked_sub(usize::try_from(launches).ok()?)?;
        self.kernels.get(at).copied()
    }

    /// Are nearly all kernels of a period those of the period before?
    fn repeats(&self, period: u64) -> bool {
        let ago = |number: u64| 1 + number * period / COMPARED;
        let is_other = |ago: &u64| self.before(*ago) != self.before(ago + period);
        let is_kept = self.before(2 * period).is_some();
        is_kept && (0..COMPARED).map(ago).filter(is_other).count() <= DIFFERENT
    }

    fn forget_oldest(&mut self, number: u64) {
        let Some(oldest) = self.order.pop_front() else { return };
        // It may have come again since.
        let is_old = |(then, _): &(u64, u64)| number - then >= KEPT as u64;
        if self.windows.get(&oldest).is_some_and(is_old) {
            self.windows.remove(&oldest);
        }
    }

    fn came_again(&mut self, launches: u64, events: u64, seen: u64) {
        let (distance, count) = self.run;
        self.run = if distance == launches { (distance, count + 1) } else { (launches, 1) };
        let is_longer = self
            .longest
            .is_none_or(|longest| launches >= longest.launches || seen - longest.seen > 2 * longest.launches);
        if self.run.1 >= PROOF && is_longer {
            let is_like = |before: &Recurrence| launches.abs_diff(before.launches) <= before.launches / PART;
            let since = self.longest.filter(is_like).map_or(seen, |before| before.since);
            let has_wait = seen - self.waited.min(seen) <= launches;
            self.longest = Some(Recurrence { launches, events, seen, since, has_wait });
        }
    }

    /// Launches were not recorded for some time.
    pub(super) fn break_off(&mut self) {
        *self = Self { next: self.next, since: self.next, ..Self::default() };
    }

    /// Events of a period. `waits`: those of the host so far.
    pub(super) fn period(&mut self, waits: u64) -> Option<u64> {
        if std::mem::replace(&mut self.waits, waits) != waits {
            self.waited = self.next;
        }
        let goes_on = |period: &Recurrence| self.next - period.seen <= 2 * period.launches;
        let is_steady = |period: &Recurrence| self.next - period.since >= period.launches.max(STEADY);
        let is_period = |period: &Recurrence| period.has_wait && goes_on(period) && is_steady(period);
        let period = self.longest.filter(is_period).filter(|period| self.repeats(period.launches))?;
        Some(period.events)
    }
}

/// Addresses of kernels differ in few bits.
fn mixed(kernel: u64) -> u64 {
    let folded = (kernel ^ (kernel >> 32)).wrapping_mul(FACTOR);
    folded ^ (folded >> 29)
}

const fn power(base: u64, exponent: usize) -> u64 {
    let (mut result, mut left) = (1_u64, exponent);
    while left > 0 {
        result = result.wrapping_mul(base);
        left -= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): no period is seen where the framework places tensors anew in
    //! each step. Hazard: a loop over equal layers passes for a step.
    use proptest::prelude::*;

    use super::*;

    /// Launches steps: some kernels of the step's own, a loop over equal layers, and a wait of the
    /// host. Returns the periods that were told, one after each launch.
    fn play(rhythm: &mut LaunchRhythm, steps: u64, own: u64, layers: u64, of_layer: u64) -> Vec<Option<u64>> {
        let step = (0..own).chain((0..layers).flat_map(|_| 1000..1000 + of_layer));
        let kernels: Vec<u64> = step.collect();
        let mut told = Vec::new();
        for waits in 1..=steps {
            for kernel in &kernels {
                // Two events a launch.
                rhythm.launched(*kernel, 2 * rhythm.next);
                told.push(rhythm.period(waits));
            }
        }
        told
    }

    proptest! {
        #[test]
        fn a_step_is_found_and_its_layers_are_none(
            own in 60..300_u64,
            layers in 3..20_u64,
            of_layer in 1..80_u64,
        ) {
            let told = play(&mut LaunchRhythm::default(), 12, own, layers, of_layer);
            let step = own + layers * of_layer;
            let late = &told[(2 * step + step.max(STEADY)) as usize..];
            prop_assert!(late.iter().all(|period| *period == Some(2 * step)), "{late:?}");
            let early = &told[..2 * step as usize];
            prop_assert!(early.iter().all(Option::is_none), "{early:?}");
        }
    }

    proptest! {
        /// Hazard (latency): a way that moves memory is tried in a program that has no step.
        #[test]
        fn parts_that_come_again_in_any_order_have_no_period(
            parts in prop::collection::vec((0..6_u64, 0..8_u64), 400..800),
        ) {
            let mut rhythm = LaunchRhythm::default();
            let mut waits = 0;
            for (part, experts) in parts {
                waits += 1;
                // Each part has kernels of its own, and as many others as a router has chosen.
                let own = (0..60).map(|kernel| 1000 * part + kernel);
                for kernel in own.chain((0..experts * 10).map(|kernel| kernel % 10)) {
                    rhythm.launched(kernel, rhythm.next);
                    prop_assert_eq!(rhythm.period(waits), None);
                }
            }
        }
    }

    #[test]
    fn what_does_not_come_again_has_no_period() {
        let mut rhythm = LaunchRhythm::default();
        for kernel in 0..1000 {
            rhythm.launched(kernel, kernel);
            assert_eq!(rhythm.period(kernel), None);
        }
    }

    #[test]
    fn a_longer_period_is_given_up_once_it_is_over() {
        let mut rhythm = LaunchRhythm::default();
        play(&mut rhythm, 4, 500, 1, 1);
        let told = play(&mut rhythm, 40, 100, 1, 1);
        assert_eq!(told.last(), Some(&Some(202)));
    }

    #[test]
    fn a_period_is_not_seen_across_a_break() {
        let mut rhythm = LaunchRhythm::default();
        play(&mut rhythm, 4, 200, 1, 1);
        rhythm.break_off();
        let told = play(&mut rhythm, 4, 200, 1, 1);
        assert!(told[..400].iter().all(Option::is_none));
        assert_eq!(told.last(), Some(&Some(402)));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut rhythm = LaunchRhythm::default();
        for kernel in 0..3 * KEPT as u64 {
            rhythm.launched(kernel, kernel);
        }
        assert!(rhythm.windows.len() <= KEPT && rhythm.order.len() <= KEPT);
        assert!(rhythm.kernels.len() <= 2 * KEPT);
    }
}
