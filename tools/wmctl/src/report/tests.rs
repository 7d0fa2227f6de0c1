//! Hazard (wrong report): a picture shows another figure than its table. Hazard (corrupt input): a
//! text of the program becomes a part of the page.

use std::collections::BTreeSet;
use std::io::BufReader;

use proptest::prelude::*;
use wm_schema::black_box::{PastMark, PastSample};
use wm_schema::{BlockEntry, BlockList, BytesByTier, DeviceBlocks, PieceEntry, PieceRange};

use super::address::{class_of, classes, holes, regions};
use super::from_process::{ProcessFigures, ProcessState};
use super::holders::{FlameNode, by_size, tree};
use super::model::{HeldRange, MemoryHolder, TimelineEventKind, TimelinePoint, reduced};
use super::*;
use crate::trace::Trace;

fn point(at: u64, device: u64, host: u64) -> TimelinePoint {
    TimelinePoint { at, live: BytesByTier { device, peer: 0, host } }
}

/// Live ranges that do not overlap, by address.
fn ranges() -> impl Strategy<Value = Vec<HeldRange>> {
    prop::collection::vec((0_u64..200 << 20, 1_u64..64 << 20, any::<bool>()), 0..40).prop_map(|gaps| {
        let mut address = 0x7f00_0000_0000;
        gaps.into_iter()
            .map(|(gap, bytes, is_piece)| {
                let range = HeldRange { address: address + gap, bytes, is_piece, ..HeldRange::default() };
                address = range.end();
                range
            })
            .collect()
    })
}

