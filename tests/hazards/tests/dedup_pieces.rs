//! Hazard (data race): memory that a program made itself is shared while the program uses it by its
//! handle, maps it elsewhere, or may write it from beside; or it loses its bytes on the way back.
//!
//! As `dedup.rs`, with memory of `cuMemCreate` of one chunk and of several, and with tensors side
//! by side in a segment of such pieces.

use hazards::sharers::{CHUNK, MIB, Sharer, Stage, read_until, share};

/// Ways in which a program writes over memory; see `c/shared.c`.
const WAYS: [&str; 8] =
    ["kernel", "fill", "memset", "memset32", "host", "host-async", "device", "device-async"];
/// Ways that can be captured.
const CAPTURED: [&str; 6] = ["kernel", "fill", "memset", "memset32", "host-async", "device-async"];

/// Programs that have made the same pieces: number, seed, MiB.
fn with_pieces<const COUNT: usize>(stage: &Stage, pieces: &[(usize, u64, u64)]) -> [Sharer; COUNT] {
    let mut sharers = [(); COUNT].map(|()| stage.start());
    for sharer in &mut sharers {
        for (number, seed, mib) in pieces {
            sharer.obey(&format!("piece {number} {seed} {mib}"));
        }
    }
    sharers
}

fn expect_right(sharers: &mut [Sharer], when: &str) {
    sharers.iter_mut().for_each(|sharer| sharer.expect_right(when));
}

/// Two programs with one shared piece of 6 MiB.
fn two_shared(stage: &Stage) -> [Sharer; 2] {
    let mut sharers = with_pieces::<2>(stage, &[(0, 7, 6)]);
    share(&mut sharers, 6);
    sharers
}

#[test]
fn equal_pieces_are_held_once_and_read_right() {
    let stage = Stage::new();
    let mut sharers = with_pieces::<2>(&stage, &[(0, 7, 6), (1, 8, CHUNK), (2, 9, 4)]);
    share(&mut sharers, 12);
    expect_right(&mut sharers, "shared");
    let saved: u64 = sharers.iter_mut().map(|sharer| sharer.figure("saved_bytes")).sum();
    assert_eq!(saved / MIB, 12, "one copy of two is saved");
    let (memories, leases, programs) = stage.held();
    assert!(memories >= 3 && leases >= 6 && programs == 2, "{memories} {leases} {programs}");
    stage.end(sharers);
}

/// A piece of one chunk and a chunk of a block are the same memory.
#[test]
fn a_piece_of_one_chunk_is_shared_with_a_block() {
    let stage = Stage::new();
    let mut sharers = [stage.start(), stage.start()];
    sharers[0].obey("piece 0 7 2");
    sharers[1].load(&[(0, 7, CHUNK)]);
    share(&mut sharers, CHUNK);
    sharers[0].obey("write kernel 0 9");
    expect_right(&mut sharers, "written");
    stage.end(sharers);
}

#[test]
fn a_write_over_a_shared_piece_is_the_writers_alone() {
    let stage = Stage::new();
    let pieces: Vec<_> = (0..WAYS.len()).map(|number| (number, 100 + number as u64, 4)).collect();
    let mut sharers = with_pieces::<2>(&stage, &pieces);
    share(&mut sharers, 4 * WAYS.len() as u64);
    for (number, way) in WAYS.iter().enumerate() {
        sharers[0].obey(&format!("write {way} {number} {}", 500 + number));
        expect_right(&mut sharers, way);
    }
    assert!(sharers[0].figure("copied_back_bytes") >= 4 * MIB * WAYS.len() as u64);
    stage.end(sharers);
}

#[test]
fn a_graph_that_writes_into_a_shared_piece_is_the_writers_alone() {
    let stage = Stage::new();
    let pieces: Vec<_> = (0..CAPTURED.len()).map(|number| (number, 100 + number as u64, 4)).collect();
    let mut sharers = with_pieces::<2>(&stage, &pieces);
    share(&mut sharers, 4 * CAPTURED.len() as u64);
    for (number, way) in CAPTURED.iter().enumerate() {
        sharers[0].obey(&format!("capture {way} {number} {}", 500 + number));
        sharers[0].obey("launch");
        expect_right(&mut sharers, way);
    }
    stage.end(sharers);
}

