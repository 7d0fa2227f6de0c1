//! Hazard (wrong result): a block is shared that was written since its fingerprints, or that a
//! kernel may write.

use proptest::prelude::*;

use super::*;
use crate::client::Lease;
use crate::policy::tracked_blocks::ChunkState;
use crate::readers::{FunctionKey, ParameterVerdict};

const CHUNKS: u64 = 4;
const RANGE: Range<u64> = 0..CHUNKS * CHUNK_BYTES;

/// Launches that make a reader here.
const PROOF: u32 = 3;

fn parameter(function: u128) -> ParameterKey {
    ParameterKey { function: FunctionKey(function), offset: 0 }
}

fn fingerprints(bytes: u128) -> BTreeMap<u64, Fingerprint> {
    (0..CHUNKS).map(|index| (index, Fingerprint(bytes + u128::from(index)))).collect()
}

/// A block with its readers, its graphs and a clock.
struct Scene {
    facts: BlockFacts,
    readers: Readers,
    graphs: GraphFacts,
    now: Instant,
}

impl Scene {
    /// A block whose chunks all arrived by a copy just now.
    fn loaded() -> Self {
        let now = Instant::now();
        let mut facts = BlockFacts::new(RANGE.end, 0, now);
        facts.candidates.loaded(RANGE);
        facts.overwritten(now);
        Self { facts, readers: Readers::new(PROOF), graphs: GraphFacts::new(), now }
    }

