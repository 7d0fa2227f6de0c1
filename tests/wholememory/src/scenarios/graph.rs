//! Sampling of neighbours, against plain loops; and misuse of all operations on graphs.
//!
//! Hazards: a neighbour that is taken twice or is none, an edge with a wrong target, samples that
//! depend on the placement of the graph.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

use wm_kernels::random::Pcg;

use crate::api::{Description, Handle};
use crate::environment::{Caller, Functions, Memory};
use crate::rank::{
    INVALID_INPUT, Local, Rank, SUCCESS, Verdict, byte_at, local, must, packed, unpacked, want,
};

/// `WHOLEMEMORY_DT_*`
const FLOAT: c_uint = 1;
const DOUBLE: c_uint = 3;
const INT: c_uint = 5;
const INT64: c_uint = 6;

/// A graph, alike on all ranks.
pub(super) struct Graph {
    row_ptr: Vec<i64>,
    col: Vec<i64>,
    weights: Vec<f64>,
    col_type: c_uint,
    weight_type: c_uint,
}

/// The arrays of a graph, in any memory.
#[derive(Clone, Copy)]
pub(super) struct Arrays {
    pub(super) row_ptr: Handle,
    pub(super) col: Handle,
    pub(super) weights: Handle,
}

/// The arguments of a sampling, but its graph and the caller's functions.
pub(super) struct Call<'a> {
    pub(super) by_weight: bool,
    pub(super) centers: &'a Local<'a>,
    pub(super) most: c_int,
    pub(super) offsets: &'a Local<'a>,
    /// Contexts of nodes, centers and edges.
    pub(super) outputs: [*mut c_void; 3],
    pub(super) seed: u64,
}

/// The result of a sampling: for each center its first sample, and for each sample its node, center
/// and edge.
#[derive(Debug, PartialEq)]
pub(super) struct Sampled {
    pub(super) offsets: Vec<i64>,
    pub(super) nodes: Vec<i64>,
    pub(super) centers: Vec<i64>,
    pub(super) edges: Vec<i64>,
}

/// The weight of one edge of each node that has three: it is always drawn.
const HEAVY: f64 = 1e30;

impl Graph {
    pub(super) fn new(salt: usize) -> Self {
        let degree = |node: usize| match node {
            7 => 1500,
            11 => 150,
            node if node % 5 == 0 => 0,
            node => usize::from(byte_at(node, salt)) % 40,
        };
        let (mut row_ptr, mut weights) = (vec![0], Vec::new());
        for node in 0..50 {
            row_ptr.push(row_ptr[node] + degree(node) as i64);
            // Edge 2 is heavy, and every third has no weight.
            let weight = |edge: usize| match edge {
                2 => HEAVY,
                edge if edge % 3 == 0 => 0.0,
                edge => f64::from(byte_at(edge, node)) / 64.0 + 0.25,
            };
            weights.extend((0..degree(node)).map(weight));
        }
        let col =
            (0..weights.len()).map(|edge| i64::from(byte_at(edge, salt)) * 7919 + edge as i64).collect();
        let (col_type, weight_type) = if salt.is_multiple_of(2) { (INT, DOUBLE) } else { (INT64, FLOAT) };
        Self { row_ptr, col, weights, col_type, weight_type }
    }

    fn packed_weights(&self) -> Vec<u8> {
        match self.weight_type {
            FLOAT => self.weights.iter().flat_map(|weight| (*weight as f32).to_le_bytes()).collect(),
            _ => self.weights.iter().flat_map(|weight| weight.to_le_bytes()).collect(),
        }
    }

    /// In memory of all ranks.
    pub(super) fn spread(&self, rank: &Rank, kind: (c_uint, c_uint), is_uneven: bool) -> Verdict<Arrays> {
        let array = |bytes: &[u8], dtype: c_uint, count: usize| -> Verdict<Handle> {
            let mut each = vec![3; rank.size];
            each[rank.size - 1] = count.saturating_sub(3 * (rank.size - 1));
            let each = if is_uneven { each.as_ptr() } else { null() };
            let (mut tensor, shape) = (null_mut(), Description::array(count as i64, dtype));
            want!(
                SUCCESS,
                rank.wholememory_create_tensor(&mut tensor, &shape, rank.comm, kind.0, kind.1, each)
            )?;
            // SAFETY: a handle.
            let own =
                rank.own_part(unsafe { (rank.library.wholememory_tensor_get_memory_handle)(tensor) })?;
            rank.write(own.address, &bytes[own.offset..own.offset + own.bytes])?;
            Ok(tensor)
        };
        let edges = self.col.len();
        let row_ptr = array(&packed(&self.row_ptr, INT64), INT64, self.row_ptr.len())?;
        let col = array(&packed(&self.col, self.col_type), self.col_type, edges)?;
        let weights = array(&self.packed_weights(), self.weight_type, edges)?;
        rank.barrier()?;
        Ok(Arrays { row_ptr, col, weights })
    }

