//! Hazard (thrashing): memory crosses the link more often than it has to. The launches of an epoch
//! of a graph network with large tensors in PyTorch's expandable segments: few events, tensors that
//! share pieces with others, and no room for more than three at a time.

use std::collections::BTreeSet;
use std::ops::Range;

use super::super::*;
use crate::policy::tiers::CHUNK;

/// Launches, and the first piece of each of their tensors, with the one behind its last. Recorded
/// on a GPU; a piece is 20 MiB there.
const EPOCH: [&[(u64, u64)]; 61] = [
    &[(436, 444), (568, 613)],
    &[(249, 396), (396, 398), (420, 424)],
    &[(395, 398)],
    &[(2, 3), (420, 444)],
    &[(249, 396), (466, 613), (613, 760)],
    &[(322, 396), (539, 613), (685, 689)],
    &[(249, 396)],
    &[(322, 396)],
    &[(466, 613)],
    &[(2, 3), (3, 4)],
    &[(2, 3), (3, 4), (10, 16), (23, 30), (466, 613), (613, 760)],
    &[(249, 396), (466, 613)],
    &[(300, 352), (517, 569)],
    &[(351, 396), (568, 613)],
    &[(102, 250), (395, 398), (466, 613)],
    &[(395, 398)],
    &[(397, 407), (466, 613)],
    &[(397, 407), (539, 613)],
    &[(102, 250), (250, 396), (466, 613)],
    &[(176, 250), (322, 396), (539, 613)],
    &[(102, 250)],
    &[(176, 250)],
    &[(249, 396)],
    &[(2, 3), (3, 4)],
    &[(2, 3), (3, 4), (10, 16), (23, 30), (249, 396), (466, 613)],
    &[(29, 103), (249, 396), (396, 398)],
    &[(395, 398)],
    &[(249, 396), (397, 407)],
    &[(322, 396), (397, 407)],
    &[(29, 103), (103, 250)],
    &[(249, 396)],
    &[(322, 396)],
    &[(397, 544)],
    &[(0, 2), (2, 3)],
    &[(0, 2), (2, 3), (3, 10), (16, 23), (102, 250), (397, 544)],
    &[(102, 250), (397, 544)],
    &[(176, 250), (470, 544)],
    &[(102, 250), (250, 396)],
    &[(543, 691)],
    &[(617, 691)],
    &[(690, 837)],
    &[(0, 2), (2, 3)],
    &[(0, 2), (2, 3), (3, 10), (16, 23), (249, 396), (690, 837)],
    &[(249, 396), (690, 837)],
    &[(322, 396), (763, 767)],
    &[(249, 396), (397, 421)],
    &[(420, 444)],
    &[(443, 467)],
    &[(0, 2), (2, 3)],
    &[(0, 2), (2, 3), (3, 10), (16, 23), (397, 421), (443, 467)],
    &[(397, 421), (443, 467)],
    &[(9, 11), (397, 421)],
    &[(420, 444)],
    &[(9, 11), (420, 444)],
    &[(397, 421), (421, 444), (466, 490)],
    &[(397, 421)],
    &[(420, 444)],
    &[(2, 3), (3, 4)],
    &[(2, 3), (3, 4), (10, 16), (23, 30), (420, 444), (466, 490)],
    &[(420, 444), (466, 613)],
    &[(428, 437), (517, 569)],
];

/// All pieces, and those that the device has room for.
const PIECES: u64 = 837;
const ROOM: u64 = 450;

fn tensors(launch: &[(u64, u64)]) -> impl Iterator<Item = Range<u64>> {
    launch.iter().map(|(first, end)| *first..*end)
}

/// Pieces that come in the last of some epochs, by the placer's moves.
fn came(epochs: usize) -> u64 {
    let mut placer = TierPlacer::new(TierSettings::of_capacity(ROOM * CHUNK));
    placer.set_eager(true);
    for piece in 0..PIECES {
        placer.placed(piece, CHUNK, if piece < ROOM { CHUNK } else { 0 });
    }
    placer.set_capacity(ROOM * CHUNK);
    let mut moves = Vec::new();
    for _ in 0..epochs {
        moves.clear();
        EPOCH.iter().for_each(|launch| placer.launch(tensors(launch), &mut moves));
    }
    let pieces = |step: &TierMove| match step {
        TierMove::Come { bytes, .. } => bytes / CHUNK,
        TierMove::Leave { .. } => 0,
    };
    moves.iter().map(pieces).sum()
}

/// The same with Belady's rule, for which the future is known.
fn least(epochs: usize) -> u64 {
    let pieces = |launch: &[(u64, u64)]| tensors(launch).flatten().collect::<BTreeSet<u64>>();
    let launches: Vec<_> = EPOCH.iter().map(|launch| pieces(launch)).collect();
    let next = |piece: &u64, at: usize| {
        let later =
            (1..=launches.len()).find(|after| launches[(at + after) % launches.len()].contains(piece));
        later.unwrap_or(usize::MAX)
    };
    let (mut there, mut came) = ((0..ROOM).collect::<BTreeSet<u64>>(), 0);
    for _ in 0..epochs {
        came = 0;
        for (at, used) in launches.iter().enumerate() {
            for piece in used {
                if there.contains(piece) {
                    continue;
                }
                let victims = there.iter().filter(|piece| !used.contains(piece));
                let victim = victims.max_by_key(|piece| next(piece, at)).copied().expect("all are used");
                there.remove(&victim);
                there.insert(*piece);
                came += 1;
            }
        }
    }
    came
}

#[test]
fn hardly_more_comes_than_with_the_best_rule() {
    let (came, least) = (came(8), least(4));
    assert!(came <= least + least / 50, "{came} pieces, and {least} would do");
}
