//! Graphs, captured or built node by node, and the changes of their nodes.

use random::Choices;

use super::bent::GraphDraw;
use super::{Generator, TOUCHED};
use crate::program::{Action, Node, Step};

impl Generator {
    pub(super) fn capture(&mut self) -> Option<Vec<Step>> {
        let (graph, stream) = (self.number, self.stream()?);
        let mode = self.random.below(3) as u32;
        let mut nodes = (0..=self.random.below(2)).map(|_| self.node()).collect::<Option<Vec<Node>>>()?;
        // If a graph's memory is refused, its replacement makes no copies.
        if !self.shape.hosts.is_empty() && !self.shape.rules.short && self.random.one_in(2) {
            nodes.extend(self.copy_node());
        }
        let capture = self.step(Action::Capture { graph, stream, mode, nodes });
        Some(vec![capture])
    }

    fn node(&mut self) -> Option<Node> {
        if self.bent.graphs == GraphDraw::Named {
            return if self.random.one_in(3) {
                Some(Node::Mark { block: self.touched()? })
            } else {
                self.built_node()
            };
        }
        let bytes = self.random.pick(&self.bent.sizes)?.min(TOUCHED);
        Some(match self.random.below(6) {
            0 | 1 => Node::Own { bytes },
            2 | 3 => Node::Mark { block: self.touched()? },
            4 => Node::Fork { stream: self.stream()?, here: self.touched()?, there: self.touched()? },
            _ => Node::Lend { stream: self.stream()?, bytes },
        })
    }

    pub(super) fn launch(&mut self) -> Option<Vec<Step>> {
        let (graph, stream) = (self.random.pick(&self.model.graphs())?, self.stream()?);
        let launch = self.step(Action::Launch { graph, stream });
        // Behind a wait blocks are usable in any stream, and memory moves.
        if self.bent.graphs == GraphDraw::Named && !self.random.one_in(3) {
            return Some(vec![self.step(Action::SyncContext), launch]);
        }
        Some(vec![launch])
    }

    /// Work that names blocks. All work of some programs is done by kernels.
    fn built_node(&mut self) -> Option<Node> {
        let block = self.touched()?;
        if self.bent.kernels {
            return Some(Node::Mark { block });
        }
        let is_copy = self.random.one_in(3) && self.model.content(block).is_some();
        let to = if is_copy { self.touched() } else { None };
        Some(to.filter(|to| *to != block).map_or(Node::Set { block }, |to| Node::Copy { from: block, to }))
    }

    pub(super) fn build(&mut self) -> Option<Vec<Step>> {
        let graph = self.number;
        let nodes = (0..=self.random.below(3)).map(|_| self.built_node()).collect::<Option<Vec<Node>>>()?;
        Some(vec![self.step(Action::Build { graph, nodes })])
    }

    pub(super) fn retarget(&mut self) -> Option<Vec<Step>> {
        let ((graph, node), block) = (self.random.pick(&self.model.memsets())?, self.touched()?);
        let whole = self.random.one_in(2);
        Some(vec![self.step(Action::Retarget { graph, node, block, whole })])
    }
}
