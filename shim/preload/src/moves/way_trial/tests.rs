//! Hazard (latency): a program goes on with a way that is slower than to leave memory in place.
//! Hazard (silent degradation): a way that is faster is not found.
use proptest::prelude::*;

use super::*;

const PERIOD: u64 = 160;

/// A program with steps of [`PERIOD`] events, which costs so many microseconds an event with
/// each way. Returns the way after each step, and the microseconds of each step.
fn run(steps: usize, repeats: bool, cost: impl Fn(Way, usize) -> u64) -> Vec<(Way, u64)> {
    play(WayTrial::default(), steps, repeats, cost)
}

fn play(
    mut trial: WayTrial,
    steps: usize,
    repeats: bool,
    cost: impl Fn(Way, usize) -> u64,
) -> Vec<(Way, u64)> {
    let mut now = TrialClock { credit: ENOUGH, is_arranged: true, ..TrialClock::default() };
    let mut step = |number: usize| {
        let begin = now.time;
        for _ in 0..PERIOD {
            let way = trial.way();
            now.event += 1;
            now.time += Duration::from_micros(cost(way, number));
            if way.moves_at_launches() && now.event.is_multiple_of(10) {
                trial.count_wait();
            }
            let period = (repeats && now.event > 2 * PERIOD).then_some(PERIOD);
            trial.record(now.event, period, || now);
        }
        now.host_waits += 1;
        (trial.way(), (now.time - begin).as_micros() as u64)
    };
    (0..steps).map(&mut step).collect()
}

fn of([leave, follow, bring]: [u64; 3]) -> impl Fn(Way, usize) -> u64 {
    of_four([leave, leave, follow, bring])
}

fn of_four([leave, arrange, follow, bring]: [u64; 4]) -> impl Fn(Way, usize) -> u64 {
    move |way, _| match way {
        Way::Leave => leave,
        Way::Arrange => arrange,
        Way::Follow => follow,
        Way::Bring => bring,
    }
}

proptest! {
    /// The contract: at most 1.05 of the best way in the long run, and a bounded transient.
    #[test]
    fn the_best_way_is_found_and_trials_cost_little(
        costs in [20..2000_u64, 20..2000_u64, 20..2000_u64],
    ) {
        let steps = run(3000, true, of(costs));
        let best = *costs.iter().min().expect("three ways") * PERIOD;
        let cost = |steps: &[(Way, u64)]| steps.iter().map(|(_, time)| time).sum::<u64>();
        let late = cost(&steps[300..]);
        prop_assert!(late as f64 <= 1.05 * (2700 * best) as f64, "{} of {}", late, 2700 * best);
        // Blocks are brought from the beginning, and settle and are measured once.
        let looks = 3 * LOOK * (costs[0] + costs[1] + costs[2]);
        let bound = 8 * costs[2] * PERIOD + (UNSETTLED as u64 + 3) * 60 * best + looks;
        prop_assert!(cost(&steps[..60]) <= bound, "{} of {bound}", cost(&steps[..60]));
    }
}

proptest! {
    /// Hazard (latency): a program becomes slower although its memory could stay where it is.
    #[test]
    fn a_careful_trial_costs_little_beside_leaving_memory_in_place(
        costs in [20..2000_u64, 20..2000_u64, 20..2000_u64, 20..2000_u64],
    ) {
        let steps = play(WayTrial::new(true), 3000, true, of_four(costs));
        let (arranged, best) = (costs[1] * PERIOD, *costs.iter().min().expect("four ways") * PERIOD);
        let cost = |steps: &[(Way, u64)]| steps.iter().map(|(_, time)| time).sum::<u64>();
        prop_assert!(steps[..3].iter().all(|(_, time)| *time == arranged), "nothing moves at launches");
        // Three ways are tried, and each trial ends at three times what it costs to arrange memory.
        let trials = 3 * (UNSETTLED as u64 + 2) * arranged + 2 * LOOK * costs.iter().sum::<u64>();
        let bound = 60 * arranged + trials;
        prop_assert!(cost(&steps[..60]) <= bound, "{} of {bound}", cost(&steps[..60]));
        let late = cost(&steps[300..]);
        prop_assert!(late as f64 <= 1.05 * (2700 * best) as f64, "{} of {}", late, 2700 * best);
    }
}

