//! Hazard: a damaged or foreign file is replayed in part and its figures believed.
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use wm_schema::BytesByTier;

use super::*;

const HEAD: &str = "# wmshim-trace 1; events ?; peak_live_bytes ?\n";

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).expect("memory");
    encoder.finish().expect("memory")
}

fn complaint(file: &[u8]) -> String {
    format!("{:#}", Trace::read(file).expect_err("a file that is wrong"))
}

#[test]
fn a_trace_is_read_and_measured() {
    let text = format!("{HEAD}a 7 100 3\na 9 50 -\nf 7 3\ns 3\na 12 60 4\nf 9 -\ns *\n");
    let trace = Trace::read(&*gzip(&text)).expect("a good trace");
    assert_eq!((trace.streams, trace.slots, trace.peak_live), (2, 2, 150));
    assert_eq!(trace.events[0], TraceEvent::Allocate { slot: 0, bytes: 100, stream: Some(0) });
    assert_eq!(trace.events[4], TraceEvent::Allocate { slot: 0, bytes: 60, stream: Some(1) });
    assert_eq!(trace.events[6], TraceEvent::Wait { stream: None });
}

#[test]
fn members_behind_each_other_are_one_trace() {
    let file = [gzip(&format!("{HEAD}a 0 1 0\n")), gzip("f 0 0\n")].concat();
    assert_eq!(Trace::read(&*file).expect("two members").events.len(), 2);
}

