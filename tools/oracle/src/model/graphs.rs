//! Graphs: captured from one stream, or from two that an event joins, and run as one piece of work.

use super::state::{Graph, Model, Verdict, require};
use crate::program::{Host, Kind, Node, Shape};

impl Model {
    pub(super) fn capture(&mut self, graph: usize, stream: usize, nodes: &[Node]) -> Verdict {
        let Shape { streams, .. } = &self.shape;
        require(streams[stream].kind != Kind::Legacy, "the default stream is not captured")?;
        require(!nodes.is_empty(), "a graph of nothing")?;
        let idle = self.waiting.iter().all(Option::is_none);
        require(idle, "another thread's wait may break the capture")?;
        let context = streams[stream].context;
        require(!context.is_green(), "graphs of green contexts are not drawn")?;
        for node in nodes {
            self.admits_node(stream, node)?;
        }
        let graph_of = Graph { context, nodes: nodes.to_vec(), step: self.steps, latest: None };
        require(self.graphs.insert(graph, graph_of).is_none(), "a graph is captured once")
    }

    fn admits_node(&self, stream: usize, node: &Node) -> Verdict {
        let streams = &self.shape.streams;
        for block in node.blocks() {
            require(self.reaches(streams[stream].context, self.block(block)?), "another context's memory")?;
        }
        if let Some((block, host)) = node.ends() {
            require(self.reaches(streams[stream].context, self.block(block)?), "another context's memory")?;
            require(self.shape.hosts.get(host) == Some(&Host::Pinned), "pageable copies are not captured")?;
        }
        if let Node::Fork { here, there, .. } = node {
            require(here != there, "nothing orders the two")?;
        }
        let Some(branch) = node.branch() else { return Ok(()) };
        let other = streams.get(branch).ok_or("no such stream")?;
        require(self.lanes[branch].is_there() && branch != stream, "the stream is not there")?;
        require(other.kind.is_created() && other.context == streams[stream].context, "it cannot be joined")
    }

    pub(super) fn launch(&mut self, number: usize, stream: usize) -> Verdict {
        let Graph { context, nodes, step, latest } = self.graphs.get(&number).ok_or("no such graph")?.clone();
        require(context == self.shape.streams[stream].context, "a graph of another context")?;
        let stamp = self.push(stream, &latest.iter().collect::<Vec<_>>());
        for node in &nodes {
            for block in node.blocks() {
                self.access(block, &stamp, true)?;
                self.fill(block, Some(step))?;
            }
            match *node {
                Node::Load { host, block } => self.load(host, block, &stamp)?,
                Node::Save { block, host } => self.save(block, host, &stamp)?,
                _ => {}
            }
        }
        self.graphs.get_mut(&number).ok_or("no such graph")?.latest = Some(stamp);
        Ok(())
    }
}
