//! Hazard (out of memory): a program is paused, and memory that it shares stays on the device, also
//! after every program that has it is paused.
//!
//! Hazard (wrong result): a program that runs loses memory that a paused one gave it; or a paused
//! one comes back to memory that another program has written.

use std::collections::BTreeMap;
use std::path::Path;

use hazards::sharers::{Sharer, Stage, share};
use serde_json::Value;

/// Blocks, and pieces that the program makes itself: number, seed, MiB.
const BLOCKS: [(usize, u64, u64); 2] = [(0, 7, 4), (1, 8, 6)];
const PIECES: [(usize, u64, u64); 2] = [(2, 9, 6), (3, 10, 4)];
const ALL: u64 = 20;

fn pair(stage: &Stage) -> [Sharer; 2] {
    pair_with(stage, &[])
}

/// The first one has more variables.
fn pair_with(stage: &Stage, variables: &[(&str, &str)]) -> [Sharer; 2] {
    let mut sharers = [stage.start_with(variables), stage.start()];
    for sharer in &mut sharers {
        sharer.load(&BLOCKS);
    }
    for sharer in &mut sharers {
        for (number, seed, mib) in PIECES {
            sharer.obey(&format!("piece {number} {seed} {mib}"));
        }
    }
    share(&mut sharers, ALL);
    sharers
}

/// Pauses a program, to the host or to files in a folder, and checks that nothing stays.
fn pause(stage: &Stage, sharer: &mut Sharer, folder: Option<&Path>) {
    let answer = stage.pause(sharer, folder);
    let left = answer["pause"]["stayed_bytes"].as_u64().expect("bytes");
    assert_eq!(left, 0, "{answer:#}");
    assert_eq!(sharer.figure("shared_bytes"), 0);
}

#[test]
fn what_a_paused_program_shares_leaves_it_and_stays_the_others() {
    let stage = Stage::new();
    let [mut one, mut other] = pair(&stage);
    pause(&stage, &mut one, None);
    other.expect_right("the other program is paused");
    other.obey("write kernel 0 9");
    other.obey("write memset 2 8");
    other.expect_right("it has written");
    stage.resume(&one);
    one.expect_right("it came back");
    one.obey("write host 1 6");
    for sharer in [&mut one, &mut other] {
        sharer.expect_right("both run");
    }
    stage.end([one, other]);
}

#[test]
fn once_all_are_paused_no_memory_stays_and_it_is_shared_again_afterwards() {
    let stage = Stage::new();
    let mut sharers = pair(&stage);
    for _ in 0..2 {
        for sharer in &mut sharers {
            pause(&stage, sharer, None);
        }
        stage.expect_held("all are paused", |(chunks, leases, _)| (chunks, leases) == (0, 0));
        for sharer in &mut sharers {
            stage.resume(sharer);
            sharer.expect_right("it came back");
        }
        share(&mut sharers, ALL);
    }
    for (number, sharer) in sharers.iter_mut().enumerate() {
        sharer.obey(&format!("write kernel 3 {number}"));
    }
    sharers.iter_mut().for_each(|sharer| sharer.expect_right("written"));
    stage.end(sharers);
}

#[test]
fn it_leaves_for_files_as_well() {
    let stage = Stage::new();
    let mut sharers = pair(&stage);
    let folder = stage.cache();
    for sharer in &mut sharers {
        pause(&stage, sharer, Some(&folder));
    }
    stage.expect_held("all are paused", |(chunks, leases, _)| (chunks, leases) == (0, 0));
    for sharer in &mut sharers {
        stage.resume(sharer);
        sharer.expect_right("it came back");
    }
    share(&mut sharers, ALL);
    stage.end(sharers);
}

/// Segments of copies that a program maps: inode and bytes.
fn segments(sharer: &Sharer) -> BTreeMap<u64, u64> {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", sharer.id())).expect("its mappings");
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some((words.nth(3)?.parse().ok()?, number(end)? - number(start)?))
    };
    maps.lines().filter(|line| line.contains("wmshim-common")).filter_map(of_line).collect()
}

fn common_mib(answer: &Value) -> u64 {
    answer["pause"]["common_bytes"].as_u64().expect("bytes") >> 20
}