    /// A block with one reader and two equal fingerprints in a row.
    fn eligible() -> Self {
        let mut scene = Self::loaded();
        scene.launch(1, PROOF);
        scene.wait(QUIET);
        scene.learn(100);
        scene.launch(1, PROOF);
        scene.learn(100);
        assert_eq!(scene.eligibility(), Eligibility::Eligible);
        scene
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    fn launch(&mut self, function: u128, times: u32) {
        (0..times).for_each(|_| self.facts.used_by(parameter(function), UseTime::Now));
    }

    /// Captures a graph with one kernel that uses the block, and launches it.
    fn launch_graph(&self, function: u128, times: u32) {
        self.graphs.begin_capture();
        self.graphs.add_kernel();
        assert!(self.graphs.add_word((RANGE.start, parameter(function)), true));
        self.graphs.end_capture(Some(1));
        self.graphs.instantiated(1, 1);
        self.relaunch_graph(times);
    }

    fn relaunch_graph(&self, times: u32) {
        for _ in 0..times {
            assert_eq!(self.graphs.launched(1), 1);
        }
    }

    fn learn(&mut self, bytes: u128) -> Lessons {
        self.facts.learn(&RANGE, fingerprints(bytes), &self.readers, &self.graphs)
    }

    fn eligibility(&self) -> Eligibility {
        self.facts.eligibility(self.now, &self.readers)
    }

    fn due(&self) -> usize {
        self.facts.due_chunks(self.now, &self.readers, self.graphs.launches()).len()
    }
}

#[test]
fn a_block_is_not_shared_after_a_write() {
    let mut scene = Scene::eligible();
    scene.facts.overwritten(scene.now);
    assert_eq!(scene.eligibility(), Eligibility::Changing);
    scene.wait(QUIET);
    scene.learn(100);
    assert_eq!(scene.eligibility(), Eligibility::Changing, "one fingerprint shows no stillness");
    scene.learn(100);
    assert_eq!(scene.eligibility(), Eligibility::Eligible);
}

#[test]
fn a_fingerprint_from_before_a_write_names_nothing() {
    let mut scene = Scene::eligible();
    let may_share = |scene: &Scene| scene.facts.may_share(1, Fingerprint(101), scene.now, &scene.readers);
    assert!(may_share(&scene));
    assert!(!scene.facts.may_share(1, Fingerprint(102), scene.now, &scene.readers));
    scene.facts.overwritten(scene.now);
    assert!(!may_share(&scene));
    scene.learn(200);
    scene.learn(200);
    assert!(!may_share(&scene), "the bytes are others now");
}

#[test]
fn a_block_that_no_kernel_has_used_waits_thirty_seconds() {
    let mut scene = Scene::loaded();
    scene.wait(QUIET);
    scene.learn(100);
    scene.learn(100);
    assert_eq!(scene.eligibility(), Eligibility::UnknownReader);
    scene.wait(Duration::from_secs(30) - QUIET - Duration::from_millis(1));
    assert_eq!(scene.eligibility(), Eligibility::UnknownReader);
    scene.wait(Duration::from_millis(1));
    assert_eq!(scene.eligibility(), Eligibility::Eligible);
}

#[test]
fn a_kernel_is_no_reader_before_its_proof() {
    let mut scene = Scene::loaded();
    scene.wait(QUIET);
    scene.learn(100);
    scene.launch(1, PROOF - 1);
    assert_eq!(scene.learn(100), Lessons::default());
    assert_eq!(scene.eligibility(), Eligibility::PossibleWriter);
    scene.launch(1, 1);
    assert_eq!(scene.learn(100).readers, [parameter(1)]);
    assert_eq!(scene.eligibility(), Eligibility::Eligible);
}

#[test]
fn launches_before_the_first_fingerprint_prove_nothing() {
    let mut scene = Scene::loaded();
    scene.launch(1, 10 * PROOF);
    assert_eq!(scene.learn(100), Lessons::default());
}

#[test]
fn launches_around_a_copy_prove_nothing() {
    let mut scene = Scene::eligible();
    scene.launch(2, PROOF);
    scene.facts.overwritten(scene.now);
    scene.launch(2, PROOF);
    assert_eq!(scene.learn(100), Lessons::default());
    assert_eq!(scene.readers.verdict(parameter(2)), ParameterVerdict::Unknown);
}

#[test]
fn each_new_kernel_ends_eligibility_until_it_is_a_reader() {
    let mut scene = Scene::eligible();
    scene.launch(2, 1);
    assert_eq!(scene.eligibility(), Eligibility::PossibleWriter);
    scene.launch(2, PROOF);
    scene.learn(100);
    assert_eq!(scene.eligibility(), Eligibility::Eligible);
}

#[test]
fn a_change_blames_the_kernels_of_its_window() {
    let mut scene = Scene::eligible();
    scene.launch(1, 1);
    let lessons = scene.learn(200);
    assert_eq!(lessons.reversed, [parameter(1)]);
    assert_eq!(scene.eligibility(), Eligibility::Changing);
    assert!(scene.facts.relies_on(&lessons.reversed) && !scene.facts.relies_on(&[parameter(9)]));
}

#[test]
fn a_changed_chunk_is_no_candidate_any_more() {
    let mut scene = Scene::eligible();
    scene.launch(1, 1);
    let mut changed = fingerprints(100);
    changed.insert(2, Fingerprint(7));
    scene.facts.learn(&RANGE, changed, &scene.readers, &scene.graphs);
    assert_eq!(scene.facts.candidates.chunks().collect::<Vec<_>>(), [0, 1, 3]);
}

#[test]
fn a_chunk_that_is_no_candidate_any_more_is_no_change() {
    let mut scene = Scene::eligible();
    scene.launch(1, PROOF);
    let mut fewer = fingerprints(100);
    fewer.remove(&3);
    let lessons = scene.facts.learn(&RANGE, fewer, &scene.readers, &scene.graphs);
    assert_eq!(lessons, Lessons::default());
    assert_eq!(scene.eligibility(), Eligibility::Eligible);
}

#[test]
fn a_launched_graph_proves_its_kernels() {
    let mut scene = Scene::loaded();
    scene.launch_graph(5, 0);
    scene.learn(100);
    assert_eq!(scene.eligibility(), Eligibility::Changing);
    scene.graphs.launched(1);
    scene.learn(100);
    assert_eq!(scene.eligibility(), Eligibility::PossibleWriter, "one launch is no proof");
    scene.relaunch_graph(PROOF);
    assert_eq!(scene.learn(100).readers, [parameter(5)]);
    assert_eq!(scene.eligibility(), Eligibility::Eligible);
}

#[test]
fn a_captured_graph_that_is_not_launched_is_a_possible_writer() {
    let mut scene = Scene::eligible();
    scene.launch_graph(5, 0);
    scene.learn(100);
    assert_eq!(scene.eligibility(), Eligibility::PossibleWriter);
    assert_eq!(scene.readers.verdict(parameter(5)), ParameterVerdict::Unknown);
}

#[test]
fn a_change_after_a_graphs_launch_blames_every_kernel_of_a_graph() {
    let mut scene = Scene::eligible();
    scene.launch_graph(5, 1);
    let writers = scene.learn(200).writers;
    assert_eq!(writers, [parameter(5)]);
}

#[test]
fn a_change_without_a_graphs_launch_blames_no_graph() {
    let mut scene = Scene::eligible();
    scene.launch_graph(5, 1);
    scene.learn(100);
    scene.launch(1, 1);
    assert_eq!(scene.learn(200).writers, [parameter(1)]);
}

#[test]
fn an_unknown_kernel_ends_eligibility_and_teaches_nothing() {
    let mut scene = Scene::eligible();
    scene.launch(2, PROOF);
    scene.facts.window.add_unknown();
    assert_eq!(scene.eligibility(), Eligibility::UnknownKernel);
    assert_eq!(scene.learn(100), Lessons::default());
}

#[test]
fn an_excluded_block_is_neither_shared_nor_fingerprinted() {
    let mut scene = Scene::eligible();
    scene.launch(2, 1);
    assert_eq!(scene.due(), CHUNKS as usize);
    scene.facts.exclude(Exclusion::GraphWrites);
    assert_eq!(scene.eligibility(), Eligibility::Excluded(Exclusion::GraphWrites));
    assert_eq!(scene.due(), 0);
}

#[test]
fn a_block_needs_fingerprints_after_a_pause_without_writes() {
    let mut scene = Scene::loaded();
    scene.wait(QUIET - Duration::from_millis(1));
    assert_eq!(scene.due(), 0);
    scene.wait(Duration::from_millis(1));
    assert_eq!(scene.due(), CHUNKS as usize);
    scene.facts.candidates.written(0..1);
    assert_eq!(scene.due(), CHUNKS as usize - 1, "a chunk that a call wrote is no candidate");
}

#[test]
fn a_settled_block_needs_no_fingerprints() {
    let mut scene = Scene::eligible();
    assert_eq!(scene.due(), 0);
    scene.launch(1, 1);
    assert_eq!(scene.due(), 0, "its kernel is a reader");
    scene.launch(2, 1);
    assert_eq!(scene.due(), CHUNKS as usize);
}

#[test]
fn a_graphs_launch_makes_a_block_with_an_unproved_kernel_due() {
    let mut scene = Scene::eligible();
    scene.launch(2, 1);
    scene.learn(100);
    assert_eq!(scene.due(), 0, "no launch could teach anything");
    scene.launch_graph(5, 1);
    assert_eq!(scene.due(), CHUNKS as usize);
}

#[test]
fn shared_chunks_do_not_change_the_rules() {
    let mut scene = Scene::eligible();
    scene.facts.shared(0, ChunkState::Given { handle: 1, lease: Some(Lease(1)) });
    assert_eq!(scene.eligibility(), Eligibility::Eligible);
    scene.launch(2, 1);
    assert_eq!(scene.eligibility(), Eligibility::PossibleWriter);
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Copy,
    Launch(u128),
    Graph(u128),
    Learn { changed: bool },
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => Just(Event::Copy),
        4 => (0..3_u128).prop_map(Event::Launch),
        1 => (3..5_u128).prop_map(Event::Graph),
        5 => prop::bool::weighted(0.1).prop_map(|changed| Event::Learn { changed }),
        2 => (0..20_000_u64).prop_map(Event::Wait),
    ]
}

proptest! {
    /// Any order of events: an eligible block had two equal fingerprints since its last write and
    /// its last change, and no kernel that was blamed uses it.
    #[test]
    fn an_eligible_block_was_still_and_has_readers_only(events in prop::collection::vec(event(), 0..120)) {
        let mut scene = Scene::loaded();
        let (mut bytes, mut equal, mut blamed) = (0_u128, 0, Vec::new());
        for event in events {
            match event {
                Event::Copy => {
                    scene.facts.overwritten(scene.now);
                    (bytes, equal) = (bytes + 10, 0);
                }
                Event::Launch(function) => scene.launch(function, 1),
                Event::Graph(function) => scene.launch_graph(function, 1),
                Event::Learn { changed } => {
                    if changed {
                        (bytes, equal) = (bytes + 10, 0);
                    }
                    blamed.extend(scene.learn(bytes).writers);
                    equal += 1;
                }
                Event::Wait(milliseconds) => scene.wait(Duration::from_millis(milliseconds)),
            }
            if scene.eligibility() == Eligibility::Eligible {
                prop_assert!(equal >= 2, "{equal} equal fingerprints");
                prop_assert!(!scene.facts.relies_on(&blamed));
            }
        }
    }
}
