//! A graph in chunks, the launches that sample it, and the arrays that they fill.

use wm_kernels::wholememory::{
    CountSamples, ListRowEnds, ListWeights, Numbers, PlaceWeights, SampleUniform, SampleWeighted, Samples,
    Sampling, ScanExclusive, ScanTileSums, Table, Weights,
};

use super::support::{ChunkedTable, Draws, Layout, numbers, packed};
use super::types::{DOUBLE, FLOAT};
use crate::support::{read, run, written};

/// A graph's arrays, as the host and as the kernels have them.
pub(crate) struct Graph {
    pub(crate) row_ptr: Vec<i64>,
    pub(crate) col: Vec<i64>,
    pub(crate) weights: Vec<f64>,
    pub(crate) col_bytes: u32,
    pub(crate) weight_type: u32,
    tables: [ChunkedTable; 3],
}

/// The nodes whose neighbours are asked for, with the samples' places.
pub(crate) struct Centers {
    pub(crate) nodes: Vec<i64>,
    node_bytes: u32,
    array: Vec<u8>,
    pub(crate) offsets: Vec<i32>,
}

/// The outputs of a sampling.
#[derive(Debug, PartialEq)]
pub(crate) struct Sampled {
    pub(crate) destinations: Vec<i64>,
    pub(crate) centers: Vec<i32>,
    pub(crate) edges: Vec<i64>,
}

pub(crate) fn unpacked(array: &[u8], bytes: u32) -> Vec<i64> {
    let number = |element: &[u8]| match bytes {
        4 => i64::from(i32::from_le_bytes(element.try_into().expect("four bytes"))),
        _ => i64::from_le_bytes(element.try_into().expect("eight bytes")),
    };
    array.chunks(bytes as usize).map(number).collect()
}

impl Graph {
    /// A graph whose nodes have the given numbers of neighbours.
    pub(crate) fn new(draws: &mut Draws, degrees: &[u64]) -> Self {
        let mut row_ptr = vec![0i64];
        degrees.iter().for_each(|degree| row_ptr.push(row_ptr[row_ptr.len() - 1] + *degree as i64));
        let edges: u64 = degrees.iter().sum();
        let (col_bytes, weight_type) = (draws.of(&[4, 8]), draws.of(&[FLOAT, DOUBLE]));
        let col: Vec<i64> = (0..edges).map(|_| draws.below(1 << 30) as i64).collect();
        let weights: Vec<f64> =
            (0..edges).map(|_| f64::from(draws.below(1000) as f32 / 64.0 + 0.25)).collect();
        let weight = |weight: &f64| match weight_type {
            FLOAT => (*weight as f32).to_le_bytes().to_vec(),
            _ => weight.to_le_bytes().to_vec(),
        };
        let weight_bytes = if weight_type == FLOAT { 4 } else { 8 };
        let mut table = |content: Vec<u8>, stride: usize| {
            let layout = Layout::split(draws, (content.len() / stride) as u64, stride);
            ChunkedTable::new(layout, &content)
        };
        let tables = [
            table(packed(&row_ptr, 8), 8),
            table(packed(&col, col_bytes), col_bytes as usize),
            table(weights.iter().flat_map(weight).collect(), weight_bytes),
        ];
        Self { row_ptr, col, weights, col_bytes, weight_type, tables }
    }

    /// Makes every weight 0.
    pub(crate) fn forget_weights(&mut self, draws: &mut Draws) {
        self.weights.fill(0.0);
        let stride = if self.weight_type == FLOAT { 4 } else { 8 };
        let layout = Layout::split(draws, self.weights.len() as u64, stride);
        self.tables[2] = ChunkedTable::new(layout, &vec![0; self.weights.len() * stride]);
    }

    /// The first edge of a node and the number of its neighbours.
    pub(crate) fn neighbors(&self, node: i64) -> (i64, usize) {
        let Some(ends) = usize::try_from(node).ok().and_then(|node| self.row_ptr.get(node..node + 2)) else {
            return (0, 0);
        };
        (ends[0], (ends[1] - ends[0]) as usize)
    }