    /// In memory of this rank alone.
    pub(super) fn local<'a>(&self, rank: &'a Rank) -> Verdict<[Local<'a>; 3]> {
        let shape = Description::array(self.col.len() as i64, self.weight_type);
        let weights = Local::new(rank, &self.packed_weights(), &shape)?;
        Ok([local(rank, &self.row_ptr, INT64)?, local(rank, &self.col, self.col_type)?, weights])
    }

    /// First edge and edges of a node; none for a node that does not exist.
    fn edges(&self, node: i64) -> (i64, usize) {
        let node = usize::try_from(node).ok().filter(|node| *node + 1 < self.row_ptr.len());
        node.map_or((0, 0), |node| {
            (self.row_ptr[node], (self.row_ptr[node + 1] - self.row_ptr[node]) as usize)
        })
    }

    /// Of a node's edges.
    fn weights(&self, node: i64) -> &[f64] {
        let (first, degree) = self.edges(node);
        &self.weights[first as usize..first as usize + degree]
    }

    /// The samples of plain loops.
    pub(super) fn wanted(&self, by_weight: bool, centers: &[i64], most: c_int, seed: u64) -> Sampled {
        self.expected(centers, |center, degree| match by_weight {
            true => drawn(self.weights(centers[center]), self.weight_type == FLOAT, center, most, seed),
            false => uniform(center, degree, most, seed),
        })
    }

    /// The samples with these places among each center's edges.
    fn expected(&self, centers: &[i64], pick: impl Fn(usize, usize) -> Vec<usize>) -> Sampled {
        let mut all = Sampled { offsets: vec![0], nodes: Vec::new(), centers: Vec::new(), edges: Vec::new() };
        for (number, center) in centers.iter().enumerate() {
            let (first, degree) = self.edges(*center);
            for edge in pick(number, degree).into_iter().map(|place| first + place as i64) {
                all.nodes.push(self.col[edge as usize]);
                all.centers.push(number as i64);
                all.edges.push(edge);
            }
            all.offsets.push(all.edges.len() as i64);
        }
        all
    }
}

impl Arrays {
    pub(super) fn of(local: &[Local<'_>; 3]) -> Self {
        Self { row_ptr: local[0].tensor, col: local[1].tensor, weights: local[2].tensor }
    }

    pub(super) fn close(self, rank: &Rank) -> Verdict {
        rank.barrier()?;
        [self.row_ptr, self.col, self.weights]
            .into_iter()
            .try_for_each(|tensor| want!(SUCCESS, rank.wholememory_destroy_tensor(tensor)))
    }

    /// The code of a sampling.
    pub(super) fn call(self, rank: &Rank, call: &Call<'_>, functions: &Functions) -> c_uint {
        let (Self { row_ptr, col, weights }, [nodes, wanted, edges]) = (self, call.outputs);
        let (centers, offsets) = (call.centers.tensor, call.offsets.tensor);
        let (library, most, seed, stream) = (&rank.library, call.most, call.seed, null_mut());
        // SAFETY: handles; the functions and their contexts live longer than the call.
        unsafe {
            if call.by_weight {
                (library.wholegraph_csr_weighted_sample_without_replacement)(
                    row_ptr, col, weights, centers, most, offsets, nodes, wanted, edges, seed, functions,
                    stream,
                )
            } else {
                (library.wholegraph_csr_unweighted_sample_without_replacement)(
                    row_ptr, col, centers, most, offsets, nodes, wanted, edges, seed, functions, stream,
                )
            }
        }
    }

    /// Samples, by weights if requested.
    pub(super) fn sample(
        self,
        rank: &Rank,
        by_weight: bool,
        centers: &[i64],
        most: c_int,
        seed: u64,
    ) -> Verdict<Sampled> {
        let dtype = if seed.is_multiple_of(2) { INT } else { INT64 };
        let (count, centers) = (centers.len(), local(rank, centers, dtype)?);
        let offsets = local(rank, &vec![-7; count + 1], INT)?;
        let (caller, outputs) = (Caller::new(rank), [(); 3].map(|()| Memory::new(rank)));
        let contexts = outputs.each_ref().map(Memory::context);
        let call = Call { by_weight, centers: &centers, most, offsets: &offsets, outputs: contexts, seed };
        let code = self.call(rank, &call, &caller.functions());
        must(code == SUCCESS, || format!("{most} samples gave {code}"))?;
        caller.is_even()?;
        must(caller.outputs.get() == 3, || format!("{} outputs", caller.outputs.get()))?;
        let found = |output: &Memory<'_>| -> Verdict<Vec<i64>> {
            Ok(unpacked(&output.read()?, output.shape.get().map_or(0, |shape| shape.dtype)))
        };
        let [nodes, centers, edges] = [found(&outputs[0])?, found(&outputs[1])?, found(&outputs[2])?];
        Ok(Sampled { offsets: unpacked(&offsets.read()?, INT), nodes, centers, edges })
    }
}

