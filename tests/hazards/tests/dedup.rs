//! Hazard (data race): a process reads bytes that another one wrote into shared memory, loses its
//! own write, or faults where it may write; or shared memory stays after the last process.
//!
//! Each test has a broker of its own, and checks at the end that it holds no memory. Every program
//! checks every byte of its blocks against its writes.

use std::time::Instant;

use hazards::sharers::{CHUNK, MIB, PATIENCE, SOON, Sharer, Stage, read_until, share};

/// Ways in which a program writes over memory; see `c/shared.c`.
const WAYS: [&str; 8] =
    ["kernel", "fill", "memset", "memset32", "host", "host-async", "device", "device-async"];
/// Ways that can be captured.
const CAPTURED: [&str; 6] = ["kernel", "fill", "memset", "memset32", "host-async", "device-async"];

/// One block of two chunks for each of `count` ways.
fn blocks(count: usize) -> Vec<(usize, u64, u64)> {
    (0..count).map(|number| (number, 100 + number as u64, 2 * CHUNK)).collect()
}

#[test]
fn equal_blocks_are_held_once_and_read_right() {
    let stage = Stage::new();
    let mut sharers = stage.loaded::<2>(&[(0, 7, 8), (1, 8, 4)]);
    share(&mut sharers, 12);
    sharers.iter_mut().for_each(|sharer| sharer.expect_right("shared"));
    let (chunks, leases, programs) = stage.held();
    assert!(
        chunks >= 12 / CHUNK && leases >= 2 * 12 / CHUNK && programs == 2,
        "{chunks} {leases} {programs}"
    );
    let saved: u64 = sharers.iter_mut().map(|sharer| sharer.figure("saved_bytes")).sum();
    assert_eq!(saved / MIB, 12, "one copy of two is saved");
    stage.end(sharers);
}

/// Hazard (process crash): memory of a program that is alone with its bytes can be read
/// only, so a write that no launch shows ends the program, though nothing is saved.
#[test]
fn a_program_that_is_alone_keeps_memory_that_can_be_written() {
    let stage = Stage::new();
    let mut sharers = stage.loaded::<1>(&[(0, 7, 8)]);
    let begin = Instant::now();
    while sharers[0].figure("readers") == 0 {
        assert!(begin.elapsed() < SOON, "its kernels read, and nothing more is done");
        read_until(&mut sharers, 8, 50);
    }
    assert_eq!(read_until(&mut sharers, 8, 2000), [0], "nothing is shared");
    assert_eq!(stage.held(), (0, 0, 1));
    let mut sharers: Vec<Sharer> = sharers.into_iter().chain([stage.start()]).collect();
    sharers[1].load(&[(0, 7, 8)]);
    share(&mut sharers, 8);
    sharers.iter_mut().for_each(|sharer| sharer.expect_right("shared"));
    stage.end(sharers);
}

/// Hazard (latency): a program that is alone pays for a broker, a thread and passes.
/// Hazard (silent degradation): two programs that could share never notice each other.
#[test]
fn by_auto_programs_share_once_there_are_two() {
    let stage = Stage::new();
    let auto = [("WMSHIM_DEDUP", "auto"), ("WMSHIM_DEDUP_FROM", "8MiB")];
    let mut small = stage.start_with(&auto);
    small.obey("piece 0 7 4");
    let mut first = stage.start_with(&auto);
    first.obey("piece 0 7 8");
    let mut sharers: Vec<Sharer> = vec![small, first];
    assert_eq!(read_until(&mut sharers, 8, 2000), [0, 0]);
    for sharer in &mut sharers {
        assert_eq!((sharer.figure("turns"), sharer.threads("wmshim-dedup")), (0, 0));
    }
    assert!(stage.broker().is_none(), "there is nothing to share");
    sharers.push(stage.start_with(&auto));
    sharers[2].obey("piece 0 7 8");
    let small = sharers.remove(0);
    share(&mut sharers, 8);
    sharers.iter_mut().for_each(|sharer| sharer.expect_right("shared"));
    sharers.insert(0, small);
    assert_eq!(sharers[0].threads("wmshim-dedup"), 0);
    stage.end(sharers);
}

