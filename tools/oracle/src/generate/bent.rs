//! The weights of a program's draws. They are drawn once a program, so that some programs repeat
//! situations that are rare in others.

use random::{Choices, Random};

use super::wishes::Wishes;
use crate::program::{Aside, Context, HOSTS, Host, Kind, Renewal, Shape, Stream};

/// A draw of the generator.
#[derive(Debug, Clone, Copy)]
pub(super) enum Draw {
    Allocate,
    Free,
    Access,
    Copy,
    Handover,
    Spin,
    Close,
    Open,
    Event,
    Sync,
    Query,
    Trim,
    Info,
    Capture,
    Launch,
    /// A graph is built node by node.
    Build,
    Retarget,
    EndGraph,
    Destroy,
    Create,
    Note,
    Unlock,
    Now,
    Lean,
    Overtake,
    Upload,
    Download,
    /// A copy to the host, and a copy from the same host memory behind it.
    Relay,
    /// The host writes or reads its memory.
    AtHost,
    /// A call beside copies that must not affect them.
    Aside,
    Renew,
}

/// The work in the graphs of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GraphDraw {
    /// Kernels, memory of the graph's own, branches.
    Any,
    /// Kernels, and memsets and copies, which name blocks.
    Named,
    /// There are none.
    None,
}

/// The weights of one program.
pub(super) struct Bent {
    pub(super) sizes: Vec<u64>,
    pub(super) ways: Vec<(usize, usize)>,
    pub(super) draws: Vec<(Draw, usize)>,
    /// Blocks at a time.
    pub(super) blocks: usize,
    pub(super) contexts: Vec<Context>,
    /// A stream that most allocations and frees are made in.
    pub(super) home: Option<usize>,
    /// Are contexts other than the first current only where a call needs it?
    pub(super) aloof: bool,
    /// Is all work done by kernels? A delayed copy may delay copies of other streams on a
    /// real device.
    pub(super) kernels: bool,
    pub(super) graphs: GraphDraw,
    /// The calls that it makes beside copies.
    pub(super) asides: Vec<Aside>,
    /// The ways in which it maps memory of its own again.
    pub(super) renewals: &'static [Renewal],
}

/// An untouched block: larger than the memory that the library keeps idle by default.
pub(super) const HUGE: u64 = 1536 << 20;

pub(super) fn shape(random: &mut Random, wishes: &Wishes) -> (Shape, Vec<Context>) {
    let threads = random.weighted(&[(1, 4), (2, 2), (3, 1)]);
    let mut contexts = vec![Context::First];
    contexts.extend((!wishes.moves && random.one_in(3)).then_some(Context::Second));
    contexts.extend((wishes.devices > 1 && random.one_in(3)).then_some(Context::Other));
    let mut streams = Vec::new();
    for context in [Context::GreenOne, Context::GreenTwo] {
        // Their streams are non-blocking.
        let count = if wishes.green { random.below(3) } else { 0 };
        streams.extend(vec![Stream { context, kind: Kind::NonBlocking, late: false }; count]);
        contexts.extend((count > 0).then_some(context));
    }
    for context in contexts.iter().filter(|context| !context.is_green()) {
        let mut kinds = vec![Kind::NonBlocking; random.below(3)];
        kinds.extend(vec![Kind::Blocking; random.below(4)]);
        kinds.extend((!random.one_in(3)).then_some(Kind::Legacy));
        // Several threads may have theirs.
        kinds.extend((0..threads).filter_map(|thread| random.one_in(3).then_some(Kind::PerThread(thread))));
        kinds.extend(kinds.is_empty().then_some(Kind::NonBlocking));
        let late = kinds.len() > 1 && random.one_in(4);
        // The first is there from the beginning.
        let is_late = |number: usize, kind: Kind| late && number % 2 == 1 && kind.is_created();
        let made = kinds.into_iter().enumerate();
        streams.extend(made.map(|(number, kind)| Stream {
            context: *context,
            kind,
            late: is_late(number, kind),
        }));
    }
    let (keep, internal) = (random.one_in(2), random.one_in(2));
    let hosts = if wishes.copies { hosts(random) } else { Vec::new() };
    (Shape { threads, streams, keep, internal, rules: wishes.rules, hosts }, contexts)
}

