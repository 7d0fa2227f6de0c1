//! The background thread: it speaks with the broker, which may need time to answer, and runs passes
//! while the program makes no calls.
//!
//! It starts with the first block that could be shared, and ends with the process. It waits for
//! requests, and at most a second for the broker.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;
use thiserror::Error;
use wm_dedup::cache::{ResultsCache, WriterCache};
use wm_dedup::chunk::ChunkName;
use wm_dedup::client::{Client, ConnectError, Lease, LookUpAnswer, OfferAnswer};
use wm_dedup::policy::advice::SharingAdvice;
use wm_dedup::policy::backoff::Backoff;
use wm_dedup::policy::kernel_effects::WriterExchange;
use wm_driver::{Api, Device};
use wm_memory::Manager;
use wm_multipath::measured::cache;
use wm_sockets::descriptor::Descriptor;
use wm_sockets::private_folder::FolderError;

use super::broker_start;
use super::kernel_effects::today;
use super::mailbox::{BackgroundRequest, NamedChunk, PassReply};
use super::prepared::ChunkToGive;
use super::proofs::KernelProofs;
use super::sharing::Sharing;
use super::to_take::MemoryToTake;
use super::tracked_blocks::TrackedBlock;
use crate::gate::GATE;
use crate::process::{self, driver};
use crate::registry;
use crate::settings;

/// How long it waits for requests before it runs a pass that is due.
const REQUEST_WAIT: Duration = Duration::from_millis(50);

/// How long the broker is asked nothing after it gave no answer.
const UNANSWERED_PAUSE: Duration = Duration::from_millis(50);

/// The time between two questions about chunks that this process waits for, or that no other one
/// uses any more: after one that was answered with some, and the longest.
const QUESTIONS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Bytes. To unpack and to judge an image takes more than the rest.
const STACK: usize = 2 << 20;

impl Sharing {
    /// Starts the background thread, if it does not run.
    pub(super) fn start_broker_thread(&'static self) {
        self.started.call_once(|| {
            let folder = cache::folder();
            let writers = folder.as_deref().map(WriterCache::new);
            let thread = BrokerThread {
                sharing: self,
                client: None,
                exported: HashMap::new(),
                freed: Vec::new(),
                lone: FxHashSet::default(),
                talks: true,
                next_question: Instant::now(),
                arrivals: Backoff::new(QUESTIONS),
                departures: Backoff::new(QUESTIONS),
                writers: WriterExchange::new(writers, Instant::now()),
                proofs: KernelProofs::new(folder.as_deref().map(ResultsCache::new)),
            };
            if let Err(error) = wm_driver::thread::spawn(c"wmshim-dedup", STACK, move || thread.run()) {
                let level = super::level(settings::load().dedup);
                log::log!(level, "WMSHIM_DEDUP has no effect: no thread could be started: {error}");
            }
        });
    }
}

struct BrokerThread {
    sharing: &'static Sharing,
    client: Option<Client>,
    /// Chunks that this process holds, by lease: for a broker that starts anew.
    exported: HashMap<Lease, u64>,
    /// Blocks that the program has freed, and the leases that are released once their memory is
    /// not mapped any more.
    freed: Vec<(Arc<TrackedBlock>, Vec<Lease>)>,
    /// Leases that are over since no other process uses the chunk, and of which a pass under way
    /// has the chunk.
    lone: FxHashSet<Lease>,
    talks: bool,
    /// When the broker is asked again.
    next_question: Instant,
    /// When it is asked about chunks that this process waits for.
    arrivals: Backoff,
    /// When it is asked about chunks that no other process uses any more.
    departures: Backoff,
    writers: WriterExchange,
    proofs: KernelProofs,
}

impl BrokerThread {
    fn run(mut self) {
        loop {
            let wait = if self.proofs.has_more() { Duration::ZERO } else { REQUEST_WAIT };
            let request = self.sharing.mailbox.next_request(wait);
            if process::exiting() || process::forked() {
                return;
            }
            match request {
                Some(request) => self.serve(request),
                None => registry::all().for_each(|manager| self.run_idle_pass(manager)),
            }
            self.release_freed();
            self.ask();
            let kernels = &self.sharing.kernels;
            let writers = self.writers.exchange(kernels.effects(), Instant::now(), today());
            let _blocks = self.sharing.distrust(&writers);
            self.judge();
            self.proofs.judge_some_more();
        }
    }