/// Hazard (process crash): if code was misunderstood, a kernel that wrote into shared memory is a
/// reader again in every later run.
#[test]
fn a_fault_teaches_the_next_run() {
    let stage = Stage::new();
    let mut sharers = Vec::from(stage.loaded::<2>(&[(0, 7, 8)]));
    share(&mut sharers, 8);
    let said = sharers.remove(0).expect_end("fault");
    assert!(said.contains("count as writers from now on, also in later runs"), "{said}");
    sharers[0].expect_right("the other program's memory is unchanged");
    sharers.into_iter().for_each(Sharer::end);
    let mut sharers = stage.loaded::<2>(&[(0, 7, 8)]);
    let begin = Instant::now();
    while sharers[0].figure("writers") == 0 {
        assert!(begin.elapsed() < SOON, "the kernel that reads the blocks is accused");
        read_until(&mut sharers, 8, 50);
    }
    assert_eq!(read_until(&mut sharers, 8, 1000), [0, 0]);
    sharers.iter_mut().for_each(|sharer| sharer.expect_right("the next run"));
    stage.end(sharers);
}

/// Hazard (process crash): a kernel counts as a reader because it wrote the bytes that were there.
#[test]
fn a_kernel_that_writes_the_same_bytes_is_no_reader() {
    let stage = Stage::new();
    let mut sharers = stage.loaded::<2>(&[(0, 7, 8), (1, 8, 8)]);
    for _ in 0..100 {
        sharers[0].obey("write kernel 0 7");
        assert_eq!(sharers[0].say("read"), "right");
    }
    share(&mut sharers, 8);
    assert_eq!(read_until(&mut sharers, 16, 1000), [8, 8], "a kernel of one program writes block 0");
    sharers[0].obey("write kernel 0 9");
    sharers.iter_mut().for_each(|sharer| sharer.expect_right("written"));
    stage.end(sharers);
}

/// A later program finds the memory that others hold, and a program that ends leaves it to them.
#[test]
fn programs_come_and_go() {
    let stage = Stage::new();
    let mut sharers = stage.loaded::<2>(&[(0, 7, 8)]);
    share(&mut sharers, 8);
    let [one, two] = sharers;
    one.end();
    let [third] = stage.loaded::<1>(&[(0, 7, 8)]);
    let mut pair = [two, third];
    share(&mut pair, 8);
    pair.iter_mut().for_each(|sharer| sharer.expect_right("one has come and one has gone"));
    stage.end(pair);
}

/// The first of two programs writes over shared blocks, each time in another way. Neither reads
/// foreign bytes.
fn written(ways: &[&str], mut write: impl FnMut(&mut Sharer, &str, usize)) -> u64 {
    let stage = Stage::new();
    let mut sharers = stage.loaded::<2>(&blocks(ways.len()));
    share(&mut sharers, 2 * CHUNK * ways.len() as u64);
    for (block, way) in ways.iter().enumerate() {
        write(&mut sharers[0], way, block);
        sharers.iter_mut().for_each(|sharer| sharer.expect_right(way));
    }
    let copied = sharers[0].figure("copied_back_bytes");
    assert!(sharers[0].figure("faults_avoided") > 0);
    assert_eq!(sharers[1].figure("faults_avoided"), 0, "no program wrote there");
    stage.end(sharers);
    copied / MIB
}

#[test]
fn a_write_over_a_shared_block_is_the_writers_alone() {
    written(&WAYS, |writer, way, block| {
        writer.obey(&format!("write {way} {block} {}", 900 + block));
    });
}

#[test]
fn a_write_over_a_part_of_a_shared_block_leaves_the_rest() {
    let copied = written(&WAYS, |writer, way, block| {
        writer.obey(&format!("part {way} {block} {}", 900 + block));
    });
    assert!(copied >= CHUNK * 2, "kernels need copies: {copied} MiB");
}

#[test]
fn a_graph_that_writes_into_a_shared_block_is_the_writers_alone() {
    written(&CAPTURED, |writer, way, block| {
        writer.obey(&format!("capture {way} {block} {}", 900 + block));
        writer.obey("launch");
    });
}

