//! The model's implementation of the driver calls.

use wm_multipath::CopyDriver;
use wm_multipath::bench::Survey;
use wm_multipath::measured::{Identity, MachineKey};
use wm_multipath::parts::WaitMode;

use super::*;

impl CopyDriver for Model {
    fn survey(&self) -> DriverResult<Survey> {
        let identity = |n: CUdevice| Identity { uuid: n.to_string(), pci: n.to_string(), numa: None };
        let devices = (0..self.devices).map(identity).collect();
        let reach = vec![vec![true; self.devices as usize]; self.devices as usize];
        Ok(Survey { key: MachineKey { driver: 1, devices }, reach })
    }

    fn open(&self, device: CUdevice) -> DriverResult<CUcontext> {
        let mut state = self.state();
        state.call(Self::context(device))?;
        let context = CUcontext(state.fresh() as usize + device as usize);
        state.open.insert(context);
        Ok(context)
    }

    fn room(&self, context: CUcontext) -> DriverResult<(u64, u64)> {
        let mut state = self.state();
        state.call(context)?;
        let full = state.full.contains(&Self::device(context));
        Ok((if full { 3 << 20 } else { 90 << 20 }, 100 << 20))
    }

    fn close(&self, context: CUcontext) {
        let mut state = self.state();
        assert!(state.open.remove(&context), "it was opened");
        state.end(context);
    }

    fn stream(&self, context: CUcontext) -> DriverResult<CUstream> {
        let mut state = self.state();
        state.call(context)?;
        Ok(state.stream(context))
    }

    fn event(&self, context: CUcontext, _wake: WaitMode) -> DriverResult<CUevent> {
        let mut state = self.state();
        state.call(context)?;
        let event = CUevent(state.fresh() as usize);
        state.events.insert(event, Event { context, ..Event::default() });
        Ok(event)
    }

    fn retire(&self, context: CUcontext, stream: CUstream, events: &[CUevent]) {
        let mut state = self.state();
        if !stream.is_null() {
            let ended = state.streams.remove(&stream).expect("a stream");
            assert_eq!(ended.context, context);
            assert!(ended.steps.is_empty(), "work left in a stream that is retired");
        }
        for event in events {
            assert_eq!(state.events.remove(event).expect("an event").context, context);
        }
    }

    fn staging(&self, device: CUdevice, context: CUcontext, bytes: usize) -> DriverResult<u64> {
        let mut state = self.state();
        state.call(context)?;
        Ok(state.raw(Place::Device(device), bytes))
    }

    fn admit(&self, staging: u64, _bytes: usize, device: CUdevice) -> DriverResult<()> {
        let mut state = self.state();
        state.call(Self::context(device))?;
        state.memory.get_mut(&staging).expect("staging memory").access.insert(device);
        Ok(())
    }

    fn discard(&self, address: u64, bytes: usize) {
        let mut state = self.state();
        let memory = state.memory.remove(&address).expect("memory of ours");
        assert_eq!(memory.size, bytes);
    }

    fn buffer(&self, device: CUdevice, bytes: usize) -> DriverResult<u64> {
        let mut state = self.state();
        state.call(Self::context(device))?;
        Ok(state.raw(Place::Pinned, bytes))
    }

    fn copy(&self, context: CUcontext, stream: CUstream, transfer: Transfer) -> DriverResult<()> {
        let mut state = self.state();
        state.call(context)?;
        state.enqueue(context, stream, Step::Copy(transfer))
    }

    fn record(&self, context: CUcontext, event: CUevent, stream: CUstream) -> DriverResult<()> {
        let mut state = self.state();
        state.call(context)?;
        let entry = state.events.get_mut(&event).ok_or(CUresult::INVALID_HANDLE)?;
        assert_eq!(entry.context, context, "an event of another context than the stream's");
        entry.recorded += 1;
        let number = entry.recorded;
        state.enqueue(context, stream, Step::Record(event, number))
    }

    fn order(&self, context: CUcontext, stream: CUstream, event: CUevent) -> DriverResult<()> {
        let mut state = self.state();
        state.call(context)?;
        let number = state.events.get(&event).ok_or(CUresult::INVALID_HANDLE)?.recorded;
        state.enqueue(context, stream, Step::Await(event, number))
    }

    fn passed(&self, context: CUcontext, event: CUevent) -> DriverResult<bool> {
        let mut state = self.state();
        state.call(context)?;
        // During a query the devices take a step, or none.
        if state.random(2) == 0 {
            state.step();
        }
        let event = state.events.get(&event).ok_or(CUresult::INVALID_HANDLE)?;
        Ok(event.passed >= event.recorded)
    }

    fn is_empty(&self, context: CUcontext, stream: CUstream) -> DriverResult<bool> {
        let mut state = self.state();
        state.call(context)?;
        Ok(state.streams.get(&stream).is_none_or(|stream| stream.steps.is_empty()))
    }

    fn elapsed(&self, context: CUcontext, from: CUevent, to: CUevent) -> DriverResult<Duration> {
        let mut state = self.state();
        state.call(context)?;
        let at = |event| state.events.get(&event).filter(|event| event.passed >= event.recorded);
        let (from, to) = (at(from), at(to));
        let [from, to] = [from, to].map(|event| event.ok_or(CUresult::NOT_READY));
        Ok(Duration::from_nanos(to?.at.saturating_sub(from?.at)))
    }

    fn wait(&self, context: CUcontext, event: CUevent) -> DriverResult<()> {
        self.state().call(context)?;
        let number = self.state().events.get(&event).ok_or(CUresult::INVALID_HANDLE)?.recorded;
        self.until(|state| state.events.get(&event).is_none_or(|event| event.passed >= number));
        Ok(())
    }

    fn drain(&self, _context: CUcontext, stream: CUstream) -> DriverResult<()> {
        self.until(|state| state.streams.get(&stream).is_none_or(|stream| stream.steps.is_empty()));
        Ok(())
    }

    fn cores(&self) -> usize {
        self.state().cores.unwrap_or(usize::MAX)
    }

    fn ran_and_waited(&self) -> Option<(Duration, Duration)> {
        self.state().crowd
    }

    fn quietly<T>(&self, body: impl FnOnce() -> T) -> T {
        body()
    }

    fn move_bytes(&self, to: u64, from: u64, bytes: usize) {
        let mut state = self.state();
        for address in [to, from] {
            let place = &state.find(address, bytes).expect("allocated").0.place;
            assert!(matches!(place, Place::Pinned | Place::Pageable), "the CPU has no access to a device");
        }
        state.transplant(to, from, bytes);
    }

    fn clock(&self) -> Duration {
        // Time is the amount of work: each byte a nanosecond, each call one too.
        let mut state = self.state();
        if state.noisy {
            state.noise += state.random(1 << 28) as u64;
        }
        Duration::from_nanos(state.traffic + state.calls + state.noise)
    }
}