/// Hazard (latency): memory moves in a program that reads it over the link as fast as it could
/// move.
#[test]
fn a_way_that_moves_memory_is_tried_where_it_promises_a_gain() {
    let tries = |elsewhere: u64| {
        let (mut trial, mut has_moved) = (WayTrial::new(true), false);
        for event in 0..20_000 {
            let (time, is_arranged) = (Duration::from_micros(100 * event), false);
            let now = TrialClock {
                event,
                time,
                host_waits: event / PERIOD,
                credit: ENOUGH,
                elsewhere,
                is_arranged,
                ..TrialClock::default()
            };
            trial.record(event, (event > 2 * PERIOD).then_some(PERIOD), || now);
            has_moved |= trial.way() != Way::Arrange;
        }
        has_moved
    };
    // A period takes 16 ms, and 260 MB come and leave in 10.4 ms.
    assert!(tries(260_000_000));
    assert!(!tries(280_000_000));
}

/// Hazard (latency): each launch is recorded, although nothing is to move.
#[test]
fn where_nothing_moves_most_launches_need_not_be_recorded() {
    let (mut trial, mut now) = (WayTrial::new(true), TrialClock::default());
    let (mut recorded, mut recess) = (0, None);
    now.elsewhere = u64::MAX / 4;
    for launch in 0..100_000 {
        now.time += Duration::from_micros(100);
        now.host_waits = launch / PERIOD;
        if recess.is_some_and(|end| now.time < end) {
            continue;
        }
        if recess.take().is_some() {
            trial.resume(now);
        }
        recorded += 1;
        now.event += 1;
        trial.record(now.event, (now.event > 2 * PERIOD).then_some(PERIOD), || now);
        recess = trial.take_recess().map(|time| now.time + time);
    }
    assert!((5_000..20_000).contains(&recorded), "{recorded} of 100000");
}

#[test]
fn a_program_that_does_not_repeat_itself_is_measured_over_long_times() {
    let steps = run(40_000, false, of([100, 60, 200]));
    let late: u64 = steps[10_000..].iter().map(|(_, time)| time).sum();
    assert!(late < 30_000 * PERIOD * 60 * 110 / 100, "{late}");
}

#[test]
fn a_program_that_becomes_slower_with_its_way_gets_another() {
    let cost = |way, number| match (way, number) {
        (Way::Leave, _) => 100,
        (_, 0..100) => 50,
        _ => 200,
    };
    let steps = run(200, true, cost);
    assert!(steps[60..100].iter().filter(|(way, _)| *way != Way::Leave).count() > 30);
    assert!(steps[140..].iter().filter(|(way, _)| *way == Way::Leave).count() > 45, "{steps:?}");
}

/// Hazard (latency): waits go on where none finds the GPU idle.
#[test]
fn a_trial_whose_waits_bring_nothing_ends() {
    let mut trial = WayTrial::default();
    let is_allowed = |event: u64| {
        let time = Duration::from_micros(event);
        let now =
            TrialClock { event, time, host_waits: event / 100, credit: ENOUGH, ..TrialClock::default() };
        trial.record(event, (event > 200).then_some(100), || now);
        trial.worth() != WaitWorth::Costs
    };
    let allowed = (0..100_000_u64).map(is_allowed).filter(|is_allowed| *is_allowed).count();
    assert!((400..12_000).contains(&allowed), "{allowed} of 100000");
}

/// Hazard (latency): a way is tried for several periods of a slow program although its waits bring
/// nothing, since memory might still come to lie as the way has it.
#[test]
fn a_trial_in_which_nothing_moves_ends_after_a_period() {
    let (mut trial, mut now) = (WayTrial::default(), TrialClock { credit: ENOUGH, ..TrialClock::default() });
    let mut followed = 0;
    for step in 0..40 {
        for _ in 0..PERIOD {
            let way = trial.way();
            now.event += 1;
            now.time += Duration::from_micros(if way == Way::Bring { 500 } else { 1000 });
            if way == Way::Bring && now.event.is_multiple_of(10) {
                trial.count_wait();
            }
            trial.record(now.event, (now.event > 2 * PERIOD).then_some(PERIOD), || now);
            followed += u64::from(step < 20 && trial.way() == Way::Follow);
        }
        now.host_waits += 1;
    }
    assert!((1..=PERIOD + 2 * LOOK).contains(&followed), "{followed} events");
}