/// Hazard (wrong result): the memory is mapped for writing where the program maps it again.
#[test]
fn a_piece_that_is_mapped_elsewhere_has_its_bytes_and_is_private() {
    let stage = Stage::new();
    let mut sharers = two_shared(&stage);
    sharers[0].obey("elsewhere 0");
    assert_eq!(sharers[0].figure("shared_bytes"), 0);
    expect_right(&mut sharers, "mapped elsewhere");
    sharers[0].obey("write memset 0 9");
    expect_right(&mut sharers, "written");
    stage.end(sharers);
}

/// Hazard (data race): a write by the second address reaches another process.
#[test]
fn a_piece_that_is_mapped_twice_is_private() {
    let stage = Stage::new();
    let mut sharers = two_shared(&stage);
    sharers[0].obey("twice 0 9");
    expect_right(&mut sharers, "written by another address");
    stage.end(sharers);
}

#[test]
fn rights_are_told_as_granted_and_a_change_makes_a_piece_private() {
    let stage = Stage::new();
    let mut sharers = two_shared(&stage);
    sharers.iter_mut().for_each(|sharer| assert_eq!(sharer.say("granted 0"), "3", "shared"));
    sharers[0].obey("rights 0");
    assert_eq!((sharers[0].say("granted 0"), sharers[0].figure("shared_bytes")), ("3".into(), 0));
    sharers[0].obey("write kernel 0 9");
    expect_right(&mut sharers, "the rights were changed");
    stage.end(sharers);
}

/// The handle that the driver would tell is another process's.
#[test]
fn the_handle_of_a_shared_piece_is_the_one_that_the_program_has() {
    let stage = Stage::new();
    let mut sharers = two_shared(&stage);
    for sharer in &mut sharers {
        sharer.obey("retain 0");
    }
    assert_eq!(read_until(&mut sharers, 6, 1000), [6, 6], "it stays shared");
    expect_right(&mut sharers, "retained");
    stage.end(sharers);
}

/// Hazard (data race): another process gets memory that a third one uses.
#[test]
fn a_piece_that_is_passed_on_is_private() {
    let stage = Stage::new();
    let mut sharers = two_shared(&stage);
    sharers[0].obey("pass-on 0");
    assert_eq!(sharers[0].figure("shared_bytes"), 0);
    sharers[0].obey("write kernel 0 9");
    expect_right(&mut sharers, "passed on");
    stage.end(sharers);
}

/// Hazard (process crash): an object goes on in a piece beside it, and a kernel that gets an
/// address in one writes the other.
#[test]
fn what_could_be_a_part_of_a_larger_object_is_not_shared() {
    let stage = Stage::new();
    let mut sharers = [stage.start(), stage.start()];
    for sharer in &mut sharers {
        sharer.obey("segment 0 7 4");
        sharer.obey("piece 1 8 4");
        sharer.obey("piece 2 9 4");
        sharer.obey("beside 2");
    }
    share(&mut sharers, 4);
    assert_eq!(read_until(&mut sharers, 12, 1500), [4, 4], "the piece that nothing goes on behind");
    sharers[0].obey("beside 1");
    assert_eq!(sharers[0].figure("shared_bytes"), 0, "it was shared, and could grow now");
    expect_right(&mut sharers, "private");
    stage.end(sharers);
}

#[test]
fn a_piece_is_unmapped_while_it_is_shared_and_made_again() {
    let stage = Stage::new();
    let mut sharers = two_shared(&stage);
    for round in 0..3 {
        sharers[0].obey("free 0");
        expect_right(&mut sharers, "unmapped");
        sharers[0].obey("piece 0 7 6");
        share(&mut sharers, 6);
        expect_right(&mut sharers, &format!("round {round}"));
    }
    stage.end(sharers);
}