/// The same for a graph that wrote elsewhere and is captured again.
#[test]
fn a_graph_that_is_captured_again_is_the_writers_alone() {
    written(&["kernel", "memset32", "device-async"], |writer, way, block| {
        writer.load(&[(8 + block, 300 + block as u64, 2 * CHUNK)]);
        writer.obey(&format!("capture {way} {} {}", 8 + block, 800 + block));
        writer.obey("launch");
        writer.obey(&format!("recapture {way} {block} {}", 900 + block));
        writer.obey("launch");
    });
}

/// Hazard (process lifecycle): the library waits in a launch until the block is private, the thread
/// is cancelled there, and the process ends.
#[test]
fn a_thread_is_not_cancelled_while_its_block_becomes_private() {
    let stage = Stage::new();
    // A copy of 8 MiB takes 20 ms, so the GPU is busy.
    let slow = [("SIMCUDA_LINKS", "pcie=400MB/s,nvlink=20GB/s")];
    let mut sharers = [stage.start_with(&slow), stage.start()];
    sharers.iter_mut().for_each(|sharer| sharer.load(&blocks(3)));
    share(&mut sharers, 3 * 2 * CHUNK);
    sharers[0].obey("cancelled write kernel 0 901");
    sharers[0].obey("cancelled node kernel 1 902");
    sharers[0].obey("cancelled node any-memset32 2 903");
    sharers[0].obey("relaunch");
    sharers[0].obey("launch");
    sharers.iter_mut().for_each(|sharer| sharer.expect_right("cancelled"));
    stage.end(sharers);
}

/// The same for graphs that are made node by node.
#[test]
fn a_node_that_writes_into_a_shared_block_is_the_writers_alone() {
    written(&["kernel", "memset32", "any-memset32"], |writer, way, block| {
        writer.obey(&format!("node {way} {block} {}", 900 + block));
        writer.obey("launch");
    });
}

/// The graph was made before any block was shared, and is launched after all others were.
#[test]
fn a_graph_that_was_made_before_writes_right() {
    let stage = Stage::new();
    // On a busy machine the first check of the block may come between its load and the graph: then
    // every other reader of it is suspect, and the block is not shared.
    let was_shared = (0..4).any(|_| {
        let mut sharers = stage.loaded::<2>(&[(0, 7, 4), (1, 8, 8)]);
        sharers[0].obey("capture kernel 0 901");
        sharers[0].obey("launch");
        let shared = read_until(&mut sharers, 8, PATIENCE / 8);
        sharers[0].obey("launch");
        sharers.iter_mut().for_each(|sharer| sharer.expect_right("the graph was launched again"));
        stage.end(sharers);
        shared.iter().all(|shared| *shared >= 8)
    });
    assert!(was_shared, "8 MiB are equal");
}

/// Hazard (silent degradation): a stream is destroyed while it is captured, and the library takes
/// every later graph for one of several captures at a time: no graph proves a reader again.
#[test]
fn a_capture_after_an_abandoned_one_counts() {
    let stage = Stage::new();
    let [mut sharer] = stage.loaded::<1>(&[(0, 7, 4)]);
    sharer.obey("abandon");
    sharer.obey("capture kernel 0 901");
    let before = sharer.figure("launches");
    sharer.obey("launch");
    assert_eq!(sharer.figure("launches") - before, 1, "its kernel is known");
    stage.end([sharer]);
}

/// A graph has a kernel that writes, and another graph is launched again and again without changes:
/// that proves nothing about the first one.
#[test]
fn what_another_graph_does_is_no_proof() {
    let stage = Stage::new();
    let mut sharers = stage.loaded::<2>(&[(0, 7, 4), (1, 8, 4), (2, 9, 4)]);
    for sharer in &mut sharers {
        sharer.obey("capture kernel 0 901");
        sharer.obey("launch");
        sharer.obey("capture memset32 1 902");
    }
    for _ in 0..12 {
        sharers.iter_mut().for_each(|sharer| sharer.obey("launch"));
        read_until(&mut sharers, 1000, 100);
    }
    for sharer in &mut sharers {
        sharer.obey("relaunch");
        sharer.expect_right("it is launched again");
    }
    stage.end(sharers);
}

