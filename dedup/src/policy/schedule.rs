//! When the next pass runs, and how long each of its parts may take.
//!
//! A pass works behind the closed gate, with nothing in flight: it fingerprints blocks, compares
//! chunks and exchanges them. A program that waits for the GPU at each token would be held at each
//! wait, so the pause after a pass grows with its length, and grows while there is nothing to do.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The longest that a pass holds calls.
pub const PASS: Duration = Duration::from_millis(2);

/// The pause between passes that have little to do. It doubles after each pass without work, up to
/// the longest one.
const IDLE_PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(320));

/// The pause after a pass that makes blocks private, once sharing has ended: memory that cannot be
/// had now may not be had soon.
const LAST_PAUSE: Duration = Duration::from_millis(500);

/// The pause after a pass is this many times its length, so that a program which waits all the time
/// is slower by a tenth.
const PAUSE_RATIO: u32 = 9;

/// The longest pause for a pass's length. A longer pass has waited for the GPU while other
/// processes had it, and the program would wait as well.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The interval between two counts of the chunks that could be shared.
const COUNT_INTERVAL: Duration = Duration::from_secs(2);

/// The cost of a kernel's launch beside its chunks.
const LAUNCH: Duration = Duration::from_micros(50);

/// The pauses after a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassPauses {
    /// Until a pass for which the broker's replies wait.
    pub least: Duration,
    /// Until a pass without replies, if it is longer.
    pub idle: Duration,
}

impl PassPauses {
    /// After a pass that makes blocks private.
    pub const LAST: Self = Self { least: LAST_PAUSE, idle: LAST_PAUSE };
}

/// When the next pass is due. All threads ask at their waits, without a lock.
#[derive(Debug)]
pub struct PassTimes {
    start: OnceLock<Instant>,
    /// Milliseconds since the start.
    next: AtomicU64,
    /// The same, of a pass for which there are replies.
    next_with_replies: AtomicU64,
}

impl Default for PassTimes {
    fn default() -> Self {
        Self::new()
    }
}

impl PassTimes {
    /// A pass is due at once.
    pub const fn new() -> Self {
        let [next, next_with_replies] = [const { AtomicU64::new(0) }; 2];
        Self { start: OnceLock::new(), next, next_with_replies }
    }

    fn start(&self, now: Instant) -> Instant {
        *self.start.get_or_init(|| now)
    }

    /// Is a pass due? `has_replies` is asked only if it matters.
    pub fn is_due(&self, now: Instant, has_replies: impl FnOnce() -> bool) -> bool {
        let now = now.saturating_duration_since(self.start(now)).as_millis() as u64;
        now >= self.next.load(Relaxed) || now >= self.next_with_replies.load(Relaxed) && has_replies()
    }

    /// The next pass comes after these pauses.
    pub fn pause(&self, now: Instant, pauses: PassPauses) {
        let since = now.saturating_duration_since(self.start(now));
        let after = |pause| (since + pause).as_millis() as u64;
        self.next.store(after(pauses.idle.max(pauses.least)), Relaxed);
        self.next_with_replies.store(after(pauses.least), Relaxed);
    }
}

/// The work of one pass besides the exchange of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassPlan {
    /// Blocks that are due are fingerprinted.
    pub fingerprints: bool,
    /// The chunks that could be shared are counted.
    pub counts: bool,
    /// Chunks that were given and not registered become private.
    pub unshares: bool,
}

/// The schedule of the passes in one context. It belongs to the thread that runs a pass.
#[derive(Debug)]
pub struct Schedule {
    next_fingerprints: Instant,
    cost: FingerprintCost,
    /// The last pass fingerprinted.
    has_fingerprinted: bool,
    /// The last pass left chunks that were given and not registered, or had no time to look.
    has_unregistered: bool,
    /// The last pass could use all of its time for those.
    has_unshared: bool,
    idle_pause: Duration,
    next_count: Instant,
    /// The start of the block that was fingerprinted last.
    cursor: u64,
}