/// Uniform sampling, step by step.
fn uniform(center: usize, degree: usize, most: c_int, seed: u64) -> Vec<usize> {
    let samples = usize::try_from(most).unwrap_or(0);
    if samples == 0 || degree <= samples {
        return (0..degree).collect();
    }
    let generators = match samples {
        97..=192 => 64,
        193..=384 => 128,
        385..=1024 => 256,
        _ => 32,
    };
    let mut all: Vec<_> = (0..generators).map(|j| Pcg::new(seed, (center * generators + j) as u64)).collect();
    if samples > 1024 {
        let mut slots: Vec<usize> = (0..samples).collect();
        for neighbor in samples..degree {
            let slot = all[(neighbor - samples) % generators].positive_i32() as usize % (neighbor + 1);
            if let Some(slot) = slots.get_mut(slot) {
                *slot = neighbor;
            }
        }
        return slots;
    }
    let mut left: Vec<usize> = (0..degree).collect();
    (0..samples)
        .map(|step| left.swap_remove(all[step % generators].positive_i32() as usize % left.len()))
        .collect()
}

/// Nodes of the graph, ones that it does not have, and one twice.
pub(super) fn some_centers(rank: &Rank) -> Vec<i64> {
    let drawn = (0..30).map(|at| i64::from(byte_at(at, rank.number + 77)) % 50);
    [7, -1, 11, 50, 11, i64::from(i32::MAX)].into_iter().chain(drawn).collect()
}

impl Sampled {
    /// Requires the same samples; says where the first other one is.
    pub(super) fn is(&self, wanted: &Self, what: &str) -> Verdict {
        let all = |sampled: &Self| {
            [&sampled.offsets, &sampled.nodes, &sampled.centers, &sampled.edges].map(Clone::clone)
        };
        for (name, (found, wanted)) in
            ["offsets", "nodes", "centers", "edges"].into_iter().zip(all(self).into_iter().zip(all(wanted)))
        {
            let other = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
            must(found == wanted, || {
                format!("{what}: {} {name} for {}, another one at {other:?}", found.len(), wanted.len())
            })?;
        }
        Ok(())
    }
}

/// Samples are edges of their centers, each once.
fn are_edges(graph: &Graph, centers: &[i64], sampled: &Sampled, most: c_int) -> Verdict {
    for (number, center) in centers.iter().enumerate() {
        let (first, degree) = graph.edges(*center);
        let mut edges =
            sampled.edges[sampled.offsets[number] as usize..sampled.offsets[number + 1] as usize].to_vec();
        edges.sort_unstable();
        edges.dedup();
        let wanted = if most > 0 { degree.min(most as usize) } else { degree };
        let inside = edges.iter().all(|edge| (first..first + degree as i64).contains(edge));
        must(inside && edges.len() == wanted, || {
            format!("node {center}: of {degree} edges {wanted} are {edges:?}")
        })?;
    }
    Ok(())
}

pub(super) fn sampled_uniformly(rank: &Rank) -> Verdict {
    for (at, kind) in rank.kinds().iter().copied().enumerate() {
        let graph = Graph::new(at);
        let arrays = graph.spread(rank, kind, at % 2 == 1)?;
        let centers = some_centers(rank);
        for most in [-1, 0, 1, 10, 100, 1100] {
            let seed = (0x1234_5678_9abc + i64::from(most) + at as i64).cast_unsigned();
            let found = arrays.sample(rank, false, &centers, most, seed)?;
            are_edges(&graph, &centers, &found, most)?;
            let wanted = graph.wanted(false, &centers, most, seed);
            found.is(&wanted, &format!("kind {kind:?}, {most} samples"))?;
        }
        // The nodes from the fifth on are a graph of their own.
        let (mut part, mut later) = (null_mut(), Graph::new(at));
        want!(
            SUCCESS,
            rank.wholememory_tensor_get_subtensor(arrays.row_ptr, [5].as_ptr(), [-1].as_ptr(), &mut part)
        )?;
        later.row_ptr.drain(..5);
        let found = Arrays { row_ptr: part, ..arrays }.sample(rank, false, &centers, 5, 1)?;
        let wanted = later.wanted(false, &centers, 5, 1);
        found.is(&wanted, &format!("kind {kind:?}, part of the nodes"))?;
        want!(SUCCESS, rank.wholememory_destroy_tensor(part))?;
        arrays.close(rank)?;
    }
    Ok(())
}