/// A graph has a kernel that writes into a block. The block is loaded only afterwards, is idle, and
/// would be shared.
#[test]
fn a_graph_that_is_older_than_the_bytes_writes_right() {
    let stage = Stage::new();
    let mut sharers = [stage.start(), stage.start()];
    for sharer in &mut sharers {
        sharer.load(&[(1, 8, 4)]);
        sharer.obey("empty 0 4");
        sharer.obey("capture kernel 0 7");
        sharer.obey("fill-in 0 7");
    }
    share(&mut sharers, 4);
    read_until(&mut sharers, 1000, 1000);
    // It writes the bytes that are there already, so they stay right if it may write.
    sharers[0].obey("launch");
    sharers.iter_mut().for_each(|sharer| sharer.expect_right("the graph was launched at last"));
    stage.end(sharers);
}

/// Hazard (latency): the driver refuses a set of memory without an end, and the library looks at
/// each of its addresses first.
#[test]
fn a_set_without_an_end_is_refused_at_once() {
    let stage = Stage::new();
    let [mut sharer] = stage.loaded::<1>(&[(0, 7, 4)]);
    sharer.obey("endless");
    sharer.expect_right("nothing was set");
    stage.end([sharer]);
}

/// Both write over the same block, one after the other.
#[test]
fn two_writers_have_a_copy_each() {
    let stage = Stage::new();
    let mut sharers = stage.loaded::<3>(&[(0, 7, 8)]);
    share(&mut sharers, 8);
    for (index, way) in [(0, "kernel"), (1, "memset")] {
        sharers[index].obey(&format!("write {way} 0 {}", 40 + index));
        sharers.iter_mut().for_each(|sharer| sharer.expect_right(way));
    }
    stage.end(sharers);
}

#[test]
fn a_killed_program_harms_nobody() {
    let stage = Stage::new();
    let blocks = [(0, 7, 8), (1, 8, 4)];
    let mut sharers = stage.loaded::<2>(&blocks);
    share(&mut sharers, 12);
    for point in 0..6 {
        let mut victim = stage.start();
        match point {
            0 => victim.tell("load 0 7 8"),
            1 => victim.load(&blocks),
            2 | 3 => {
                victim.load(&blocks);
                victim.tell(&format!("share 12 {PATIENCE}"));
                // While it becomes a sharer: the others read meanwhile, some rounds or none.
                read_until(&mut sharers, 1000, if point == 2 { 0 } else { 200 });
            }
            4 => {
                victim.load(&blocks);
                share(std::slice::from_mut(&mut victim), 12);
            }
            _ => {
                victim.load(&blocks);
                share(std::slice::from_mut(&mut victim), 12);
                victim.tell("write kernel 0 3");
            }
        }
        victim.kill();
        sharers.iter_mut().for_each(|sharer| sharer.expect_right(&format!("killed at point {point}")));
        stage.expect_held("one was killed", |(_, _, programs)| programs == 2);
    }
    stage.end(sharers);
}

/// The program that had the memory first is killed: the others still have it.
#[test]
fn the_first_owner_is_killed() {
    let stage = Stage::new();
    let [owner] = stage.loaded::<1>(&[(0, 7, 8)]);
    let others = stage.loaded::<2>(&[(0, 7, 8)]);
    let [second, third] = others;
    let mut sharers = [owner, second, third];
    share(&mut sharers, 8);
    sharers[0].kill();
    let [_, mut second, mut third] = sharers;
    second.obey("write host 0 12");
    [&mut second, &mut third].into_iter().for_each(|sharer| sharer.expect_right("the owner is gone"));
    stage.end([second, third]);
}

#[test]
fn memory_that_is_freed_and_taken_again_can_be_written() {
    let stage = Stage::new();
    let mut sharers = stage.loaded::<2>(&[(0, 7, 8)]);
    share(&mut sharers, 8);
    for way in ["fill", "memset", "host", "kernel"] {
        sharers[0].obey("free 0");
        sharers[0].obey("load 0 70 8");
        sharers[0].obey(&format!("write {way} 0 33"));
        sharers.iter_mut().for_each(|sharer| sharer.expect_right(way));
    }
    stage.expect_held("one has other bytes now", |(_, leases, _)| leases <= 8 / CHUNK);
    stage.end(sharers);
}