/// One to four pieces of memory.
fn hosts(random: &mut Random) -> Vec<Host> {
    let count = 1 + random.below(HOSTS);
    (0..count).map(|_| if random.one_in(2) { Host::Pageable } else { Host::Pinned }).collect()
}

/// Further weights of a program with copies: blocks that several links carry, pageable ones too,
/// and few of each.
fn with_copies(mut bent: Bent, random: &mut Random, wishes: &Wishes) -> Bent {
    const LARGE: [(u64, usize); 6] = [
        (1 << 20, 1),
        ((2 << 20) + 512, 3),
        (4 << 20, 3),
        ((6 << 20) + 4096, 2),
        (12 << 20, 5),
        ((13 << 20) + 512, 2),
    ];
    bent.sizes = (0..=random.below(2)).map(|_| random.weighted(&LARGE)).collect();
    let mut often = |limit: usize| 4 + random.below(limit + 1);
    let weights =
        if bent.kernels && !wishes.held_copies { [0; 4] } else { std::array::from_fn(|_| often(8)) };
    bent.draws.extend([Draw::Upload, Draw::Download, Draw::Relay, Draw::AtHost].into_iter().zip(weights));
    bent.draws.extend([(Draw::Capture, weights[0] / 4), (Draw::Launch, weights[0] / 2)]);
    bent.asides = asides(random, wishes);
    bent.draws.push((Draw::Aside, if bent.asides.is_empty() { 0 } else { 4 }));
    bent
}

/// Weights of a program whose memory moves: many blocks that are large enough, of the library's
/// memory, used again and again, and a host that waits now and then, so that the device is idle.
/// Half have graphs that name blocks, and few have others, which pin all memory; host functions are
/// drawn only beside gates, because the library does not wait where they may hold a stream.
fn with_moves(mut bent: Bent, random: &mut Random) -> Bent {
    const MOVABLE: [(u64, usize); 5] =
        [(4 << 20, 3), (6 << 20, 3), ((8 << 20) + 512, 2), (12 << 20, 2), (20 << 20, 1)];
    bent.sizes = (0..=random.below(3)).map(|_| random.weighted(&MOVABLE)).collect();
    bent.blocks = 6 + random.below(8);
    // In half of the room that the program needs, memory that has left the device is not exported.
    bent.renewals = &[Renewal::Kept, Renewal::Retained];
    // The last one makes memory of the program's own, which moves too.
    bent.ways.retain(|(way, _)| *way < 4 || *way == 5);
    let is_held = bent.draws.iter().any(|(draw, weight)| matches!(draw, Draw::Close) && *weight > 0);
    const GRAPHS: [(GraphDraw, usize); 3] =
        [(GraphDraw::Any, 1), (GraphDraw::Named, 4), (GraphDraw::None, 3)];
    bent.graphs = random.weighted(&GRAPHS);
    for (draw, weight) in &mut bent.draws {
        match draw {
            Draw::Capture | Draw::Launch if bent.graphs == GraphDraw::None => *weight = 0,
            Draw::Capture if bent.graphs == GraphDraw::Named => *weight = 8,
            Draw::Launch if bent.graphs == GraphDraw::Named => *weight = 40,
            Draw::Note if !is_held => *weight = 0,
            Draw::Free if bent.graphs == GraphDraw::Named => *weight = 2,
            Draw::Free => *weight = 2 + *weight / 4,
            Draw::Allocate | Draw::Access => *weight *= 2,
            Draw::Renew => *weight *= 4,
            Draw::Sync => *weight += 24,
            _ => {}
        }
    }
    if bent.graphs == GraphDraw::Named {
        let built = if bent.kernels { 0 } else { 8 };
        bent.draws.extend([(Draw::Build, built), (Draw::Retarget, built), (Draw::EndGraph, 2)]);
    }
    bent
}

