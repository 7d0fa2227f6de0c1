//! Blocks of memory: their context, their content, and the order of their uses.
//!
//! Invariant: every access of a block is behind its allocation and behind each access that it
//! conflicts with, and its end is behind all of them.

use super::state::{Barrier, Block, Model, Verdict, require};
use crate::clock::Stamp;
use crate::program::{Context, Kind, Node, Way};

impl Model {
    pub(super) fn allocate(&mut self, context: Context, block: usize, bytes: u64, way: Way) -> Verdict {
        let plain = matches!(way, Way::Plain | Way::Pitch | Way::Mapped { .. });
        require(!(plain && context.is_green()), "whose memory it is, is not documented")?;
        let (born, device) = match way {
            Way::Plain | Way::Pitch | Way::Mapped { .. } => (None, context.device()),
            Way::Async { stream } => (Some(self.birth(stream)), context.device()),
            Way::From { stream, pool } => (Some(self.birth(stream)), pool.device),
        };
        let block_of =
            Block { way, bytes, context, device, born, accesses: Vec::new(), content: None, freed: false };
        require(self.blocks.insert(block, block_of).is_none(), "a block is allocated once")
    }

    fn birth(&mut self, stream: usize) -> Stamp {
        // The memory may come from another stream, whose free must be waited for.
        if self.shape.rules.short && self.shape.internal {
            self.lanes[stream].before.most.join(&self.freed);
        }
        // In the legacy default stream an allocation is no action: it has no order with blocking
        // streams.
        let is_default = self.shape.streams[stream].kind == Kind::Legacy;
        if self.shape.rules.allocation_is_action {
            // In a blocking stream without earlier work, the driver's allocation does not wait for
            // the default stream.
            let barrier = match is_default {
                true => Barrier::None,
                false if !self.lanes[stream].worked => Barrier::Possible,
                false => Barrier::Sure,
            };
            return self.enter(stream, &[], barrier);
        }
        self.may_act(stream);
        // The allocation is before everything that is behind the stream's next work.
        let mut born = self.mark(stream);
        born.place.number += 1;
        born
    }

    /// A call that need not be an action may be one: it may wait for the default stream, or for the
    /// blocking ones.
    fn may_act(&mut self, stream: usize) {
        let mut most = self.lanes[stream].before.most.clone();
        self.peers(stream).for_each(|other| most.join(&self.lanes[other].before.most));
        self.lanes[stream].before.most = most;
    }

    pub(super) fn block(&self, block: usize) -> Verdict<&Block> {
        self.blocks.get(&block).filter(|block| !block.freed).ok_or("no such block")
    }

    /// May work of a context access a block? Linear memory belongs to its context; the devices'
    /// primary contexts share theirs. Mapped memory is open to its device.
    pub(super) fn reaches(&self, context: Context, block: &Block) -> bool {
        if block.is_mapped() {
            return context.device() == block.device;
        }
        let primary = |context| matches!(context, Context::First | Context::Other);
        let shared = primary(block.context) && primary(context);
        let green = block.context == Context::First && context.is_green();
        block.is_pooled() || context == block.context || shared || green
    }

    pub(super) fn access(&mut self, number: usize, stamp: &Stamp, writes: bool) -> Verdict {
        let block = self.block(number)?;
        let context = self.shape.streams[stamp.place.stream].context;
        require(self.reaches(context, block), "another context's memory")?;
        let ordered = |other: &Stamp| self.shape.rules.lawless || other.is_before(stamp);
        require(block.born.as_ref().is_none_or(ordered), "not behind the allocation")?;
        let conflicts = |(other, wrote): &&(Stamp, bool)| (writes || *wrote) && !ordered(other);
        require(!block.accesses.iter().any(|access| conflicts(&access)), "not behind another access")?;
        let block = self.blocks.get_mut(&number).ok_or("no such block")?;
        block.accesses.push((stamp.clone(), writes));
        Ok(())
    }

    pub(super) fn fill(&mut self, number: usize, content: Option<usize>) -> Verdict {
        self.blocks.get_mut(&number).ok_or("no such block")?.content = content;
        Ok(())
    }

    pub(super) fn copy(&mut self, from: usize, to: usize, stream: usize) -> Verdict {
        require(from != to && self.block(from)?.bytes == self.block(to)?.bytes, "blocks of two sizes")?;
        let content = self.content(from);
        require(content.is_some(), "nothing is in the block")?;
        let stamp = self.push(stream, &[]);
        self.access(from, &stamp, false)?;
        self.access(to, &stamp, true)?;
        self.fill(to, content)
    }

    /// `cuMemFree` waits for the device if the memory came from `cuMemAlloc`, and otherwise not.
    /// The end of a mapping does not wait.
    pub(super) fn free(&mut self, number: usize) -> Verdict {
        let block = self.block(number)?;
        let (host, context) = (&self.host, block.context);
        let seen = |stamp: &Stamp| host.has(stamp.place);
        let waited_for = |stamp: &Stamp| {
            let used_in = self.shape.streams[stamp.place.stream].context;
            let same = used_in == context || (context == Context::First && used_in.is_green());
            block.is_waited_for() && same
        };
        let over = block.accesses.iter().map(|(stamp, _)| stamp).chain(&block.born);
        require(over.into_iter().all(|stamp| seen(stamp) || waited_for(stamp)), "work is not over")?;
        let device = block.device;
        if block.is_waited_for() {
            // The wait may block, but the host learns nothing from it: the wait is not documented.
            let held = self.holds(&self.tails(|context| context.device() == device));
            require(!held, "the host would wait for a gate that is closed")?;
        }
        self.end_of(number)
    }

    pub(super) fn free_in(&mut self, number: usize, stream: usize) -> Verdict {
        let stamp = if self.shape.rules.free_is_action {
            self.push(stream, &[])
        } else {
            self.may_act(stream);
            self.mark(stream)
        };
        self.freed.join(&stamp.before.most);
        let block = self.block(number)?;
        require(!block.is_mapped(), "mapped memory is not freed in a stream")?;
        let mut before = block.accesses.iter().map(|(access, _)| access).chain(&block.born);
        require(before.all(|access| access.is_before(&stamp)), "not behind an access")?;
        if !block.is_pooled() {
            // Whether it waits is not documented.
            let held = self.holds(&self.tails(|context| context.device() == block.device));
            require(!held, "the host might wait for a gate that is closed")?;
        }
        self.end_of(number)
    }

    /// Nothing waits for work in such memory, and no graph knows it.
    pub(super) fn renew(&mut self, number: usize) -> Verdict {
        let block = self.block(number)?;
        require(block.is_mapped(), "no memory of the program's own")?;
        let mut over = block.accesses.iter();
        require(over.all(|(stamp, _)| self.host.has(stamp.place)), "work is not over")?;
        let has_it = |(node, _): &(Node, usize)| node.uses(number);
        require(!self.graphs.values().any(|graph| graph.nodes.iter().any(has_it)), "a graph has it")
    }

    fn end_of(&mut self, number: usize) -> Verdict {
        let block = self.blocks.get_mut(&number).ok_or("no such block")?;
        (block.freed, block.accesses) = (true, Vec::new());
        Ok(())
    }
}
