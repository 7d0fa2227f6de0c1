//! The exporter's side of an exchange with one importer.
//!
//! A peer is a state that moves when a packet arrives, and never waits. Until it has proved that it knows the key it learns
//! nothing that depends on the request, and has [`PATIENCE`]. What it is sent fits into its socket, for it asks a batch at a
//! time; a peer that asks without reading is dropped.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use wm_abi::CUresult;
use wm_driver::Device;
use wm_memory::{Backing, Manager};

use super::key::{Key, Nonce, Purpose, nonce};
use super::wire::{self, BATCH};
use crate::sockets::descriptor::Descriptor;
use crate::{lifecycle, managers};

/// How long a peer may take to prove itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long one that has may take from batch to batch: its driver may be busy.
const BATCH_PATIENCE: Duration = Duration::from_secs(60);

/// One importer.
#[derive(Debug)]
pub(super) struct Peer {
    socket: Descriptor,
    stage: Stage,
    deadline: Instant,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// It has connected.
    New,
    /// It has been answered with a nonce. Both nonces, its own first.
    Challenged([Nonce; 2]),
    /// It may have this allocation.
    Trusted(Allocation),
}

impl Peer {
    pub(super) fn new(socket: Descriptor, now: Instant) -> Self {
        Self { socket, stage: Stage::New, deadline: now + PATIENCE }
    }

    /// When it has stood still for too long.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn socket(&self) -> Result<BorrowedFd<'_>> {
        self.socket.get()
    }

    /// Answers the packet that has arrived, if one has.
    ///
    /// # Errors
    /// The peer is gone, or must go.
    pub(super) fn attend(&mut self, key: &Key, now: Instant) -> Result<()> {
        let packet = match wire::receive(self.socket.get()?) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(());
            }
            packet => packet?,
        };
        match self.stage {
            Stage::New => self.challenge(key, packet.words()?),
            Stage::Challenged(nonces) => self.offer(key, nonces, packet.words()?, now),
            Stage::Trusted(allocation) => {
                let [from] = packet.words()?;
                self.pass_on(allocation, from as usize, now)
            }
        }
    }

    fn challenge(&mut self, key: &Key, theirs: Nonce) -> Result<()> {
        let nonces = [theirs, nonce()?];
        let [.., [first, second]] = nonces;
        let [one, two] = key.tag(Purpose::Exporter, nonces.as_flattened());
        self.stage = Stage::Challenged(nonces);
        self.send(&[first, second, one, two], &[])
    }

    fn offer(&mut self, key: &Key, nonces: [Nonce; 2], asked: [u64; 4], now: Instant) -> Result<()> {
        let [id, address, one, two] = asked;
        let proved = [nonces.as_flattened(), &[id, address]].concat();
        if !key.verify(Purpose::Importer, &proved, [one, two]) {
            return Err(Error::other("it does not know the key"));
        }
        let allocation = Allocation { id, address };
        let Some((_, backing, bytes)) = allocation.find() else {
            return self.send(&[CUresult::INVALID_VALUE.0.into(), 0, 0, 0, 0], &[]);
        };
        let span = backing.handles.iter().map(|(_, bytes)| *bytes as u64).sum();
        (self.stage, self.deadline) = (Stage::Trusted(allocation), now + BATCH_PATIENCE);
        self.send(&[0, backing.handles.len() as u64, span, backing.offset, bytes as u64], &[])
    }

    fn pass_on(&mut self, allocation: Allocation, from: usize, now: Instant) -> Result<()> {
        self.deadline = now + BATCH_PATIENCE;
        match allocation.export(from) {
            Ok(pieces) => {
                let sizes = pieces.iter().map(|(_, bytes)| *bytes as u64);
                let words: Vec<u64> = std::iter::once(0).chain(sizes).collect();
                let descriptors: Vec<_> = pieces.into_iter().map(|(descriptor, _)| descriptor).collect();
                self.send(&words, &descriptors)
            }
            Err(Refusal::Code(code)) => self.send(&[code.0.into()], &[]),
            Err(Refusal::System(error)) => Err(error),
        }
    }

    fn send(&self, words: &[u64], descriptors: &[Descriptor]) -> Result<()> {
        wire::send(self.socket.get()?, words, descriptors)
    }
}

/// Why a batch is not passed on.
enum Refusal {
    Code(CUresult),
    System(Error),
}

impl From<CUresult> for Refusal {
    fn from(code: CUresult) -> Self {
        Self::Code(code)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::System(error)
    }
}

/// An allocation of this process. Its number tells it from one that lies there later.
#[derive(Debug, Clone, Copy)]
struct Allocation {
    id: u64,
    address: u64,
}

impl Allocation {
    /// What backs it, and its bytes; `None` if it is no more.
    fn find(self) -> Option<(&'static Manager<Device>, Backing, usize)> {
        let manager = managers::owner(self.address)?;
        let backing = manager.backing(self.address)?;
        let block = manager.block(self.address).filter(|block| block.id == self.id)?;
        Some((manager, backing, block.bytes))
    }

    /// A batch of its pieces.
    fn export(self, from: usize) -> std::result::Result<Vec<(Descriptor, usize)>, Refusal> {
        let (manager, backing, _) = self.find().ok_or(CUresult::INVALID_VALUE)?;
        let rest = backing.handles.get(from..).ok_or(CUresult::INVALID_VALUE)?;
        let mut pieces = Vec::with_capacity(BATCH);
        for (handle, bytes) in rest.iter().take(BATCH) {
            if lifecycle::exiting() {
                return Err(Error::other("this process is ending").into());
            }
            pieces.push((Descriptor::adopt(manager.gpu().export(*handle)?)?, *bytes));
        }
        // Had it been freed meanwhile, a handle might have been another allocation's by now.
        self.find().ok_or(CUresult::INVALID_VALUE)?;
        Ok(pieces)
    }
}
