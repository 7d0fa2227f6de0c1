//! Hazard (use after free): two owners write one piece of memory. Random legal programs run beside
//! a model that knows the owner of every byte.

mod support;

use proptest::prelude::*;
use support::model::{MIB, Model};
use support::world::{Step, World};
use wm_driver::{StreamId, Tier};
use wm_memory::{BlockGuard, KeepCopies, ManagerSettings, Order, Processor};

const STREAMS: u64 = 3;

fn stream() -> impl Strategy<Value = StreamId> {
    (0..STREAMS).prop_map(StreamId)
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![4 => stream().prop_map(Order::Stream), 1 => Just(Order::Device)]
}

/// Few sizes, so that they repeat, from every class, with odd ones among them.
fn bytes() -> impl Strategy<Value = usize> {
    let some = [1, 512, 4000, 300_000, 1 << 20, 1_300_000, 2 << 20, 5_000_000, 17 << 20, 40 << 20, 150 << 20];
    prop_oneof![8 => prop::sample::select(some.to_vec()), 1 => 1usize..200 << 20]
}

/// Sizes that leave much of a handle free, and do not fit the ranges that others leave.
fn fragments() -> impl Strategy<Value = usize> {
    prop_oneof![1 => 1usize..90_000, 6 => 100_000usize..1_100_000, 3 => 1_000_000usize..5_000_000]
}

fn step(bytes: impl Strategy<Value = usize> + 'static) -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (bytes, order()).prop_map(|(bytes, order)| Step::Allocate { bytes, order }),
        9 => (any::<usize>(), order()).prop_map(|(index, order)| Step::Free { index, order }),
        4 => (any::<usize>(), stream()).prop_map(|(index, stream)| Step::Touch { index, stream }),
        4 => (stream(), any::<u8>()).prop_map(|(stream, part)| Step::Run { stream, part }),
        1 => stream().prop_map(|stream| Step::Synchronize { stream }),
        1 => Just(Step::SynchronizeAll),
        1 => (0..600 * MIB).prop_map(|keep| Step::Trim { keep }),
        1 => (0..300 * MIB).prop_map(|bytes| Step::Relieve { bytes }),
        1 => stream().prop_map(|stream| Step::Destroy { stream }),
        1 => limit().prop_map(|bytes| Step::Limit { bytes }),
        1 => (stream(), any::<bool>()).prop_map(|(stream, on)| Step::Capture { stream, on }),
        1 => Just(Step::Refresh),
    ]
}

fn limit() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(u64::MAX), 1 => Just(0), 4 => (0..600u64).prop_map(|mib| mib * MIB)]
}

