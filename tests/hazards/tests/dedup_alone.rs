//! Hazard (latency): a write waits for all work of the GPU, as for a stream that only the host lets
//! go on, although no other program has the memory.
//!
//! Hazard (data race): a program writes memory that another one still has.
//!
//! Memory that was shared, and that no other program uses any more, is a program's own again.

use std::time::Instant;

use hazards::sharers::{CHUNK, MIB, SOON, Sharer, Stage, read_until, share};

/// Blocks of two chunks.
const BLOCKS: [(usize, u64, u64); 3] = [(0, 7, 2 * CHUNK), (1, 8, 2 * CHUNK), (2, 9, 2 * CHUNK)];
const ALL: u64 = 6 * CHUNK;

/// Ways to write in a stream.
const WAYS: [&str; 3] = ["kernel", "memset32", "host-async"];

/// Two programs share all blocks.
fn pair(stage: &Stage) -> [Sharer; 2] {
    let mut sharers = stage.loaded::<2>(&BLOCKS);
    share(&mut sharers, ALL);
    sharers
}

/// Waits until a program shares nothing, and no broker holds its memory.
fn await_alone(stage: &Stage, sharer: &mut Sharer) {
    let begin = Instant::now();
    while sharer.figure("shared_bytes") > 0 {
        assert!(begin.elapsed() < SOON, "it is alone with its bytes");
        read_until(std::slice::from_mut(sharer), 1000, 20);
    }
    stage.expect_held("it has its memory back", |held| held == (0, 0, 1));
}

fn expect_written_at_once(stage: Stage, mut sharer: Sharer) {
    await_alone(&stage, &mut sharer);
    for (block, way) in WAYS.iter().enumerate() {
        let took: u64 = sharer.say(&format!("held {way} {block} 90{block}")).parse().expect("a number");
        assert!(took < 5000, "{way}: {took} ms while another stream is held");
        sharer.expect_right(way);
    }
    let figures = ["copied_back_bytes", "faults_avoided"].map(|name| sharer.figure(name));
    assert_eq!(figures, [0; 2], "nothing was shared, so nothing was copied");
    stage.end([sharer]);
}

#[test]
fn the_taker_writes_at_once_after_the_giver_has_ended() {
    let stage = Stage::new();
    let [one, mut other] = pair(&stage);
    let mut ended = one;
    if ended.figure("saved_bytes") > other.figure("saved_bytes") {
        std::mem::swap(&mut ended, &mut other);
    }
    ended.end();
    expect_written_at_once(stage, other);
}

#[test]
fn the_giver_writes_at_once_after_the_taker_was_killed() {
    let stage = Stage::new();
    let [mut one, mut other] = pair(&stage);
    if one.figure("saved_bytes") < other.figure("saved_bytes") {
        std::mem::swap(&mut one, &mut other);
    }
    one.kill();
    expect_written_at_once(stage, other);
}

/// Hazard (silent degradation): memory that was taken back is never shared again.
#[test]
fn memory_that_was_taken_back_is_shared_with_the_next_program() {
    let stage = Stage::new();
    let [one, mut other] = pair(&stage);
    one.end();
    await_alone(&stage, &mut other);
    let [third] = stage.loaded::<1>(&BLOCKS);
    let mut sharers = [other, third];
    share(&mut sharers, ALL);
    sharers[0].obey("write kernel 0 33");
    sharers.iter_mut().for_each(|sharer| sharer.expect_right("one has written"));
    stage.end(sharers);
}

/// A block is freed while it is shared: the other program has its bytes alone, once the memory is
/// not mapped any more.
#[test]
fn memory_that_the_other_program_has_freed_is_taken_back() {
    let stage = Stage::new();
    let mut sharers = pair(&stage);
    sharers[0].obey("free 1");
    let begin = Instant::now();
    while sharers[1].figure("shared_bytes") > (ALL - 2 * CHUNK) * MIB {
        assert!(begin.elapsed() < SOON, "one block is its own");
        read_until(&mut sharers, 1000, 20);
    }
    let took: u64 = sharers[1].say("held kernel 1 901").parse().expect("a number");
    assert!(took < 5000, "{took} ms");
    assert_eq!(sharers[1].figure("copied_back_bytes"), 0);
    sharers.iter_mut().for_each(|sharer| sharer.expect_right("one has freed, and one has written"));
    stage.end(sharers);
}

/// After the broker was killed the next one may not know of all that have a chunk: the writer gets
/// a copy, and the other program's bytes stay.
#[test]
fn memory_that_was_shared_under_an_earlier_broker_is_not_taken_back() {
    let stage = Stage::new();
    let mut sharers = pair(&stage);
    stage.kill_broker();
    let begin = Instant::now();
    while stage.held().2 < 2 {
        assert!(begin.elapsed() < SOON, "both have told the next broker");
        read_until(&mut sharers, 1000, 50);
    }
    let [mut one, other] = sharers;
    other.end();
    read_until(std::slice::from_mut(&mut one), 1000, 2500);
    assert_eq!(one.figure("shared_bytes"), ALL * MIB, "it may be another program's");
    for (block, way) in WAYS.iter().enumerate() {
        one.obey(&format!("write {way} {block} 90{block}"));
        one.expect_right(way);
    }
    assert!(one.figure("copied_back_bytes") > 0);
    stage.end([one]);
}

/// Hazard (latency): the first launch of a kernel that reads makes a block private, since its code
/// was not read yet.
#[test]
fn kernels_of_an_image_are_judged_before_they_are_launched() {
    let stage = Stage::new();
    let mut sharers = pair(&stage);
    for loaded_as in ["module", "kernel", "function", "part"] {
        sharers[0].obey(&format!("renew 2000 {loaded_as}"));
        sharers[0].expect_right("read by another kernel");
        assert_eq!(sharers[0].figure("copied_back_bytes"), 0, "{loaded_as}: it was known to read");
    }
    assert_eq!(read_until(&mut sharers, ALL, 100), [ALL; 2], "all is shared still");
    stage.end(sharers);
}
