//! The rules of a bare driver: is a step legal now, and which work is ordered behind which?
//!
//! A step is legal if the driver alone promises that it works: every access of a block is behind
//! the block's allocation and behind each access that it conflicts with, a free is behind all of
//! them, and no wait of the host can last, given the open gates. The model relies on nothing else:
//! neither on the order of execution nor on other effects of an allocator.

mod blocks;
mod gates;
mod graphs;
mod hosts;
mod state;

use crate::clock::{Before, Place, Stamp};
use crate::program::{Action, Context, Kind, Step};

pub(crate) use state::{BUFFER, Block, Model};
use state::{Barrier, Lane, Verdict, Waiting, require};

impl Model {
    /// Blocks that are not freed.
    pub(crate) fn live(&self) -> impl Iterator<Item = (usize, &Block)> {
        self.blocks.iter().filter(|(_, block)| !block.freed).map(|(number, block)| (*number, block))
    }

    /// Streams that exist.
    pub(crate) fn streams(&self) -> Vec<usize> {
        (0..self.lanes.len()).filter(|stream| self.lanes[*stream].is_there()).collect()
    }

    /// Streams that are still to be made.
    pub(crate) fn unborn(&self) -> Vec<usize> {
        (0..self.lanes.len()).filter(|stream| self.lanes[*stream].unborn).collect()
    }

    /// Host functions that streams call, by step, with the work before them.
    pub(crate) fn callbacks(&self) -> &[(usize, Stamp)] {
        &self.notes
    }

    /// Events that were recorded.
    pub(crate) fn events(&self) -> Vec<usize> {
        self.events.keys().copied().collect()
    }

    /// Graphs that can run.
    pub(crate) fn graphs(&self) -> Vec<usize> {
        self.graphs.keys().copied().collect()
    }

    /// The value that a check will find, by the step that writes it.
    pub(crate) fn content(&self, block: usize) -> Option<usize> {
        self.blocks.get(&block)?.content
    }

    /// Makes a step.
    ///
    /// # Errors
    /// The reason why it is not legal. The model is then useless.
    pub(crate) fn apply(&mut self, step: &Step) -> Verdict {
        self.rejoin(step.thread)?;
        self.admits(step)?;
        self.act(step)?;
        self.steps += 1;
        Ok(())
    }

    /// A thread that makes a step has returned from its wait.
    fn rejoin(&mut self, thread: usize) -> Verdict {
        let waiting = self.waiting.get_mut(thread).ok_or("no such thread")?.take();
        let Some(Waiting { step, stamps }) = waiting else { return Ok(()) };
        // The call may have begun so late that it waits for all present work.
        let latest = self.awaited(&step)?;
        require(!self.holds(&latest), "the host would wait for a gate that is closed")?;
        self.wait_for(&stamps)
    }

    /// Can this thread, in this context, name the stream?
    fn admits(&self, step: &Step) -> Verdict {
        require(!step.detached || step.action.is_wait(), "only waits are detached")?;
        let Some(number) = step.action.stream() else { return Ok(()) };
        let stream = self.shape.streams.get(number).ok_or("no such stream")?;
        let is_made = matches!(step.action, Action::Create { .. });
        require(is_made || self.lanes[number].is_there(), "the stream is not there")?;
        let here = step.current == stream.context;
        match stream.kind {
            Kind::PerThread(thread) => require(here && thread == step.thread, "another thread's stream")?,
            Kind::Legacy => require(here, "another context's default stream")?,
            Kind::Blocking | Kind::NonBlocking => {}
        }
        let same_device = step.current.device() == stream.context.device();
        match step.action {
            Action::FreeIn { .. } | Action::SyncStream { .. } | Action::Idle { .. } | Action::Busy { .. } => {
                Ok(())
            }
            Action::Allocate { .. } => require(same_device, "a stream of another device"),
            _ => require(here, "work of another context"),
        }
    }