/// Hazard (out of memory): each of several paused programs of one model takes host memory for it.
#[test]
fn paused_programs_have_what_they_shared_on_the_host_once() {
    let stage = Stage::new();
    let mut sharers = pair(&stage);
    for round in 0..3 {
        let copies = |sharer: &mut Sharer| sharer.driver_calls("cuMemcpyDtoHAsync_v2");
        let before = sharers.each_mut().map(copies);
        let answers = sharers.each_mut().map(|sharer| stage.pause(sharer, None));
        // Of each chunk one, to write or to compare it. Later what was not written is known to be
        // equal.
        let made = sharers
            .each_mut()
            .map(copies)
            .iter()
            .zip(before)
            .map(|(now, before)| now - before)
            .collect::<Vec<_>>();
        assert!(made.iter().all(|made| (*made == 0) == (round > 0)), "round {round}: {made:?} copies");
        assert_eq!(answers.each_ref().map(common_mib), [ALL, ALL], "round {round}: {answers:#?}");
        let [one, other] = sharers.each_ref().map(segments);
        assert_eq!(one, other, "round {round}: they map the same memory");
        assert_eq!(one.values().sum::<u64>(), ALL << 20, "round {round}: and no more of it");
        for sharer in &mut sharers {
            stage.resume(sharer);
            sharer.expect_right("it came back");
        }
        // In the second round nothing is shared on the device.
        if round == 1 {
            share(&mut sharers, ALL);
        }
    }
    stage.end(sharers);
}

/// The rest goes to memory that is not pinned, as for the driver's checkpoint.
#[test]
fn they_have_it_once_if_the_rest_is_not_pinned_either() {
    let stage = Stage::new();
    let mut sharers = pair(&stage);
    for to in [Some(Path::new("memory")), None, Some(Path::new("memory"))] {
        let answers = sharers.each_ref().map(|sharer| stage.pause(sharer, to));
        assert_eq!(answers.each_ref().map(common_mib), [ALL, ALL], "{to:?}");
        let in_memory = answers.each_ref().map(|answer| answer["pause"]["file_bytes"].as_u64() > Some(0));
        assert_eq!(in_memory, [to.is_some(); 2], "{answers:#?}");
        stage.expect_copies(ALL);
        for sharer in &mut sharers {
            stage.resume(sharer);
            sharer.expect_right("it came back");
        }
    }
    stage.end(sharers);
}

/// Hazard (out of memory): programs that are paused at one moment find no copy of each other, and
/// each keeps its own.
#[test]
fn programs_that_are_paused_at_the_same_time_end_with_one_copy() {
    for _ in 0..4 {
        let stage = Stage::new();
        let mut sharers = pair(&stage);
        stage.pause_all();
        stage.expect_copies(ALL);
        assert_eq!(segments(&sharers[0]), segments(&sharers[1]));
        for sharer in &mut sharers {
            stage.resume(sharer);
            sharer.expect_right("it came back");
        }
        stage.end(sharers);
    }
}

/// Hazard (wrong result): a program comes back to bytes that it has written over, or writes over
/// those of another program.
#[test]
fn what_is_written_after_a_resume_is_the_programs_own_in_the_next_pause() {
    let stage = Stage::new();
    let [mut one, mut other] = pair(&stage);
    for sharer in [&one, &other] {
        stage.pause(sharer, None);
    }
    stage.resume(&one);
    one.obey("write kernel 1 77");
    one.obey("part host 0 78");
    let answer = stage.pause(&one, None);
    // Block 1, and a chunk of block 0.
    assert_eq!(common_mib(&answer), ALL - 8, "{answer:#}");
    for sharer in [&mut other, &mut one] {
        stage.resume(sharer);
        sharer.expect_right("it came back");
    }
    stage.end([one, other]);
}

/// Hazard (resource leak): host memory stays behind programs that have ended, or that have freed
/// what it was a copy of.
#[test]
fn a_copy_goes_with_the_last_program_that_needs_it() {
    let stage = Stage::new();
    let [mut one, other] = pair(&stage);
    for sharer in [&one, &other] {
        stage.pause(sharer, None);
    }
    stage.expect_copies(ALL);
    let mut other = other;
    other.kill();
    stage.expect_copies(ALL);
    stage.resume(&one);
    (0..4).for_each(|block| one.obey(&format!("free {block}")));
    stage.expect_copies(0);
    assert_eq!(segments(&one), BTreeMap::new());
    stage.end([one]);
}

/// Hazard (resource leak): a program that runs keeps host memory that was asked back.
#[test]
fn a_trim_gives_copies_back_and_none_that_a_paused_program_needs() {
    let stage = Stage::new();
    let mut sharers = pair(&stage);
    for sharer in &sharers {
        stage.pause(sharer, None);
    }
    assert!(stage.carries_out("trim", &sharers[0], &[]));
    stage.resume(&sharers[1]);
    assert!(stage.carries_out("trim", &sharers[1], &[]));
    stage.expect_copies(ALL);
    stage.resume(&sharers[0]);
    assert!(stage.carries_out("trim", &sharers[0], &[]));
    stage.expect_copies(0);
    sharers.iter_mut().for_each(|sharer| sharer.expect_right("it came back"));
    stage.end(sharers);
}