/// A slot that is used again must not be taken for the block that an earlier set named.
#[test]
fn launches_are_read_with_their_blocks() {
    let head = HEAD.replace("trace 1", "trace 2");
    let text = format!("{head}a 7 100 0\na 8 100 0\nl 0 7,8\nl 0 -\nl 0 ?\nl 1 =0\nl 0 8\n");
    let trace = Trace::read(&*gzip(&text)).expect("a good trace");
    let sets: Vec<_> = trace.events[2..]
        .iter()
        .map(|event| match event {
            TraceEvent::Launch { set } => set.map(|set| &*trace.sets[set as usize]),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sets, [Some(&[0, 1][..]), Some(&[]), None, Some(&[0, 1]), Some(&[1])]);
    assert_eq!((trace.launches, trace.streams), (5, 2));
    let said = complaint(&gzip(&format!("{text}f 7 0\na 9 1 0\nl 0 =0\n")));
    assert!(said.contains("block 7 is used by a launch and not live"), "{said}");
}

/// A number stands for the address that was written out under it, not for the latest one.
#[test]
fn an_address_is_written_once_and_named_later() {
    let head = HEAD.replace("trace 1", "trace 5");
    let text = format!("{head}a 0 1 0 4096\na 1 1 0 8192\nf 0 0\na 2 1 0 =0\na 3 1 0\na 4 1 0 =1\n");
    let trace = Trace::read(&*gzip(&text)).expect("a good trace");
    assert_eq!(trace.addresses, [4096, 8192, 4096, 0, 8192]);
    let said = complaint(&gzip(&format!("{text}a 5 1 0 =2\n")));
    assert!(said.contains("address =2 has not been written before"), "{said}");
}

#[test]
fn pieces_count_among_the_live_bytes() {
    let head = HEAD.replace("trace 1", "trace 3");
    let text = format!("{head}c 7 100\nm 7\na 7 50 -\nu 7\nr 7\nc 8 60\nf 7 -\n");
    let trace = Trace::read(&*gzip(&text)).expect("a good trace");
    assert_eq!((trace.slots, trace.piece_slots, trace.peak_live), (1, 1, 150));
    let [made, ended] = [TraceEvent::MakePiece { slot: 0, bytes: 100 }, TraceEvent::EndPiece { slot: 0 }];
    assert_eq!([trace.events[0], trace.events[1], trace.events[4]], [made, TraceEvent::KeepPiece, ended]);
    assert!(complaint(&gzip(&format!("{text}r 7\n"))).contains("piece 7"));
}

#[test]
fn times_marks_and_refusals_stand_before_the_events_that_follow_them() {
    let head = HEAD.replace("trace 1", "trace 4");
    let text = format!("{head}t 5 8 0 1\na 0 8 - 4096\nk step  1 # of 2\no 77\nf 0 -\nt 9 0 0 0\n");
    let trace = Trace::read(&*gzip(&text)).expect("a good trace");
    assert_eq!((trace.events.len(), &trace.addresses[..]), (2, &[4096][..]));
    let live = |device, host| BytesByTier { device, peer: 0, host };
    let times = [(0, 5, live(8, 1)), (2, 9, live(0, 0))];
    assert_eq!(trace.times, times.map(|(event, at_us, live)| TraceTime { event, at_us, live }));
    assert_eq!(trace.notes, [TraceNote::mark(1, "step  1 # of 2"), TraceNote::refused(1, 77)]);
    assert!(complaint(&gzip(&format!("{text}t 8 0 0 0\n"))).contains("earlier"), "time does not go back");
}

#[test]
fn a_wrong_line_is_named() {
    for (line, words) in [
        ("b 1", "an event is"),
        ("a 1 2", "STREAM is missing"),
        ("a 1 many 0", "BYTES is a number"),
        ("a 1 -5 0", "BYTES is a number"),
        ("a 1 0 0", "0 bytes"),
        ("a 0 5 0", "while it is live"),
        ("f 4 0", "block 4 is freed and not live"),
        ("f 0 0 0", "too many words"),
        ("a 1 8 0 4096 1", "too many words"),
        ("a 1 8 0 x", "ADDRESS is a number"),
        ("t 1 2 3", "HOST is missing"),
        ("t 1 2 3 4 5", "too many words"),
        ("o many", "BYTES is a number"),
        ("l 0", "ID is missing"),
        ("l 0 5", "block 5 is used by a launch and not live"),
        ("l 0 =0", "set 0 has not been written"),
        ("l 0 0,,0", "ID is missing"),
        ("s", "STREAM is missing"),
    ] {
        let said = complaint(&gzip(&format!("{HEAD}a 0 8 0\n{line}\n")));
        assert!(said.contains("line 3") && said.contains(words), "{line}: {said}");
    }
}

#[test]
fn a_file_that_is_no_trace_is_told_from_a_damaged_one() {
    assert!(complaint(b"a 0 1 0\n").contains("not a gzip file"));
    assert!(complaint(b"").contains("not a gzip file"));
    assert!(complaint(&gzip("hello\n")).contains("not a trace"));
    assert!(complaint(&gzip("# wmshim-trace 9; events 1\na 0 1 0\n")).contains("version 9"));
    assert!(complaint(&gzip(HEAD)).contains("no events"));
    assert!(complaint(&gzip("# wmshim-trace 1; events 2\na 0 1 0\n")).contains("promises 2"));
}

#[test]
fn every_truncation_is_noticed_and_what_is_whole_is_read() {
    let text: String = (0..500).map(|id| format!("a {id} {} 0\n", 512 * (id % 17 + 1))).collect();
    let whole = gzip(&format!("{HEAD}{text}"));
    let mut read = 0;
    for length in (0..whole.len()).step_by(7) {
        let Ok(trace) = Trace::read(&whole[..length]) else { continue };
        let lines = trace.whole_lines.unwrap_or_else(|| panic!("{length} of {} bytes", whole.len()));
        assert_eq!(trace.events.len() + 2, lines + 1, "the header is a line too");
        read = trace.events.len();
    }
    assert!(read > 0, "nothing of a file that is nearly whole was read");
}

/// Found by its peak of memory, which a line without an end must not be.
#[test]
fn a_line_without_an_end_is_not_read_to_its_end() {
    let said = complaint(&gzip(&"x".repeat(1 << 20)));
    assert!(said.contains("longer than 131072 bytes"), "{said}");
}
