//! Graphs: captured from one stream, or from two that an event joins, or built node by node, and
//! run as one piece of work.

use super::state::{Graph, Model, Verdict, require};
use crate::program::{Context, Host, Kind, Node, Shape};

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
            self.admits_node(context, node)?;
            self.admits_branch(stream, node)?;
        }
        self.enter_graph(graph, context, nodes, false)
    }

    pub(super) fn build(&mut self, graph: usize, context: Context, nodes: &[Node]) -> Verdict {
        require(!nodes.is_empty() && nodes.iter().all(Node::is_built), "no nodes of their own")?;
        require(!context.is_green(), "graphs of green contexts are not drawn")?;
        nodes.iter().try_for_each(|node| self.admits_node(context, node))?;
        self.enter_graph(graph, context, nodes, true)
    }

    fn enter_graph(&mut self, graph: usize, context: Context, nodes: &[Node], is_built: bool) -> Verdict {
        let nodes = nodes.iter().map(|node| (*node, self.steps)).collect();
        let made = Graph { context, nodes, is_built, latest: None };
        require(self.graphs.insert(graph, made).is_none(), "a graph is made once")
    }

    /// Runs that were launched before write what they would have written. The driver checks the
    /// memory for the context that is current, and the graph is launched in its own.
    pub(super) fn retarget(
        &mut self,
        current: Context,
        (number, node): (usize, usize),
        block: usize,
    ) -> Verdict {
        let context = self.graphs.get(&number).ok_or("no such graph")?.context;
        for context in [context, current] {
            self.admits_node(context, &Node::Set { block })?;
        }
        let (step, graph) = (self.steps, self.graphs.get_mut(&number).ok_or("no such graph")?);
        let found = graph.nodes.get_mut(node).filter(|(node, _)| matches!(node, Node::Set { .. }));
        *found.ok_or("no such memset")? = (Node::Set { block }, step);
        require(graph.is_built, "its nodes are not known")
    }

    pub(super) fn end_graph(&mut self, number: usize) -> Verdict {
        self.graphs.remove(&number).map(drop).ok_or("no such graph")
    }

    /// Memsets of graphs that were built, as graph and place.
    pub(crate) fn memsets(&self) -> Vec<(usize, usize)> {
        let built = self.graphs.iter().filter(|(_, graph)| graph.is_built);
        let memsets = |(number, graph): (&usize, &Graph)| {
            let nodes = graph.nodes.iter().enumerate();
            let is_set = |(at, (node, _)): (usize, &(Node, usize))| {
                matches!(node, Node::Set { .. }).then_some((*number, at))
            };
            nodes.filter_map(is_set).collect::<Vec<_>>()
        };
        built.flat_map(memsets).collect()
    }

    /// The blocks that a graph writes, and the steps whose values they hold.
    pub(crate) fn written_by(&self, graph: usize) -> Vec<(usize, usize)> {
        let nodes = self.graphs.get(&graph).into_iter().flat_map(|graph| &graph.nodes);
        let written = nodes.flat_map(|(node, _)| match node {
            Node::Copy { to, .. } => vec![*to],
            _ => node.blocks(),
        });
        written.filter_map(|block| Some((block, self.content(block)?))).collect()
    }

    fn admits_node(&self, context: Context, node: &Node) -> Verdict {
        for block in node.blocks() {
            require(self.reaches(context, self.block(block)?), "another context's memory")?;
        }
        if let Some((block, host)) = node.ends() {
            require(self.reaches(context, self.block(block)?), "another context's memory")?;
            require(self.shape.hosts.get(host) == Some(&Host::Pinned), "pageable copies are not captured")?;
        }
        if let Node::Copy { from, to } = node {
            let ends = [self.block(*from)?, self.block(*to)?];
            require(ends.iter().all(|block| self.reaches(context, block)), "another context's memory")?;
            require(from != to && ends[0].bytes == ends[1].bytes, "blocks of two sizes")?;
        }
        Ok(())
    }

    fn admits_branch(&self, stream: usize, node: &Node) -> Verdict {
        let Shape { streams, .. } = &self.shape;
        if let Node::Fork { here, there, .. } = node {
            require(here != there, "nothing orders the two")?;
        }
        let Some(branch) = node.branch() else { return Ok(()) };
        let other = streams.get(branch).ok_or("no such stream")?;
        require(self.lanes[branch].is_there() && branch != stream, "the stream is not there")?;
        require(other.kind.is_created() && other.context == streams[stream].context, "it cannot be joined")
    }

    pub(super) fn launch(&mut self, number: usize, stream: usize) -> Verdict {
        let Graph { context, nodes, latest, .. } = self.graphs.get(&number).ok_or("no such graph")?.clone();
        require(context == self.shape.streams[stream].context, "a graph of another context")?;
        let stamp = self.push(stream, &latest.iter().collect::<Vec<_>>());
        for (node, step) in &nodes {
            for block in node.blocks() {
                self.access(block, &stamp, true)?;
                self.fill(block, Some(*step))?;
            }
            match *node {
                Node::Load { host, block } => self.load(host, block, &stamp)?,
                Node::Save { block, host } => self.save(block, host, &stamp)?,
                Node::Copy { from, to } => {
                    let content = self.content(from);
                    require(content.is_some(), "nothing is in the block")?;
                    self.access(from, &stamp, false)?;
                    self.access(to, &stamp, true)?;
                    self.fill(to, content)?;
                }
                _ => {}
            }
        }
        self.graphs.get_mut(&number).ok_or("no such graph")?.latest = Some(stamp);
        Ok(())
    }
}
