//! The driver calls of a capture: of one stream, or of two, of which the second joins and leaves by
//! events.

use conformance::cu;
use wm_abi::*;

use crate::program::{Context, Node};
use crate::running::{MadeGraph, Running};

/// The common parameters of a capture's nodes.
#[derive(Clone, Copy)]
struct Scene {
    /// The step.
    number: usize,
    current: Context,
    stream: CUstream,
}

impl Running<'_> {
    pub(super) fn capture(
        &self,
        number: usize,
        current: Context,
        graph: usize,
        stream: CUstream,
        mode: u32,
        nodes: &[Node],
    ) {
        let (d, record_code) = (self.world.driver, |call, code| self.record_code(Some(number), call, code));
        let (mut captured, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
        let (scene, events) = (Scene { number, current, stream }, self.events_of(number, nodes));
        record_code("cuStreamBeginCapture", cu!(d, cuStreamBeginCapture_v2(stream, mode)));
        for (node, events) in nodes.iter().zip(&events) {
            self.node(scene, *node, *events);
        }
        let ended = record_code("cuStreamEndCapture", cu!(d, cuStreamEndCapture(stream, &mut captured)));
        for event in events.into_iter().flatten().filter(|event| *event != CUevent::NULL) {
            record_code("cuEventDestroy", cu!(d, cuEventDestroy_v2(event)));
        }
        if ended
            && record_code("cuGraphInstantiate", cu!(d, cuGraphInstantiateWithFlags(&mut exec, captured, 0)))
        {
            self.state().graphs.insert(graph, MadeGraph { graph: captured, exec, nodes: Vec::new() });
        }
    }

    /// Two events for each node that needs them, made before the capture, which forbids that.
    fn events_of(&self, number: usize, nodes: &[Node]) -> Vec<[CUevent; 2]> {
        let event = || {
            let (d, mut event) = (self.world.driver, CUevent::NULL);
            self.record_code(
                Some(number),
                "cuEventCreate",
                cu!(d, cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING)),
            );
            event
        };
        let none = [CUevent::NULL; 2];
        nodes.iter().map(|node| if node.branch().is_some() { [event(), event()] } else { none }).collect()
    }

    fn node(&self, scene: Scene, node: Node, events: [CUevent; 2]) {
        let stream = scene.stream;
        match node {
            Node::Mark { block } => self.mark_block(scene, stream, block),
            Node::Load { host, block } | Node::Save { block, host } => {
                self.copy_node(scene, node, block, host)
            }
            Node::Set { block } => self.set_node(scene, block),
            Node::Copy { from, to } => self.move_node(scene, from, to),
            Node::Own { bytes } => self.own_block(scene, stream, bytes),
            Node::Fork { stream: branch, here, there } => self.beside(scene, branch, events, |branch| {
                self.mark_block(scene, branch, there);
                self.mark_block(scene, stream, here);
            }),
            Node::Lend { stream: branch, bytes } => {
                let Some(address) = self.allocate_node(scene, bytes) else { return };
                self.beside(scene, branch, events, |branch| {
                    self.stamp_and_check(scene, branch, address, bytes);
                    self.free_node(scene, branch, address);
                });
            }
        }
        // The number of a graph's runs is not known here.
        self.state().checks.insert(scene.number, 0);
    }

    /// Lets another stream take part in the capture during `work`.
    fn beside(&self, scene: Scene, branch: usize, [fork, join]: [CUevent; 2], work: impl FnOnce(CUstream)) {
        let (d, branch) = (self.world.driver, self.state().streams[branch]);
        let record_code = |call, code| self.record_code(Some(scene.number), call, code);
        record_code("cuEventRecord", cu!(d, cuEventRecord(fork, scene.stream)));
        record_code("cuStreamWaitEvent", cu!(d, cuStreamWaitEvent(branch, fork, 0)));
        work(branch);
        record_code("cuEventRecord", cu!(d, cuEventRecord(join, branch)));
        record_code("cuStreamWaitEvent", cu!(d, cuStreamWaitEvent(scene.stream, join, 0)));
    }

    fn mark_block(&self, scene: Scene, stream: CUstream, block: usize) {
        let place = self.state().blocks.get(&block).copied();
        place.into_iter().for_each(|(address, bytes)| self.stamp_and_check(scene, stream, address, bytes));
    }

    fn copy_node(&self, scene: Scene, node: Node, block: usize, host: usize) {
        let Some((address, bytes)) = self.place(block) else { return };
        let (d, at, bytes) = (self.world.driver, self.host(host), bytes as usize);
        let code = match node {
            Node::Load { .. } => {
                cu!(d, cuMemcpyHtoDAsync_v2(address, at.cast_const().cast(), bytes, scene.stream))
            }
            _ => cu!(d, cuMemcpyDtoHAsync_v2(at.cast(), address, bytes, scene.stream)),
        };
        self.record_code(Some(scene.number), "copy", code);
    }

    fn set_node(&self, scene: Scene, block: usize) {
        let Some((address, bytes)) = self.place(block) else { return };
        let (mark, count) = (self.mark(scene.number), bytes as usize / 4);
        let code = cu!(self.world.driver, cuMemsetD32Async(address, mark, count, scene.stream));
        self.record_code(Some(scene.number), "memset", code);
    }

    fn move_node(&self, scene: Scene, from: usize, to: usize) {
        let (Some((from, bytes)), Some((to, _))) = (self.place(from), self.place(to)) else { return };
        let code = cu!(self.world.driver, cuMemcpyDtoDAsync_v2(to, from, bytes as usize, scene.stream));
        self.record_code(Some(scene.number), "copy", code);
    }

    fn own_block(&self, scene: Scene, stream: CUstream, bytes: u64) {
        if let Some(address) = self.allocate_node(scene, bytes) {
            self.stamp_and_check(scene, stream, address, bytes);
            self.free_node(scene, stream, address);
        }
    }

    fn allocate_node(&self, scene: Scene, bytes: u64) -> Option<CUdeviceptr> {
        let (d, mut address) = (self.world.driver, 0);
        let code = cu!(d, cuMemAllocAsync(&mut address, bytes as usize, scene.stream));
        self.record_code(Some(scene.number), "cuMemAllocAsync", code).then_some(address)
    }

    fn free_node(&self, scene: Scene, stream: CUstream, address: CUdeviceptr) {
        let code = cu!(self.world.driver, cuMemFreeAsync(address, stream));
        self.record_code(Some(scene.number), "cuMemFreeAsync", code);
    }

    fn stamp_and_check(&self, scene: Scene, stream: CUstream, address: CUdeviceptr, bytes: u64) {
        let (number, owner) = (scene.number, self.owner(scene.number));
        self.record_code(Some(number), "stamp", self.world.own(scene.current, stream, address, bytes, owner));
        let ledger = self.world.ledger(number);
        let code = self.world.check(scene.current, stream, address, bytes, owner, ledger);
        self.record_code(Some(number), "check", code);
    }
}
