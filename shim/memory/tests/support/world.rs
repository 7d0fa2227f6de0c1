//! A legal program on a model GPU, and the conditions that hold after each of its steps.
//!
//! The program allocates, works in streams, orders them where it must, frees. After every step the
//! world checks that no two live blocks share an address or a physical byte, that a block's
//! physical bytes do not change, that no block got bytes whose last use its order does not come
//! after, that budgets hold and that the books balance.

mod moving;
mod pausing;
mod pieces;
mod shared_pieces;
mod sharing;
mod step;
mod unified;

use std::ops::Range;
use std::time::Duration;

use wm_driver::{Gpu, StreamId, Tier};
use wm_memory::{
    AllocateError, BlockGuard, Manager, ManagerSettings, Order, Processor, TierBytes, Usage, guard,
};

use pieces::ProgramPiece;
pub use step::Step;

use super::model::{Clock, GRANULARITY, Model};

type Place = (u64, Range<u64>);
type Point = (StreamId, u64);

struct Live {
    address: u64,
    bytes: u64,
    /// Nothing may be mapped behind it. The size that the program asked for decides that, not the
    /// block's own.
    fenced: bool,
    /// For a block that both processors use in turn: which one does now, if one does.
    unified: Option<Option<Processor>>,
    order: Order,
    places: Vec<Place>,
    uses: Vec<Point>,
    /// The words that were written into it, by address.
    words: Vec<(u64, u64)>,
}

/// Physical bytes of a freed block.
struct Ghost {
    place: Place,
    /// The last work that touched them.
    uses: Vec<Point>,
    /// The work that came before the free.
    before: Clock,
}

pub struct World {
    pub manager: &'static Manager<Model>,
    settings: ManagerSettings,
    guard: Option<BlockGuard>,
    live: Vec<Live>,
    pieces: Vec<ProgramPiece>,
    ghosts: Vec<Ghost>,
    /// Streams are never named twice: a destroyed one goes on under a new name.
    names: Vec<u64>,
    pub refused: usize,
    pub moved: u64,
    next_word: u64,
    /// The caller of shares looks itself whether work is over.
    pub knows_what_is_over: bool,
    /// The device's limit, and the most that may be held since it was lowered.
    pub limit: u64,
    most_held: u64,
}

impl World {
    pub fn new(model: Model, settings: ManagerSettings) -> Self {
        Self::guarded(model, settings, None)
    }

    /// A world in which every block has this guard.
    pub fn guarded(model: Model, settings: ManagerSettings, guard: Option<BlockGuard>) -> Self {
        // The charges of pieces name it.
        let manager: &'static _ = Box::leak(Box::new(Manager::new(model, settings.clone())));
        let (live, ghosts, names) = (Vec::new(), Vec::new(), Vec::new());
        let limit = settings.device_limit;
        Self {
            manager,
            settings,
            guard,
            live,
            pieces: Vec::new(),
            ghosts,
            names,
            refused: 0,
            moved: 0,
            next_word: 1,
            knows_what_is_over: false,
            limit,
            most_held: limit,
        }
    }

    fn model(&self) -> &Model {
        self.manager.gpu()
    }

    fn current(&mut self, stream: StreamId) -> StreamId {
        let index = stream.0 as usize;
        self.names.resize(self.names.len().max(index + 1), 0);
        StreamId(stream.0 + 100 * self.names[index])
    }

    fn current_order(&mut self, order: Order) -> Order {
        order.stream().map_or(Order::Device, |stream| Order::Stream(self.current(stream)))
    }