    fn act(&mut self, step: &Step) -> Verdict {
        let number = self.steps;
        match &step.action {
            Action::Allocate { block, bytes, way } => self.allocate(step.current, *block, *bytes, *way),
            Action::Free { block } => self.free(*block),
            Action::FreeIn { block, stream } => self.free_in(*block, *stream),
            Action::Stamp { block, stream, .. } => {
                let stamp = self.push(*stream, &[]);
                self.access(*block, &stamp, true)?;
                self.fill(*block, Some(number))
            }
            Action::Check { block, stream, .. } => {
                let stamp = self.push(*stream, &[]);
                require(self.content(*block).is_some(), "nothing is in the block")?;
                self.access(*block, &stamp, false)
            }
            Action::Copy { from, to, stream } => self.copy(*from, *to, *stream),
            Action::Spin { stream, .. } => {
                self.push(*stream, &[]);
                Ok(())
            }
            Action::Close { gate, stream } => self.close(*gate, *stream),
            Action::Open { gate } => self.open(*gate),
            Action::Note { stream } => {
                self.call_host(*stream);
                Ok(())
            }
            Action::Unlock { gate, stream } => self.unlock(*gate, *stream),
            Action::Read { block, stream } => self.read(*block, *stream),
            Action::Fill { block, stream } | Action::Set { block, stream } => self.write_now(*block, *stream),
            Action::Move { from, to, stream } => {
                self.copy(*from, *to, *stream)?;
                self.may_wait(*stream)
            }
            Action::Write { host, bytes, stream } => self.write_host(*host, *bytes, *stream),
            Action::Look { host, stream } => self.read_host(*host, *stream),
            Action::Upload { host, block, stream, waits } => self.upload(*host, *block, *stream, *waits),
            Action::Download { block, host, stream, waits } => self.download(*block, *host, *stream, *waits),
            Action::Record { event, stream } => {
                let stamp = self.mark_or_wait(*stream, &[]);
                require(self.events.insert(*event, stamp).is_none(), "an event is recorded once")
            }
            Action::Wait { event, stream } => {
                let stamp = self.events.get(event).ok_or("no such event")?.clone();
                self.mark_or_wait(*stream, &[&stamp]);
                Ok(())
            }
            Action::SyncStream { .. } | Action::SyncEvent { .. } | Action::SyncContext => self.wait(step),
            Action::Idle { stream } => {
                let stamps = self.ends(*stream);
                self.wait_for(&stamps)
            }
            Action::Busy { stream } => {
                require(self.shape.streams[*stream].kind != Kind::Legacy, "its own work may be done")?;
                require(self.is_held(&self.lanes[*stream].before.sure), "it may be done")
            }
            Action::Renew { block, .. } => self.renew(*block),
            Action::Trim { .. } | Action::Info => Ok(()),
            Action::Aside(aside) => self.aside(*aside),
            Action::Capture { graph, stream, nodes, .. } => self.capture(*graph, *stream, nodes),
            Action::Build { graph, nodes } => self.build(*graph, step.current, nodes),
            Action::Retarget { graph, node, block, .. } => {
                self.retarget(step.current, (*graph, *node), *block)
            }
            Action::EndGraph { graph } => self.end_graph(*graph),
            Action::Launch { graph, stream } => self.launch(*graph, *stream),
            Action::Destroy { stream } => {
                require(self.shape.streams[*stream].kind.is_created(), "a default stream stays")?;
                require(self.waiting.iter().all(Option::is_none), "another thread may wait for it")?;
                self.lanes[*stream].destroyed = true;
                Ok(())
            }
            Action::Create { stream } => {
                let unborn = std::mem::take(&mut self.lanes[*stream].unborn);
                require(unborn && self.shape.streams[*stream].kind.is_created(), "a stream is made once")
            }
        }
    }

    /// A function without a stream argument may wait for the default stream that it works in.
    fn may_wait(&self, stream: usize) -> Verdict {
        require(!self.shape.streams[stream].kind.is_created(), "it works in a default stream")?;
        self.may_wait_for(stream)
    }

    /// A call that may wait for all work in a stream.
    fn may_wait_for(&self, stream: usize) -> Verdict {
        require(!self.holds(&self.ends(stream)), "the host might wait for a gate that is closed")
    }

    /// The bytes have arrived when the call returns.
    fn read(&mut self, block: usize, stream: usize) -> Verdict {
        let stamp = self.push(stream, &[]);
        require(self.content(block).is_some(), "nothing is in the block")?;
        self.access(block, &stamp, false)?;
        self.may_wait(stream)?;
        self.wait_for(&[stamp])
    }

    /// The write may still be in flight when the call returns.
    fn write_now(&mut self, block: usize, stream: usize) -> Verdict {
        let stamp = self.push(stream, &[]);
        self.access(block, &stamp, true)?;
        self.fill(block, Some(self.steps))?;
        self.may_wait(stream)
    }

    /// A host function is called in a stream's order. Barriers of other streams need not wait for
    /// it: it is no work of a device.
    fn call_host(&mut self, stream: usize) -> Stamp {
        let told = self.lanes[stream].told.clone();
        let stamp = self.enter(stream, &[], Barrier::Possible);
        self.lanes[stream].told = told;
        self.notes.push((self.steps, stamp.clone()));
        stamp
    }

    /// The host waits until these places are passed, and then knows that.
    fn wait_for(&mut self, stamps: &[Stamp]) -> Verdict {
        require(!self.holds(stamps), "the host would wait for a gate that is closed")?;
        stamps.iter().for_each(|stamp| self.host.join(&stamp.before.sure));
        Ok(())
    }

    /// The places that a wait of the host waits for now.
    fn awaited(&self, step: &Step) -> Verdict<Vec<Stamp>> {
        Ok(match step.action {
            Action::SyncStream { stream } => self.ends(stream),
            Action::SyncEvent { event } => vec![self.events.get(&event).ok_or("no such event")?.clone()],
            // A primary context waits for its green ones too, as is documented.
            _ => {
                let green = |context: Context| step.current == Context::First && context.is_green();
                self.tails(|context| context == step.current || green(context))
            }
        })
    }

