//! The driver calls of graphs that are built node by node, changed and destroyed.

use conformance::cu;
use wm_abi::*;

use crate::program::{Context, Node};
use crate::running::{MadeGraph, Running};

impl Running<'_> {
    /// Makes a graph whose nodes run one after the other. If a block was refused, there is none.
    pub(super) fn build(
        &self,
        number: usize,
        current: Context,
        graph: usize,
        nodes: &[Node],
    ) -> Option<CUresult> {
        let (d, mut made, mut exec) = (self.world.driver, CUgraph::NULL, CUgraphExec::NULL);
        let record_code = |call, code| self.record_code(Some(number), call, code);
        if !record_code("cuGraphCreate", cu!(d, cuGraphCreate(&mut made, 0))) {
            return None;
        }
        let mut handles = Vec::new();
        let is_whole = nodes.iter().all(|node| {
            let added = self.add_node(number, current, made, *node, handles.last().copied());
            added.map(|handle| handles.push(handle)).is_some()
        });
        if is_whole
            && record_code("cuGraphInstantiate", cu!(d, cuGraphInstantiateWithFlags(&mut exec, made, 0)))
        {
            self.state().graphs.insert(graph, MadeGraph { graph: made, exec, nodes: handles });
        } else {
            record_code("cuGraphDestroy", cu!(d, cuGraphDestroy(made)));
        }
        None
    }

    fn add_node(
        &self,
        number: usize,
        current: Context,
        graph: CUgraph,
        node: Node,
        before: Option<CUgraphNode>,
    ) -> Option<CUgraphNode> {
        let (d, context) = (self.world.driver, self.world.handle(current));
        let (mut made, before) = (CUgraphNode::NULL, Vec::from_iter(before));
        let code = match node {
            Node::Set { block } => {
                let params = self.memset(number, block)?;
                cu!(
                    d,
                    cuGraphAddMemsetNode(&mut made, graph, before.as_ptr(), before.len(), &params, context)
                )
            }
            Node::Copy { from, to } => {
                let params = self.copy_of(from, to)?;
                cu!(
                    d,
                    cuGraphAddMemcpyNode(&mut made, graph, before.as_ptr(), before.len(), &params, context)
                )
            }
            _ => return None,
        };
        self.record_code(Some(number), "a node", code).then_some(made)
    }

    /// The memset that writes a step's value into a block.
    fn memset(&self, number: usize, block: usize) -> Option<CUDA_MEMSET_NODE_PARAMS> {
        let (dst, bytes) = self.place(block)?;
        let (value, width) = (self.mark(number), bytes as usize / 4);
        Some(CUDA_MEMSET_NODE_PARAMS { dst, pitch: 0, value, elementSize: 4, width, height: 1 })
    }

    fn copy_of(&self, from: usize, to: usize) -> Option<CUDA_MEMCPY3D> {
        let ((from, bytes), (to, _)) = (self.place(from)?, self.place(to)?);
        let bytes = bytes as usize;
        // SAFETY: numbers and null pointers are all zeroes.
        let mut copy: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
        (copy.srcMemoryType, copy.dstMemoryType) = (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE);
        (copy.srcDevice, copy.dstDevice) = (from, to);
        (copy.srcPitch, copy.dstPitch, copy.srcHeight, copy.dstHeight) = (bytes, bytes, 1, 1);
        (copy.WidthInBytes, copy.Height, copy.Depth) = (bytes, 1, 1);
        Some(copy)
    }

    /// Changes the graph and the executable one alike.
    pub(super) fn retarget(
        &self,
        number: usize,
        current: Context,
        (graph, node): (usize, usize),
        block: usize,
        whole: bool,
    ) -> Option<CUresult> {
        let MadeGraph { graph, exec, nodes } = self.state().graphs.get(&graph)?.clone();
        let (d, params, node) = (self.world.driver, self.memset(number, block)?, *nodes.get(node)?);
        let changed = cu!(d, cuGraphMemsetNodeSetParams(node, &params));
        self.record_code(Some(number), "cuGraphMemsetNodeSetParams", changed);
        Some(if whole {
            // `CUgraphExecUpdateResultInfo` is not longer.
            let mut result = [0_u64; 4];
            cu!(d, cuGraphExecUpdate_v2(exec, graph, result.as_mut_ptr().cast()))
        } else {
            cu!(d, cuGraphExecMemsetNodeSetParams(exec, node, &params, self.world.handle(current)))
        })
    }

    pub(super) fn end_graph(&self, graph: usize) -> Option<CUresult> {
        let MadeGraph { graph, exec, .. } = self.state().graphs.remove(&graph)?;
        let d = self.world.driver;
        let ended = cu!(d, cuGraphExecDestroy(exec));
        Some(if ended == CUresult::SUCCESS { cu!(d, cuGraphDestroy(graph)) } else { ended })
    }
}