/// In few programs: a handler of the program's leaves pageable copies to the driver.
fn asides(random: &mut Random, wishes: &Wishes) -> Vec<Aside> {
    let mut asides = Vec::new();
    if wishes.sibling && random.one_in(2) {
        asides.extend([Aside::Pair, Aside::Reset, Aside::Pass]);
    }
    asides.extend(random.one_in(4).then_some(Aside::Cancel));
    // The behaviour of a real driver at such a fault is not known.
    asides.extend((wishes.held_copies && random.one_in(8)).then_some(Aside::Protect { host: 0 }));
    asides
}

/// A stream for most allocations and frees: often the default stream, as in most programs.
fn usual_stream(random: &mut Random, shape: &Shape) -> Option<usize> {
    let streams = &shape.streams;
    let legacy = (0..streams.len()).find(|stream| streams[*stream].kind == Kind::Legacy);
    match random.below(4) {
        0 => None,
        // One that is still to be made serves once it is.
        1 => Some(random.below(streams.len())),
        _ => legacy,
    }
}

pub(super) fn bent(random: &mut Random, wishes: &Wishes, shape: &Shape, contexts: Vec<Context>) -> Bent {
    const SIZES: [(u64, usize); 7] = [
        (4 << 10, 2),
        (64 << 10, 3),
        ((1 << 20) + 512, 2),
        (2 << 20, 5),
        ((2 << 20) + 4096, 2),
        (6 << 20, 4),
        (20 << 20, 1),
    ];
    let home = usual_stream(random, shape);
    let count = random.weighted(&[(1, 4), (2, 2), (3, 1)]);
    let mut sizes: Vec<u64> = (0..count).map(|_| random.weighted(&SIZES)).collect();
    sizes.extend((!wishes.scarce && random.one_in(16)).then_some(HUGE));
    let mut often = |limit: usize| random.below(limit + 1);
    let ways = vec![(0, 1 + often(4)), (1, often(1)), (2, 1 + often(8)), (3, often(2)), (4, often(2))];
    // Half of the programs have no gates: no wait hides their order, and they end on a real driver.
    let gates = if wishes.gates { often(1) * 4 * (1 + often(1)) } else { 0 };
    let kernels = gates > 0 && often(4) > 0;
    let (events, waits) = (often(1), often(2));
    let draws = vec![
        (Draw::Allocate, 10 + often(8)),
        (Draw::Free, 8 + often(8)),
        (Draw::Access, 16),
        (Draw::Copy, if kernels { 0 } else { often(3) }),
        (Draw::Handover, 2 + often(4) + 8 * events),
        (Draw::Spin, often(4)),
        (Draw::Close, gates),
        (Draw::Open, gates / 2),
        (Draw::Event, often(2)),
        (Draw::Sync, 1 + 3 * waits),
        (Draw::Query, often(1) * waits),
        (Draw::Trim, often(1)),
        (Draw::Info, often(1)),
        (Draw::Capture, often(2)),
        (Draw::Launch, 4),
        (Draw::Destroy, often(3) / 3),
        (Draw::Create, 2 * often(1)),
        (Draw::Lean, often(3)),
        (Draw::Overtake, if wishes.scarce { gates } else { 0 }),
        (Draw::Note, often(3)),
        (Draw::Unlock, gates / 4),
        (Draw::Now, if kernels { 0 } else { often(4) }),
    ];
    let blocks = if wishes.scarce { 4 + often(8) } else { 1 + often(5) };
    let aloof = often(2) == 0;
    let (mut ways, mut draws) = (ways, draws);
    if wishes.mapped {
        ways.push((5, 6 + often(8)));
        draws.push((Draw::Renew, 2 + often(6)));
    }
    let bent = Bent {
        sizes,
        ways,
        draws,
        blocks,
        contexts,
        home,
        aloof,
        kernels,
        graphs: GraphDraw::Any,
        asides: Vec::new(),
        renewals: &Renewal::ALL,
    };
    match wishes {
        Wishes { copies: true, .. } => with_copies(bent, random, wishes),
        Wishes { moves: true, .. } => with_moves(bent, random),
        _ => bent,
    }
}
