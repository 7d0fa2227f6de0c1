//! The decisions of a pause, as plain values: the order in which memory leaves and comes back, and
//! the answer to a request while another one is under way.

use std::ops::Range;
use std::time::Duration;

/// How long calls and work that are under way may take to end, unless the request says so.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Most bytes of neighbours that leave as one range, as those of one handle may. A reason why
/// memory stays is told for a range.
const JOINED: u64 = 2 << 20;

/// A block that a pause may have moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MovableBlock {
    pub(crate) id: u64,
    pub(crate) range: Range<u64>,
    /// The number of the last launch that used it; `None`: none is known.
    pub(crate) last_use: Option<u64>,
}

/// The ranges that leave, by address: neighbours often lie on one handle.
pub(crate) fn leaving(blocks: &[MovableBlock]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = blocks.iter().map(|block| block.range.clone()).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start && range.end - last.start <= JOINED => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

/// The ranges without those of `others`, which lie in any order.
pub(crate) fn without(ranges: Vec<Range<u64>>, others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut others = others.to_vec();
    others.sort_unstable_by_key(|range| range.start);
    let mut rest = Vec::new();
    for mut range in ranges {
        let first = others.partition_point(|other| other.end <= range.start);
        for other in others[first..].iter().take_while(|other| other.start < range.end) {
            rest.push(range.start..other.start.max(range.start));
            range.start = other.end.max(range.start);
        }
        rest.push(range);
    }
    rest.retain(|range| range.start < range.end);
    rest
}

/// The ranges that come back: the one that was used last comes first, and those of which no use is
/// known come last, by address.
pub(crate) fn returning(mut blocks: Vec<MovableBlock>) -> Vec<Range<u64>> {
    blocks.sort_unstable_by_key(|block| (std::cmp::Reverse(block.last_use), block.range.start));
    blocks.into_iter().map(|block| block.range).collect()
}

/// How many of the first blocks have so many bytes together: all of them, if these are fewer.
pub(crate) fn count_for(blocks: impl ExactSizeIterator<Item = u64>, bytes: u64) -> usize {
    let (all, mut sum) = (blocks.len(), 0_u64);
    let mut blocks = blocks;
    let last = blocks.position(|block| {
        sum = sum.saturating_add(block);
        sum >= bytes
    });
    last.map_or(all, |last| last + 1)
}

/// Where a process is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PausePhase {
    #[default]
    Running,
    Pausing,
    Paused,
    Resuming,
}

/// A place in which a process stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PauseGoal {
    #[default]
    Running,
    Paused,
}

/// The next step of the thread that pauses and resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PauseStep {
    Pause,
    Resume,
    /// What an earlier resume left on the host comes back, as far as it fits now.
    Refill,
    /// More leaves a process that is paused.
    LeaveMore,
    /// Host memory is made ahead of the next pause.
    FillArena,
    /// What was asked for is so.
    End,
}

/// The phases of a process, and the last request. A request during a step of another one is carried
/// out after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Course {
    pub(crate) phase: PausePhase,
    pub(crate) goal: PauseGoal,
    /// A thread carries requests out.
    pub(crate) is_working: bool,
    /// A resume has left memory on the host.
    pub(crate) has_rest: bool,
    /// That memory is to come back.
    pub(crate) wants_rest: bool,
    /// Of a paused process more memory is to leave.
    pub(crate) wants_more: bool,
    /// And it does.
    pub(crate) leaves_more: bool,
    /// Host memory is to be made ahead of the next pause, while the process runs.
    pub(crate) wants_arena: bool,
    /// And it is.
    pub(crate) fills_arena: bool,
}

impl Course {
    /// The phase as clients see it: a request has an effect at once.
    pub(crate) fn shown(&self) -> PausePhase {
        match (self.phase, self.goal) {
            (PausePhase::Running, PauseGoal::Paused) if self.is_working => PausePhase::Pausing,
            (PausePhase::Paused, PauseGoal::Running) if self.is_working => PausePhase::Resuming,
            (PausePhase::Running, PauseGoal::Running) if self.wants_rest => PausePhase::Resuming,
            (PausePhase::Paused, PauseGoal::Paused) if self.wants_more || self.leaves_more => {
                PausePhase::Pausing
            }
            (phase, _) => phase,
        }
    }