fn settings() -> impl Strategy<Value = ManagerSettings> {
    let overflow = prop::sample::select(vec![vec![], vec![Tier::Host], vec![Tier::Peer(1), Tier::Host]]);
    let limit = prop_oneof![Just(u64::MAX), (100..600u64).prop_map(|mib| mib * MIB)];
    let all = (overflow, limit, 0..4usize, 0..64u64, any::<bool>());
    all.prop_map(|(overflow, device_limit, stitch_views, headroom, movable)| ManagerSettings {
        stitch_views,
        device_limit,
        headroom: headroom * MIB,
        keep_idle: 0,
        overflow,
        keep_most: u64::MAX,
        capacity: u64::MAX,
        host_limit: 300 * MIB,
        peer_limit: 100 * MIB,
        movable,
        chunked: false,
        kept_copies: if headroom % 2 == 0 { KeepCopies::On } else { KeepCopies::Auto },
        verify_moves: headroom % 3 == 0,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_legal_program_never_sees_shared_moved_or_unordered_memory(
        settings in settings(),
        steps in prop::collection::vec(step(bytes()), 1..120),
    ) {
        let mut world = World::new(Model::new(512 * MIB, 400 * MIB), settings);
        steps.iter().for_each(|step| world.run(step));
        world.end();
    }
}

/// Programs whose memory moves: more often than not where nothing is in flight, and every other
/// time with a driver that fails.
fn moving(bytes: impl Strategy<Value = usize> + 'static) -> impl Strategy<Value = Step> {
    let tier = prop::sample::select(vec![Tier::Device, Tier::Host, Tier::Peer(1)]);
    let fail = || prop::option::of((1..16u64, 1..7u64));
    let plain = step(bytes).prop_filter("peers end all moves", |step| !matches!(step, Step::Refresh));
    prop_oneof![
        30 => plain,
        12 => (any::<usize>(), any::<u8>(), tier, prop::bool::weighted(0.8), fail())
            .prop_map(|(index, part, to, settle, fail)| Step::Move { index, part, to, settle, fail }),
        6 => (any::<[usize; 2]>(), any::<[u8; 2]>(), prop::bool::weighted(0.8), fail())
            .prop_map(|(indices, parts, settle, fail)| Step::Exchange { indices, parts, settle, fail }),
        3 => (prop::collection::vec(any::<usize>(), 0..4), any::<u8>(), prop::bool::weighted(0.8), [fail(), fail(), fail()])
            .prop_map(|(frees, comes, settle, fails)| Step::Pause { frees, comes, settle, fails }),
        1 => any::<bool>().prop_map(Step::SlowCopies),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Hazard: bytes that are lost or that two owners share after a move, memory that moves while
    /// it is used, statistics that tell where it was.
    #[test]
    fn so_it_is_where_memory_moves(
        settings in settings(),
        steps in prop::collection::vec(moving(bytes()), 1..120),
    ) {
        let mut world = World::new(Model::new(512 * MIB, 400 * MIB), settings);
        steps.iter().for_each(|step| world.run(step));
        world.end();
    }

    /// Hazard: the same of many small blocks in one handle, with free parts and cached ones between
    /// them.
    #[test]
    fn so_it_is_where_small_blocks_move_together(
        settings in settings(),
        steps in prop::collection::vec(moving(fragments()), 50..200),
    ) {
        let mut world = World::new(Model::new(32 * MIB, 32 * MIB), ManagerSettings { headroom: 0, ..settings });
        steps.iter().for_each(|step| world.run(step));
        world.end();
    }
}

/// Programs that make memory themselves, among blocks that move.
fn with_pieces(bytes: impl Strategy<Value = usize> + 'static) -> impl Strategy<Value = Step> {
    let tier = || prop::sample::select(vec![Tier::Device, Tier::Device, Tier::Host]);
    let to = prop::sample::select(vec![Tier::Device, Tier::Host, Tier::Host, Tier::Peer(1)]);
    let fail = || prop::option::weighted(0.4, (1..16u64, 1..7u64));
    prop_oneof![
        30 => moving(bytes),
        8 => (1..9u64, tier()).prop_map(|(granules, tier)| Step::MakePiece { granules, tier }),
        4 => (any::<usize>(), stream()).prop_map(|(index, stream)| Step::TouchPiece { index, stream }),
        8 => any::<usize>().prop_map(|index| Step::Adopt { index }),
        3 => (any::<usize>(), fail()).prop_map(|(index, fail)| Step::Disown { index, fail }),
        3 => any::<usize>().prop_map(|index| Step::DropPiece { index }),
        14 => (any::<usize>(), any::<usize>(), to, prop::bool::weighted(0.8), fail()).prop_map(
            |(index, beside, to, settle, fail)| Step::MovePiece { index, beside, to, settle, fail }
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Hazard: bytes of the program's own memory that are lost on the way, that count twice, that
    /// lie elsewhere than the program is told when it has its memory again; a mapping that is left.
    #[test]
    fn so_it_is_where_memory_of_the_programs_own_moves(
        settings in settings(),
        steps in prop::collection::vec(with_pieces(unified_bytes()), 1..120),
    ) {
        let mut world = World::new(Model::new(256 * MIB, 256 * MIB), settings);
        steps.iter().for_each(|step| world.run(step));
        world.end();
    }
}

/// Programs that make memory themselves, which other processes have too.
fn with_shared_pieces(bytes: impl Strategy<Value = usize> + 'static) -> impl Strategy<Value = Step> {
    let fail = || prop::option::weighted(0.4, (1..16u64, 1..7u64));
    let settle = || prop::bool::weighted(0.8);
    prop_oneof![
        60 => with_pieces(bytes),
        20 => (any::<usize>(), any::<bool>(), settle(), fail())
            .prop_map(|(index, donates, settle, fail)| Step::SharePiece { index, donates, settle, fail }),
        6 => (any::<usize>(), settle(), fail())
            .prop_map(|(index, settle, fail)| Step::UnsharePiece { index, settle, fail }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Hazard: a piece has memory of other processes where the program has it again, or where it
    /// may write; its bytes count twice, or not at all, or are lost on the way back.
    #[test]
    fn so_it_is_where_pieces_are_shared(
        settings in settings(),
        steps in prop::collection::vec(with_shared_pieces(unified_bytes()), 1..120),
    ) {
        let mut world = World::new(Model::new(256 * MIB, 256 * MIB), settings);
        steps.iter().for_each(|step| world.run(step));
        world.end();
    }
}

/// Programs that have blocks which the CPU and the GPU use in turn, among others that move.
fn unified(bytes: impl Strategy<Value = usize> + Clone + 'static) -> impl Strategy<Value = Step> {
    let fail = || prop::option::weighted(0.5, (1..24u64, 1..7u64));
    let to = prop::sample::select(vec![Processor::Cpu, Processor::Gpu]);
    prop_oneof![
        24 => moving(bytes.clone()),
        8 => (bytes, order()).prop_map(|(bytes, order)| Step::AllocateUnified { bytes, order }),
        24 => (any::<usize>(), to, prop::bool::weighted(0.8), fail())
            .prop_map(|(index, to, settle, fail)| Step::HandOver { index, to, settle, fail }),
    ]
}

fn unified_bytes() -> impl Strategy<Value = usize> + Clone {
    prop::sample::select(vec![1, 300_000, 2 << 20, 5_000_000, 17 << 20, 40 << 20])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Hazard: the CPU may use memory of other blocks, or not all of its own; a copy touches what
    /// the CPU uses; bytes are lost on the way.
    #[test]
    fn so_it_is_where_the_cpu_and_the_gpu_use_blocks_in_turn(
        settings in settings(),
        steps in prop::collection::vec(unified(unified_bytes()), 1..120),
    ) {
        let mut world = World::new(Model::new(256 * MIB, 256 * MIB), settings);
        steps.iter().for_each(|step| world.run(step));
        world.end();
    }
}

/// Programs whose blocks share memory with other processes, and move besides.
fn sharing(bytes: impl Strategy<Value = usize> + 'static) -> impl Strategy<Value = Step> {
    let fail = || prop::option::weighted(0.4, (1..16u64, 1..7u64));
    let settle = || prop::bool::weighted(0.8);
    prop_oneof![
        30 => moving(bytes),
        14 => (any::<usize>(), any::<u8>(), any::<bool>(), settle(), fail())
            .prop_map(|(index, part, donates, settle, fail)| Step::Share { index, part, donates, settle, fail }),
        5 => (any::<usize>(), any::<u8>(), settle(), fail())
            .prop_map(|(index, part, settle, fail)| Step::Unshare { index, part, settle, fail }),
        5 => (any::<usize>(), any::<u8>(), settle(), fail())
            .prop_map(|(index, part, settle, fail)| Step::TakeBack { index, part, settle, fail }),
        3 => fail().prop_map(|fail| Step::Unpark { fail }),
    ]
}

/// Many that have chunks.
fn chunks() -> impl Strategy<Value = usize> {
    let some = [4000, 300_000, 1_300_000, 2 << 20, 4 << 20, 5_000_000, 10 << 20, 17 << 20, 40 << 20];
    prop_oneof![8 => prop::sample::select(some.to_vec()), 1 => 1usize..30 << 20]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Hazard: memory of other processes that is written, given to another block, counted as this
    /// process's, given back twice or never; bytes that are lost on the way there or back.
    #[test]
    fn so_it_is_where_memory_is_shared(
        settings in settings(),
        (chunked, knows) in (prop::bool::weighted(0.8), any::<bool>()),
        steps in prop::collection::vec(sharing(chunks()), 1..150),
    ) {
        let settings = ManagerSettings { chunked, ..settings };
        let mut world = World::new(Model::new(512 * MIB, 400 * MIB), settings);
        world.knows_what_is_over = knows;
        steps.iter().for_each(|step| world.run(step));
        world.end();
    }

    /// Hazard: the same where private memory cannot be had.
    #[test]
    fn so_it_is_where_memory_is_shared_on_a_full_device(
        settings in settings(),
        knows in any::<bool>(),
        steps in prop::collection::vec(sharing(chunks()), 50..200),
    ) {
        let settings = ManagerSettings { headroom: 0, chunked: true, ..settings };
        let mut world = World::new(Model::new(48 * MIB, 16 * MIB), settings);
        world.knows_what_is_over = knows;
        steps.iter().for_each(|step| world.run(step));
        world.end();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Hazard: a program that ends without us waits for ever, because we made one stream depend on
    /// another.
    #[test]
    fn where_memory_is_plenty_no_stream_waits_for_another_and_the_host_for_none(
        steps in prop::collection::vec(step(bytes()), 1..120),
    ) {
        // A lower limit leaves less than plenty.
        let steps = steps.iter().filter(|step| !matches!(step, Step::Limit { .. }));
        let mut world = World::new(Model::new(256 << 30, 0), ManagerSettings { headroom: 0, ..ManagerSettings::default() });
        steps.for_each(|step| world.run(step));
        prop_assert_eq!((world.manager.gpu().calls("order"), world.manager.gpu().calls("wait_any")), (0, 0));
        world.end();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Hazard: small blocks that are cut from one another's remains, on a device that is always
    /// full.
    #[test]
    fn so_it_is_on_a_device_that_is_always_full(
        settings in settings(),
        steps in prop::collection::vec(step(fragments()), 150..300),
    ) {
        let mut world = World::new(Model::new(16 * MIB, 8 * MIB), ManagerSettings { headroom: 0, ..settings });
        steps.iter().for_each(|step| world.run(step));
        world.end();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Hazard: a guard that breaks the block that it guards, or that something is mapped behind a
    /// block after all.
    #[test]
    fn so_it_is_with_guards(
        settings in settings(),
        guard in prop::sample::select(vec![BlockGuard::Page, BlockGuard::Tail]),
        steps in prop::collection::vec(step(bytes()), 1..120),
    ) {
        let mut world = World::guarded(Model::new(512 * MIB, 400 * MIB), settings, Some(guard));
        steps.iter().for_each(|step| world.run(step));
        world.end();
    }
}
