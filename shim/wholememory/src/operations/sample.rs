//! Sampling of neighbours without replacement: uniform, or by weights.
//!
//! Which neighbours a seed gives does not depend on where the graph's arrays are, nor on the number
//! of ranks. A node that the graph does not have, has no neighbours.

use wm_kernels::wholememory::{CountSamples, SampleUniform, SampleWeighted};

use super::array::{Array, ArrayTable, NODES};
use super::scan::Scan;
use crate::environment::{Environment, MemoryContext, Output, ScratchLayout, Temporary};
use crate::error::{Result, require};
use crate::stream::CallerStream;
use crate::tensor::Tensor;
use crate::vocabulary::codes::{AllocationType, ElementType};
use crate::vocabulary::description::ArrayDescription;

/// Threads of a warp, which has a center in uniform sampling.
const WARP: u64 = 32;
/// Most uniform samples that need no array of edges.
const MOST_STEPS: i32 = 1024;
/// Most weighted samples that are drawn by blocks of [`FEW_THREADS`]: which samples are drawn
/// depends on it.
const FEW_SAMPLES: i32 = 256;
const FEW_THREADS: u32 = 128;
const MANY_THREADS: u32 = 256;

/// A graph in compressed sparse rows, of any memory.
#[derive(Debug, Clone, Copy)]
pub struct Graph<'a> {
    /// First edge of each node, and how many edges there are.
    pub row_ptr: &'a Tensor,
    /// The node that each edge goes to.
    pub col: &'a Tensor,
    /// What each edge weighs; alike without it.
    pub weights: Option<&'a Tensor>,
}

/// What to sample.
#[derive(Debug, Clone, Copy)]
pub struct SampleRequest<'a> {
    /// Nodes whose neighbours are asked for.
    pub centers: &'a Tensor,
    /// Most samples of each; all neighbours, if it is 0 or less.
    pub most: i32,
    /// Of the random numbers.
    pub seed: u64,
}

/// Where samples go. What is null is not wanted.
#[derive(Debug, Clone, Copy)]
pub struct Outputs<'a> {
    /// The first sample of each center, and how many there are.
    pub offsets: &'a Tensor,
    /// Nodes.
    pub destinations: MemoryContext,
    /// Each sample's center, as its place among the centers.
    pub centers: MemoryContext,
    /// Edges, as places in `col`.
    pub edges: MemoryContext,
}

/// Samples neighbours.
///
/// # Errors
/// [`Error::Input`](crate::error::Error::Input) for arrays that do not fit each other;
/// [`Error::Value`](crate::error::Error::Value) for more samples than 31 bits can count; those of
/// the environment; the driver's.
pub fn sample(
    graph: Graph<'_>,
    request: SampleRequest<'_>,
    outputs: Outputs<'_>,
    environment: &Environment,
    stream: &CallerStream,
) -> Result {
    let sampling = Sampling::new(graph, request, outputs.offsets)?;
    stream.can_wait()?;
    let count = sampling.centers.count;
    let mut parts = ScratchLayout::default();
    let scan = Scan::new(count, &mut parts)?;
    let memory = environment.temporary(parts)?;
    stream.launch(&sampling.counting(), count)?;
    let total = scan.run(stream, &memory, sampling.offsets)?;
    drop(memory);

    let output = |context: MemoryContext, kind: ElementType| -> Result<Option<Output>> {
        let shape = ArrayDescription { size: total, storage_offset: 0, dtype: kind.code() };
        let wanted = (!context.is_null()).then_some(context);
        wanted.map(|context| environment.output(context, shape.into(), AllocationType::Device)).transpose()
    };
    let made = [
        output(outputs.destinations, sampling.col.kind)?,
        output(outputs.centers, ElementType::Int)?,
        output(outputs.edges, ElementType::Int64)?,
    ];
    let mut places = made.each_ref().map(|output| output.as_ref().map_or(0, Output::address));
    let edges =
        if sampling.needs_edges() && places[2] == 0 { Some(edges_aside(environment, total)?) } else { None };
    places[2] = edges.as_ref().map_or(places[2], |(_, address)| *address);
    if total > 0 {
        sampling.launch(places, stream)?;
    }
    made.into_iter().flatten().for_each(Output::keep);
    Ok(())
}

/// Temporary memory for edges that the caller does not want.
fn edges_aside(environment: &Environment, total: i64) -> Result<(Temporary, u64)> {
    let mut parts = ScratchLayout::default();
    let edges = parts.add(total.unsigned_abs().max(1), 8)?;
    let memory = environment.temporary(parts)?;
    let address = memory.at(edges);
    Ok((memory, address))
}

