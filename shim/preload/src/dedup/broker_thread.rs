//! The background thread: it speaks with the broker, which may take its time, and takes turns while
//! the program does nothing.
//!
//! It starts with the first block that could be shared, and ends with the process. It waits for
//! nothing but requests, and the broker for at most a second.

use std::collections::HashMap;
use std::sync::Once;
use std::time::{Duration, Instant};

use wm_dedup::chunk::ChunkName;
use wm_dedup::client::{Client, Lease, OfferAnswer};
use wm_driver::{Api, Device};
use wm_memory::Manager;
use wm_multipath::measured::cache;

use super::judgement::{self, is_ready_chunk};
use super::learned::SharedLessons;
use super::mailbox::{self, BackgroundRequest, NamedChunk, TurnReply};
use super::prepared::{ChunkToGive, ChunkToTake};
use super::{ask, broker_start, exchange, figures, standing, turn};
use crate::process::{self, driver};
use crate::registry;
use wm_sockets::descriptor::Descriptor;

/// How long it waits for requests before it looks whether the program waits for nothing, either.
const LOOK: Duration = Duration::from_millis(50);

/// How long the broker is asked nothing after it gave no answer.
const REST: Duration = Duration::from_millis(50);

const STACK: usize = 256 << 10;

/// Starts it, if it does not run.
pub(super) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let lessons = SharedLessons::new(cache::folder());
        let body = move || {
            BrokerThread {
                client: None,
                exported: HashMap::new(),
                talks: true,
                next_question: Instant::now(),
                lessons,
            }
            .run()
        };
        if let Err(error) = wm_driver::thread::spawn(c"wmshim-dedup", STACK, body) {
            log::warn!("WMSHIM_DEDUP has no effect: no thread could be started: {error}");
        }
    });
}

struct BrokerThread {
    client: Option<Client>,
    /// Chunks that this process holds, by lease: for a broker that starts anew.
    exported: HashMap<Lease, u64>,
    talks: bool,
    /// When the broker is asked again.
    next_question: Instant,
    lessons: SharedLessons,
}

impl BrokerThread {
    fn run(mut self) {
        loop {
            let request = mailbox::next(LOOK);
            if process::exiting() || process::forked() {
                return;
            }
            match request {
                Some(request) => self.serve(request),
                None => registry::all().for_each(idle_turn),
            }
            self.ask();
            let _blocks = judgement::distrust(&self.lessons.exchange());
        }
    }

    fn serve(&mut self, request: BackgroundRequest) {
        match request {
            BackgroundRequest::Offer(chunks) => {
                self.offer(chunks);
                mailbox::offered();
            }
            BackgroundRequest::Release(leases) => {
                self.exported.retain(|lease, _| !leases.contains(lease));
                self.client.iter_mut().for_each(|client| client.release(&leases));
            }
            BackgroundRequest::PutBack(taken) => drop(taken),
            BackgroundRequest::LetGo(reply) => exchange::let_go(reply),
            BackgroundRequest::Count(names) => self.count(&names),
            BackgroundRequest::GiveBack(manager, bytes) => {
                manager.relieve(bytes);
            }
        }
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
                    log::warn!("nothing is shared with other processes: {problem}");
                    self.talks = false;
                    return None;
                }
            }
        }
        let exported = &self.exported;
        let client = self.client.as_mut()?;
        let export = |lease: Lease| exchange::export_chunk(*exported.get(&lease)?);
        client.reconnect(|lease, _| export(lease)).then_some(client)
    }

    /// Sees to it that the next turn has enough to do.
    fn ask(&mut self) {
        if standing::is_ending() {
            // What was prepared is memory of others, and descriptors of the program's.
            return mailbox::take_replies(usize::MAX).into_iter().for_each(exchange::let_go);
        }
        if Instant::now() < self.next_question {
            return;
        }
        for manager in registry::all() {
            self.look_up(ask::next_chunks(manager));
        }
    }

    fn look_up(&mut self, chunks: Vec<NamedChunk>) {
        let mut chunks = chunks.into_iter().peekable();
        while chunks.peek().is_some() {
            let batch: Vec<NamedChunk> = chunks.by_ref().take(Client::BATCH).collect();
            let names: Vec<_> = batch.iter().map(|chunk| chunk.name).collect();
            let Some(Ok(found)) = self.client().map(|client| client.look_up(&names)) else {
                batch.iter().for_each(exchange::forget);
                self.next_question = Instant::now() + REST;
                continue;
            };
            for (chunk, found) in batch.into_iter().zip(found) {
                mailbox::reply(match found {
                    Some((lease, open)) => self.prepare_to_take(chunk, lease, &open),
                    None => prepare_to_give(chunk),
                });
            }
        }
    }

    /// Where the broker cannot be asked, what was counted last stays.
    fn count(&mut self, names: &[ChunkName]) {
        if let Some(Ok(counts)) = self.client().map(|client| client.count(names)) {
            figures::note_advice(&counts);
        }
    }

    fn prepare_to_take(&mut self, chunk: NamedChunk, lease: Lease, open: &Descriptor) -> Option<TurnReply> {
        match prepared(&chunk, |device| ChunkToTake::import(device, lease, open)) {
            Some(prepared) => {
                self.exported.insert(lease, chunk.address());
                Some(TurnReply::Found(chunk, prepared))
            }
            None => {
                self.client.iter_mut().for_each(|client| client.release(&[lease]));
                exchange::forget(&chunk);
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
                // Where others were first, or there is no room, a turn takes it back.
                if let OfferAnswer::Accepted(lease) = answer {
                    self.exported.insert(lease, chunk.address());
                    exchange::note_offered(chunk, lease);
                }
            }
        }
    }
}

fn connect() -> Result<Client, Box<dyn std::error::Error>> {
    Ok(Client::connect(broker_start::home()?, broker_start::broker)?)
}

fn prepare_to_give(chunk: NamedChunk) -> Option<TurnReply> {
    match prepared(&chunk, |device| ChunkToGive::export(device, chunk.address())) {
        Some(prepared) => Some(TurnReply::Missing(chunk, prepared)),
        None => {
            exchange::forget(&chunk);
            None
        }
    }
}

/// Prepares what a chunk needs, in its context. `None`: it is not to be shared any more, or that
/// failed.
fn prepared<T>(chunk: &NamedChunk, prepare: impl FnOnce(&'static Device) -> Option<T>) -> Option<T> {
    let gpu = chunk.block.manager.gpu();
    if !is_ready_chunk(chunk) || driver().ctx_push_current(gpu.context()).is_err() {
        return None;
    }
    let prepared = prepare(gpu);
    let _popped = driver().ctx_pop_current();
    prepared
}

/// A turn on this thread, for a program that has not waited for a while.
fn idle_turn(manager: &'static Manager<Device>) {
    if !turn::is_due() {
        return;
    }
    let context = manager.gpu().context();
    if driver().ctx_push_current(context).is_ok() {
        turn::take(manager, context);
        let _popped = driver().ctx_pop_current();
    }
}
