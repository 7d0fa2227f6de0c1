//! Hazard (wrong result): a list of unique nodes has a node twice, or maps a neighbour to another
//! node.

use wm_kernels::wholememory::{NodeMap, UniqueClear, UniqueInsert, UniqueMark, UniqueNumber};

use super::graph::{scan_in_place, unpacked};
use super::support::{Draws, numbers, packed};
use crate::support::{read, run, written};

/// The list and the mapping, from the kernels.
fn append(
    targets: &[i64],
    neighbors: &[i64],
    bytes: u32,
    capacity: usize,
    shape: (u32, u32),
) -> (Vec<i64>, Vec<i32>) {
    let (target_array, neighbor_array) = (packed(targets, bytes), packed(neighbors, bytes));
    let (mut nodes, mut positions) = (vec![5u64; capacity], vec![5u32; capacity]);
    let map =
        NodeMap { nodes: written(&mut nodes), positions: written(&mut positions), capacity: capacity as u64 };
    let (target_numbers, neighbor_numbers) = (numbers(&target_array, bytes), numbers(&neighbor_array, bytes));
    run(shape, &UniqueClear { map });
    run(shape, &UniqueInsert { map, nodes: target_numbers, first_position: 0 });
    run(shape, &UniqueInsert { map, nodes: neighbor_numbers, first_position: target_numbers.count });
    let mut marks = vec![-1i32; neighbors.len() + 1];
    let mark = UniqueMark {
        map,
        neighbors: neighbor_numbers,
        targets: target_numbers.count,
        marks: written(&mut marks),
    };
    run(shape, &mark);
    let new = scan_in_place(&mut marks, (2, 64)) as usize;
    let mut unique = vec![0u8; (targets.len() + new) * bytes as usize];
    let mut mapping = vec![-1i32; neighbors.len()];
    let number = UniqueNumber {
        map,
        targets: target_numbers,
        neighbors: neighbor_numbers,
        sums: read(&marks),
        unique: written(&mut unique),
        mapping: written(&mut mapping),
    };
    run(shape, &UniqueNumber { mapping: 0, ..number });
    assert!(mapping.iter().all(|place| *place == -1), "no mapping is written where none is wanted");
    run(shape, &number);
    (unpacked(&unique, bytes), mapping)
}

fn check(draws: &mut Draws, target_count: u64, neighbor_count: u64, range: u64, shape: (u32, u32)) {
    let bytes = draws.of(&[4, 8]);
    let node = |draws: &mut Draws| draws.below(range) as i64 - (range / 4) as i64;
    let mut targets: Vec<i64> = Vec::new();
    while (targets.len() as u64) < target_count {
        let node = node(draws);
        if !targets.contains(&node) {
            targets.push(node);
        }
    }
    let neighbors: Vec<i64> = (0..neighbor_count).map(|_| node(draws)).collect();
    let mut expected = targets.clone();
    let place = |neighbor: &i64| {
        let known = expected.iter().position(|node| node == neighbor);
        known.unwrap_or_else(|| {
            expected.push(*neighbor);
            expected.len() - 1
        }) as i32
    };
    let mapping: Vec<i32> = neighbors.iter().map(place).collect();
    // As full as it may be, and as it should be.
    for least in [1, targets.len() + neighbors.len()] {
        let capacity = (targets.len() + neighbors.len() + least).next_power_of_two();
        assert_eq!(append(&targets, &neighbors, bytes, capacity, shape), (expected.clone(), mapping.clone()));
    }
}

#[test]
fn the_list_is_in_the_order_of_first_positions() {
    let draws = &mut Draws::new(12);
    for (targets, neighbors, range) in [
        (0, 0, 9),
        (5, 0, 9),
        (0, 40, 9),
        (1, 1, 4),
        (10, 104, 104),
        (113, 1987, 1987),
        (50, 900, 60),
        (31, 33, 1 << 40),
    ] {
        for shape in [(1, 32), (3, 100), (1, 1)] {
            let range = if range > 1 << 31 { 1 << 31 } else { range };
            check(draws, targets, neighbors, range, shape);
        }
    }
}