pub(super) fn sampled_by_weight(rank: &Rank) -> Verdict {
    for (at, kind) in rank.kinds().iter().copied().enumerate() {
        let graph = Graph::new(at);
        let arrays = graph.spread(rank, kind, at % 2 == 0)?;
        let centers = some_centers(rank);
        for most in if at == 0 { [-1, 20, 300] } else { [1, 20, 300] } {
            let found = arrays.sample(rank, true, &centers, most, 99)?;
            are_edges(&graph, &centers, &found, most)?;
            for (number, center) in centers.iter().enumerate() {
                let weights = graph.weights(*center);
                by_weight(weights, &drawn(weights, graph.weight_type == FLOAT, number, most, 99))?;
            }
            let wanted = graph.wanted(true, &centers, most, 99);
            found.is(&wanted, &format!("kind {kind:?}, {most} samples"))?;
        }
        arrays.close(rank)?;
    }
    Ok(())
}

/// Weighted sampling: the edges with the largest keys, in their order. The result depends on the
/// number of generators.
fn drawn(weights: &[f64], is_float: bool, center: usize, most: c_int, seed: u64) -> Vec<usize> {
    let few = usize::try_from(most).ok().filter(|most| (1..weights.len()).contains(most));
    let samples = few.unwrap_or(weights.len());
    let generators = if most > 256 { 256 } else { 128 };
    let mut all: Vec<_> = (0..generators).map(|j| Pcg::new(seed, (center * generators + j) as u64)).collect();
    let key = |(edge, weight): (usize, &f64)| match all[edge % generators].log2_of_uniform() {
        logarithm if is_float => f64::from(1.0 / (*weight as f32) * logarithm),
        logarithm => 1.0 / weight * f64::from(logarithm),
    };
    let keys: Vec<f64> = weights.iter().enumerate().map(key).collect();
    let mut edges: Vec<usize> = (0..weights.len()).collect();
    edges.sort_by(|one, other| keys[*other].total_cmp(&keys[*one]));
    edges.truncate(samples);
    edges.sort_unstable();
    edges
}

/// The heaviest edge is among the chosen ones, and edges without weight only if no others are left,
/// the first ones.
fn by_weight(weights: &[f64], chosen: &[usize]) -> Verdict {
    must(weights.len() <= 2 || chosen.contains(&2), || format!("the heaviest is not among {chosen:?}"))?;
    let with: Vec<_> = (0..weights.len()).filter(|edge| weights[*edge] > 0.0).collect();
    let without: Vec<_> = (0..weights.len()).filter(|edge| weights[*edge] == 0.0).collect();
    let light: Vec<_> = chosen.iter().copied().filter(|edge| weights[*edge] == 0.0).collect();
    let wanted = &without[..chosen.len().saturating_sub(with.len())];
    must(light == wanted, || format!("without weight are {light:?}, not {wanted:?}"))
}