    fn wait(&mut self, step: &Step) -> Verdict {
        let stamps = self.awaited(step)?;
        if !step.detached {
            return self.wait_for(&stamps);
        }
        self.waiting[step.thread] = Some(Waiting { step: step.clone(), stamps });
        Ok(())
    }

    /// The end of a stream's work, if it has any. A wait for the legacy stream may be one for all
    /// blocking streams.
    fn ends(&self, stream: usize) -> Vec<Stamp> {
        let mut ends: Vec<Stamp> = self.tail(stream).into_iter().collect();
        if self.shape.streams[stream].kind == Kind::Legacy {
            let mut most = Before::default();
            self.peers(stream).for_each(|other| most.most.join(&self.lanes[other].before.most));
            ends.push(Stamp { place: Place { stream, number: 0 }, before: most });
        }
        ends
    }

    fn tail(&self, stream: usize) -> Option<Stamp> {
        let Lane { last: number, before, .. } = &self.lanes[stream];
        // A possible action is no place, and may be waited for.
        (*before != Before::default())
            .then(|| Stamp { place: Place { stream, number: *number }, before: before.clone() })
    }

    /// The ends of all work of some contexts.
    fn tails(&self, of: impl Fn(Context) -> bool) -> Vec<Stamp> {
        let streams = (0..self.lanes.len()).filter(|stream| of(self.shape.streams[*stream].context));
        streams.filter_map(|stream| self.tail(stream)).collect()
    }

    /// Streams of the same context that wait for a legacy stream, and it for them.
    fn peers(&self, stream: usize) -> impl Iterator<Item = usize> {
        let streams = &self.shape.streams;
        let (context, kind) = (streams[stream].context, streams[stream].kind);
        let is_peer = move |other: Kind| match kind {
            Kind::Legacy => other.is_blocking(),
            _ => kind.is_blocking() && other == Kind::Legacy,
        };
        (0..streams.len())
            .filter(move |other| streams[*other].context == context && is_peer(streams[*other].kind))
    }

    /// The next piece of a stream's work.
    fn push(&mut self, stream: usize, after: &[&Stamp]) -> Stamp {
        self.lanes[stream].worked = true;
        self.enter(stream, after, Barrier::Sure)
    }

    /// An event, or a wait for one. In the default stream it is an action; in a blocking stream it
    /// need not wait for the default stream.
    fn mark_or_wait(&mut self, stream: usize, after: &[&Stamp]) -> Stamp {
        let is_default = self.shape.streams[stream].kind == Kind::Legacy;
        self.enter(stream, after, if is_default { Barrier::Sure } else { Barrier::Possible })
    }

    fn enter(&mut self, stream: usize, after: &[&Stamp], barrier: Barrier) -> Stamp {
        let mut before = self.lanes[stream].before.clone();
        before.sure.join(&self.host);
        after.iter().for_each(|stamp| before.join(&stamp.before));
        let peers: Vec<usize> =
            if barrier == Barrier::None { Vec::new() } else { self.peers(stream).collect() };
        for other in peers {
            let lane = &self.lanes[other];
            before.most.join(&lane.before.most);
            // Whether the barrier of the default stream covers a destroyed stream is not
            // documented.
            if !lane.destroyed && barrier == Barrier::Sure {
                before.sure.join(&lane.told);
            }
        }
        if self.may_be_behind_a_wait(stream) {
            self.tails(|context| context == self.shape.streams[stream].context)
                .iter()
                .filter(|stamp| self.is_in_barrier(stamp.place.stream))
                .for_each(|stamp| before.most.join(&stamp.before.most));
        }
        let number = self.lanes[stream].last + 1;
        let place = Place { stream, number };
        before.sure.set(place);
        before.most.set(place);
        let lane = &mut self.lanes[stream];
        (lane.last, lane.told, lane.before) = (number, before.sure.clone(), before.clone());
        Stamp { place, before }
    }

    /// Does a thread wait for the default stream that this stream has a barrier with? The wait may
    /// be an action of the default stream, made at any time until the thread returns.
    fn may_be_behind_a_wait(&self, stream: usize) -> bool {
        let streams = &self.shape.streams;
        let is_default = |other: usize| {
            streams[other].kind == Kind::Legacy && streams[other].context == streams[stream].context
        };
        let waits = |waiting: &Waiting| matches!(waiting.step.action, Action::SyncStream { stream: other } if is_default(other));
        self.is_in_barrier(stream) && self.waiting.iter().flatten().any(waits)
    }

    fn is_in_barrier(&self, stream: usize) -> bool {
        self.shape.streams[stream].kind != Kind::NonBlocking
    }

    /// A place behind a stream's work that is not itself work.
    fn mark(&self, stream: usize) -> Stamp {
        let Lane { last: number, before, .. } = self.lanes[stream].clone();
        let mut before = before;
        before.sure.join(&self.host);
        Stamp { place: Place { stream, number }, before }
    }
}