/// What launches are told.
struct Sampling {
    row: ArrayTable,
    col: ArrayTable,
    weights: Option<ArrayTable>,
    centers: Array,
    offsets: u64,
    most: i32,
    seed: u64,
}

impl Sampling {
    fn new(graph: Graph<'_>, request: SampleRequest<'_>, offsets: &Tensor) -> Result<Self> {
        let row = ArrayTable::new(graph.row_ptr, &[ElementType::Int64], "row pointers")?;
        let col = ArrayTable::new(graph.col, NODES, "neighbours")?;
        let weigh = |weights| ArrayTable::new(weights, &[ElementType::Float, ElementType::Double], "weights");
        let weights = graph.weights.map(weigh).transpose()?;
        require(
            weights.is_none_or(|weights| weights.entries == col.entries),
            "not as many weights as edges",
        )?;
        let centers = Array::new(request.centers, NODES, "centers")?;
        require(i32::try_from(centers.count).is_ok(), "more centers than 31 bits can count")?;
        let offsets = Array::new(offsets, &[ElementType::Int], "offsets")?;
        require(offsets.count == centers.count + 1, "offsets are one more than centers")?;
        Ok(Self {
            row,
            col,
            weights,
            centers,
            offsets: offsets.address,
            most: request.most,
            seed: request.seed,
        })
    }

    fn needs_edges(&self) -> bool {
        self.weights.is_none() && self.most > MOST_STEPS
    }

    fn counting(&self) -> CountSamples {
        let Self { row, centers, .. } = self;
        CountSamples {
            row_base: row.base,
            row_bases: row.bases,
            row_starts: row.starts,
            row_chunks: row.chunks,
            row_equal: row.equal,
            row_entries: row.entries,
            row_offset: row.offset,
            nodes: centers.address,
            node_bytes: centers.bytes(),
            count: centers.count,
            max_samples: self.most,
            counts: self.offsets,
        }
    }

    fn launch(&self, outputs: [u64; 3], stream: &CallerStream) -> Result {
        let uniform = self.uniform(outputs);
        let Some(weights) = self.weights else {
            return stream.launch(&uniform, self.centers.count * WARP);
        };
        let threads = if self.most > FEW_SAMPLES { MANY_THREADS } else { FEW_THREADS };
        stream.launch_blocks(&weighted(uniform, weights), self.centers.count, threads)
    }

    fn uniform(&self, [destinations, centers, edges]: [u64; 3]) -> SampleUniform {
        let Self { row, col, .. } = self;
        SampleUniform {
            row_base: row.base,
            row_bases: row.bases,
            row_starts: row.starts,
            row_chunks: row.chunks,
            row_equal: row.equal,
            row_entries: row.entries,
            row_offset: row.offset,
            col_base: col.base,
            col_bases: col.bases,
            col_starts: col.starts,
            col_chunks: col.chunks,
            col_equal: col.equal,
            col_entries: col.entries,
            col_offset: col.offset,
            col_bytes: col.kind.bytes() as u32,
            nodes: self.centers.address,
            node_bytes: self.centers.bytes(),
            count: self.centers.count,
            max_samples: self.most,
            seed: self.seed,
            offsets: self.offsets,
            destinations,
            centers,
            edges,
        }
    }
}

/// The same by weights.
fn weighted(uniform: SampleUniform, weights: ArrayTable) -> SampleWeighted {
    let SampleUniform {
        row_base,
        row_bases,
        row_starts,
        row_chunks,
        row_equal,
        row_entries,
        row_offset,
        col_base,
        col_bases,
        col_starts,
        col_chunks,
        col_equal,
        col_entries,
        col_offset,
        col_bytes,
        nodes,
        node_bytes,
        count,
        max_samples,
        seed,
        offsets,
        destinations,
        centers,
        edges,
    } = uniform;
    SampleWeighted {
        row_base,
        row_bases,
        row_starts,
        row_chunks,
        row_equal,
        row_entries,
        row_offset,
        col_base,
        col_bases,
        col_starts,
        col_chunks,
        col_equal,
        col_entries,
        col_offset,
        col_bytes,
        nodes,
        node_bytes,
        count,
        max_samples,
        seed,
        offsets,
        destinations,
        centers,
        edges,
        weight_base: weights.base,
        weight_bases: weights.bases,
        weight_starts: weights.starts,
        weight_chunks: weights.chunks,
        weight_equal: weights.equal,
        weight_entries: weights.entries,
        weight_offset: weights.offset,
        weight_type: weights.kind.code(),
    }
}