pub(super) fn what_is_not_wanted(rank: &Rank) -> Verdict {
    let graph = Graph::new(2);
    let arrays = graph.local(rank)?;
    let centers = some_centers(rank);
    let nodes = local(rank, &centers, INT)?;
    for (most, by_weight) in [(10, false), (1100, false), (10, true)] {
        let whole = Arrays::of(&arrays).sample(rank, by_weight, &centers, most, 6)?;
        for mask in 0..8 {
            let offsets = local(rank, &vec![0; centers.len() + 1], INT)?;
            let (caller, outputs) = (Caller::new(rank), [(); 3].map(|()| Memory::new(rank)));
            let wanted = |number: usize| mask >> number & 1 == 1;
            let context = |number: usize| if wanted(number) { outputs[number].context() } else { null_mut() };
            let contexts = [context(0), context(1), context(2)];
            let call =
                Call { by_weight, centers: &nodes, most, offsets: &offsets, outputs: contexts, seed: 6 };
            let code = Arrays::of(&arrays).call(rank, &call, &caller.functions());
            must(code == SUCCESS, || format!("{most} samples, outputs {mask:03b}: {code}"))?;
            caller.is_even()?;
            must(unpacked(&offsets.read()?, INT) == whole.offsets, || "other offsets".to_owned())?;
            let all = [(&whole.nodes, graph.col_type), (&whole.centers, INT), (&whole.edges, INT64)];
            for (number, (wanted_numbers, dtype)) in
                all.into_iter().enumerate().filter(|(number, _)| wanted(*number))
            {
                let found = unpacked(&outputs[number].read()?, dtype);
                must(found == *wanted_numbers, || {
                    format!("{most} samples: output {number} of {mask:03b} is another")
                })?;
            }
        }
    }
    let nothing = Arrays::of(&arrays).sample(rank, false, &[], 5, 1)?;
    must(nothing.offsets == [0] && nothing.edges.is_empty(), || format!("no centers: {nothing:?}"))
}

pub(super) fn misused(rank: &Rank) -> Verdict {
    let graph = Graph::new(1);
    let arrays = graph.local(rank)?;
    let good = Arrays::of(&arrays);
    let array = |count: usize, dtype| local(rank, &vec![0; count], dtype);
    let [centers, offsets, floats] = [array(3, INT)?, array(4, INT)?, array(4, DOUBLE)?];
    let (caller, output) = (Caller::new(rank), Memory::new(rank));
    let functions = caller.functions();
    let sample = |row_ptr, col, weights, centers, offsets| {
        let context = output.context();
        want!(
            INVALID_INPUT,
            rank.wholegraph_csr_weighted_sample_without_replacement(
                row_ptr,
                col,
                weights,
                centers,
                2,
                offsets,
                context,
                null_mut(),
                null_mut(),
                0,
                &functions,
                null_mut(),
            )
        )
    };
    let Arrays { row_ptr, col, weights } = good;
    sample(centers.tensor, col, weights, centers.tensor, offsets.tensor)?;
    sample(row_ptr, weights, weights, centers.tensor, offsets.tensor)?;
    sample(row_ptr, col, col, centers.tensor, offsets.tensor)?;
    sample(row_ptr, col, floats.tensor, centers.tensor, offsets.tensor)?;
    sample(row_ptr, col, weights, floats.tensor, offsets.tensor)?;
    sample(row_ptr, col, weights, centers.tensor, centers.tensor)?;
    sample(row_ptr, col, weights, centers.tensor, array(4, INT64)?.tensor)?;
    for number in 0..5 {
        let handle = |at: usize, handle| if at == number { null_mut() } else { handle };
        sample(
            handle(0, row_ptr),
            handle(1, col),
            handle(2, weights),
            handle(3, centers.tensor),
            handle(4, offsets.tensor),
        )?;
    }
    let unique = |targets, neighbors, context, mapping| {
        want!(
            INVALID_INPUT,
            rank.graph_append_unique(targets, neighbors, context, mapping, &functions, null_mut())
        )
    };
    let (wide, context) = (array(3, INT64)?, output.context());
    unique(centers.tensor, wide.tensor, context, centers.tensor)?;
    unique(floats.tensor, floats.tensor, context, offsets.tensor)?;
    unique(centers.tensor, centers.tensor, context, offsets.tensor)?;
    unique(centers.tensor, centers.tensor, context, wide.tensor)?;
    unique(centers.tensor, centers.tensor, null_mut(), centers.tensor)?;
    unique(null_mut(), centers.tensor, context, centers.tensor)?;
    unique(centers.tensor, null_mut(), context, centers.tensor)?;
    let loops = |row_ptr, col, other, another| {
        want!(INVALID_INPUT, rank.csr_add_self_loop(row_ptr, col, other, another, null_mut()))
    };
    let (few, seven, none) = (array(4, INT)?, array(7, INT)?, array(0, INT)?);
    loops(few.tensor, few.tensor, few.tensor, few.tensor)?;
    loops(few.tensor, few.tensor, seven.tensor, seven.tensor)?;
    loops(none.tensor, none.tensor, none.tensor, none.tensor)?;
    loops(array(4, INT64)?.tensor, few.tensor, few.tensor, seven.tensor)?;
    loops(null_mut(), few.tensor, few.tensor, seven.tensor)?;
    must(caller.outputs.get() == 0, || {
        format!("{} outputs of calls that were refused", caller.outputs.get())
    })?;
    caller.is_even()
}
