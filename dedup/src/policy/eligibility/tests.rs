//! Hazard (wrong result): a block is shared that was written since its fingerprints, or that a
//! kernel may write.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::client::Lease;
use crate::policy::tracked_blocks::ChunkState;
use crate::readers::FunctionKey;

const CHUNKS: u64 = 4;
const RANGE: Range<u64> = 0..CHUNKS * CHUNK_BYTES;

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
    /// A block whose chunks all arrived by a copy just now. Function 1 is proven to read.
    fn loaded() -> Self {
        let now = Instant::now();
        let mut facts = BlockFacts::new(RANGE.end, now);
        facts.candidates.loaded(RANGE);
        facts.overwritten(now);
        let scene = Self { facts, readers: Readers::new(), graphs: GraphFacts::new(), now };
        scene.readers.prove(parameter(1), true);
        scene
    }

    /// A block with one reader and two equal fingerprints in a row.
    fn eligible() -> Self {
        let mut scene = Self::loaded();
        scene.launch(1);
        scene.wait(QUIET);
        scene.learn(100);
        scene.learn(100);
        assert_eq!(scene.eligibility(), Eligibility::Eligible);
        scene
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    fn launch(&mut self, function: u128) {
        self.facts.used_by(parameter(function));
    }

    /// Makes a graph with one kernel that uses the block.
    fn make_graph(&self, function: u128) {
        assert!(self.graphs.add_word((RANGE.start, parameter(function))));
    }

    fn learn(&mut self, bytes: u128) -> Vec<ParameterKey> {
        self.facts.learn(&RANGE, fingerprints(bytes), &self.readers, &self.graphs)
    }

    fn eligibility(&self) -> Eligibility {
        self.facts.eligibility(self.now, &self.readers)
    }

    fn due(&self) -> usize {
        self.facts.due_chunks(self.now, &self.readers).len()
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

/// Launches are no proof: a kernel may write later, or write the same bytes.
#[test]
fn a_kernel_without_a_proof_ends_eligibility_however_often_it_is_launched() {
    let mut scene = Scene::eligible();
    (0..10_000).for_each(|_| scene.launch(2));
    scene.learn(100);
    assert_eq!(scene.eligibility(), Eligibility::PossibleWriter);
    scene.readers.prove(parameter(2), false);
    assert_eq!(scene.eligibility(), Eligibility::PossibleWriter);
    scene.launch(3);
    scene.readers.prove(parameter(3), true);
    assert_eq!(scene.eligibility(), Eligibility::PossibleWriter, "the other one may be launched again");
}

#[test]
fn a_proof_makes_a_block_eligible() {
    let mut scene = Scene::eligible();
    scene.launch(2);
    assert_eq!(scene.facts.parameters().count(), 2);
    scene.readers.prove(parameter(2), true);
    assert_eq!(scene.eligibility(), Eligibility::Eligible);
}

#[test]
fn a_change_refutes_the_readers_of_the_block() {
    let mut scene = Scene::eligible();
    scene.launch(1);
    let refuted = scene.learn(200);
    assert_eq!(refuted, [parameter(1)]);
    assert_eq!(scene.eligibility(), Eligibility::PossibleWriter);
    assert!(scene.facts.relies_on(&refuted) && !scene.facts.relies_on(&[parameter(9)]));
}

/// A fingerprint right before the exchange finds other bytes.
#[test]
fn a_contradicted_block_begins_anew() {
    let mut scene = Scene::eligible();
    scene.launch(1);
    assert_eq!(scene.facts.contradicted(&scene.readers), [parameter(1)]);
    assert_eq!((scene.facts.fingerprints().count(), scene.facts.ask(9)), (0, vec![]));
}

#[test]
fn a_changed_chunk_is_no_candidate_any_more() {
    let mut scene = Scene::eligible();
    scene.launch(1);
    let mut changed = fingerprints(100);
    changed.insert(2, Fingerprint(7));
    scene.facts.learn(&RANGE, changed, &scene.readers, &scene.graphs);
    assert_eq!(scene.facts.candidates.chunks().collect::<Vec<_>>(), [0, 1, 3]);
}

#[test]
fn a_chunk_that_is_no_candidate_any_more_is_no_change() {
    let mut scene = Scene::eligible();
    scene.launch(1);
    let mut fewer = fingerprints(100);
    fewer.remove(&3);
    assert_eq!(scene.facts.learn(&RANGE, fewer, &scene.readers, &scene.graphs), []);
    assert_eq!(scene.eligibility(), Eligibility::Eligible);
}

#[test]
fn a_kernel_of_a_graph_is_a_possible_writer_until_it_is_proven() {
    let mut scene = Scene::eligible();
    scene.make_graph(5);
    scene.learn(100);
    assert_eq!(scene.eligibility(), Eligibility::PossibleWriter);
    scene.readers.prove(parameter(5), true);
    assert_eq!(scene.eligibility(), Eligibility::Eligible);
}

#[test]
fn a_change_refutes_the_kernels_of_graphs_too() {
    let mut scene = Scene::eligible();
    scene.readers.prove(parameter(5), true);
    scene.make_graph(5);
    assert_eq!(scene.learn(200).into_iter().collect::<BTreeSet<_>>(), [parameter(1), parameter(5)].into());
}

#[test]
fn an_excluded_block_is_neither_shared_nor_fingerprinted() {
    let mut scene = Scene::loaded();
    scene.wait(QUIET);
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

/// Hazard (latency): blocks that cannot be shared are fingerprinted again and again.
#[test]
fn only_a_block_that_could_be_shared_is_fingerprinted_and_only_until_it_was_still() {
    let mut scene = Scene::loaded();
    scene.wait(QUIET);
    scene.launch(2);
    assert_eq!(scene.due(), 0, "a kernel without a proof uses it");
    scene.readers.prove(parameter(2), true);
    assert_eq!(scene.due(), CHUNKS as usize);
    scene.learn(100);
    scene.learn(100);
    scene.launch(1);
    assert_eq!(scene.due(), 0);
}

#[test]
fn shared_chunks_do_not_change_the_rules() {
    let mut scene = Scene::eligible();
    scene.facts.shared(0, ChunkState::Given { handle: 1, lease: Some(Lease(1)) });
    assert_eq!(scene.eligibility(), Eligibility::Eligible);
    scene.launch(2);
    assert_eq!(scene.eligibility(), Eligibility::PossibleWriter);
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Copy,
    Launch(u128),
    Graph(u128),
    Prove(u128, bool),
    Learn { changed: bool },
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => Just(Event::Copy),
        4 => (0..3_u128).prop_map(Event::Launch),
        1 => (3..5_u128).prop_map(Event::Graph),
        3 => (0..5_u128, prop::bool::weighted(0.9)).prop_map(|(of, reads)| Event::Prove(of, reads)),
        5 => prop::bool::weighted(0.1).prop_map(|changed| Event::Learn { changed }),
        2 => (0..20_000_u64).prop_map(Event::Wait),
    ]
}

proptest! {
    /// Any order of events: an eligible block had two equal fingerprints since its last write and
    /// its last change, and each kernel that uses it was proven, and not refuted since.
    #[test]
    fn an_eligible_block_was_still_and_has_readers_only(events in prop::collection::vec(event(), 0..120)) {
        let mut scene = Scene::loaded();
        let (mut bytes, mut equal) = (0_u128, 0);
        let (mut used, mut graphs, mut proven) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::from([1]));
        let (mut refuted, mut disproven) = (BTreeSet::new(), BTreeSet::new());
        for event in events {
            match event {
                Event::Copy => {
                    scene.facts.overwritten(scene.now);
                    (bytes, equal) = (bytes + 10, 0);
                }
                Event::Launch(function) => {
                    scene.launch(function);
                    used.insert(function);
                }
                Event::Graph(function) => {
                    scene.make_graph(function);
                    graphs.insert(function);
                }
                Event::Prove(function, only_reads) => {
                    scene.readers.prove(parameter(function), only_reads);
                    let is_first = !proven.contains(&function) && !disproven.contains(&function);
                    match only_reads {
                        true if is_first => drop(proven.insert(function)),
                        false if is_first => drop(disproven.insert(function)),
                        _ => {}
                    }
                }
                Event::Learn { changed } => {
                    if changed {
                        (bytes, equal) = (bytes + 10, 0);
                    }
                    refuted.extend(scene.learn(bytes).into_iter().map(|of| of.function.0));
                    used.extend(&graphs);
                    equal += 1;
                }
                Event::Wait(milliseconds) => scene.wait(Duration::from_millis(milliseconds)),
            }
            if scene.eligibility() == Eligibility::Eligible {
                prop_assert!(equal >= 2, "{equal} equal fingerprints");
                prop_assert!(used.iter().all(|of| proven.contains(of) && !refuted.contains(of)));
            }
        }
    }
}