    pub fn run(&mut self, step: &Step) {
        match step {
            Step::Allocate { bytes, order } => drop(self.allocate(*bytes, *order)),
            Step::Touch { index, stream } => self.touch(*index, *stream),
            Step::Free { index, order } => self.free(*index, *order),
            Step::Run { stream, part } => {
                let stream = self.current(*stream);
                self.model().run_some(stream, *part);
            }
            Step::Synchronize { stream } => self.synchronize(*stream),
            Step::SynchronizeAll => {
                self.model().drain_all();
                self.manager.passed_all();
            }
            Step::Trim { keep } => self.trim(*keep),
            Step::Relieve { bytes } => self.relieve(*bytes),
            Step::Limit { bytes } => self.limit_device(*bytes),
            Step::Destroy { stream } => self.destroy(*stream),
            Step::Capture { stream, on } => {
                let stream = self.current(*stream);
                self.model().set_capturing(stream, *on);
            }
            Step::Refresh => self.manager.refresh_access().expect("no failure was asked for"),
            Step::Move { index, part, to, settle, fail } => {
                self.settle_if(*settle);
                match part % 2 {
                    0 => drop(self.relocate(*index, *part, *to, *fail)),
                    _ => self.relocate_rest(*index, *part, *to, *fail),
                }
            }
            Step::Exchange { indices, parts, settle, fail } => {
                self.settle_if(*settle);
                self.swap(*indices, *parts, *fail);
            }
            Step::Pause { frees, comes, settle, fails } => {
                self.settle_if(*settle);
                self.pause(frees, *comes, *fails);
            }
            Step::SlowCopies(slow) => drop(self.model().copies_take_long(*slow)),
            Step::Share { index, part, donates, settle, fail } => {
                self.settle_if(*settle);
                drop(self.share(*index, *part, *donates, *fail));
            }
            Step::Unshare { index, part, settle, fail } => {
                self.settle_if(*settle);
                let _moved = self.unshare(*index, *part, *fail);
            }
            Step::TakeBack { index, part, settle, fail } => {
                self.settle_if(*settle);
                drop(self.take_back(*index, *part, *fail));
            }
            Step::Unpark { fail } => drop(self.unpark(*fail)),
            Step::AllocateUnified { bytes, order } => drop(self.allocate_unified(*bytes, *order)),
            Step::HandOver { index, to, settle, fail } => {
                self.settle_if(*settle);
                let _refusal = self.hand_over(*index, *to, *fail);
            }
            Step::MakePiece { granules, tier } => drop(self.make_piece(*granules, *tier)),
            Step::TouchPiece { index, stream } => self.touch_piece(*index, *stream),
            Step::Adopt { index } => drop(self.adopt(*index)),
            Step::Disown { index, fail } => self.disown(*index, *fail),
            Step::DropPiece { index } => self.drop_piece(*index),
            Step::SharePiece { index, donates, settle, fail } => {
                self.settle_if(*settle);
                let _outcome = self.share_piece(*index, *donates, *fail);
            }
            Step::UnsharePiece { index, settle, fail } => {
                self.settle_if(*settle);
                self.unshare_piece(*index, *fail);
            }
            Step::MovePiece { index, beside, to, settle, fail } => {
                self.settle_if(*settle);
                self.move_piece(*index, *beside, *to, *fail);
            }
        }
        self.check();
    }

    fn settle_if(&self, settle: bool) {
        if settle {
            self.model().drain_all();
        }
    }

    pub fn allocate(&mut self, bytes: usize, order: Order) -> Result<u64, AllocateError> {
        self.allocate_by(bytes, order, false)
    }

    fn allocate_by(&mut self, bytes: usize, order: Order, unified: bool) -> Result<u64, AllocateError> {
        let order = self.current_order(order);
        let before = order.stream().map(|stream| self.model().clock(stream));
        let asked = if unified { self.ask_unified(bytes, order) } else { self.ask(bytes, order) };
        let address = asked.inspect_err(|_| self.refused += 1)?;
        let block = self.manager.block(address + bytes as u64 - 1).expect("inside a live block");
        assert_eq!((block.address, block.bytes, block.order), (address, bytes, order));
        let fenced = self.is_fenced(bytes);
        let bytes = if unified { Self::unified_bytes(bytes) } else { self.check_end(address, bytes) };
        let places = self.model().resolve(address, bytes);
        self.check_apart(address, bytes, &places);
        self.check_ordered(order, &places);
        before.into_iter().for_each(|before| self.check_waits(order, &before, &places));
        let words = self.write_words(address, bytes);
        let unified = unified.then_some(Some(Processor::Gpu));
        let mut live = Live { address, bytes, fenced, unified, order, places, uses: Vec::new(), words };
        if let Some(stream) = order.stream() {
            live.uses.push((stream, self.model().touch(stream, address, bytes)));
        }
        self.live.push(live);
        Ok(address)
    }