/// Hazard (silent degradation): the first moves make memory of the host, for which a trial's waits
/// are used up, and the next trial is so late that most runs end before it.
#[test]
fn a_trial_that_was_starved_is_repeated_with_more_credit_soon() {
    let (mut trial, mut spent, mut made) = (WayTrial::new(true), Duration::ZERO, 0);
    let mut now = TrialClock { elsewhere: 1 << 30, ..TrialClock::default() };
    let mut brought = None;
    while now.time < Duration::from_secs(60) && brought.is_none() {
        for _ in 0..PERIOD {
            let way = trial.way();
            now.event += 1;
            now.time += Duration::from_millis(if way == Way::Bring { 1 } else { 3 });
            if way == Way::Bring && made < 100 {
                (made, spent) = (made + 1, spent + Duration::from_millis(8));
            }
            if way == Way::Bring && now.event.is_multiple_of(10) {
                trial.count_wait();
            }
            now.credit = (now.time / 25).saturating_sub(spent);
            trial.record(now.event, (now.event > 2 * PERIOD).then_some(PERIOD), || now);
        }
        now.host_waits += 1;
        brought = (trial.chosen() == Some(Way::Bring)).then_some(now.time);
    }
    assert!(brought.is_some_and(|time| time < Duration::from_secs(40)), "{brought:?}");
}

/// Hazard (latency): memory is to be brought again behind long kernels that are queued already, so
/// that no wait of the rest of the step ends in time.
#[test]
fn a_slower_way_is_given_up_where_a_step_ends() {
    let (mut trial, mut now) = (WayTrial::default(), TrialClock { credit: ENOUGH, ..TrialClock::default() });
    let mut ends = Vec::new();
    for _ in 0..200 {
        for event in 0..PERIOD {
            let way = trial.way();
            now.event += 1;
            now.time += Duration::from_micros(if way == Way::Follow { 1300 } else { 1000 });
            if way.moves_at_launches() && now.event.is_multiple_of(10) {
                trial.count_wait();
            }
            trial.record(now.event, (now.event > 2 * PERIOD).then_some(PERIOD), || now);
            if way == Way::Follow && trial.way() != way {
                ends.push(event);
            }
        }
        now.host_waits += 1;
    }
    assert!(!ends.is_empty() && ends.iter().all(|event| *event <= LOOK), "{ends:?}");
}

/// Hazard (silent degradation): a framework gives tensors other addresses in each step, so that no
/// period of its memory is seen, and a way that is faster is not tried.
#[test]
fn a_period_of_the_kernels_serves_as_one_of_the_memory() {
    let tries = |rhythm: Option<u64>| {
        let (mut trial, mut has_tried) = (WayTrial::new(true), false);
        let elsewhere = 1 << 30;
        let mut now = TrialClock { credit: ENOUGH, rhythm, elsewhere, ..TrialClock::default() };
        for _ in 0..30 * PERIOD {
            now.event += 1;
            // A step of 0.8 s waits often, and uses what is on the host often.
            now.time += Duration::from_millis(5);
            now.host_waits += 1;
            now.host_bytes += 1 << 28;
            trial.record(now.event, None, || now);
            has_tried |= trial.way() == Way::Bring;
        }
        has_tried
    };
    assert!(tries(Some(PERIOD)) && !tries(None));
}

/// Hazard (latency): waits beyond their share. Hazard (silent degradation): a trial whose waits
/// are used up at once, so that nothing is measured.
#[test]
fn a_trial_begins_when_its_waits_are_earned() {
    let mut trial = WayTrial::default();
    let mut record = |event: u64, credit| {
        let time = Duration::from_millis(event);
        let now = TrialClock { event, time, host_waits: event / 100, credit, ..TrialClock::default() };
        trial.record(event, (event > 200).then_some(100), || now);
        trial.worth()
    };
    assert!((0..1000).all(|event| record(event, Duration::from_millis(11)) != WaitWorth::Trial));
    assert!((1000..1400).any(|event| record(event, Duration::from_millis(60)) == WaitWorth::Trial));
}

/// A server that answers some thirty times and then reads new requests in four periods. Returns its
/// microseconds, and those with each of two ways alone.
fn serve(cost: impl Fn(Way, bool) -> u64) -> (u64, [u64; 2]) {
    let mut now = TrialClock { is_arranged: true, elsewhere: u64::MAX / 4, ..TrialClock::default() };
    let (mut trial, mut alone) = (WayTrial::new(true), [0; 2]);
    for number in 0..200_u64 {
        let answers = 24 + number * 7 % 17;
        for period in 0..answers + 4 {
            let is_request = period >= answers;
            for _ in 0..PERIOD {
                now.event += 1;
                now.time += Duration::from_micros(cost(trial.way(), is_request));
                trial.record(now.event, (now.event > 2 * PERIOD).then_some(PERIOD), || now);
            }
            let of = |way| PERIOD * cost(way, is_request);
            alone = [alone[0] + of(Way::Leave), alone[1] + of(Way::Arrange)];
            now.host_waits += 1;
        }
    }
    (now.time.as_micros() as u64, alone)
}