#[test]
fn advice_counts_what_several_have_and_changes_nothing() {
    let stage = Stage::new();
    let mut sharers = [(); 2].map(|()| stage.start_with(&[("WMSHIM_DEDUP", "advise")]));
    sharers.iter_mut().for_each(|sharer| sharer.load(&[(0, 7, 8)]));
    let mut counted = |figures: [(u64, u64); 2], what: &str| {
        let begin = Instant::now();
        loop {
            read_until(&mut sharers, 1000, 50);
            let bytes = |sharer: &mut Sharer, name: &str| sharer.figure(name) / MIB;
            let found = sharers.each_mut().map(|it| (bytes(it, "shared_bytes"), bytes(it, "saved_bytes")));
            if found == figures {
                break;
            }
            assert!(begin.elapsed() < SOON, "{what}: {found:?}");
        }
        sharers.iter_mut().for_each(|sharer| sharer.expect_right(what));
        assert_eq!(stage.held().0, 0, "no memory is given");
        if what == "both have it" {
            sharers[0].obey("write kernel 0 9");
        }
        sharers.each_mut().map(|sharer| sharer.figure("copied_back_bytes"))
    };
    assert_eq!(counted([(8, 4); 2], "both have it"), [0; 2]);
    assert_eq!(counted([(0, 0); 2], "one has written it"), [0; 2]);
    stage.end(sharers);
}

/// The blocks differ as a whole, in one of two chunks, and not at all. Equal ones are shared, which
/// shows that all were checked.
#[test]
fn different_bytes_are_not_shared() {
    let stage = Stage::new();
    let mut sharers = [stage.start(), stage.start()];
    sharers[0].load(&[(0, 1, 8), (1, 5, 4), (2, 7, 4)]);
    sharers[1].load(&[(0, 2, 8), (1, 5, 4), (2, 7, 4)]);
    sharers[1].obey("part host 1 99");
    // More may be offered, because no other process has it.
    let saved = |sharers: &mut [Sharer; 2]| {
        sharers.iter_mut().map(|sharer| sharer.figure("saved_bytes")).sum::<u64>() / MIB
    };
    let begin = Instant::now();
    while saved(&mut sharers) < 4 + CHUNK {
        assert!(begin.elapsed() < SOON, "6 MiB are equal, and {} saved", saved(&mut sharers));
        read_until(&mut sharers, 1000, 50);
    }
    read_until(&mut sharers, 1000, 300);
    assert_eq!(saved(&mut sharers), 4 + CHUNK);
    sharers.iter_mut().for_each(|sharer| sharer.expect_right("different"));
    stage.end(sharers);
}

/// Sharing ends for the whole process: from then on every block is private; the other process goes
/// on.
#[test]
fn a_program_that_exports_memory_shares_no_more() {
    let stage = Stage::new();
    let mut sharers = stage.loaded::<2>(&[(0, 7, 8), (1, 8, 4)]);
    share(&mut sharers, 12);
    sharers[0].obey("export 1");
    assert_eq!(sharers[0].figure("shared_bytes"), 0, "what the other one has is its own, soon or late");
    for way in ["kernel", "memset"] {
        sharers[0].obey(&format!("write {way} 0 33"));
        sharers.iter_mut().for_each(|sharer| sharer.expect_right(way));
    }
    assert_eq!(read_until(&mut sharers[..1], 1, 500), [0]);
    stage.end(sharers);
}

/// The same bytes come from the host again each time: they are shared twice, and then no more.
#[test]
fn what_was_copied_back_twice_is_left_alone() {
    let stage = Stage::new();
    let mut sharers = stage.loaded::<2>(&[(0, 7, 4), (1, 8, 4)]);
    for round in 0..2 {
        share(&mut sharers, 8);
        // No kernel writes it: a block that a kernel has written is not shared again, with any
        // content.
        sharers[0].obey(&format!("write memset 0 {}", 50 + round));
        sharers[0].obey("write host 0 7");
        sharers.iter_mut().for_each(|sharer| sharer.expect_right("written"));
    }
    let shared = read_until(&mut sharers[..1], 8, 500);
    assert_eq!(shared, [4], "the other block stays shared, and this one does not come again");
    stage.end(sharers);
}
