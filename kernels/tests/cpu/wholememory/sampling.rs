//! Hazard (wrong result): a seed samples other neighbours than the reference, a neighbour is drawn
//! twice, or a sample is stored at another centre's place.

use wm_kernels::random::Pcg;

use super::graph::{Graph, scan_in_place};
use super::support::Draws;
use crate::support::{run, written};

/// Shapes of whole warps, of 256 threads at most.
const SHAPES: [(u32, u32); 4] = [(1, 32), (3, 64), (2, 256), (40, 32)];

fn graph(draws: &mut Draws, nodes: u64, most_degree: u64) -> Graph {
    let degrees: Vec<u64> =
        (0..nodes).map(|_| if draws.below(6) == 0 { 0 } else { draws.below(most_degree + 1) }).collect();
    Graph::new(draws, &degrees)
}

/// Generators and draws of each, by the number of samples: as in the published test of unweighted
/// sampling.
const GENERATORS: [(usize, u64); 5] = [(96, 32), (192, 64), (384, 128), (512, 256), (1024, 256)];

/// Up to 1024 samples, step by step on a list.
fn picked(center: usize, degree: usize, most: usize, seed: u64) -> Vec<usize> {
    let generators = GENERATORS.iter().find(|(up_to, _)| most <= *up_to).expect("1024 at most").1;
    let mut all: Vec<Pcg> = (0..generators).map(|j| Pcg::new(seed, center as u64 * generators + j)).collect();
    let mut list: Vec<usize> = (0..degree).collect();
    let step = |step: usize| {
        let draw = all[step % generators as usize].positive_i32() as usize % (degree - step);
        let taken = list[draw];
        list[draw] = list[degree - step - 1];
        taken
    };
    (0..most).map(step).collect()
}

/// More than 1024 samples.
fn reservoir(center: usize, degree: usize, most: usize, seed: u64) -> Vec<usize> {
    let mut all: Vec<Pcg> = (0..32).map(|j| Pcg::new(seed, center as u64 * 32 + j)).collect();
    let mut slots: Vec<usize> = (0..most).collect();
    for neighbor in most..degree {
        let draw = all[(neighbor - most) % 32].positive_i32() as usize % (neighbor + 1);
        if draw < most {
            slots[draw] = neighbor;
        }
    }
    slots
}

fn uniform(center: usize, degree: usize, most: i32, seed: u64) -> Vec<usize> {
    match usize::try_from(most) {
        Ok(most) if most == 0 || degree <= most => (0..degree).collect(),
        Err(_) => (0..degree).collect(),
        Ok(most) if most <= 1024 => picked(center, degree, most, seed),
        Ok(most) => reservoir(center, degree, most, seed),
    }
}

#[test]
fn uniform_samples_are_those_of_the_seed() {
    let cases =
        [(-1, 50), (0, 50), (1, 40), (2, 3), (11, 30), (32, 70), (33, 64), (96, 130), (97, 200), (384, 400)];
    for (seed, (most, degree)) in cases.into_iter().enumerate() {
        for shape in SHAPES {
            let draws = &mut Draws::new(seed as u64 + 1);
            let graph = graph(draws, 30, degree);
            let centers = graph.centers(draws, 25, most, shape);
            let found = graph.sample_uniform(&centers, most, seed as u64, shape);
            let expected = graph.expected(&centers, |i, _, degree| uniform(i, degree, most, seed as u64));
            assert_eq!(found, expected, "{most} of {degree}, {shape:?}");
        }
    }
}

#[test]
fn many_uniform_samples_are_those_of_the_seed() {
    for (most, degree) in [(385, 900), (513, 600), (1024, 1025), (1024, 3000), (1025, 1100), (2000, 7000)] {
        let draws = &mut Draws::new(most as u64);
        let graph = Graph::new(draws, &[degree, 10, degree - 1, most as u64]);
        let centers = graph.centers(draws, 6, most, (1, 128));
        let found = graph.sample_uniform(&centers, most, 77, (2, 64));
        let expected = graph.expected(&centers, |i, _, degree| uniform(i, degree, most, 77));
        assert_eq!(found, expected, "{most} of {degree}");
    }
}

#[test]
fn an_output_that_is_null_is_left_out() {
    let draws = &mut Draws::new(5);
    let graph = graph(draws, 20, 30);
    let centers = graph.centers(draws, 12, 7, (1, 64));
    let whole = graph.sample_uniform(&centers, 7, 3, (1, 64));
    let mut edges = vec![0i64; whole.edges.len()];
    run((1, 64), &graph.uniform(&centers, 7, 3, [0, 0, written(&mut edges)]));
    assert_eq!(edges, whole.edges);
    run((1, 64), &graph.uniform(&centers, 7, 3, [0, 0, 0]));
}

