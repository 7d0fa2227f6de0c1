//! Host memory: its bytes, when the host or a stream may use it, and the order of its copies.
//!
//! Streams use it like a block. The host uses it once it has seen all conflicting uses done. For
//! pageable memory the driver promises an order only for the calls that wait: a copy to the device
//! that does not wait may read its source at any time from the call on, and may block the caller
//! until the stream has reached the copy.
//!
//! Invariant: every use of the memory is behind each use that it conflicts with.

use super::state::{BUFFER, Buffer, Model, Verdict, require};
use crate::clock::Stamp;
use crate::program::{Aside, Host};

impl Model {
    /// The step whose value is in host memory, and the number of bytes.
    pub(crate) fn host_content(&self, host: usize) -> Option<(usize, u64)> {
        self.buffers.get(host)?.content
    }

    /// The stream that used host memory last.
    pub(crate) fn host_stream(&self, host: usize) -> Option<usize> {
        self.buffers.get(host)?.accesses.last().map(|(stamp, _)| stamp.place.stream)
    }

    /// The action accesses nothing of the program; the handler resolves a fault in pageable memory
    /// in any case.
    pub(super) fn aside(&self, aside: Aside) -> Verdict {
        let Aside::Protect { host } = aside else { return Ok(()) };
        let kind = self.buffers.get(host).map(|buffer| buffer.kind);
        require(kind == Some(Host::Pageable), "pinned memory cannot fault")
    }

    fn buffer(&mut self, host: usize) -> Verdict<&mut Buffer> {
        self.buffers.get_mut(host).ok_or("no such memory")
    }

    /// A stream uses host memory.
    fn use_host(&mut self, host: usize, stamp: &Stamp, writes: bool) -> Verdict {
        let lawless = self.shape.rules.lawless;
        let buffer = self.buffer(host)?;
        let conflicts =
            |(other, wrote): &(Stamp, bool)| (writes || *wrote) && !lawless && !other.is_before(stamp);
        require(!buffer.accesses.iter().any(conflicts), "not behind another use of host memory")?;
        buffer.accesses.push((stamp.clone(), writes));
        Ok(())
    }

    /// Were all writes that the host has not seen done made in one stream?
    fn made_in(&self, host: usize, stream: usize) -> Verdict<bool> {
        let buffer = self.buffers.get(host).ok_or("no such memory")?;
        let mut open = buffer.accesses.iter().filter(|(stamp, wrote)| *wrote && !self.host.has(stamp.place));
        Ok(open.all(|(stamp, _)| stamp.place.stream == stream))
    }

    /// The host uses it now.
    fn host_uses(&self, host: usize, writes: bool) -> Verdict {
        let buffer = self.buffers.get(host).ok_or("no such memory")?;
        let open = |(stamp, wrote): &(Stamp, bool)| (writes || *wrote) && !self.host.has(stamp.place);
        require(!buffer.accesses.iter().any(open), "a stream may still use the host memory")
    }

    pub(super) fn write_host(&mut self, host: usize, bytes: u64, stream: Option<usize>) -> Verdict {
        require((1..=BUFFER).contains(&bytes), "more than there is")?;
        match stream {
            Some(stream) => {
                let stamp = self.call_host(stream);
                self.use_host(host, &stamp, true)?;
            }
            None => {
                self.host_uses(host, true)?;
                self.buffer(host)?.accesses.clear();
            }
        }
        let step = self.steps;
        self.buffer(host)?.content = Some((step, bytes));
        Ok(())
    }

    pub(super) fn read_host(&mut self, host: usize, stream: Option<usize>) -> Verdict {
        require(self.host_content(host).is_some(), "nothing is in the host memory")?;
        let Some(stream) = stream else { return self.host_uses(host, false) };
        let stamp = self.call_host(stream);
        self.use_host(host, &stamp, false)
    }

    /// Host memory goes to a block.
    pub(super) fn load(&mut self, host: usize, block: usize, stamp: &Stamp) -> Verdict {
        let (step, bytes) = self.host_content(host).ok_or("nothing is in the host memory")?;
        require(self.block(block)?.bytes <= bytes, "the host memory does not hold as much")?;
        self.use_host(host, stamp, false)?;
        self.access(block, stamp, true)?;
        self.fill(block, Some(step))
    }

    /// A block goes to host memory.
    pub(super) fn save(&mut self, block: usize, host: usize, stamp: &Stamp) -> Verdict {
        let (step, bytes) = (self.content(block).ok_or("nothing is in the block")?, self.block(block)?.bytes);
        require(bytes <= BUFFER, "more than there is")?;
        self.access(block, stamp, false)?;
        self.use_host(host, stamp, true)?;
        self.buffer(host)?.content = Some((step, bytes));
        Ok(())
    }

    pub(super) fn upload(&mut self, host: usize, block: usize, stream: usize, waits: bool) -> Verdict {
        let may_wait = self.buffer(host)?.kind == Host::Pageable;
        // A source that may be read during the call must be complete before it. A call that waits
        // does so for its own stream first, but not for streams with which that stream has only an
        // implicit order: another default stream, or a blocking one.
        if may_wait && !(waits && self.made_in(host, stream)?) {
            self.host_uses(host, false)?;
        }
        let stamp = self.push(stream, &[]);
        if may_wait {
            self.may_wait_for(stream)?;
        }
        self.load(host, block, &stamp)?;
        if !waits {
            return Ok(());
        }
        self.may_wait(stream)?;
        match self.buffer(host)?.kind {
            Host::Pinned => self.wait_for(&[stamp]),
            // The driver has read the source; when the block has the bytes is not documented.
            Host::Pageable => {
                self.buffer(host)?.accesses.pop();
                Ok(())
            }
        }
    }