/// Hazard (wrong result): paused programs rely on a broker that is gone.
#[test]
fn without_the_broker_they_come_back_and_are_paused_again() {
    let stage = Stage::new();
    let mut sharers = pair(&stage);
    for _ in 0..2 {
        for sharer in &mut sharers {
            stage.pause(sharer, None);
        }
        stage.kill_broker();
        for sharer in &mut sharers {
            stage.resume(sharer);
            sharer.expect_right("it came back");
        }
    }
    share(&mut sharers, ALL);
    stage.end(sharers);
}

/// Hazard (deadlock): an exit handler waits for a thread that waits for the resume, or for a driver
/// that has ended. Hazard (wrong result): one reads memory that is mapped nowhere.
#[test]
fn an_exit_brings_back_what_an_exit_handler_needs() {
    for how in ["alone", "beside", "late"] {
        let stage = Stage::new();
        let [mut one, other] = pair(&stage);
        let answer = stage.pause(&one, None);
        assert_eq!(common_mib(&answer), ALL, "{answer:#}");
        one.obey(&format!("last {how}"));
        while how == "beside" && stage.stats(&one)["pause"]["is_awaited"] != true {}
        stage.end([one, other]);
    }
}

/// Hazard: the host has no room for the rest, and what has a copy is lost or stays away.
#[test]
fn without_room_for_the_rest_all_comes_back() {
    let stage = Stage::new();
    let [mut one, other] = pair_with(&stage, &[("WMSHIM_HOST_LIMIT", "2MiB")]);
    for _ in 0..2 {
        assert!(!stage.carries_out("pause", &one, &[]), "there is memory that no other program has");
        let pause = stage.stats(&one)["pause"].take();
        assert!(pause["problem"].as_str().is_some_and(|why| why.contains("WMSHIM_HOST_LIMIT")), "{pause}");
        one.expect_right("it runs on");
    }
    stage.end([one, other]);
}

/// Hazard (out of memory): a program does not come back, since the device has no room any more.
/// Hazard (wrong result): it writes over the copy of another one.
#[test]
fn what_finds_no_room_on_the_device_comes_back_to_the_host() {
    let stage = Stage::new();
    let [mut one, mut other] = pair(&stage);
    for sharer in [&one, &other] {
        stage.pause(sharer, None);
    }
    assert!(stage.carries_out("limit", &one, &["12MiB"]));
    stage.resume(&one);
    one.expect_right("some of it lies on the host");
    let answer = stage.stats(&one);
    assert!(answer["pause"]["left_bytes"].as_u64() >= Some(8 << 20), "{answer:#}");
    (0..4).for_each(|block| one.obey(&format!("write memset {block} 3")));
    one.expect_right("written there");
    stage.resume(&other);
    other.expect_right("its bytes are its own");
    assert!(stage.carries_out("limit", &one, &["none"]));
    for sharer in [&one, &other] {
        stage.pause(sharer, None);
        stage.resume(sharer);
    }
    one.expect_right("back");
    stage.end([one, other]);
}

/// Hazard (error handling): a copy fails in the middle of a pause, and bytes are lost, or the
/// program hangs.
#[test]
fn a_copy_out_that_fails_costs_no_byte() {
    for number in [1, 4, 6] {
        let stage = Stage::new();
        let failing = format!("cuMemcpyDtoHAsync:{number}");
        let mut sharers = pair_with(&stage, &[("SIMCUDA_FAIL", &failing)]);
        // All is one group: memory that could not be compared or written has a copy of its own.
        for first in [0, ALL] {
            let pauses = sharers.each_ref().map(|sharer| stage.pause(sharer, None));
            assert_eq!(pauses.each_ref().map(common_mib), [first, ALL], "{failing}");
            for sharer in &mut sharers {
                stage.resume(sharer);
                sharer.expect_right(&failing);
            }
        }
        stage.end(sharers);
    }
}

/// The same for a resume, which is asked for again. Copies of before it differ in number.
#[test]
fn a_copy_back_that_fails_costs_no_byte() {
    let mut failures = 0;
    for number in [1, 2, 4, 7] {
        let stage = Stage::new();
        let failing = format!("cuMemcpyHtoDAsync:{number}");
        let [mut one, mut other] = pair_with(&stage, &[("SIMCUDA_FAIL", &failing)]);
        stage.pause(&one, None);
        stage.pause(&other, None);
        if !stage.carries_out("resume", &one, &[]) {
            failures += 1;
            stage.resume(&one);
        }
        stage.resume(&other);
        for sharer in [&mut one, &mut other] {
            sharer.expect_right(&failing);
        }
        stage.end([one, other]);
    }
    assert!(failures > 0, "no copy back has failed");
}