    fn judge(&mut self) {
        let devices: Vec<_> = registry::all().map(|manager| manager.gpu().ordinal()).collect();
        self.proofs.judge(&self.sharing.kernels, &devices);
    }

    fn serve(&mut self, request: BackgroundRequest) {
        match request {
            BackgroundRequest::Offer(chunks) => {
                self.offer(chunks);
                self.sharing.mailbox.offered();
            }
            BackgroundRequest::Release(leases) => self.release(&leases),
            BackgroundRequest::Freed(block, leases) => self.freed.push((block, leases)),
            BackgroundRequest::PutBack(taken) => drop(taken),
            BackgroundRequest::LetGo(reply) => self.sharing.let_go(reply),
            BackgroundRequest::Count(names) => self.count(&names),
            BackgroundRequest::Judge => self.judge(),
            BackgroundRequest::GiveBack(manager, bytes) => {
                manager.relieve(bytes);
            }
        }
    }

    fn release(&mut self, leases: &[Lease]) {
        self.exported.retain(|lease, _| !leases.contains(lease));
        self.lone.retain(|lease| !leases.contains(lease));
        self.client.iter_mut().for_each(|client| client.release(leases));
    }

    /// Releases leases of freed blocks: another process may take their memory for its own then.
    fn release_freed(&mut self) {
        let over: Vec<_> = self.freed.extract_if(.., |(block, _)| block.is_unmapped()).collect();
        over.into_iter().for_each(|(_, leases)| self.release(&leases));
    }

    /// The broker, if there is one to be had now.
    fn client(&mut self) -> Option<&mut Client> {
        if !self.talks {
            return None;
        }
        if self.client.is_none() {
            match connect() {
                Ok(client) => self.client = Some(client),
                Err(problem) => {
                    let level = super::level(settings::load().dedup);
                    log::log!(level, "nothing is shared with other processes: {problem}");
                    self.talks = false;
                    return None;
                }
            }
        }
        let (exported, sharing) = (&self.exported, self.sharing);
        let client = self.client.as_mut()?;
        client.reconnect(|lease, _| sharing.export_chunk(*exported.get(&lease)?)).then_some(client)
    }

    /// Prepares as many chunks as the next pass can exchange.
    fn ask(&mut self) {
        // Replies hold memory of other processes, and descriptors of the program's. No pass comes
        // before the end of a pause.
        if self.sharing.status.is_ending() || GATE.is_kept() {
            let replies = self.sharing.mailbox.oldest_replies(usize::MAX, usize::MAX);
            return replies.into_iter().for_each(|reply| self.sharing.let_go(reply));
        }
        if Instant::now() < self.next_question {
            return;
        }
        self.ask_for_arrivals();
        self.ask_for_departures();
        for manager in registry::all() {
            // A chunk that no other process has needs no pass, so there may be room for more.
            while self.look_up(self.sharing.next_chunks(manager)) {}
        }
    }

    /// Chunks that this process waits for and that have come are looked up again.
    fn ask_for_arrivals(&mut self) {
        if !self.arrivals.is_due(Instant::now()) {
            return;
        }
        let names = self.client().and_then(|client| client.arrivals().ok()).unwrap_or_default();
        self.arrivals.end(Instant::now(), !names.is_empty());
        if !names.is_empty() {
            self.sharing.arrived(&names);
        }
    }

    /// Chunks that no other process uses any more are this process's own.
    fn ask_for_departures(&mut self) {
        if self.departures.is_due(Instant::now()) {
            let leases = self.client().and_then(|client| client.take_back().ok()).unwrap_or_default();
            self.departures.end(Instant::now(), !leases.is_empty());
            self.exported.retain(|lease, _| !leases.contains(lease));
            self.lone.extend(leases);
        }
        if !self.lone.is_empty() {
            self.lone = self.sharing.left_alone(std::mem::take(&mut self.lone));
        }
    }

    /// Returns `true` if all chunks were answered, and at least one was.
    fn look_up(&mut self, chunks: Vec<NamedChunk>) -> bool {
        let mut is_answered = !chunks.is_empty();
        let mut chunks = chunks.into_iter().peekable();
        while chunks.peek().is_some() {
            let batch: Vec<NamedChunk> = chunks.by_ref().take(Client::BATCH).collect();
            let names: Vec<_> = batch.iter().map(|chunk| chunk.name).collect();
            let Some(Ok(found)) = self.client().map(|client| client.look_up(&names)) else {
                batch.iter().for_each(|chunk| self.sharing.forget_question(chunk));
                self.next_question = Instant::now() + UNANSWERED_PAUSE;
                is_answered = false;
                continue;
            };
            for (chunk, found) in batch.into_iter().zip(found) {
                is_answered &= self.answer(chunk, found);
            }
        }
        is_answered
    }