    /// The same in words for statistics.
    pub(crate) fn text(&self) -> &'static str {
        ["running", "pausing", "paused", "resuming"][self.shown() as usize]
    }

    /// A request. `true`: a thread is to be started for it.
    pub(crate) fn ask(&mut self, goal: PauseGoal) -> bool {
        self.goal = goal;
        self.wants_more &= goal == PauseGoal::Paused;
        let runs = self.phase == PausePhase::Running;
        self.wants_rest = runs && self.has_rest && goal == PauseGoal::Running;
        let is_there = match goal {
            PauseGoal::Running => runs && !self.wants_rest,
            PauseGoal::Paused => self.phase == PausePhase::Paused,
        };
        !is_there && !std::mem::replace(&mut self.is_working, true)
    }

    /// The same for a pause in which more leaves than in the one that is there or under way. The
    /// process stays paused meanwhile.
    pub(crate) fn ask_more(&mut self) -> bool {
        self.wants_more = matches!(self.phase, PausePhase::Pausing | PausePhase::Paused);
        self.ask(PauseGoal::Paused) || self.wants_more && !std::mem::replace(&mut self.is_working, true)
    }

    /// The same for host memory that is made ahead. Of a paused process it is made after the
    /// resume.
    pub(crate) fn ask_arena(&mut self) -> bool {
        self.wants_arena = true;
        self.phase == PausePhase::Running && !std::mem::replace(&mut self.is_working, true)
    }

    /// Is a pause or a resume under way, or to come? Memory that is made ahead is none of both.
    pub(crate) fn is_under_way(&self) -> bool {
        let is_there = match self.phase {
            PausePhase::Running => self.goal == PauseGoal::Running && !self.wants_rest,
            PausePhase::Paused => self.goal == PauseGoal::Paused && !self.wants_more && !self.leaves_more,
            PausePhase::Pausing | PausePhase::Resuming => false,
        };
        self.is_working && !is_there
    }

    /// Is host memory being made ahead, or is it to be?
    pub(crate) fn is_filling(&self) -> bool {
        self.is_working && (self.wants_arena || self.fills_arena)
    }

    /// No thread could be started.
    pub(crate) fn give_up(&mut self) {
        (self.is_working, self.wants_rest, self.wants_more) = (false, false, false);
        self.wants_arena = false;
        self.goal = if self.phase == PausePhase::Paused { PauseGoal::Paused } else { PauseGoal::Running };
    }

    /// What the thread does next.
    pub(crate) fn next(&mut self) -> PauseStep {
        let step = match (self.phase, self.goal) {
            (PausePhase::Running, PauseGoal::Paused) => PauseStep::Pause,
            (PausePhase::Paused, PauseGoal::Running) => PauseStep::Resume,
            (PausePhase::Running, PauseGoal::Running) if self.wants_rest => PauseStep::Refill,
            (PausePhase::Paused, PauseGoal::Paused) if self.wants_more => PauseStep::LeaveMore,
            (PausePhase::Running, PauseGoal::Running) if self.wants_arena => PauseStep::FillArena,
            _ => PauseStep::End,
        };
        (self.wants_rest, self.wants_more) = (false, false);
        match step {
            PauseStep::Pause => self.phase = PausePhase::Pausing,
            PauseStep::Resume | PauseStep::Refill => self.phase = PausePhase::Resuming,
            PauseStep::LeaveMore => self.leaves_more = true,
            PauseStep::FillArena => (self.wants_arena, self.fills_arena) = (false, true),
            PauseStep::End => self.is_working = false,
        }
        step
    }

    /// The step has ended. A pause that fails is not tried again, nor is a resume that cannot read
    /// its files.
    pub(crate) fn ended(&mut self, has_succeeded: bool) {
        (self.leaves_more, self.fills_arena) = (false, false);
        self.phase = match (self.phase, has_succeeded) {
            (PausePhase::Pausing, true) => PausePhase::Paused,
            (PausePhase::Pausing, false) => {
                self.goal = PauseGoal::Running;
                PausePhase::Running
            }
            (PausePhase::Resuming, true) => PausePhase::Running,
            (PausePhase::Resuming, false) => {
                self.goal = PauseGoal::Paused;
                PausePhase::Paused
            }
            (phase, _) => phase,
        };
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): what was used last comes back last, or memory is forgotten.
    //! Hazard (deadlock): a request is lost, and its client waits for ever.
    use proptest::prelude::*;

    use super::*;

    const STEP: u64 = 1 << 20;

    /// Blocks that do not overlap, in any order.
    fn blocks() -> impl Strategy<Value = Vec<MovableBlock>> {
        let block = (1..100_u64, 0..3_u64, proptest::option::of(0..20_u64));
        proptest::collection::vec(block, 0..40).prop_map(|drawn| {
            let mut next = STEP;
            let placed = drawn.into_iter().enumerate().map(|(id, (size, gap, last_use))| {
                let start = next + gap * STEP;
                next = start + size * STEP;
                MovableBlock { id: id as u64, range: start..next, last_use }
            });
            let mut placed: Vec<_> = placed.collect();
            let middle = placed.len() / 2;
            placed.rotate_left(middle);
            placed
        })
    }

    /// Hazard (deadlock): a client waits for host memory that is made ahead, or a pause does.
    #[test]
    fn host_memory_is_made_behind_every_other_request() {
        let mut course = Course::default();
        assert!(course.ask_arena() && course.is_filling() && !course.is_under_way());
        assert!(!course.ask(PauseGoal::Paused), "a thread is at work");
        assert!(course.is_under_way());
        assert_eq!(course.next(), PauseStep::Pause);
        course.ended(true);
        assert_eq!(course.next(), PauseStep::End);
        assert!(!course.is_filling() && !course.ask_arena(), "of a paused process nothing is made");
        assert!(course.ask(PauseGoal::Running));
        assert_eq!(course.next(), PauseStep::Resume);
        course.ended(true);
        assert_eq!((course.next(), course.shown()), (PauseStep::FillArena, PausePhase::Running));
        assert!(course.is_filling() && !course.is_under_way());
        course.ended(true);
        assert_eq!((course.next(), course.is_filling()), (PauseStep::End, false));
    }

    /// Hazard (silent degradation): a process that gives way is asked to pause, and part of its
    /// memory stays.
    #[test]
    fn the_rest_leaves_if_that_is_asked_for_while_a_part_does() {
        let mut course = Course::default();
        assert!(course.ask_more());
        assert_eq!(course.next(), PauseStep::Pause);
        assert!(!course.ask_more(), "a thread is at work");
        course.ended(true);
        assert_eq!((course.next(), course.shown()), (PauseStep::LeaveMore, PausePhase::Pausing));
        course.ended(true);
        assert_eq!((course.next(), course.shown()), (PauseStep::End, PausePhase::Paused));
    }

    proptest! {
        /// Hazard (silent degradation): no memory of the host is made for what needs some.
        #[test]
        fn what_is_left_of_ranges_is_what_no_other_one_has(blocks in blocks(), others in blocks()) {
            let of = |blocks: &[MovableBlock]| blocks.iter().map(|it| it.range.clone()).collect::<Vec<_>>();
            let (ranges, others) = (leaving(&blocks), of(&others));
            let rest = without(ranges.clone(), &others);
            let has = |ranges: &[Range<u64>], at: u64| ranges.iter().any(|range| range.contains(&at));
            let ends = |range: &Range<u64>| [range.start - 1, range.start, range.end - 1, range.end];
            for at in ranges.iter().chain(&others).flat_map(ends) {
                prop_assert_eq!(has(&rest, at), has(&ranges, at) && !has(&others, at), "{:#x}", at);
            }
        }

        #[test]
        fn every_byte_leaves_once_and_in_order(blocks in blocks()) {
            let ranges = leaving(&blocks);
            let bytes = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
            let all: Vec<_> = blocks.iter().map(|block| block.range.clone()).collect();
            prop_assert_eq!(bytes(&ranges), bytes(&all));
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
            for block in &blocks {
                let holds = |range: &&Range<u64>| range.start <= block.range.start && block.range.end <= range.end;
                prop_assert_eq!(ranges.iter().filter(holds).count(), 1);
            }
            let largest = blocks.iter().map(|block| block.range.end - block.range.start).max();
            prop_assert!(ranges.iter().all(|range| range.end - range.start <= JOINED.max(largest.unwrap_or(0))));
        }

        #[test]
        fn what_was_used_last_comes_first(blocks in blocks()) {
            let order = returning(blocks.clone());
            prop_assert_eq!(order.len(), blocks.len());
            let uses: Vec<Option<u64>> = order
                .iter()
                .map(|range| blocks.iter().find(|block| block.range == *range).expect("one of them").last_use)
                .collect();
            prop_assert!(uses.windows(2).all(|pair| pair[0] >= pair[1]), "{:?}", uses);
        }

        /// Requests come at any moment, also while a step is under way. In the end the process is
        /// where the last request wanted it, unless a pause has failed after that.
        #[test]
        fn no_request_is_lost(events in proptest::collection::vec((0..6_u8, any::<bool>()), 0..60)) {
            let (mut course, mut under_way, mut last, mut failed) = (Course::default(), None, PauseGoal::Running, None);
            let (mut threads, mut more, mut left) = (0, 0, 0);
            for (event, succeeds) in events {
                match event {
                    5 => threads += usize::from(course.ask_arena()),
                    4 => {
                        (last, failed) = (PauseGoal::Paused, None);
                        more += u32::from(matches!(course.phase, PausePhase::Paused | PausePhase::Pausing));
                        threads += usize::from(course.ask_more());
                    }
                    0 | 1 => {
                        last = if event == 0 { PauseGoal::Running } else { PauseGoal::Paused };
                        failed = None;
                        threads += usize::from(course.ask(last));
                    }
                    _ if threads == 0 => {}
                    _ => match under_way.take() {
                        None => match course.next() {
                            PauseStep::End => threads -= 1,
                            step => under_way = Some(step),
                        },
                        Some(step) => {
                            // Only files that cannot be read are in the way of a resume.
                            let succeeds = succeeds || matches!(step, PauseStep::Refill | PauseStep::FillArena);
                            if step != PauseStep::FillArena {
                                course.has_rest = step != PauseStep::Pause && succeeds;
                            }
                            // Another request has come first.
                            course.wants_arena |= step == PauseStep::FillArena && course.is_under_way();
                            course.ended(succeeds);
                            left += u32::from(step == PauseStep::LeaveMore);
                            let stays = match step {
                                PauseStep::Pause => Some(PausePhase::Running),
                                PauseStep::Resume => Some(PausePhase::Paused),
                                // The process is where it was.
                                _ => None,
                            };
                            failed = if succeeds { failed } else { stays.or(failed) };
                        }
                    },
                }
                prop_assert!(threads <= 1, "two threads work");
            }
            while threads > 0 {
                if let Some(step) = under_way.take() {
                    course.has_rest = false;
                    course.ended(true);
                    left += u32::from(step == PauseStep::LeaveMore);
                }
                match course.next() {
                    PauseStep::End => threads -= 1,
                    step => under_way = Some(step),
                }
            }
            let asked = if last == PauseGoal::Paused { PausePhase::Paused } else { PausePhase::Running };
            let wanted = failed.unwrap_or(asked);
            prop_assert_eq!(course.phase, wanted);
            prop_assert_eq!(course.shown(), wanted, "a client waits for ever");
            prop_assert!(!course.is_working && !course.wants_more && !course.is_under_way());
            prop_assert!(!course.is_filling() && (!course.wants_arena || course.phase == PausePhase::Paused));
            prop_assert!(left <= more, "more leaves only of a process that is paused");
        }

        #[test]
        fn no_block_too_many_leaves(blocks in proptest::collection::vec(0..100_u64, 0..40), bytes in 0..3000_u64) {
            let count = count_for(blocks.iter().copied(), bytes);
            let sum = |count: usize| blocks[..count].iter().sum::<u64>();
            prop_assert!(count == blocks.len() || sum(count) >= bytes);
            prop_assert!(count == 0 || sum(count - 1) < bytes || bytes == 0);
        }
    }
}
