//! The calls of the `Gpu` contract, each with its pre-conditions.

use std::ops::Range;
use std::time::Duration;

use wm_abi::CUresult;
use wm_driver::gpu::{FINGERPRINTED_BYTES, Result};
use wm_driver::{Event, Gpu, Handle, KeyedFingerprint, LinkWay, OomAnswer, Shortfall, StreamId, Tier};

use super::{Access, Clock, GRANULARITY, Inner, Mapping, Model};

fn assert_whole(bytes: usize) -> u64 {
    assert!(
        bytes > 0 && (bytes as u64).is_multiple_of(GRANULARITY),
        "{bytes} is not a whole number of granules"
    );
    bytes as u64
}

impl Inner {
    fn set_access(&mut self, address: u64, bytes: usize, access: Access) {
        let mut sum = 0;
        // Memory that may not be written may be in use, but not while that changes.
        self.check_unused_by_writers(&(address..address + bytes as u64), access);
        for (start, mapping) in self.mappings.range_mut(address..address + assert_whole(bytes)) {
            let foreign = self.physical[&mapping.handle].foreign;
            assert!(!foreign || access == Access::Read, "{start:#x}: others' memory may be written");
            mapping.access = access;
            sum += mapping.bytes;
        }
        assert_eq!(sum, bytes as u64, "access is set where all is mapped");
    }

    /// A right is not taken away from work under way.
    fn check_unused_by_writers(&mut self, range: &Range<u64>, access: Access) {
        let mapped = self.mappings.range(range.clone());
        let loses = |(_, mapping): (&u64, &Mapping)| mapping.access > access;
        if mapped.into_iter().any(loses) {
            self.check_unused(range);
        }
    }
}

impl Gpu for Model {
    fn granularity(&self) -> usize {
        GRANULARITY as usize
    }

    fn idle_host_memory(&self, bytes: u64) -> Option<Handle> {
        let idle = &mut self.lock().idle_elsewhere;
        let at = idle.iter().position(|(other, _)| *other == bytes)?;
        Some(idle.remove(at).1)
    }

    fn create(&self, tier: Tier, bytes: usize) -> Result<Handle> {
        let mut inner = self.enter("create")?;
        let bytes = assert_whole(bytes);
        if inner.refused == Some(tier) || inner.held(tier) + bytes > inner.capacity[&tier] {
            return Err(CUresult::OUT_OF_MEMORY);
        }
        Ok(Handle(inner.new_physical(tier, bytes)))
    }

    fn release(&self, handle: Handle) -> Result<()> {
        let mut inner = self.enter("release")?;
        let physical = inner.physical.get_mut(&handle.0).expect("release of a handle that exists");
        assert!(!physical.released, "{handle:?} is released twice");
        physical.released = true;
        inner.released += 1;
        inner.drop_if_dead(handle.0);
        Ok(())
    }

    fn reserve(&self, bytes: usize) -> Result<u64> {
        let mut inner = self.enter("reserve")?;
        let bytes = assert_whole(bytes);
        let address = inner.next_address;
        inner.next_address += bytes;
        inner.reservations.insert(address, bytes);
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: usize) -> Result<()> {
        let mut inner = self.enter("unreserve")?;
        assert_eq!(
            inner.reservations.get(&address),
            Some(&assert_whole(bytes)),
            "unreserve takes whole reservations"
        );
        assert_eq!(
            inner.mappings.range(address..address + bytes as u64).count(),
            0,
            "something is mapped there"
        );
        inner.reservations.remove(&address);
        Ok(())
    }