    /// Writes into a block's begin, middle and end.
    fn write_words(&mut self, address: u64, bytes: u64) -> Vec<(u64, u64)> {
        let places = [address, address + bytes / 16 * 8, address + bytes - 8];
        self.next_word += 1;
        places.iter().for_each(|place| self.model().write(*place, self.next_word ^ place));
        places.map(|place| (place, self.next_word ^ place)).to_vec()
    }

    fn ask(&self, bytes: usize, order: Order) -> Result<u64, AllocateError> {
        match self.guard {
            None => self.manager.allocate(bytes, order),
            Some(guard) => self.manager.allocate_guarded(bytes, order, guard),
        }
    }

    fn is_fenced(&self, bytes: usize) -> bool {
        self.guard == Some(BlockGuard::Page) && guard::is_fenced(bytes)
    }

    /// Checks the memory behind a block; returns the length of all that is its own.
    fn check_end(&self, address: u64, bytes: usize) -> u64 {
        let fenced = self.is_fenced(bytes);
        let unit = if fenced { guard::ALIGNMENT } else { 512 };
        assert_eq!(address % unit, 0, "blocks are aligned");
        let own = (bytes as u64).next_multiple_of(unit);
        if fenced {
            assert!(!self.model().is_mapped(address + own, GRANULARITY), "nothing is mapped behind a block");
        }
        if self.guard == Some(BlockGuard::Tail) { guard::tail(address, bytes).end - address } else { own }
    }

    fn check_apart(&self, address: u64, bytes: u64, places: &[Place]) {
        for other in &self.live {
            assert!(
                address + bytes <= other.address || other.address + other.bytes <= address,
                "addresses overlap"
            );
            assert!(
                !overlap(places, &other.places),
                "{address:#x} shares physical bytes with {:#x}",
                other.address
            );
        }
    }

    fn check_ordered(&self, order: Order, places: &[Place]) {
        for ghost in self.ghosts_under(places) {
            for (stream, position) in &ghost.uses {
                let ordered = self.model().comes_after(order.stream(), *stream, *position);
                assert!(ordered, "{order:?} got {:x?}, which {stream:?} may still be touching", ghost.place);
            }
        }
    }

    fn ghosts_under(&self, places: &[Place]) -> impl Iterator<Item = &Ghost> {
        self.ghosts.iter().filter(|ghost| overlap(places, std::slice::from_ref(&ghost.place)))
    }

    /// The stream waits for no work that came after the frees of the memory that it got.
    fn check_waits(&self, order: Order, before: &Clock, places: &[Place]) {
        let Some(stream) = order.stream() else { return };
        for (other, position) in self.model().clock(stream) {
            let known = before.get(&other).copied().unwrap_or(0);
            let allowed = |ghost: &Ghost| ghost.before.get(&other).copied().unwrap_or(0);
            let due = self.ghosts_under(places).map(allowed).max().unwrap_or(0);
            // Behind a copy of ours that takes long a wait may be for work that is over.
            let over = self.model().comes_after(None, other, position);
            assert!(
                other == stream || over || position <= known.max(due),
                "{stream:?} waits for {other:?} up to {position}, and what it got was freed at {due}"
            );
        }
    }