impl Schedule {
    /// Everything is due.
    pub fn new(now: Instant) -> Self {
        Self {
            next_fingerprints: now,
            cost: FingerprintCost::default(),
            has_fingerprinted: false,
            has_unregistered: false,
            has_unshared: false,
            idle_pause: IDLE_PAUSES.0,
            next_count: now,
            cursor: 0,
        }
    }

    /// The pauses after a pass that comes to nothing: the GPU is busy, for example.
    pub fn pauses_without_pass(schedule: Option<&Self>) -> PassPauses {
        let idle = schedule.map_or(IDLE_PAUSES.0, |schedule| schedule.idle_pause);
        PassPauses { least: Duration::ZERO, idle }
    }

    /// A pass begins. Fingerprints may use all of its time, and so may chunks that were given and
    /// not registered, so two passes in a row do not begin with the same while other work waits.
    pub fn begin(&mut self, now: Instant, has_replies: bool, advises: bool) -> PassPlan {
        let gives_way = self.has_fingerprinted && (has_replies || self.has_unregistered);
        let fingerprints = !gives_way && now >= self.next_fingerprints;
        let counts = advises && now >= self.next_count;
        self.has_fingerprinted = fingerprints;
        if counts {
            self.next_count = now + COUNT_INTERVAL;
        }
        let unshares = !(self.has_unshared && has_replies);
        self.has_unshared = unshares && self.has_unregistered;
        PassPlan { fingerprints, counts, unshares }
    }

    /// No block was due, or fingerprints failed.
    pub fn not_fingerprinted(&mut self, now: Instant) {
        self.next_fingerprints = now + IDLE_PAUSES.0;
    }

    /// Chunks were fingerprinted in `taken`. The next fingerprints come so late that they have this
    /// share of the GPU's time.
    pub fn fingerprinted(&mut self, now: Instant, chunks: usize, taken: Duration, share: f64) {
        self.next_fingerprints = now + self.cost.of(chunks, taken).div_f64(share);
    }

    /// The pass looked for chunks that were given and not registered.
    pub fn looked_for_unregistered(&mut self, is_any: bool) {
        self.has_unregistered = is_any;
    }

    /// A pass ends after `length`.
    pub fn end(&mut self, length: Duration, has_worked: bool) -> PassPauses {
        let longer = (2 * self.idle_pause).min(IDLE_PAUSES.1);
        self.idle_pause = if has_worked { IDLE_PAUSES.0 } else { longer };
        PassPauses { least: (PAUSE_RATIO * length).min(LONGEST_PAUSE), idle: self.idle_pause }
    }

    /// Chooses the blocks that are fingerprinted now, in turn by address: as many as `room` chunks
    /// allow, and at least one. Blocks come in ascending order of their `start`.
    pub fn choose<B>(
        &mut self,
        blocks: Vec<B>,
        room: usize,
        start: impl Fn(&B) -> u64,
        due_chunks: impl Fn(&B) -> Vec<u64>,
    ) -> Vec<(B, Vec<u64>)> {
        let mut blocks = blocks;
        let first = blocks.partition_point(|block| start(block) <= self.cursor);
        blocks.rotate_left(first);
        let (mut chosen, mut count) = (Vec::new(), 0);
        for block in blocks {
            let chunks = due_chunks(&block);
            if chunks.is_empty() {
                continue;
            }
            // It is the first of the next pass. A block with more chunks than `room` has launches
            // of its own.
            if count > 0 && count + chunks.len() > room {
                break;
            }
            self.cursor = start(&block);
            count += chunks.len();
            chosen.push((block, chunks));
        }
        chosen
    }
}

/// The cost of fingerprints for the GPU. They take longer while other processes use it.
#[derive(Debug, Default)]
struct FingerprintCost {
    /// The shortest time of one chunk so far.
    least: Option<Duration>,
}