    fn map(&self, address: u64, bytes: usize, handle: Handle) -> Result<()> {
        let mut inner = self.enter("map")?;
        let bytes = assert_whole(bytes);
        inner.reservation(address, bytes);
        assert_eq!(
            inner.mappings.range(address..address + bytes).count(),
            0,
            "{address:#x} is mapped already"
        );
        let physical = inner.physical.get_mut(&handle.0).expect("map of a handle that exists");
        assert!(!physical.released && physical.bytes == bytes, "a mapping is of a whole handle");
        physical.mappings += 1;
        inner
            .mappings
            .insert(address, Mapping { bytes, handle: handle.0, access: Access::None, on_cpu: false });
        Ok(())
    }

    fn unmap(&self, address: u64, bytes: usize) -> Result<()> {
        let mut inner = self.enter("unmap")?;
        let range = address..address + assert_whole(bytes);
        inner.check_unused(&range);
        let mapped: Vec<u64> = inner.mappings.range(range).map(|(start, _)| *start).collect();
        let mut sum = 0;
        for start in mapped {
            let mapping = inner.mappings.remove(&start).expect("just listed");
            sum += mapping.bytes;
            inner.physical.get_mut(&mapping.handle).expect("mapped handles exist").mappings -= 1;
            inner.drop_if_dead(mapping.handle);
        }
        assert_eq!(sum, bytes as u64, "unmap takes whole mappings");
        Ok(())
    }

    fn allow(&self, address: u64, bytes: usize) -> Result<()> {
        self.enter("allow")?.set_access(address, bytes, Access::Write);
        Ok(())
    }

    fn allow_alone(&self, address: u64, bytes: usize) -> Result<()> {
        self.enter("allow_alone")?.set_access(address, bytes, Access::Write);
        Ok(())
    }

    fn allow_reading(&self, address: u64, bytes: usize) -> Result<()> {
        self.enter("allow_reading")?.set_access(address, bytes, Access::Read);
        Ok(())
    }

    fn allow_cpu(&self, address: u64, bytes: usize) -> Result<()> {
        let mut inner = self.enter("allow_cpu")?;
        inner.set_access(address, bytes, Access::Write);
        let range = address..address + bytes as u64;
        inner.check_unused(&range);
        let mapped: Vec<u64> = inner.mappings.range(range).map(|(_, mapping)| mapping.handle).collect();
        let is_on_host = |handle: &u64| inner.physical[handle].tier == Tier::Host;
        assert!(mapped.iter().all(is_on_host), "the CPU gets access to memory of a GPU");
        inner.mappings.range_mut(address..address + bytes as u64).for_each(|(_, it)| it.on_cpu = true);
        Ok(())
    }

    fn record(&self, stream: StreamId) -> Result<Event> {
        let mut inner = self.enter("record")?;
        inner.ensure_recordable(stream)?;
        let clock = inner.snapshot(stream);
        Ok(inner.new_event(clock))
    }

    fn record_all(&self) -> Result<Vec<Event>> {
        let mut inner = self.enter("record_all")?;
        let streams: Vec<StreamId> = inner.streams.keys().copied().collect();
        streams.iter().try_for_each(|stream| inner.ensure_recordable(*stream))?;
        let record = |stream: &StreamId| {
            let clock = inner.snapshot(*stream);
            let event = inner.new_event(clock);
            inner.contents.go_behind(event.0);
            event
        };
        Ok(streams.iter().map(record).collect())
    }

    fn is_done(&self, event: &Event) -> Result<bool> {
        Ok(self.enter("is_done")?.passes(event.0))
    }

    fn wait_any(&self, sets: &[&[Event]], _limit: Duration) -> Option<usize> {
        let mut inner = self.enter("wait_any").ok()?;
        for event in *sets.first()? {
            if !inner.contents.passes(event.0) {
                return None;
            }
            let clock = inner.events.get(&event.0).expect("an event that was not given back").clone();
            clock.iter().for_each(|(stream, position)| inner.finish(*stream, *position));
        }
        Some(0)
    }

    fn order(&self, stream: StreamId, event: &Event) -> Result<()> {
        let mut inner = self.enter("order")?;
        inner.ensure_recordable(stream)?;
        let clock = inner.events.get(&event.0).expect("an event that was not given back").clone();
        inner.wait_for(stream, &clock);
        Ok(())
    }