    /// The program orders a stream after the one that a block was allocated in before it works on
    /// it there.
    fn touch(&mut self, index: usize, stream: StreamId) {
        let stream = self.current(stream);
        let Some(index) = index.checked_rem(self.live.len()) else { return };
        if !self.is_the_gpus(index) {
            return;
        }
        let writes = self.may_write(index, stream);
        let model = self.manager.gpu();
        let live = &mut self.live[index];
        live.uses.iter().for_each(|(used, _)| model.program_order(*used, stream));
        live.uses.push((stream, model.touch(stream, live.address, live.bytes)));
        let (address, bytes) = (live.address, live.bytes);
        if writes {
            self.live[index].words = self.write_words(address, bytes);
        }
    }

    /// A free in a stream is legal if the stream comes after all work on the block. `cuMemFree`
    /// waits for that work itself.
    fn free(&mut self, index: usize, order: Order) {
        let order = self.current_order(order);
        let Some(index) = index.checked_rem(self.live.len()) else { return };
        let live = self.live.swap_remove(index);
        let before = match order {
            Order::Stream(stream) => {
                live.uses.iter().for_each(|(used, _)| self.model().program_order(*used, stream));
                self.manager.free(live.address, order).expect("a live block");
                self.model().clock(stream)
            }
            Order::Device => {
                self.model().drain_all();
                self.manager.free(live.address, Order::Device).expect("a live block");
                self.model().heads()
            }
        };
        assert!(self.manager.free(live.address, Order::Device).is_err(), "a second free is refused");
        assert!(self.manager.block(live.address).is_none(), "a freed block is not live");
        let ghost =
            |place: &Place| Ghost { place: place.clone(), uses: live.uses.clone(), before: before.clone() };
        self.ghosts.extend(live.places.iter().map(ghost));
    }

    fn synchronize(&mut self, stream: StreamId) {
        let stream = self.current(stream);
        self.model().drain(stream);
        self.manager.passed(stream);
    }

    fn trim(&mut self, keep: u64) {
        let before = self.manager.usage().reserved.total();
        let elsewhere = |is_all: bool| if is_all { self.manager.give_back_elsewhere() } else { 0 };
        let released = self.manager.trim(keep) + elsewhere(keep == 0);
        let usage = self.manager.usage();
        assert_eq!(usage.reserved.total() + released, before);
    }

    fn relieve(&mut self, bytes: u64) {
        let Usage { reserved: before, quarantined, .. } = self.manager.usage();
        let released = self.manager.relieve(bytes);
        let after = self.manager.usage().reserved;
        if quarantined > 0 {
            return; // What could not be given back before goes first, wherever it is.
        }
        assert_eq!(
            (after.device + released, after.host),
            (before.device, before.host),
            "device memory alone"
        );
    }

    /// What is held beyond a lower limit stays until it goes, and no more is made meanwhile.
    fn limit_device(&mut self, bytes: u64) {
        self.limit = bytes;
        self.most_held = bytes.max(self.manager.held_on_device());
        self.manager.limit_device(bytes, u64::MAX);
        assert_eq!(self.manager.device_limit(), bytes);
        let held = self.manager.usage().together.reserved.device;
        assert_eq!(self.manager.bytes_beyond_limit(), held.saturating_sub(bytes));
    }

    fn destroy(&mut self, stream: StreamId) {
        let name = self.current(stream);
        for live in &mut self.live {
            if live.order == Order::Stream(name) {
                live.order = Order::Device;
            }
        }
        self.manager.retire_stream(name);
        self.names[stream.0 as usize] += 1;
    }