#[test]
fn different_pieces_are_not_shared_and_nor_are_some_chunks_of_one() {
    let stage = Stage::new();
    let mut sharers = with_pieces::<2>(&stage, &[(0, 7, 6), (1, 8, 4)]);
    sharers[1].obey("part host 0 99");
    share(&mut sharers, 4);
    assert_eq!(read_until(&mut sharers, 10, 1000), [4, 4]);
    expect_right(&mut sharers, "different");
    stage.end(sharers);
}

#[test]
fn killed_programs_and_brokers_leave_pieces_as_they_are() {
    let stage = Stage::new();
    let mut sharers = with_pieces::<3>(&stage, &[(0, 7, 6)]);
    share(&mut sharers, 6);
    sharers[0].kill();
    expect_right(&mut sharers[1..], "the first is gone");
    stage.kill_broker();
    expect_right(&mut sharers[1..], "the broker is gone");
    sharers[1].obey("write kernel 0 9");
    sharers[2].obey("elsewhere 0");
    expect_right(&mut sharers[1..], "private again");
    let [_, second, third] = sharers;
    stage.end([second, third]);
}

/// Two programs with three tensors of 6 MiB in a segment of five pieces of 4 MiB. The last piece
/// has bytes that did not come from the host.
fn with_tensors(stage: &Stage) -> [Sharer; 2] {
    let mut sharers = [stage.start(), stage.start()];
    sharers.iter_mut().for_each(|sharer| sharer.obey("tensors 0 3 7 6"));
    sharers
}

/// The same, with all other pieces shared.
fn two_with_tensors(stage: &Stage) -> [Sharer; 2] {
    let mut sharers = with_tensors(stage);
    share(&mut sharers, 16);
    expect_right(&mut sharers, "shared");
    sharers
}

/// Hazard (process crash): a kernel gets the address of a tensor in one piece, and writes the part
/// of the tensor that lies in the next one.
#[test]
fn a_write_over_a_tensor_makes_all_of_its_pieces_private_and_no_other() {
    let stage = Stage::new();
    let mut sharers = two_with_tensors(&stage);
    sharers[0].obey("write kernel 0 9");
    expect_right(&mut sharers, "written");
    assert_eq!(sharers[0].figure("shared_bytes") / MIB, 8, "two pieces are the other tensors' alone");
    for (way, seed) in WAYS.iter().zip(50..) {
        sharers[1].obey(&format!("write {way} 2 {seed}"));
        expect_right(&mut sharers, way);
    }
    stage.end(sharers);
}

#[test]
fn a_graph_that_writes_a_tensor_has_all_of_its_pieces_private_whenever_it_is_launched() {
    let stage = Stage::new();
    // One graph is there before the memory is shared, and one is made while it is.
    let mut sharers = with_tensors(&stage);
    sharers[0].obey("node kernel 1 20");
    sharers[0].obey("launch");
    share(&mut sharers, 4);
    sharers[0].obey("launch");
    expect_right(&mut sharers[1..], "another one's graph");
    stage.end(sharers);
    let mut sharers = two_with_tensors(&stage);
    sharers[0].obey("capture kernel 1 20");
    sharers[0].obey("launch");
    expect_right(&mut sharers, "written by a graph");
    stage.end(sharers);
}

/// Hazard (process crash): an address that is in no tensor is used, and how far it reaches nothing
/// tells.
#[test]
fn an_address_that_is_in_no_tensor_reaches_all_of_the_segment() {
    let stage = Stage::new();
    let mut sharers = two_with_tensors(&stage);
    sharers[0].obey("drop 1");
    sharers[0].obey("write kernel 1 9");
    assert_eq!(sharers[0].figure("shared_bytes"), 0);
    expect_right(&mut sharers, "written after it was freed");
    stage.end(sharers);
}
