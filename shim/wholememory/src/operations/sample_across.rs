//! Sampling from a graph whose arrays span islands: all that a rank needs of such an array is
//! gathered into memory of its own, in which the kernels of sampling find it.
//!
//! Row pointers and weights are those of the rank's own centers; the chosen edges' neighbours come
//! last. What is drawn depends on the place of a center and on its neighbours alone, so it is the
//! same as within an island.

use wm_abi::CUdeviceptr;
use wm_kernels::wholememory::{ListRowEnds, ListWeights, Numbers, PlaceWeights, Table, Weights};

use super::array::GraphArray;
use super::gathers::Gathers;
use super::upload;
use crate::environment::{Environment, ScratchLayout, Temporary};
use crate::error::Result;
use crate::kernels::WARP;
use crate::stream::CallerStream;
use crate::tensor::Tensor;
use crate::vocabulary::codes::ElementType;
use crate::vocabulary::description::ArrayDescription;

/// The rows of a graph's nodes, with the memory that they are in if they were gathered.
#[derive(Debug)]
pub(super) struct NodeRows {
    pub(super) row_ptr: Table,
    /// The centers, as nodes of `row_ptr`.
    pub(super) nodes: Numbers,
    _memory: Option<Temporary>,
}

/// Weights of edges, with the memory that they are in if they were gathered.
#[derive(Debug)]
pub(super) struct EdgeWeights {
    pub(super) weights: Weights,
    _memory: Option<[Temporary; 2]>,
}

/// The arrays of one call.
#[derive(Debug)]
pub(super) struct GraphReader<'a, 'b> {
    pub(super) gathers: &'a mut Gathers<'b>,
    pub(super) environment: &'a Environment,
    pub(super) stream: &'a CallerStream,
}

impl GraphReader<'_, '_> {
    /// The rows of some nodes.
    ///
    /// # Errors
    /// As of [`Gathers::make`]; those of the environment; the driver's.
    pub(super) fn rows(&mut self, row_ptr: &GraphArray<'_>, nodes: Numbers) -> Result<NodeRows> {
        if let Some(row_ptr) = row_ptr.table {
            return Ok(NodeRows { row_ptr, nodes, _memory: None });
        }
        let (mut parts, count) = (ScratchLayout::default(), nodes.count);
        let [numbers, ends] = [parts.add(2 * count.max(1), 8)?, parts.add(2 * count.max(1), 8)?];
        let places = parts.add(count.max(1), 8)?;
        let memory = self.environment.temporary(parts)?;
        let [numbers, ends, places] = [numbers, ends, places].map(|part| memory.at(part));
        self.stream.launch(&ListRowEnds { nodes, count: row_ptr.count, numbers, ends, places }, count)?;
        self.gather(numbers, 2 * count, (ends, row_ptr.kind))?;
        let row_ptr = Table::at(ends, 2 * count, row_ptr.kind.bytes() as u64);
        Ok(NodeRows { row_ptr, nodes: Numbers { address: places, count, bytes: 8 }, _memory: Some(memory) })
    }

    /// The weights of the nodes that have more than `most` neighbours.
    ///
    /// # Errors
    /// As of [`GraphReader::rows`].
    pub(super) fn weights(
        &mut self,
        weights: &GraphArray<'_>,
        rows: &NodeRows,
        most: i32,
    ) -> Result<EdgeWeights> {
        let edges = weights.count;
        if let Some(table) = weights.table {
            return Ok(EdgeWeights { weights: Weights { table, places: 0, edges }, _memory: None });
        }
        let (&NodeRows { row_ptr, nodes, .. }, mut parts) = (rows, ScratchLayout::default());
        let [places, total] = [parts.add(nodes.count.max(1), 8)?, parts.add(1, 8)?];
        let places_memory = self.environment.temporary(parts)?;
        let [places, total] = [places, total].map(|part| places_memory.at(part));
        self.fill(weights, total, 8, 0)?;
        self.stream.launch(&PlaceWeights { row_ptr, nodes, most, places, total }, nodes.count)?;
        let count = self.stream.number_at(total)?.cast_unsigned();

        let (packed, weights_memory) = self.temporary(count, weights.kind.bytes() as u64)?;
        // The numbers are given back before anything is drawn.
        let (edges_listed, _numbers_memory) = self.temporary(count, 8)?;
        let list = ListWeights { row_ptr, nodes, most, places, edges: edges_listed };
        self.stream.launch(&list, nodes.count.saturating_mul(WARP))?;
        self.gather(edges_listed, count, (packed, weights.kind))?;
        let table = Table::at(packed, count, weights.kind.bytes() as u64);
        let memory = Some([places_memory, weights_memory]);
        Ok(EdgeWeights { weights: Weights { table, places, edges }, _memory: memory })
    }

    /// Gathers the neighbours at some edges; -1 for an edge that the graph does not have, as where
    /// a kernel finds none. No address stands for neighbours that the caller does not want.
    ///
    /// # Errors
    /// As of [`GraphReader::rows`].
    pub(super) fn neighbors(
        &mut self,
        col: &GraphArray<'_>,
        (edges, count): (CUdeviceptr, u64),
        destinations: CUdeviceptr,
    ) -> Result {
        if destinations == 0 {
            return self.gather(0, 0, (0, col.kind));
        }
        self.fill(col, destinations, count * col.kind.bytes() as u64, 0xff)?;
        self.gather(edges, count, (destinations, col.kind))
    }

    fn temporary(&self, count: u64, element: u64) -> Result<(CUdeviceptr, Temporary)> {
        let mut parts = ScratchLayout::default();
        let part = parts.add(count.max(1), element)?;
        let memory = self.environment.temporary(parts)?;
        Ok((memory.at(part), memory))
    }

    /// Fills memory of the caller's functions, in the context of an array.
    fn fill(&self, array: &GraphArray<'_>, to: CUdeviceptr, bytes: u64, byte: u8) -> Result {
        let communicator = array.tensor.memory()?.communicator();
        let _current = communicator.enter()?;
        upload::fill_bytes(communicator, to, bytes, byte, self.stream.handle())
    }

    fn gather(&mut self, numbers: CUdeviceptr, count: u64, packed: (CUdeviceptr, ElementType)) -> Result {
        let numbers = array(numbers, count, ElementType::Int64)?;
        self.gathers.make(&numbers, &array(packed.0, count, packed.1)?, self.environment)
    }
}

fn array(address: CUdeviceptr, count: u64, kind: ElementType) -> Result<Tensor> {
    let shape = ArrayDescription { size: count.cast_signed(), storage_offset: 0, dtype: kind.code() };
    Tensor::at(address, shape.into())
}
