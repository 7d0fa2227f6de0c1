//! Hazard (out of memory): a program is paused, and memory that it shares stays on the device, also
//! after every program that has it is paused.
//!
//! Hazard (wrong result): a program that runs loses memory that a paused one gave it; or a paused
//! one comes back to memory that another program has written.

use std::path::Path;

use hazards::sharers::{Sharer, Stage, share};

/// Blocks, and pieces that the program makes itself: number, seed, MiB.
const BLOCKS: [(usize, u64, u64); 2] = [(0, 7, 4), (1, 8, 6)];
const PIECES: [(usize, u64, u64); 2] = [(2, 9, 6), (3, 10, 4)];
const ALL: u64 = 20;

fn pair(stage: &Stage) -> [Sharer; 2] {
    let mut sharers = stage.loaded::<2>(&BLOCKS);
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
