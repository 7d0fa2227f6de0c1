//! The exporter's side of an exchange with one importer.
//!
//! A peer is a state that moves when a packet arrives, and never waits. Until it has proved that it
//! knows the key it learns nothing that depends on the request, and has [`PATIENCE`]. The
//! answers fit into its socket, for it asks a batch at a time; a peer that asks without reading is
//! dropped.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use wm_abi::CUresult;
use wm_driver::{Device, Gpu, Handle};
use wm_memory::Manager;

use super::key::{ExporterKey, Nonce, Purpose, nonce};
use super::wire::{self, BATCH, Failure};
use crate::physical::{PieceRun, book};
use crate::{process, registry};
use wm_sockets::descriptor::Descriptor;

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

#[derive(Debug)]
enum Stage {
    /// It has connected.
    New,
    /// It has been answered with a nonce. Both nonces, its own first.
    Challenged([Nonce; 2]),
    /// It has been offered the allocation that it asked for.
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
    pub(super) fn attend(&mut self, key: &ExporterKey, now: Instant) -> Result<()> {
        let packet = match wire::receive(self.socket.get()?) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(());
            }
            packet => packet?,
        };
        match &self.stage {
            Stage::New => self.challenge(key, packet.words()?),
            Stage::Challenged(nonces) => self.offer(key, *nonces, packet.words()?, now),
            Stage::Trusted(allocation) => {
                let [from] = packet.words()?;
                let (words, descriptors) = answer(allocation.export(from as usize))?;
                self.deadline = now + BATCH_PATIENCE;
                self.send(&words, &descriptors)
            }
        }
    }

    fn challenge(&mut self, key: &ExporterKey, theirs: Nonce) -> Result<()> {
        let nonces = [theirs, nonce()?];
        let [.., [first, second]] = nonces;
        let [one, two] = key.tag(Purpose::Exporter, nonces.as_flattened());
        self.stage = Stage::Challenged(nonces);
        self.send(&[first, second, one, two], &[])
    }

    fn offer(&mut self, key: &ExporterKey, nonces: [Nonce; 2], asked: [u64; 5], now: Instant) -> Result<()> {
        let [id, address, bytes, one, two] = asked;
        let wanted = [id, address, bytes];
        let proved = [nonces.as_flattened(), &wanted].concat();
        if !key.verify(Purpose::Importer, &proved, [one, two]) {
            return Err(Error::other("it does not know the key"));
        }
        let Some((allocation, offset, bytes)) = Allocation::find(wanted) else {
            return self.send(&[CUresult::INVALID_VALUE.0.into(), 0, 0, 0, 0], &[]);
        };
        let offer = [0, allocation.pieces(), allocation.span(), offset, bytes as u64];
        (self.stage, self.deadline) = (Stage::Trusted(allocation), now + BATCH_PATIENCE);
        self.send(&offer, &[])
    }

    fn send(&self, words: &[u64], descriptors: &[Descriptor]) -> Result<()> {
        wire::send(self.socket.get()?, words, descriptors)
    }
}

/// A batch as it is sent.
fn answer(
    batch: std::result::Result<Vec<(Descriptor, usize)>, Failure>,
) -> Result<(Vec<u64>, Vec<Descriptor>)> {
    match batch {
        Ok(pieces) => {
            let (descriptors, sizes): (Vec<_>, Vec<_>) = pieces.into_iter().unzip();
            Ok((std::iter::once(0).chain(sizes.into_iter().map(|bytes| bytes as u64)).collect(), descriptors))
        }
        Err(Failure::Answer(code)) => Ok((vec![code.0.into()], Vec::new())),
        Err(Failure::Lost(error)) => Err(error),
    }
}

/// Memory of this process that an importer asked for, as long as it lives.
#[derive(Debug)]
struct Allocation {
    manager: &'static Manager<Device>,
    named: NamedMemory,
}

/// What a handle names. A number tells it from later memory at the same address.
#[derive(Debug)]
enum NamedMemory {
    /// A block, and the physical memory that backs it.
    Block { id: u64, address: u64, pieces: Vec<(Handle, usize)> },
    /// Pieces that the program made.
    Pieces(PieceRun),
}

impl Allocation {
    /// The allocation, where it begins in its pieces, and its bytes; `None` if it is no more.
    fn find([id, address, bytes]: [u64; 3]) -> Option<(Self, u64, usize)> {
        if bytes > 0 {
            let run = book().run(address)?.first(bytes).filter(|run| run.pieces[0].0 == id)?;
            let manager = registry::existing(run.device)?;
            return Some((Self { manager, named: NamedMemory::Pieces(run) }, 0, bytes as usize));
        }
        let manager = registry::owner(address)?;
        let backing = manager.backing(address)?;
        let bytes = manager.block(address).filter(|block| block.id == id)?.bytes;
        let named = NamedMemory::Block { id, address, pieces: backing.handles };
        Some((Self { manager, named }, backing.offset, bytes))
    }

    fn is_live(&self) -> bool {
        match &self.named {
            NamedMemory::Block { id, address, .. } => {
                self.manager.block(*address).is_some_and(|block| block.id == *id)
            }
            NamedMemory::Pieces(run) => {
                book().run(run.base).and_then(|now| now.first(run.bytes())).as_ref() == Some(run)
            }
        }
    }

    /// Number of its pieces.
    fn pieces(&self) -> u64 {
        match &self.named {
            NamedMemory::Block { pieces, .. } => pieces.len() as u64,
            NamedMemory::Pieces(run) => run.pieces.len() as u64,
        }
    }

    /// Bytes of all its pieces.
    fn span(&self) -> u64 {
        match &self.named {
            NamedMemory::Block { pieces, .. } => pieces.iter().map(|(_, bytes)| *bytes as u64).sum(),
            NamedMemory::Pieces(run) => run.bytes(),
        }
    }

    /// A batch of its pieces.
    fn export(&self, from: usize) -> std::result::Result<Vec<(Descriptor, usize)>, Failure> {
        if from as u64 > self.pieces() || !self.is_live() {
            return Err(CUresult::INVALID_VALUE.into());
        }
        let mut exported = Vec::with_capacity(BATCH);
        for index in (from..).take(BATCH) {
            if process::exiting() {
                return Err(Error::other("this process is ending").into());
            }
            let Some((descriptor, bytes)) = self.descriptor(index)? else { break };
            exported.push((Descriptor::adopt(descriptor)?, bytes));
        }
        // Had it been freed meanwhile, a handle might have been another allocation's by now.
        if self.is_live() { Ok(exported) } else { Err(CUresult::INVALID_VALUE.into()) }
    }

    /// A piece as a descriptor, and its bytes; `None` behind the last.
    fn descriptor(&self, index: usize) -> std::result::Result<Option<(OwnedFd, usize)>, CUresult> {
        let gpu = self.manager.gpu();
        match &self.named {
            NamedMemory::Block { pieces, .. } => {
                let export = |(handle, bytes): &(Handle, usize)| Ok((gpu.export(*handle)?, *bytes));
                pieces.get(index).map(export).transpose()
            }
            NamedMemory::Pieces(run) => {
                let place = run.address(index).zip(run.pieces.get(index));
                place.map(|(address, (_, bytes))| Ok((pass_on(gpu, address)?, *bytes as usize))).transpose()
            }
        }
    }
}

/// A descriptor of the piece that is mapped at an address. It was kept in place when its handle was
/// issued.
fn pass_on(gpu: &Device, address: u64) -> std::result::Result<OwnedFd, CUresult> {
    let handle = gpu.retain(address)?;
    let exported = gpu.export(handle);
    gpu.release(handle)?;
    exported
}