    fn is_settled(&self, _limit: Duration) -> Result<bool> {
        let mut inner = self.enter("is_settled")?;
        let streams: Vec<StreamId> = inner.streams.keys().copied().collect();
        streams.iter().try_for_each(|stream| inner.ensure_recordable(*stream))?;
        Ok(inner.streams.values().all(|stream| stream.done >= stream.head) && inner.contents.settle())
    }

    fn copy(&self, way: LinkWay, to: u64, from: u64, bytes: usize) -> Result<Event> {
        let mut inner = self.enter("copy")?;
        let bytes = bytes as u64;
        for start in [to, from] {
            inner.check_unused(&(start..start + bytes));
        }
        assert!(inner.is_writable(to), "a copy to what is mapped for reading only");
        assert!(![to, from].iter().any(|at| inner.is_on_cpu(*at)), "a copy of what the CPU uses");
        let places = [to, from].map(|start| inner.place(start));
        let ends = [to, from].map(|start| inner.place(start + bytes - 1));
        assert_eq!(
            places.map(|(handle, at)| (handle, at + bytes - 1)),
            ends,
            "a copy refusal within a handle"
        );
        let event = inner.new_event(Clock::new());
        inner.contents.start(event.0, way, [to, from], places, bytes);
        Ok(event)
    }

    fn fingerprints(&self, chunks: &[u64]) -> Result<Vec<KeyedFingerprint>> {
        let mut entered = self.enter("fingerprints")?;
        let inner = &mut *entered;
        if inner.fingerprints.refuses {
            return Err(CUresult::UNKNOWN);
        }
        let print = |start: &u64| {
            inner.check_unused(&(*start..start + FINGERPRINTED_BYTES));
            let (first, last) = (inner.place(*start), inner.place(start + FINGERPRINTED_BYTES - 1));
            assert_eq!((first.0, first.1 + FINGERPRINTED_BYTES - 1), last, "a chunk is of one handle");
            let words = inner.contents.words(first, FINGERPRINTED_BYTES);
            KeyedFingerprint(inner.fingerprints.of(words))
        };
        Ok(chunks.iter().map(print).collect())
    }

    fn are_equal(&self, one: u64, other: u64, bytes: usize) -> Result<bool> {
        let mut inner = self.enter("are_equal")?;
        if inner.fingerprints.refuses_reads {
            return Err(CUresult::UNKNOWN);
        }
        let words = [one, other].map(|start| {
            inner.check_unused(&(start..start + bytes as u64));
            inner.contents.words(inner.place(start), bytes as u64)
        });
        Ok(words[0] == words[1])
    }

    fn found_unequal(&self, block: u64, bytes: Range<u64>) {
        self.lock().fingerprints.unequal.push((block, bytes));
    }

    fn recycle(&self, event: Event) {
        (self.on_call)();
        assert!(self.lock().events.remove(&event.0).is_some(), "{event:?} is given back twice");
    }

    fn memory_info(&self) -> Result<(u64, u64)> {
        let inner = self.enter("memory_info")?;
        let total = inner.capacity[&Tier::Device];
        Ok((total - inner.held(Tier::Device), total))
    }

    fn oom_answer(&self, _: Shortfall) -> OomAnswer {
        (self.on_call)();
        self.lock().oom_answer.unwrap_or(OomAnswer::Spill)
    }

    fn may_be_held(&self) -> bool {
        self.lock().is_held
    }

    fn external_usage(&self) -> u64 {
        (self.on_call)();
        self.external_usage.get().map_or(0, |of_others| of_others())
    }

    fn host_available(&self) -> u64 {
        (self.on_call)();
        let inner = self.lock();
        inner.capacity[&Tier::Host] - inner.held(Tier::Host)
    }
}
