//! The background thread: it speaks with the broker, which may take its time, and takes turns while the program does nothing.
//!
//! It starts with the first block that could be shared, and ends with the process. It waits for nothing but requests, and the broker for at most a second.

use std::collections::HashMap;
use std::sync::Once;
use std::time::Duration;

use wm_dedup::chunk::ChunkName;
use wm_driver::{Api, Device};
use wm_memory::Manager;
use wm_multipath::measured::cache;

use super::client::{Client, Lease, OfferAnswer};
use super::home::BrokerHome;
use super::judgement::{self, is_ready_chunk};
use super::learned::SharedLessons;
use super::mailbox::{self, BackgroundRequest, NamedChunk, TurnReply};
use super::prepared::{ChunkToGive, ChunkToTake};
use super::{exchange, figures, turn};
use crate::process::{self, driver};
use crate::registry;
use crate::sockets::descriptor::Descriptor;

/// How long it waits for requests before it looks whether the program waits for nothing, either.
const LOOK: Duration = Duration::from_millis(50);

const STACK: usize = 256 << 10;

/// Starts it, if it does not run.
pub(super) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let lessons = SharedLessons::new(cache::folder());
        let body =
            move || BrokerThread { client: None, exported: HashMap::new(), talks: true, lessons }.run();
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
            let _blocks = judgement::distrust(&self.lessons.exchange());
        }
    }

    fn serve(&mut self, request: BackgroundRequest) {
        match request {
            BackgroundRequest::LookUp(chunks) => self.look_up(chunks),
            BackgroundRequest::Offer(chunks) => self.offer(chunks),
            BackgroundRequest::Release(leases) => {
                self.exported.retain(|lease, _| !leases.contains(lease));
                self.client.iter_mut().for_each(|client| client.release(&leases));
            }
            BackgroundRequest::PutBack(taken) => drop(taken),
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
            match BrokerHome::of_process().and_then(Client::connect) {
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

    fn look_up(&mut self, chunks: Vec<NamedChunk>) {
        let mut chunks = chunks.into_iter().peekable();
        while chunks.peek().is_some() {
            let batch: Vec<NamedChunk> = chunks.by_ref().take(Client::BATCH).collect();
            let names: Vec<_> = batch.iter().map(|chunk| chunk.name).collect();
            let Some(Ok(found)) = self.client().map(|client| client.look_up(&names)) else {
                mailbox::reply(batch.into_iter().map(TurnReply::Paused));
                continue;
            };
            let replies: Vec<_> = batch
                .into_iter()
                .zip(found)
                .map(|(chunk, found)| match found {
                    Some((lease, open)) => self.prepare_to_take(chunk, lease, &open),
                    None => prepare_to_give(chunk),
                })
                .collect();
            mailbox::reply(replies);
        }
    }

    /// Where the broker cannot be asked, what was counted last stays.
    fn count(&mut self, names: &[ChunkName]) {
        if let Some(Ok(counts)) = self.client().map(|client| client.count(names)) {
            figures::note_advice(&counts);
        }
    }

    fn prepare_to_take(&mut self, chunk: NamedChunk, lease: Lease, open: &Descriptor) -> TurnReply {
        match prepared(&chunk, |device| ChunkToTake::import(device, lease, open)) {
            Some(prepared) => {
                self.exported.insert(lease, chunk.address());
                TurnReply::Found(chunk, prepared)
            }
            None => {
                self.client.iter_mut().for_each(|client| client.release(&[lease]));
                TurnReply::Paused(chunk)
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
            let Some(Ok(answers)) = answers else {
                mailbox::reply(batch.into_iter().map(|_| TurnReply::Declined));
                continue;
            };
            let replies: Vec<_> = batch
                .into_iter()
                .zip(answers)
                .map(|((chunk, _), answer)| match answer {
                    OfferAnswer::Accepted(lease) => {
                        self.exported.insert(lease, chunk.address());
                        TurnReply::Offered(chunk, lease)
                    }
                    OfferAnswer::Present | OfferAnswer::Full => TurnReply::Declined,
                })
                .collect();
            mailbox::reply(replies);
        }
    }
}

fn prepare_to_give(chunk: NamedChunk) -> TurnReply {
    match prepared(&chunk, |device| ChunkToGive::export(device, chunk.address())) {
        Some(prepared) => TurnReply::Missing(chunk, prepared),
        None => TurnReply::Paused(chunk),
    }
}

/// Prepares what a chunk needs, in its context. `None`: it is not to be shared any more, or that failed.
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