impl FingerprintCost {
    /// Of a number of chunks, at least one, which took `taken`.
    fn of(&mut self, chunks: usize, taken: Duration) -> Duration {
        let each = taken / chunks as u32;
        let least = self.least.map_or(each, |least| least.min(each));
        self.least = Some(least);
        taken.min(least * chunks as u32 + LAUNCH)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (latency): passes hold the program's calls for more than their share of its time, or
    //! one kind of work keeps the others from ever being done.
    use proptest::prelude::*;

    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn plans(schedule: &mut Schedule, now: Instant, has_replies: bool) -> bool {
        schedule.begin(now, has_replies, false).fingerprints
    }

    /// Memory of others is taken although memory of this process waits to become private.
    #[test]
    fn memory_becomes_private_in_every_other_pass_while_replies_wait() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now);
        schedule.looked_for_unregistered(true);
        let unshares =
            |schedule: &mut Schedule, has_replies| schedule.begin(now, has_replies, false).unshares;
        let passes: Vec<_> = (0..4).map(|_| unshares(&mut schedule, true)).collect();
        assert_eq!(passes, [true, false, true, false]);
        assert!(unshares(&mut schedule, false) && unshares(&mut schedule, false));
        schedule.looked_for_unregistered(false);
        let passes: Vec<_> = (0..3).map(|_| unshares(&mut schedule, true)).collect();
        assert_eq!(passes, [false, true, true]);
    }

    #[test]
    fn a_pass_is_due_after_its_pause() {
        let (times, now) = (PassTimes::new(), Instant::now());
        assert!(times.is_due(now, || false));
        times.pause(now, PassPauses { least: 5 * MILLISECOND, idle: 20 * MILLISECOND });
        for (after, without, with) in
            [(4, false, false), (5, false, true), (19, false, true), (20, true, true)]
        {
            let now = now + after * MILLISECOND;
            assert_eq!((times.is_due(now, || false), times.is_due(now, || true)), (without, with));
        }
    }

    #[test]
    fn a_pause_before_the_first_question_counts() {
        let (times, now) = (PassTimes::new(), Instant::now());
        times.pause(now, PassPauses::LAST);
        assert!(!times.is_due(now + LAST_PAUSE - MILLISECOND, || true));
        assert!(times.is_due(now + LAST_PAUSE, || false));
    }

    #[test]
    fn replies_do_not_shorten_the_pause_for_a_passs_length() {
        let (times, now) = (PassTimes::new(), Instant::now());
        times.is_due(now, || false);
        times.pause(now, PassPauses { least: 9 * MILLISECOND, idle: MILLISECOND });
        assert!(!times.is_due(now + 8 * MILLISECOND, || true));
        assert!(times.is_due(now + 9 * MILLISECOND, || false));
    }

    #[test]
    fn the_idle_pause_doubles_without_work_and_starts_anew_with_it() {
        let mut schedule = Schedule::new(Instant::now());
        let worked = [false, false, false, false, false, true, false];
        let pauses = worked.map(|worked| schedule.end(Duration::ZERO, worked).idle.as_millis());
        assert_eq!(pauses, [40, 80, 160, 320, 320, 20, 40]);
        assert_eq!(Schedule::pauses_without_pass(Some(&schedule)).idle, 40 * MILLISECOND);
        assert_eq!(Schedule::pauses_without_pass(None).idle, 20 * MILLISECOND);
    }

    #[test]
    fn a_pass_that_waited_for_other_processes_pauses_no_longer_than_ten() {
        let mut schedule = Schedule::new(Instant::now());
        assert_eq!(schedule.end(MILLISECOND, true).least, 9 * MILLISECOND);
        assert_eq!(schedule.end(100 * MILLISECOND, true).least, LONGEST_PAUSE);
    }

    #[test]
    fn two_passes_in_a_row_do_not_fingerprint_while_replies_wait() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now);
        let passes: Vec<_> = (0..4).map(|_| plans(&mut schedule, now, true)).collect();
        assert_eq!(passes, [true, false, true, false]);
        assert!(plans(&mut schedule, now, false) && plans(&mut schedule, now, false));
    }

    #[test]
    fn unregistered_chunks_have_every_second_pass() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now);
        schedule.looked_for_unregistered(true);
        assert!(plans(&mut schedule, now, false) && !plans(&mut schedule, now, false));
        schedule.looked_for_unregistered(false);
        assert!(plans(&mut schedule, now, false) && plans(&mut schedule, now, false));
    }

    #[test]
    fn fingerprints_have_their_share_of_the_time() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now);
        schedule.fingerprinted(now, 10, MILLISECOND, 0.05);
        assert!(!plans(&mut schedule, now + 19 * MILLISECOND, false));
        assert!(plans(&mut schedule, now + 20 * MILLISECOND, false));
        schedule.not_fingerprinted(now);
        assert!(!plans(&mut schedule, now + 19 * MILLISECOND, false));
        assert!(plans(&mut schedule, now + 20 * MILLISECOND, false));
    }

    #[test]
    fn a_busy_gpu_does_not_make_fingerprints_dearer() {
        let mut cost = FingerprintCost::default();
        assert_eq!(cost.of(10, MILLISECOND), MILLISECOND);
        assert_eq!(cost.of(10, 50 * MILLISECOND), MILLISECOND + LAUNCH);
        assert_eq!(cost.of(20, MILLISECOND), MILLISECOND);
        assert_eq!(cost.of(10, 50 * MILLISECOND), MILLISECOND / 2 + LAUNCH);
    }

    #[test]
    fn chunks_are_counted_every_two_seconds_and_only_for_advice() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now);
        assert!(!schedule.begin(now, false, false).counts);
        assert!(schedule.begin(now, false, true).counts);
        assert!(!schedule.begin(now + COUNT_INTERVAL - MILLISECOND, false, true).counts);
        assert!(schedule.begin(now + COUNT_INTERVAL, false, true).counts);
    }

    /// Block `start` has `start % 10` chunks that are due.
    fn choose(schedule: &mut Schedule, starts: &[u64], room: usize) -> Vec<u64> {
        let due = |start: &u64| (0..start % 10).collect();
        let chosen = schedule.choose(starts.to_vec(), room, |start| *start, due);
        chosen.into_iter().map(|(start, _)| start).collect()
    }

    #[test]
    fn blocks_are_fingerprinted_in_turn() {
        let mut schedule = Schedule::new(Instant::now());
        let starts = [12, 23, 30, 42];
        assert_eq!(choose(&mut schedule, &starts, 5), [12, 23]);
        assert_eq!(choose(&mut schedule, &starts, 5), [42, 12]);
        assert_eq!(choose(&mut schedule, &starts, 5), [23, 42]);
    }

    #[test]
    fn a_block_that_is_larger_than_the_room_is_chosen_alone() {
        let mut schedule = Schedule::new(Instant::now());
        assert_eq!(choose(&mut schedule, &[19, 21], 5), [19]);
        assert_eq!(choose(&mut schedule, &[19, 21], 5), [21]);
    }

    proptest! {
        /// No block with due chunks is passed over for ever.
        #[test]
        fn every_block_has_its_turn(
            starts in prop::collection::btree_set(1..1000_u64, 1..20), room in 1..30_usize,
        ) {
            let mut schedule = Schedule::new(Instant::now());
            let starts: Vec<u64> = starts.into_iter().collect();
            let mut left: Vec<u64> = starts.iter().copied().filter(|start| start % 10 > 0).collect();
            for _ in 0..starts.len() {
                let chosen = choose(&mut schedule, &starts, room);
                left.retain(|start| !chosen.contains(start));
            }
            prop_assert!(left.is_empty(), "{left:?}");
        }

        /// The pause after a pass is nine times its length, or the longest one, and a pass with
        /// nothing to do waits at least as long.
        #[test]
        fn passes_have_a_tenth_of_the_time(lengths in prop::collection::vec(0..2_000_u64, 1..50)) {
            let mut schedule = Schedule::new(Instant::now());
            for length in lengths.into_iter().map(Duration::from_micros) {
                let pauses = schedule.end(length, true);
                prop_assert!(pauses.least == (9 * length).min(LONGEST_PAUSE));
                prop_assert!(pauses.idle.max(pauses.least) >= IDLE_PAUSES.0);
            }
        }
    }
}