    /// Counts and scans on the device; the offsets are compared with the host's.
    pub(crate) fn centers(&self, draws: &mut Draws, count: usize, most: i32, shape: (u32, u32)) -> Centers {
        let known = self.row_ptr.len() as u64 - 1;
        let node = |draws: &mut Draws| match draws.below(15) {
            0 => -1,
            1 => known as i64,
            _ => draws.below(known) as i64,
        };
        let nodes: Vec<i64> = (0..count).map(|_| node(draws)).collect();
        let node_bytes = draws.of(&[4, 8]);
        let array = packed(&nodes, node_bytes);
        let mut offsets = vec![-1; count + 1];
        let (row_ptr, array_of) = (self.tables[0].whole(), numbers(&array, node_bytes));
        let counts = written(&mut offsets);
        run(shape, &CountSamples { row_ptr, nodes: array_of, most, counts });
        scan_in_place(&mut offsets, shape);
        let mut expected = vec![0i32];
        for node in &nodes {
            let degree = self.neighbors(*node).1;
            let samples = if most > 0 { degree.min(most as usize) } else { degree };
            expected.push(expected[expected.len() - 1] + samples as i32);
        }
        assert_eq!(offsets, expected);
        Centers { nodes, node_bytes, array, offsets }
    }

    pub(crate) fn sample_uniform(
        &self,
        centers: &Centers,
        most: i32,
        seed: u64,
        shape: (u32, u32),
    ) -> Sampled {
        self.filled(centers, |outputs| run(shape, &self.uniform(centers, most, seed, outputs)))
    }

    /// The three outputs of `sample`, which must not write the entry behind each.
    fn filled(&self, centers: &Centers, sample: impl FnOnce([u64; 3])) -> Sampled {
        let total = centers.offsets[centers.nodes.len()] as usize;
        let mut destinations = vec![0x55u8; (total + 1) * self.col_bytes as usize];
        let (mut locals, mut edges) = (vec![-7i32; total + 1], vec![-7i64; total + 1]);
        sample([written(&mut destinations), written(&mut locals), written(&mut edges)]);
        assert_eq!((locals.pop(), edges.pop()), (Some(-7), Some(-7)), "something behind the last sample");
        let behind = destinations.split_off(total * self.col_bytes as usize);
        assert!(behind.iter().all(|byte| *byte == 0x55), "something behind the last sample");
        Sampled { destinations: unpacked(&destinations, self.col_bytes), centers: locals, edges }
    }

    pub(crate) fn uniform(
        &self,
        centers: &Centers,
        most: i32,
        seed: u64,
        [destinations, locals, edges]: [u64; 3],
    ) -> SampleUniform {
        let samples = Samples { col: self.tables[1].whole(), destinations, centers: locals, edges };
        let (row_ptr, nodes) = (self.tables[0].whole(), numbers(&centers.array, centers.node_bytes));
        let all = Sampling { row_ptr, nodes, samples, offsets: read(&centers.offsets), seed, most };
        SampleUniform { all }
    }

    pub(crate) fn sample_weighted(
        &self,
        centers: &Centers,
        most: i32,
        seed: u64,
        shape: (u32, u32),
    ) -> Sampled {
        self.sample_weighted_below(centers, (most, seed, self.edges()), shape)
    }

    /// The same where edges from `known` on have no weight.
    pub(crate) fn sample_weighted_below(
        &self,
        centers: &Centers,
        (most, seed, known): (i32, u64, u64),
        shape: (u32, u32),
    ) -> Sampled {
        let weights = Weights { table: self.tables[2].table(known, 0), places: 0, edges: known };
        self.filled(centers, |outputs| {
            let SampleUniform { all } = self.uniform(centers, most, seed, outputs);
            run(shape, &SampleWeighted { all, weights });
        })
    }

    pub(crate) fn edges(&self) -> u64 {
        self.tables[2].layout.rows()
    }