/// The neighbours with the largest keys, in order.
fn weighted(weights: &[f64], is_f32: bool, center: usize, threads: u64, most: i32, seed: u64) -> Vec<usize> {
    if most <= 0 || weights.len() <= most as usize {
        return (0..weights.len()).collect();
    }
    let mut all: Vec<Pcg> = (0..threads).map(|j| Pcg::new(seed, center as u64 * threads + j)).collect();
    let key = |(neighbor, weight): (usize, &f64)| {
        let logarithm = all[neighbor % threads as usize].log2_of_uniform();
        if is_f32 { f64::from(1.0 / *weight as f32 * logarithm) } else { 1.0 / weight * f64::from(logarithm) }
    };
    let keys: Vec<f64> = weights.iter().enumerate().map(key).collect();
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by(|a, b| keys[*b].total_cmp(&keys[*a]).then(a.cmp(b)));
    order.truncate(most as usize);
    order.sort_unstable();
    order
}

fn weighted_case(graph: &Graph, draws: &mut Draws, count: usize, most: i32, seed: u64, shape: (u32, u32)) {
    let centers = graph.centers(draws, count, most, (2, 64));
    let found = graph.sample_weighted(&centers, most, seed, shape);
    let expected = graph.expected(&centers, |i, first, degree| {
        let weights = &graph.weights[first as usize..][..degree];
        weighted(weights, graph.weight_type == super::types::FLOAT, i, u64::from(shape.1), most, seed)
    });
    assert_eq!(found, expected, "{most}, {shape:?}");
}

#[test]
fn weighted_samples_are_the_largest_keys() {
    for (seed, (most, degree)) in
        [(-1, 50), (0, 50), (1, 40), (11, 30), (32, 400), (300, 700)].into_iter().enumerate()
    {
        for shape in [(1, 32), (5, 128), (2, 256)] {
            let draws = &mut Draws::new(seed as u64 + 100);
            let graph = graph(draws, 30, degree);
            weighted_case(&graph, draws, 20, most, seed as u64, shape);
        }
    }
}

#[test]
fn more_neighbours_than_keys_are_kept() {
    for (most, degree) in [(5, 2049), (1500, 5000), (4999, 5000), (100, 2048)] {
        let draws = &mut Draws::new(most as u64);
        let graph = Graph::new(draws, &[3, degree, 2047, degree]);
        weighted_case(&graph, draws, 6, most, 9, (2, if most <= 256 { 128 } else { 256 }));
    }
}

#[test]
fn of_equal_keys_the_first_are_taken() {
    // Without weight every key is minus infinity.
    let draws = &mut Draws::new(8);
    let mut graph = Graph::new(draws, &[100, 3000]);
    graph.forget_weights(draws);
    weighted_case(&graph, draws, 5, 40, 4, (1, 128));
}

/// Hazard (wrong result): over islands a seed samples other neighbours than within one.
#[test]
fn arrays_that_were_brought_together_give_the_same_samples() {
    for (seed, (most, degree)) in
        [(-1, 50), (0, 50), (1, 40), (11, 30), (32, 400), (300, 700), (5, 2500)].into_iter().enumerate()
    {
        for shape in [(1, 32), (5, 128), (2, 256)] {
            let draws = &mut Draws::new(seed as u64 + 200);
            let graph = graph(draws, 30, degree);
            let centers = graph.centers(draws, 100, most, (2, 64));
            let some = draws.below(graph.edges());
            for known in [graph.edges(), some] {
                let call = (most, seed as u64, known);
                let wanted = graph.sample_weighted_below(&centers, call, shape);
                assert_eq!(
                    graph.sample_brought(&centers, call, shape),
                    wanted,
                    "{call:?} of {degree}, {shape:?}"
                );
            }
        }
    }
}

#[test]
fn sums_are_exclusive_at_every_length() {
    for n in [0usize, 1, 31, 4095, 4096, 4097, 8192, 30_000] {
        for shape in [(1, 32), (3, 96), (2, 1024)] {
            let draws = &mut Draws::new(n as u64);
            let values: Vec<i32> = (0..=n).map(|_| draws.below(1000) as i32 - 100).collect();
            let mut sums = values.clone();
            let total = scan_in_place(&mut sums, shape);
            let mut sum = 0;
            for i in 0..=n {
                assert_eq!(i64::from(sums[i]), sum, "{i} of {n}, {shape:?}");
                sum += i64::from(values[i]);
            }
            assert_eq!(total, i64::from(sums[n]));
        }
    }
    assert_eq!(scan_in_place(&mut [i32::MAX, i32::MAX, 5, 0], (1, 32)), 2 * i64::from(i32::MAX) + 5);
}