/// Hazard (latency): a server takes the time of its requests, or of its answers, for the cost of a
/// way, and goes on with the one that is slower together.
#[test]
fn the_dear_periods_of_a_program_count_as_well_as_the_cheap_ones() {
    for (left, arranged) in [(18_000, 5000), (5000, 5000), (870, 18_000), (8000, 18_000)] {
        let cost = move |way, is_request| match (is_request, way) {
            (false, Way::Leave) => 870,
            (false, _) => 1000,
            (true, Way::Leave) => left,
            (true, _) => arranged,
        };
        let (took, alone) = serve(cost);
        let least = alone[0].min(alone[1]);
        assert!(took as f64 <= 1.1 * least as f64, "{took} of {least}, requests {left} and {arranged}");
    }
}

/// Hazard (latency): a burst of allocations is measured as if it were the program's work.
#[test]
fn a_burst_of_events_is_no_gain() {
    let mut now = TrialClock { is_arranged: true, elsewhere: u64::MAX / 4, ..TrialClock::default() };
    let (mut trial, mut left) = (WayTrial::new(true), 0);
    for step in 0..2000_u64 {
        // Each time that an arrangement is measured again, the period takes hardly any time.
        let is_again = trial.cost(Way::Leave).is_some() && trial.doubted.is_none();
        let is_burst = is_again && trial.phase == Phase::Measuring(Way::Arrange);
        for _ in 0..PERIOD {
            let cost = if trial.way() == Way::Leave { 900 } else { 1000 };
            now.event += 1;
            now.time += Duration::from_micros(if is_burst { 10 } else { cost });
            trial.record(now.event, (now.event > 2 * PERIOD).then_some(PERIOD), || now);
        }
        now.host_waits += 1;
        left += u64::from(step >= 40 && trial.way() == Way::Leave);
    }
    assert!(left > 1850, "{left} of 1960");
}

/// Hazard (latency): a training that blocks in other places make twice as fast goes on for minutes
/// with the places before, as if it were a program of cheap periods and dear ones.
#[test]
fn a_program_that_becomes_faster_is_not_an_uneven_one() {
    let steps = play(WayTrial::new(true), 100, true, |way, step| match way {
        Way::Arrange if step >= 4 => 155,
        Way::Leave | Way::Arrange => 412,
        Way::Follow | Way::Bring => 2000,
    });
    let left = steps.iter().filter(|(way, _)| *way == Way::Leave).count();
    assert!(left < 10, "{steps:?}");
}

/// Hazard (latency): the first steps, in which a training makes its memory, have many events, and
/// what follows passes for a program of cheap periods and dear ones: other places are then tried
/// for as long as such a program needs.
#[test]
fn a_pace_without_a_period_is_no_measure_for_one() {
    for (burst, seen_after) in [(4, 6), (4, 9), (24, 6), (24, 9)] {
        let mut now = TrialClock { is_arranged: true, elsewhere: u64::MAX / 4, ..TrialClock::default() };
        let (mut trial, mut left) = (WayTrial::new(true), 0);
        for step in 0..60_u64 {
            // Six seconds, in four steps of many allocations, pass before the period is seen.
            let (events, micros) = if step < 4 { (burst * PERIOD, 10_000 / burst) } else { (PERIOD, 12_500) };
            for _ in 0..events {
                let slower = if trial.way() == Way::Leave { 3 } else { 2 };
                now.event += 1;
                now.time += Duration::from_micros(micros * slower / 2);
                trial.record(now.event, (step >= seen_after).then_some(PERIOD), || now);
            }
            now.host_waits += 1;
            left += u64::from(trial.way() == Way::Leave);
        }
        assert!(left <= 6, "{left} of 60 steps: burst {burst}, seen after {seen_after}, {trial}");
    }
}