    /// The same from the row pointers and weights of the centers alone, brought together as from
    /// memory that spans islands.
    pub(crate) fn sample_brought(
        &self,
        centers: &Centers,
        (most, seed, known): (i32, u64, u64),
        shape: (u32, u32),
    ) -> Sampled {
        let nodes = numbers(&centers.array, centers.node_bytes);
        let count = nodes.count as usize;
        let (mut listed, mut ends, mut places) =
            (vec![7i64; 2 * count], vec![7i64; 2 * count], vec![7i64; count]);
        let row_ptrs = self.row_ptr.len() as u64;
        let [numbers, ends_at, places_at] = [written(&mut listed), written(&mut ends), written(&mut places)];
        run(shape, &ListRowEnds { nodes, count: row_ptrs, numbers, ends: ends_at, places: places_at });
        for (number, end) in listed.iter().zip(&mut ends).filter(|(number, _)| **number >= 0) {
            *end = self.row_ptr[*number as usize];
        }
        let row_ptr = Table::at(read(&ends), 2 * nodes.count, 8);
        let nodes = Numbers { address: read(&places), count: nodes.count, bytes: 8 };

        let (mut firsts, mut total) = (vec![7i64; count], [0u64]);
        let (placed, sum) = (written(&mut firsts), written(&mut total));
        run(shape, &PlaceWeights { row_ptr, nodes, most, places: placed, total: sum });
        let mut edges = vec![-7i64; total[0] as usize + 1];
        run(shape, &ListWeights { row_ptr, nodes, most, places: placed, edges: written(&mut edges) });
        assert_eq!(edges.pop(), Some(-7), "something behind the last edge");
        let bytes = if self.weight_type == FLOAT { 4 } else { 8 };
        let weight = |edge: &i64| match usize::try_from(*edge).ok().filter(|edge| (*edge as u64) < known) {
            Some(edge) => self.weight_bytes(edge),
            None => vec![0x3f; bytes],
        };
        let packed: Vec<u8> = edges.iter().flat_map(weight).collect();
        // Memory whose elements are aligned.
        let words: Vec<u64> = packed
            .chunks(8)
            .map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_le_bytes(word)
            })
            .collect();
        let table = Table::at(read(&words), total[0], bytes as u64);
        let weights = Weights { table, places: placed, edges: known };
        self.filled(centers, |outputs| {
            let SampleUniform { all } = self.uniform(centers, most, seed, outputs);
            run(shape, &SampleWeighted { all: Sampling { row_ptr, nodes, ..all }, weights });
        })
    }

    fn weight_bytes(&self, edge: usize) -> Vec<u8> {
        match self.weight_type {
            FLOAT => (self.weights[edge] as f32).to_le_bytes().to_vec(),
            _ => self.weights[edge].to_le_bytes().to_vec(),
        }
    }

    /// The samples with these neighbours (counted from a node's first) of each center.
    pub(crate) fn expected(
        &self,
        centers: &Centers,
        picks: impl Fn(usize, i64, usize) -> Vec<usize>,
    ) -> Sampled {
        let mut sampled = Sampled { destinations: Vec::new(), centers: Vec::new(), edges: Vec::new() };
        for (i, node) in centers.nodes.iter().enumerate() {
            let (first, degree) = self.neighbors(*node);
            for pick in picks(i, first, degree) {
                let edge = first + pick as i64;
                sampled.destinations.push(self.col[edge as usize]);
                sampled.centers.push(i as i32);
                sampled.edges.push(edge);
            }
        }
        sampled
    }
}

/// Exclusive sums of all but the last entry, which becomes their total. The total in 64 bits is
/// returned.
pub(crate) fn scan_in_place(values: &mut [i32], shape: (u32, u32)) -> i64 {
    let n = values.len() as u64 - 1;
    let (mut sums, mut total) = (vec![-1i64; n.div_ceil(4096) as usize], [-1i64]);
    let pointer = written(values);
    run(shape, &ScanTileSums { values: pointer, n, sums: written(&mut sums) });
    let arguments =
        ScanExclusive { values: pointer, n, sums: read(&sums), output: pointer, total: written(&mut total) };
    run(shape, &arguments);
    total[0]
}