    pub(super) fn download(&mut self, block: usize, host: usize, stream: usize, waits: bool) -> Verdict {
        let stamp = self.push(stream, &[]);
        if self.buffer(host)?.kind == Host::Pageable {
            self.may_wait_for(stream)?;
        }
        self.save(block, host, &stamp)?;
        if !waits {
            return Ok(());
        }
        self.may_wait(stream)?;
        self.wait_for(&[stamp])
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a program is called legal that changes memory which a copy may still read, or reads
    //! memory which a copy may still write; or one is refused although the driver promises it.
    use crate::model::Model;
    use crate::program::{Action, Context, Host, Kind, Rules, Shape, Step, Stream, Way};

    const BYTES: u64 = 1 << 20;
    const PINNED: usize = 0;
    const PAGEABLE: usize = 1;
    const DEFAULT: usize = 2;
    const OWN: usize = 3;

    fn are_legal(actions: &[Action]) -> bool {
        let stream = |kind| Stream { context: Context::First, kind, late: false };
        let kinds = [Kind::NonBlocking, Kind::NonBlocking, Kind::Legacy, Kind::PerThread(0)];
        let streams = kinds.map(stream).to_vec();
        let rules = Rules { allocation_is_action: true, free_is_action: true, short: false, lawless: false };
        let hosts = vec![Host::Pinned, Host::Pageable];
        let mut model = Model::new(&Shape { threads: 1, streams, keep: true, internal: true, rules, hosts });
        let allocate = Action::Allocate { block: 0, bytes: BYTES, way: Way::Plain };
        let step = |action: &Action| Step {
            thread: 0,
            current: Context::First,
            detached: false,
            action: action.clone(),
        };
        std::iter::once(&allocate).chain(actions).all(|action| model.apply(&step(action)).is_ok())
    }

    fn write(host: usize, stream: Option<usize>) -> Action {
        Action::Write { host, bytes: BYTES, stream }
    }

    fn upload(host: usize, stream: usize, waits: bool) -> Action {
        Action::Upload { host, block: 0, stream, waits }
    }

    fn download(host: usize, stream: usize, waits: bool) -> Action {
        Action::Download { block: 0, host, stream, waits }
    }

    const STAMP: Action = Action::Stamp { block: 0, stream: 0, kernel: true };
    const WAIT: Action = Action::SyncStream { stream: 0 };

    #[test]
    fn a_source_stays_as_it_is_until_the_stream_was_waited_for() {
        for host in [PINNED, PAGEABLE] {
            let [fill, copy] = [write(host, None), upload(host, 0, false)];
            assert!(!are_legal(&[fill.clone(), copy.clone(), fill.clone()]));
            assert!(are_legal(&[fill.clone(), copy, WAIT, fill.clone()]));
            let now = upload(host, DEFAULT, true);
            assert!(are_legal(&[fill.clone(), now, fill]), "the call waits for what it reads");
        }
    }

    #[test]
    fn what_a_copy_brings_is_there_when_the_stream_was_waited_for() {
        let look = |host| Action::Look { host, stream: None };
        for host in [PINNED, PAGEABLE] {
            assert!(!are_legal(&[STAMP, download(host, 0, false), look(host)]));
            assert!(are_legal(&[STAMP, download(host, 0, false), WAIT, look(host)]));
            let seen = Action::Look { host, stream: Some(0) };
            assert!(are_legal(&[STAMP, download(host, 0, false), seen]), "the stream itself looks");
            assert!(are_legal(&[STAMP, WAIT, download(host, DEFAULT, true), look(host)]));
        }
    }

    #[test]
    fn a_stream_makes_the_source_of_a_copy_that_reads_it_in_order() {
        let made = |host| write(host, Some(0));
        assert!(are_legal(&[made(PINNED), upload(PINNED, 0, false)]));
        assert!(!are_legal(&[made(PINNED), upload(PINNED, 1, false)]), "another stream");
        assert!(!are_legal(&[made(PAGEABLE), upload(PAGEABLE, 0, false)]), "it may be read at the call");
        let made = write(PAGEABLE, Some(DEFAULT));
        assert!(
            are_legal(&[made.clone(), upload(PAGEABLE, DEFAULT, true)]),
            "the call waits for the stream first"
        );
        assert!(
            !are_legal(&[made, upload(PAGEABLE, OWN, true)]),
            "not for what it is behind by its kind alone"
        );
    }

    #[test]
    fn a_pageable_copy_may_wait_for_its_stream() {
        let (held, fill) = (Action::Close { gate: 0, stream: 0 }, |host| write(host, None));
        assert!(are_legal(&[fill(PINNED), held.clone(), upload(PINNED, 0, false)]));
        assert!(!are_legal(&[fill(PAGEABLE), held, upload(PAGEABLE, 0, false)]));
    }
}