/// Hazard (silent degradation): a faster way is tried after minutes only, since the program was not
/// yet seen to repeat itself when the first one was chosen.
#[test]
fn a_way_that_promises_a_gain_is_tried_once_that_is_known() {
    let mut now = TrialClock { credit: ENOUGH, elsewhere: 2_000_000_000, ..TrialClock::default() };
    let (mut trial, mut recess_until, mut seen) = (WayTrial::new(true), Duration::ZERO, 0);
    let mut brought = 0;
    for _ in 0..40 {
        let is_recorded = now.time >= recess_until;
        // Only launches that follow each other show a period.
        seen = if is_recorded { seen + 1 } else { 0 };
        for event in 0..PERIOD {
            let cost = if trial.way() == Way::Bring { 6000 } else { 12_500 };
            now.time += Duration::from_micros(cost);
            // The host waits often in a step.
            now.host_waits += u64::from(event.is_multiple_of(8));
            if is_recorded {
                now.event += 1;
                if trial.way().moves_at_launches() && event.is_multiple_of(10) {
                    trial.count_wait();
                }
                trial.record(now.event, (seen > 4).then_some(PERIOD), || now);
                recess_until = trial.take_recess().map_or(recess_until, |time| now.time + time);
            }
        }
        if is_recorded && now.time < recess_until {
            trial.resume(now);
        }
        brought += u64::from(trial.way() == Way::Bring);
    }
    assert!(brought >= 25, "{brought} of 40 steps: {trial}");
}

/// Hazard (latency): the steps in which memory of the host is made stand for the cost of the places
/// of then, so that the program goes on with slower ones.
#[test]
fn steps_that_make_memory_are_not_measured() {
    let mut now = TrialClock { is_arranged: true, ..TrialClock::default() };
    let (mut trial, mut left) = (WayTrial::new(true), 0);
    for step in 0..60_u64 {
        for _ in 0..PERIOD {
            let making = if step < 3 { 60_000 } else { 0 };
            let cost = if trial.way() == Way::Leave { 3000 } else { 2000 };
            now.elsewhere += if step < 3 { 10_000_000 } else { 0 };
            now.event += 1;
            now.time += Duration::from_micros(cost + making);
            trial.record(now.event, None, || now);
        }
        now.host_waits += 1;
        left += u64::from(trial.way() == Way::Leave);
    }
    assert!(left <= 15, "{left} of 60 steps, {trial}");
}

/// Hazard (latency): blocks are still changing places, and a way that is faster than these are at
/// that moment, but slower than they will be, is chosen. Paces of a ResNet on an H200.
#[test]
fn places_that_become_better_are_not_given_up_for_a_way_that_is_worse_in_the_end() {
    let arranged = [2518, 2181, 1911, 1484, 1448, 1150, 1243, 991];
    let steps = play(WayTrial::new(true), 60, true, |way, step| match way {
        Way::Arrange => arranged[step.min(arranged.len() - 1)] * 10,
        Way::Leave => 21_600,
        Way::Bring => 11_300,
        Way::Follow => 30_330,
    });
    let others = steps[20..].iter().filter(|(way, _)| *way != Way::Arrange).count();
    assert!(others <= 4, "{steps:?}");
}

/// Hazard (thrashing): one step that something else has delayed changes the way. Paces of a LoRA.
#[test]
fn one_slow_step_does_not_change_the_way() {
    let steps = play(WayTrial::new(true), 60, true, |way, step| match way {
        Way::Arrange | Way::Leave => 30_400,
        Way::Bring if step % 15 == 14 => 30_100,
        Way::Bring => 15_000 + (step as u64 * 7 % 5) * 600,
        Way::Follow => 18_500,
    });
    let others = steps[20..].iter().filter(|(way, _)| *way != Way::Bring).count();
    assert!(others <= 2, "{steps:?}");
}

/// Hazard (silent degradation): a program of which no period is seen waits often in each step, and
/// passes for one of short steps, to which moves promise nothing.
#[test]
fn a_step_uses_at_least_what_is_on_the_host() {
    let tries = |uses: u64| {
        let elsewhere = 10_000_000_000;
        let mut now = TrialClock { credit: ENOUGH, elsewhere, ..TrialClock::default() };
        let (mut trial, mut has_moved) = (WayTrial::new(true), false);
        for _ in 0..20 * PERIOD {
            // Two seconds and sixteen waits a step; to come and leave takes 0.4 s.
            now.event += 1;
            now.time += Duration::from_micros(12_500);
            now.host_waits += u64::from(now.event.is_multiple_of(10));
            now.host_bytes += uses * elsewhere / PERIOD;
            trial.record(now.event, None, || now);
            has_moved |= trial.way().moves_at_launches();
        }
        has_moved
    };
    assert!(tries(3), "each byte of the host is used three times a step");
    assert!(!tries(4), "so often that steps may be too short");
}