    /// Returns `false` if the chunk is to be asked about again some time.
    fn answer(&mut self, chunk: NamedChunk, found: LookUpAnswer) -> bool {
        let reply = match found {
            LookUpAnswer::Chunk(lease, open) => self.prepare_to_take(chunk, lease, &open),
            LookUpAnswer::Wanted => self.prepare_to_give(chunk),
            LookUpAnswer::Waiting(lease) => {
                chunk.block.facts().waits(chunk.index, chunk.name.fingerprint, lease);
                return true;
            }
            LookUpAnswer::Full => {
                self.sharing.forget_question(&chunk);
                None
            }
        };
        let is_prepared = reply.is_some();
        self.sharing.mailbox.reply(reply);
        is_prepared
    }

    /// If the broker cannot be asked, the last count stays.
    fn count(&mut self, names: &[ChunkName]) {
        if let Some(Ok(counts)) = self.client().map(|client| client.count(names)) {
            self.sharing.counts.set_advice(SharingAdvice::of(&counts));
        }
    }

    fn prepare_to_take(&mut self, chunk: NamedChunk, lease: Lease, open: &Descriptor) -> Option<PassReply> {
        let places = &self.sharing.places;
        let bytes = chunk.bytes();
        match self.prepared(&chunk, |device| MemoryToTake::import(places, device, lease, open, bytes)) {
            Some(prepared) => {
                self.exported.insert(lease, chunk.address());
                Some(PassReply::Found(chunk, prepared))
            }
            None => {
                self.client.iter_mut().for_each(|client| client.release(&[lease]));
                self.sharing.forget_question(&chunk);
                None
            }
        }
    }

    fn offer(&mut self, chunks: Vec<(NamedChunk, ChunkToGive)>) {
        let mut chunks = chunks.into_iter().peekable();
        while chunks.peek().is_some() {
            let batch: Vec<_> = chunks.by_ref().take(Client::BATCH).collect();
            // The program has closed a descriptor that is missing here.
            let offered: Option<Vec<_>> =
                batch.iter().map(|(chunk, give)| Some((chunk.name, give.open.get().ok()?))).collect();
            let answers = offered.and_then(|offered| self.client().map(|client| client.offer(&offered)));
            let Some(Ok(answers)) = answers else { continue };
            for ((chunk, _), answer) in batch.iter().zip(answers) {
                // If others were first, or there is no room, a pass makes it private again.
                if let OfferAnswer::Accepted(lease) = answer {
                    self.exported.insert(lease, chunk.address());
                    self.sharing.registered(chunk, lease);
                }
            }
        }
    }

    fn prepare_to_give(&self, chunk: NamedChunk) -> Option<PassReply> {
        match self.prepared(&chunk, |device| ChunkToGive::export(device, chunk.address())) {
            Some(prepared) => Some(PassReply::Missing(chunk, prepared)),
            None => {
                self.sharing.forget_question(&chunk);
                None
            }
        }
    }

    /// Prepares a chunk in its context. `None`: it is not to be shared any more, or the preparation
    /// failed.
    fn prepared<T>(
        &self,
        chunk: &NamedChunk,
        prepare: impl FnOnce(&'static Device) -> Option<T>,
    ) -> Option<T> {
        let gpu = chunk.block.manager.gpu();
        if !self.sharing.is_eligible_chunk(chunk) || driver().ctx_push_current(gpu.context()).is_err() {
            return None;
        }
        let prepared = prepare(gpu);
        let _popped = driver().ctx_pop_current();
        prepared
    }

    /// A pass on this thread, for a program that has not waited for a while.
    fn run_idle_pass(&self, manager: &'static Manager<Device>) {
        if !self.sharing.is_pass_due() {
            return;
        }
        let context = manager.gpu().context();
        if driver().ctx_push_current(context).is_ok() {
            self.sharing.run_pass(manager, context);
            let _popped = driver().ctx_pop_current();
        }
    }
}

/// Why this process has no broker.
#[derive(Debug, Error)]
enum NoBroker {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Connection(#[from] ConnectError),
}

fn connect() -> Result<Client, NoBroker> {
    Ok(Client::connect(broker_start::location()?, broker_start::start)?)
}
