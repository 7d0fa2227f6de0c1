//! Sampling of neighbours without replacement: uniform, or by weights.
//!
//! Which neighbours a seed gives does not depend on where the graph's arrays are, nor on the number
//! of ranks. A node that the graph does not have, has no neighbours.
//!
//! Over arrays that span islands the call is collective: all ranks gather once from each of them,
//! row pointers first, then weights, then neighbours. Outputs are made before the last gather, so
//! that all ranks hear of one that could not be made.

use wm_kernels::wholememory::{
    CountSamples, Numbers, SampleUniform, SampleWeighted, Samples, Sampling, Weights,
};

use super::array::{Array, GraphArray, NODES};
use super::gathers::Gathers;
use super::sample_across::{GraphReader, NodeRows};
use super::scan::Scan;
use crate::environment::{Environment, MemoryContext, Output, ScratchLayout, Temporary};
use crate::error::{Result, require};
use crate::kernels::WARP;
use crate::stream::CallerStream;
use crate::tensor::Tensor;
use crate::vocabulary::codes::{AllocationType, ElementType};
use crate::vocabulary::description::ArrayDescription;

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
    /// The weight of each edge; all are equally likely without it.
    pub weights: Option<&'a Tensor>,
}

/// The centers of a sampling, and its size.
#[derive(Debug, Clone, Copy)]
pub struct SampleRequest<'a> {
    /// Nodes whose neighbours are asked for.
    pub centers: &'a Tensor,
    /// Most samples of each; all neighbours, if it is 0 or less.
    pub most: i32,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// The outputs of a sampling. A null context stands for an output that the caller does not want.
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

/// Samples neighbours. `gathers` are those of the graph's arrays, in the order row pointers,
/// weights, neighbours.
///
/// # Errors
/// [`Error::Input`](crate::error::Error::Input) for arrays that do not fit each other;
/// [`Error::Value`](crate::error::Error::Value) for more samples than 31 bits can count; those of
/// the environment; the driver's; those of [`Gathers::make`].
pub fn sample(
    graph: Graph<'_>,
    request: SampleRequest<'_>,
    outputs: Outputs<'_>,
    environment: &Environment,
    stream: &CallerStream,
    gathers: &mut Gathers<'_>,
) -> Result {
    let call = SampleCall::new(graph, request, outputs.offsets)?;
    stream.can_wait()?;
    let mut reader = GraphReader { gathers, environment, stream };
    let rows = reader.rows(&call.row_ptr, call.nodes)?;
    let total = call.count(&rows, environment, stream)?;

    let output = |context: MemoryContext, kind: ElementType| -> Result<Option<Output>> {
        let shape = ArrayDescription { size: total, storage_offset: 0, dtype: kind.code() };
        let wanted = (!context.is_null()).then_some(context);
        wanted.map(|context| environment.output(context, shape.into(), AllocationType::Device)).transpose()
    };
    let made = [
        output(outputs.destinations, call.col.kind)?,
        output(outputs.centers, ElementType::Int)?,
        output(outputs.edges, ElementType::Int64)?,
    ];
    let [destinations, centers, edges] =
        made.each_ref().map(|output| output.as_ref().map_or(0, Output::address));
    let aside = if call.needs_edges() && edges == 0 { Some(edges_aside(environment, total)?) } else { None };
    let edges = aside.as_ref().map_or(edges, |(_, address)| *address);
    let weights = call.weights.map(|weights| reader.weights(&weights, &rows, call.most)).transpose()?;
    if total > 0 {
        // Kernels write the neighbours that they find.
        let destinations = if call.col.table.is_some() { destinations } else { 0 };
        let weights = weights.as_ref().map(|brought| brought.weights);
        call.launch(&rows, weights, [destinations, centers, edges], stream)?;
    }
    if call.col.table.is_none() {
        reader.neighbors(&call.col, (edges, total.unsigned_abs()), destinations)?;
    }
    made.into_iter().flatten().for_each(Output::hand_over);
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

/// A checked request.
struct SampleCall<'a> {
    row_ptr: GraphArray<'a>,
    col: GraphArray<'a>,
    weights: Option<GraphArray<'a>>,
    nodes: Numbers,
    offsets: u64,
    most: i32,
    seed: u64,
}

impl<'a> SampleCall<'a> {
    fn new(graph: Graph<'a>, request: SampleRequest<'_>, offsets: &Tensor) -> Result<Self> {
        let row_ptr = GraphArray::new(graph.row_ptr, &[ElementType::Int64], "row pointers")?;
        let col = GraphArray::new(graph.col, NODES, "neighbours")?;
        let kinds = &[ElementType::Float, ElementType::Double];
        let weights = graph.weights.map(|weights| GraphArray::new(weights, kinds, "weights")).transpose()?;
        require(weights.is_none_or(|weights| weights.count == col.count), "not as many weights as edges")?;
        let nodes = Array::new(request.centers, NODES, "centers")?.numbers();
        require(i32::try_from(nodes.count).is_ok(), "more centers than 31 bits can count")?;
        let offsets = Array::new(offsets, &[ElementType::Int], "offsets")?;
        require(offsets.count == nodes.count + 1, "offsets are one more than centers")?;
        let (most, seed) = (request.most, request.seed);
        Ok(Self { row_ptr, col, weights, nodes, offsets: offsets.address, most, seed })
    }

    /// Kernels need edges to choose many of them, and the gather of neighbours needs edges.
    fn needs_edges(&self) -> bool {
        self.weights.is_none() && self.most > MOST_STEPS || self.col.table.is_none()
    }

    /// Writes the first sample of each center; returns how many samples there are.
    fn count(&self, rows: &NodeRows, environment: &Environment, stream: &CallerStream) -> Result<i64> {
        let mut parts = ScratchLayout::default();
        let scan = Scan::new(self.nodes.count, &mut parts)?;
        let memory = environment.temporary(parts)?;
        let &NodeRows { row_ptr, nodes, .. } = rows;
        let counting = CountSamples { row_ptr, nodes, most: self.most, counts: self.offsets };
        stream.launch(&counting, nodes.count)?;
        scan.run(stream, &memory, self.offsets)
    }

    fn launch(
        &self,
        rows: &NodeRows,
        weights: Option<Weights>,
        [destinations, centers, edges]: [u64; 3],
        stream: &CallerStream,
    ) -> Result {
        let (&Self { offsets, most, seed, .. }, &NodeRows { row_ptr, nodes, .. }) = (self, rows);
        let samples = Samples { col: self.col.table.unwrap_or_default(), destinations, centers, edges };
        let all = Sampling { row_ptr, nodes, samples, offsets, seed, most };
        let Some(weights) = weights else {
            // A warp has a center.
            return stream.launch(&SampleUniform { all }, nodes.count * WARP);
        };
        let threads = if most > FEW_SAMPLES { MANY_THREADS } else { FEW_THREADS };
        stream.launch_blocks(&SampleWeighted { all, weights }, nodes.count, threads)
    }
}