    pub fn check(&mut self) {
        self.manager.audit().expect("the books balance");
        let usage = self.manager.usage();
        assert_eq!(usage.live.total(), self.live.iter().map(|live| live.bytes).sum::<u64>());
        let held = usage.together.reserved;
        assert!(held.device <= self.most_held, "{held:?}: more than {} on the device", self.most_held);
        assert!(held.host <= self.settings.host_limit);
        self.most_held = self.most_held.min(held.device).max(self.limit);
        assert!(usage.reserved.device <= self.model().memory_info().map_or(u64::MAX, |(_, total)| total));
        let free = self.model().memory_info().map_or(u64::MAX, |(free, _)| free);
        assert!(usage.reserved.device == 0 || free >= self.kept_headroom(), "headroom is kept");
        self.check_tiers();
        self.check_shared();
        self.check_processors();
        for tier in [Tier::Device, Tier::Host] {
            let of_others = if tier == Tier::Device { self.check_shared_pieces() } else { 0 };
            let held = usage.reserved.on(tier) + usage.pieces.held.on(tier) - of_others;
            assert_eq!(held, self.model().held(tier), "held is what the driver gave");
        }
        self.check_pieces(&usage);
        for live in &self.live {
            if live.fenced {
                assert!(!self.model().is_mapped(live.address + live.bytes, GRANULARITY), "the fence stands");
            }
            assert_eq!(
                self.model().resolve(live.address, live.bytes),
                live.places,
                "contents stay where they are"
            );
            live.words
                .iter()
                .for_each(|(at, word)| assert_eq!(self.model().read(*at), Some(*word), "at {at:#x}"));
        }
        let model = self.manager.gpu();
        self.ghosts
            .retain(|ghost| !ghost.before.iter().all(|(stream, at)| model.comes_after(None, *stream, *at)));
    }

    /// Checks the tiers that readers are told for each block, and their sum.
    fn check_tiers(&self) {
        let mut sum = TierBytes::default();
        for live in &self.live {
            let told = self.manager.block(live.address).expect("a live block").tiers;
            let mut found = TierBytes::default();
            for (tier, bytes) in self.model().tiers(live.address, live.bytes) {
                *found.bytes_mut(tier) += bytes;
                *sum.bytes_mut(tier) += bytes;
            }
            assert_eq!(told, found, "{:#x}", live.address);
        }
        assert_eq!(self.manager.usage().live, sum);
    }

    /// The address of a live block.
    pub fn block(&self, index: usize) -> u64 {
        self.live[index].address
    }

    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Frees everything and gives it back: nothing may be left of it in the driver.
    pub fn end(mut self) {
        while !self.live.is_empty() {
            self.free(0, Order::Device);
        }
        // While a stream is captured, no work is known to be over.
        for (index, name) in self.names.iter().enumerate() {
            let streams = (0..=*name).map(|name| StreamId(index as u64 + 100 * name));
            streams.for_each(|stream| self.model().set_capturing(stream, false));
        }
        // A piece that finds no room for its copy goes after those that have memory.
        let mut tries = 0;
        while !self.pieces.is_empty() {
            assert!(tries < 1000, "there is room for each copy in the end");
            self.manager.trim(0);
            self.manager.give_back_elsewhere();
            self.drop_piece(tries);
            tries += 1;
        }
        self.model().copies_take_long(false);
        self.model().drain_all();
        self.manager.passed_all();
        self.manager.trim(0);
        self.manager.give_back_elsewhere();
        self.manager.end_views(0);
        assert_eq!(self.manager.unpark(Duration::from_secs(60)).left, 0);
        let usage = self.manager.usage();
        assert_eq!((usage.live.total(), usage.reserved.total(), usage.quarantined), (0, 0, 0));
        assert_eq!(self.model().objects()[..3], [0, 0, 0], "handles, reservations, mappings");
        self.manager.discard();
        assert_eq!(self.model().objects(), [0; 4], "events too");
        let (created, released) = self.model().created_and_released();
        assert_eq!(created, released, "each create is released once");
    }
}

fn overlap(left: &[Place], right: &[Place]) -> bool {
    let meets = |(handle, range): &Place| {
        right
            .iter()
            .any(|(other, taken)| handle == other && range.start < taken.end && taken.start < range.end)
    };
    left.iter().any(meets)
}