/// A recording of the newest version: blocks and pieces that come and go, times, marks.
fn recording() -> impl Strategy<Value = Trace> {
    prop::collection::vec((0_u8..6, 1_u64..1 << 30), 1..80).prop_map(|steps| {
        let mut text = "# wmshim-trace 4; events ?\na 0 1 - 4096\n".to_owned();
        let (mut next, mut live, mut us, mut bytes_live) = (1_u64, vec![(0, false, 1)], 0, 1_u64);
        for (kind, bytes) in steps {
            match kind {
                0 | 1 => text.push_str(&format!("a {next} {bytes} 3 {}\n", 8192 + (next << 40))),
                2 => text.push_str(&format!("c {next} {bytes}\n")),
                3 if !live.is_empty() => {
                    let (id, is_piece, bytes) = live.swap_remove(bytes as usize % live.len());
                    bytes_live -= bytes;
                    text.push_str(&if is_piece { format!("r {id}\n") } else { format!("f {id} -\n") });
                }
                4 => text.push_str(&format!("k step {bytes}\no {bytes}\n")),
                _ => {
                    us += bytes % 10_000;
                    text.push_str(&format!("t {us} {bytes_live} 0 {}\n", bytes % 1000));
                }
            }
            if kind <= 2 {
                live.push((next, kind == 2, bytes));
                bytes_live += bytes;
                next += 1;
            }
        }
        Trace::parse(BufReader::new(text.as_bytes())).expect("a good recording")
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_reduced_timeline_has_the_peak_and_the_end(
        steps in prop::collection::vec((0_u64..50, 0_u64..100, 0_u64..100), 1..200),
        columns in 1_u64..20,
    ) {
        let mut at = 0;
        let points: Vec<_> =
            steps.into_iter().map(|(step, device, host)| { at += step; point(at, device, host) }).collect();
        let reduced = reduced(&points, at, columns);
        prop_assert!(reduced.len() as u64 <= 2 * (columns + 1), "{} points", reduced.len());
        prop_assert!(reduced.is_sorted_by_key(|point| point.at));
        prop_assert!(reduced.iter().all(|point| points.contains(point)));
        prop_assert_eq!(reduced.last(), points.last());
        let most = |points: &[TimelinePoint]| points.iter().map(TimelinePoint::total).max();
        prop_assert_eq!(most(&reduced), most(&points));
    }

    #[test]
    fn live_ranges_and_holes_fill_their_regions(ranges in ranges()) {
        let regions = regions(&ranges);
        prop_assert_eq!(regions.iter().map(|region| region.ranges.len()).sum::<usize>(), ranges.len());
        for region in &regions {
            let empty: u64 = holes(region).map(|(_, bytes)| bytes).sum();
            prop_assert_eq!(region.live + empty, region.bytes());
            let filled: f64 = region.filled(37).iter().map(|[live, _]| live).sum();
            let live = filled * region.bytes() as f64 / 37.0;
            prop_assert!((live - region.live as f64).abs() <= 1e-6 * region.bytes() as f64, "{live}");
        }
        let classes = classes(&ranges, &[0; 64]);
        let sum = |of: fn(&super::model::SizeClass) -> u64| classes.iter().map(of).sum::<u64>();
        prop_assert_eq!(sum(|class| class.live_bytes), ranges.iter().map(|range| range.bytes).sum::<u64>());
        prop_assert_eq!(sum(|class| class.hole_bytes), regions.iter().flat_map(holes).map(|hole| hole.1).sum::<u64>());
        let fits = |range: &HeldRange| classes.iter().any(|class| class.from == class_of(range.bytes));
        prop_assert!(ranges.iter().all(fits));
    }

    #[test]
    fn a_frame_has_the_bytes_of_all_below_it(ranges in ranges()) {
        fn holds(node: &FlameNode) -> bool {
            let below: u64 = node.children.iter().map(|child| child.bytes).sum();
            (node.children.is_empty() || below == node.bytes) && node.children.iter().all(holds)
        }
        let root = tree(&by_size(&ranges));
        prop_assert_eq!(root.bytes, ranges.iter().map(|range| range.bytes).sum::<u64>());
        prop_assert_eq!(root.count, ranges.len() as u64);
        prop_assert!(holds(&root));
    }

    #[test]
    fn a_report_of_a_recording_has_its_figures(trace in recording()) {
        let report = from_trace::report(&trace, "x.gz");
        prop_assert_eq!(peak(&report), trace.peak_live);
        prop_assert_eq!(report.ranges.iter().map(|range| range.bytes).sum::<u64>(), trace.peak_live);
        prop_assert_eq!(report.holders.iter().map(|holder| holder.bytes).sum::<u64>(), trace.peak_live);
        let unfreed: u64 = report.unfreed.iter().map(|row| row.bytes).sum();
        prop_assert_eq!(report.timeline.last().map(TimelinePoint::total), Some(unfreed));
        let notes = report.events.iter().filter(|event| event.kind != TimelineEventKind::Overflow).count();
        prop_assert_eq!(notes, trace.notes.len());
        prop_assert!(report.events.is_sorted_by_key(|event| event.at));
        prop_assert!(report.timeline.is_sorted_by_key(|point| point.at));
    }

    /// What PyTorch's functions assert: blocks fill their segments, and each event finds its
    /// segment.
    #[test]
    fn a_snapshot_is_what_pytorch_expects(trace in recording()) {
        let (snapshot, left_out) = memory_viz::of_trace(&trace);
        prop_assert_eq!(left_out, 0);
        let mut segments = BTreeSet::new();
        for entry in snapshot["device_traces"][0].as_array().expect("a list") {
            let address = entry["addr"].as_u64();
            match entry["action"].as_str().expect("a text") {
                "segment_alloc" => prop_assert!(segments.insert(address)),
                "segment_free" => prop_assert!(segments.remove(&address)),
                "oom" => prop_assert!(entry["size"].as_u64() > Some(0)),
                _ => prop_assert!(segments.contains(&address)),
            }
        }
        let at_end = snapshot["segments"].as_array().expect("a list");
        prop_assert_eq!(at_end.iter().map(|segment| segment["address"].as_u64()).collect::<BTreeSet<_>>(), segments);
        for segment in at_end {
            let blocks = segment["blocks"].as_array().expect("a list").iter();
            prop_assert_eq!(Some(blocks.filter_map(|block| block["size"].as_u64()).sum()), segment["total_size"].as_u64());
        }
    }

    #[test]
    fn no_text_of_a_program_is_a_part_of_the_page(said in "[<>&\"'/{}a-z\u{1b}\u{202e} ]{0,40}") {
        let hostile = format!("{said}</script><script>alert(1)</script>{{{{style}}}}");
        let report = MemoryReport {
            title: hostile.clone(),
            holders: vec![MemoryHolder { path: vec![hostile.clone(); 3], bytes: 5, count: 1 }],
            ..process(&hostile)
        };
        let page = page::page(&report);
        well_formed(&page);
        let is_raw = page.contains("alert(1)</script>") || page.contains(['\u{1b}', '\u{202e}']);
        prop_assert!(!is_raw, "a text is as it came");
        let is_kept = page.contains("{{style}}");
        prop_assert!(is_kept, "what is put in is not looked into again");
    }
}

fn peak(report: &MemoryReport) -> u64 {
    model::peak(&report.timeline).map_or(0, |point| point.total())
}

/// A process with a box, blocks and pieces.
fn process(mark: &str) -> MemoryReport {
    let tiers = |host| BytesByTier { device: 4096 - host, peer: 0, host };
    let block = BlockEntry { address: 0x1000, bytes: 4096, id: 1, stream: Some(7), tiers: tiers(4096) };
    let mappings =
        vec![PieceRange { address: 0x9000, bytes: 4096 }, PieceRange { address: 1 << 40, bytes: 4096 }];
    let piece = PieceEntry { bytes: 4096, id: 1, tiers: tiers(0), mappings };
    let devices = vec![DeviceBlocks { ordinal: 1, blocks: vec![block], pieces: vec![piece] }];
    let sample = |at, device| PastSample { at, live: BytesByTier { device, peer: 0, host: at } };
    from_process::report(&ProcessFigures {
        blocks: Some(BlockList { devices, ..BlockList::default() }),
        samples: [vec![sample(130, 9), sample(131, 5)], vec![sample(0, 1), sample(1, 7), sample(2, 9)]],
        marks: vec![PastMark { at: std::time::Duration::from_secs(131), text: mark.to_owned() }],
        state: ProcessState::Ended,
        ..ProcessFigures::default()
    })
}

#[test]
fn samples_of_minutes_come_before_those_of_seconds() {
    let report = process("step 1");
    let times: Vec<_> = report.timeline.iter().map(|point| (point.at / 1_000_000, point.total())).collect();
    assert_eq!(times, [(0, 1), (60, 8), (130, 139), (131, 136), (131, 0)], "minute 2 is in the seconds");
    let kinds: Vec<_> = report.events.iter().map(|event| (event.at / 1_000_000, event.kind)).collect();
    assert_eq!(kinds, [(60, TimelineEventKind::Overflow), (131, TimelineEventKind::Mark)]);
}

#[test]
fn a_piece_that_is_mapped_twice_is_memory_once() {
    let report = process("");
    let ranges: Vec<_> =
        report.ranges.iter().map(|range| (range.address, range.bytes, range.elsewhere)).collect();
    assert_eq!(ranges, [(0x1000, 4096, 4096), (0x9000, 4096, 0)]);
    let snapshot = memory_viz::of_ranges(&report.ranges, &report.events);
    assert_eq!(snapshot["device_traces"].as_array().map(Vec::len), Some(2), "devices 0 and 1");
    assert_eq!(snapshot["external_annotations"][0]["time_us"], 131_000_000);
}

#[test]
fn marks_are_slices_to_the_next_one() {
    let trace = perfetto::trace(&process("step 1"), 4711);
    let events = trace["traceEvents"].as_array().expect("a list");
    let of = |kind: &str| events.iter().filter(|event| event["ph"] == kind).collect::<Vec<_>>();
    assert_eq!((of("C").len(), of("i").len()), (5, 1));
    let slices = of("X");
    assert_eq!((slices.len(), &slices[0]["name"], &slices[0]["dur"]), (1, &"step 1".into(), &0.into()));
}

#[test]
fn recordings_of_all_versions_have_a_report() {
    for version in 1..=4 {
        let text = format!("# wmshim-trace {version}; events ?\na 0 100 0\na 1 50 -\nf 0 0\n");
        let trace = Trace::parse(BufReader::new(text.as_bytes())).expect("a good recording");
        let report = from_trace::report(&trace, "x.gz");
        assert_eq!((report.unit, report.span, peak(&report)), (model::TimeUnit::Events, 3, 150));
        assert!(report.missing[0].contains("no times"), "{:?}", report.missing);
        well_formed(&page::page(&report));
    }
}

/// A training with thousands of steps.
#[test]
fn many_marks_do_not_cover_the_picture() {
    let steps = (0..5000).map(|step| format!("t {} 9 0 0\nk step {step}\n", 100 * step)).collect::<String>();
    let text = format!("# wmshim-trace 4; events ?\na 0 9 -\n{steps}o 7\n");
    let trace = Trace::parse(BufReader::new(text.as_bytes())).expect("a good recording");
    let picture = pictures::timeline(&from_trace::report(&trace, "x.gz"));
    assert!(picture.matches("event mark").count() < 1000, "{} ticks", picture.matches("event mark").count());
    assert!(picture.contains("event refused") && !picture.contains("y=\"11\""));
}

const PROFILE: &str = r#"{"profile":{"schema":"wmshim-profile/1","pid":4711,"program":"train.py","interval_bytes":1048576}}
{"module":{"id":0,"path":"/usr/lib/libtorch_cuda.so","build_id":"9f","base":1}}
{"frame":{"id":0,"native":{"module":0,"offset":74565}}}
{"frame":{"id":1,"python":{"function":"Model.forward","file":"/home/me/train.py","line":12}}}
{"frame":{"id":2,"python":{"function":"load","file":"/home/me/train.py","line":3}}}
{"site":{"id":0,"frames":[0,1],"is_cut":false}}
{"site":{"id":1,"frames":[0,2],"is_cut":false}}
{"later":{"unknown":1}}
{"allocated":{"ms":1,"number":0,"site":1,"device":0,"bytes":5,"weight_bytes":600,"kind":"block"}}
{"allocated":{"ms":2,"number":1,"site":0,"device":0,"bytes":5,"weight_bytes":300,"kind":"block"}}
{"mark":{"ms":3,"text":"step 1"}}
{"freed":{"ms":4,"number":0}}
{"allocated":{"ms":5,"number":2,"site":0,"device":0,"bytes":5,"weight_bytes":100,"kind":"piece"}}
{"out_of_memory":{"ms":6,"device":0,"asked_bytes":1024}}
{"frame":{"id":3,"#;

#[test]
fn a_profile_has_the_holders_of_its_peak_and_of_its_end() {
    let packed = packed(PROFILE);
    let profile = RecordedProfile::open(&packed).expect("a profile");
    std::fs::remove_file(packed).expect("there");
    let native = "libtorch_cuda.so+0x12345";
    let holder = |python: &str, bytes, count| MemoryHolder {
        path: vec![python.to_owned(), native.to_owned()],
        bytes,
        count,
    };
    let (load, forward) = ("load (train.py:3)", "Model.forward (train.py:12)");
    let report = from_profile::report(&profile, "p.gz");
    assert_eq!(report.holders, [holder(load, 600, 120), holder(forward, 300, 60)]);
    assert_eq!((peak(&report), report.events.len(), report.span), (900, 2, 5000));
    let unfreed: Vec<_> = report.unfreed.iter().map(|row| (row.what.as_str(), row.bytes)).collect();
    assert_eq!(unfreed, [("libtorch_cuda.so+0x12345 < Model.forward (train.py:12)", 400)]);
    well_formed(&page::page(&report));
    let other = from_profile::with_call_sites(process(""), &profile);
    assert_eq!((other.holders.len(), other.timeline), (2, process("").timeline));
}

/// The file of a profile.
fn packed(text: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("wmctl-report-profile-{}", std::process::id()));
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).expect("memory");
    std::fs::write(&path, encoder.finish().expect("memory")).expect("written");
    path
}

/// The page as a parser sees it: each element is closed, names are unique, a reference has its
/// target, pictures and frames have a name, and nothing is fetched.
fn well_formed(page: &str) {
    const VOID: [&str; 4] = ["meta", "link", "br", "img"];
    let (mut open, mut names, mut references) = (Vec::new(), BTreeSet::new(), Vec::new());
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a page");
    while let Some((_, tag)) = rest.split_once('<') {
        let (tag, behind) = tag.split_once('>').expect("a tag ends");
        rest = behind;
        let name = tag.split([' ', '\n', '/']).next().unwrap_or_default();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "before {:?}", rest.get(..60));
            continue;
        }
        for (attribute, value) in attributes(tag) {
            match attribute {
                "id" => assert!(names.insert(value), "{value} twice"),
                "aria-labelledby" | "aria-describedby" => references.push(value),
                "href" => references.push(value.strip_prefix('#').expect("a place in the page")),
                "src" | "srcset" | "onclick" | "onload" => panic!("{tag}"),
                _ => {}
            }
        }
        assert!(name != "svg" || tag.contains("aria-label="), "{tag}");
        // What a screen reader says of a frame is what the pointer shows.
        let said = attributes(tag).find(|(attribute, _)| *attribute == "aria-label");
        if let Some((_, said)) = said.filter(|_| tag.contains("role=\"treeitem\"")) {
            assert!(rest.starts_with(&format!("<title>{said}</title>")), "{tag}: {:?}", rest.get(..60));
        }
        if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
        if ["script", "style"].contains(&name) {
            let end = rest.find(&format!("</{name}>")).expect("its end");
            assert!(!rest[..end].contains("<script"), "{name} in {name}");
            rest = &rest[end..];
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(references.iter().all(|name| names.contains(name)), "{references:?} of {names:?}");
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("url("));
}

fn attributes(tag: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = tag;
    std::iter::from_fn(move || {
        let (before, behind) = rest.split_once("=\"")?;
        let (value, left) = behind.split_once('"')?;
        rest = left;
        Some((before.rsplit([' ', '\n']).next().unwrap_or_default(), value))
    })
}
