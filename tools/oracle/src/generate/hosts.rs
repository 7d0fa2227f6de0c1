//! Draws copies between blocks and host memory, and the steps that make and read that memory.

use random::Choices;

use super::{Generator, TOUCHED};
use crate::model::BUFFER;
use crate::program::{Action, Aside, Host, Node, Step};

/// Bytes from which threads may copy pageable memory.
const THREADED: u64 = 12 << 20;

impl Generator {
    /// Memory of the host's, of one kind if that is asked for.
    fn host(&mut self, kind: Option<Host>) -> Option<usize> {
        let hosts = self.shape.hosts.iter().enumerate();
        let hosts: Vec<usize> = hosts
            .filter(|(_, host)| kind.is_none_or(|kind| kind == **host))
            .map(|(number, _)| number)
            .collect();
        self.random.pick(&hosts)
    }

    fn default_stream(&mut self) -> Option<usize> {
        let streams = self.model.streams().into_iter();
        let defaults: Vec<usize> =
            streams.filter(|stream| !self.shape.streams[*stream].kind.is_created()).collect();
        self.random.pick(&defaults)
    }

    /// A block that host memory has room for.
    fn portable(&mut self) -> Option<(usize, u64)> {
        self.portable_from(0)
    }

    /// The same, of `least` bytes or more.
    fn portable_from(&mut self, least: u64) -> Option<(usize, u64)> {
        let fits = |bytes: u64| (least..=TOUCHED.min(BUFFER)).contains(&bytes);
        let live = self.model.live().filter(|(_, block)| fits(block.bytes));
        let blocks: Vec<(usize, u64)> = live.map(|(number, block)| (number, block.bytes)).collect();
        self.random.pick(&blocks)
    }

    /// A block to copy from or to some host memory: for pageable memory mostly one that threads
    /// would copy.
    fn counterpart(&mut self, host: usize) -> Option<(usize, u64)> {
        let large = self.shape.hosts[host] == Host::Pageable && !self.random.one_in(4);
        let block = if large { self.portable_from(THREADED) } else { None };
        block.or_else(|| self.portable())
    }

    /// A stream to copy a block in, and whether the call waits.
    fn way_of_copy(&mut self, block: usize) -> Option<(usize, bool)> {
        if self.random.one_in(3) {
            return Some((self.default_stream()?, true));
        }
        Some((self.near(block)?, false))
    }

    /// Host memory goes to a block, which is looked at; or the stream goes with the copy still to
    /// come.
    pub(super) fn upload(&mut self) -> Option<Vec<Step>> {
        let host = self.host(None)?;
        let (block, bytes) = self.counterpart(host)?;
        let (stream, waits) = self.way_of_copy(block)?;
        let mut actions = Vec::new();
        if self.random.one_in(2) {
            actions.push(Action::Write { host, bytes, stream: None });
        }
        actions.push(Action::Upload { host, block, stream, waits });
        match self.random.below(4) {
            0 | 1 => actions.push(Action::Check { block, stream, kernel: true }),
            2 if self.random.one_in(4) => actions.push(Action::Destroy { stream }),
            _ => {}
        }
        // A source that the call has read may be another one at once.
        if waits && self.random.one_in(2) {
            actions.push(Action::Write { host, bytes, stream: None });
        }
        Some(self.steps_of(actions))
    }

    /// A block goes to host memory, at which the host or the stream looks; or the stream goes with
    /// the copy still to come.
    pub(super) fn download(&mut self) -> Option<Vec<Step>> {
        let host = self.host(None)?;
        let (block, _) = self.counterpart(host)?;
        let (stream, waits) = self.way_of_copy(block)?;
        let mut actions = vec![Action::Download { block, host, stream, waits }];
        match self.random.below(6) {
            0 if !waits => {
                actions.push(Action::SyncStream { stream });
                actions.push(Action::Look { host, stream: None });
            }
            0 | 1 if waits => actions.push(Action::Look { host, stream: None }),
            2 | 3 => actions.push(Action::Look { host, stream: Some(stream) }),
            4 if self.random.one_in(4) => actions.push(Action::Destroy { stream }),
            _ => {}
        }
        Some(self.steps_of(actions))
    }

    /// A stream makes the source of a copy: by a copy of a block, or by a function of the host.
    pub(super) fn relay(&mut self) -> Option<Vec<Step>> {
        if self.random.one_in(2) {
            let ((block, _), (from, _)) = (self.portable()?, self.portable()?);
            let (stream, host) = (self.near(from)?, self.host(Some(Host::Pinned))?);
            let actions = vec![
                Action::Download { block: from, host, stream, waits: false },
                Action::Upload { host, block, stream, waits: false },
                Action::Check { block, stream, kernel: true },
            ];
            return Some(self.steps_of(actions));
        }
        // Only a call that waits is certain to read pageable memory after the stream's earlier
        // writes to it.
        let host = self.host(None)?;
        let (block, bytes) = self.counterpart(host)?;
        let waits = self.shape.hosts[host] == Host::Pageable || self.random.one_in(2);
        let stream = if waits { self.default_stream()? } else { self.near(block)? };
        let mut actions = vec![
            Action::Write { host, bytes, stream: Some(stream) },
            Action::Upload { host, block, stream, waits },
            Action::Check { block, stream, kernel: true },
        ];
        if self.random.one_in(2) {
            actions.insert(0, Action::Spin { stream, microseconds: 320 });
        }
        Some(self.steps_of(actions))
    }

    /// A copy that is captured.
    pub(super) fn copy_node(&mut self) -> Option<Node> {
        let ((block, _), host) = (self.portable()?, self.host(Some(Host::Pinned))?);
        Some(if self.random.one_in(2) { Node::Load { host, block } } else { Node::Save { block, host } })
    }

    /// The host writes or looks.
    pub(super) fn at_host(&mut self) -> Option<Vec<Step>> {
        let host = self.host(None)?;
        let stream = if self.random.one_in(2) { Some(self.stream()?) } else { None };
        let action = if self.random.one_in(2) {
            Action::Write { host, bytes: self.portable()?.1, stream }
        } else {
            Action::Look { host, stream }
        };
        Some(self.steps_of(vec![action]))
    }

    /// Something beside copies.
    pub(super) fn aside(&mut self) -> Option<Vec<Step>> {
        let aside = match self.random.pick(&self.bent.asides)? {
            Aside::Protect { .. } => Aside::Protect { host: self.host(Some(Host::Pageable))? },
            aside => aside,
        };
        Some(self.steps_of(vec![Action::Aside(aside)]))
    }

    /// Looks at all host memory that holds anything.
    pub(super) fn close_hosts(&mut self) {
        for host in 0..self.shape.hosts.len() {
            let last = self.model.host_stream(host).filter(|stream| self.model.streams().contains(stream));
            let mut actions: Vec<Action> =
                last.into_iter().map(|stream| Action::SyncStream { stream }).collect();
            actions.push(Action::Look { host, stream: None });
            let steps = self.steps_of(actions);
            self.enter(steps);
        }
    }

    fn steps_of(&mut self, actions: Vec<Action>) -> Vec<Step> {
        actions.into_iter().map(|action| self.step(action)).collect()
    }
}
