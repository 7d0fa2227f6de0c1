//! The samples of the process: which code holds how much, and the lines of the recording. Pure.

use std::io::Write;

use rustc_hash::FxHashMap;
use serde::Serialize;
use wm_abi::CUdevice;
use wm_schema::profile::{
    NativePlace, ProfileFrame, ProfileLine, ProfileMark, ProfileModule, ProfileRefusal, ProfileSite,
    PythonPlace, SampledAllocation, SampledFree,
};
use wm_schema::{Holder, HolderFrame, ObjectPlace};

use super::native::{CodeObject, NativeStack};
use crate::events::PieceStep;
use crate::recording::EventText;

/// Places and sites that are told apart, at most: a program that makes code all the time does not
/// fill the memory with their names. Later ones count as unknown.
const PLACES: usize = 1 << 17;
const SITES: usize = 1 << 16;

/// Bytes of text in a chunk.
const CHUNK: usize = 64 << 10;

/// The callers of an allocation, innermost first: native code up to the interpreter, then Python.
#[derive(Debug, Default)]
pub(super) struct CallStack {
    pub(super) native: NativeStack,
    pub(super) python: Vec<PythonPlace>,
    pub(super) is_cut: bool,
}

/// What was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SampleKey {
    /// A block, by its address.
    Block(u64),
    /// A piece, by its number.
    Piece(u64),
}

/// An allocation that is sampled.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewSample {
    pub(super) key: SampleKey,
    pub(super) device: CUdevice,
    pub(super) bytes: u64,
    /// Bytes that it stands for.
    pub(super) weight: u64,
}

/// A sample that lives.
#[derive(Debug)]
struct LiveSample {
    number: u64,
    site: u32,
    new: NewSample,
    /// Of a piece: it has a reference, and so many mappings.
    is_held: bool,
    mappings: u64,
}

/// A place in code by the numbers that the recording has for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RecordedPlace {
    Native(NativePlace),
    Python(PythonPlace),
}

#[derive(Debug)]
pub(super) struct SampleLedger {
    text: Vec<u8>,
    modules: NumberedValues<CodeObject>,
    places: NumberedValues<RecordedPlace>,
    sites: NumberedValues<Box<[u32]>>,
    live: FxHashMap<SampleKey, LiveSample>,
    next: u64,
    /// Sites that are told apart.
    most_sites: usize,
}

/// Values in the order in which they came, each once.
#[derive(Debug)]
struct NumberedValues<T> {
    numbers: FxHashMap<T, u32>,
    values: Vec<T>,
}

impl<T: Clone + Eq + std::hash::Hash> NumberedValues<T> {
    fn new() -> Self {
        Self { numbers: FxHashMap::default(), values: Vec::new() }
    }

    /// Its number. `Err`: it is new.
    fn number(&mut self, value: &T) -> Result<u32, u32> {
        if let Some(number) = self.numbers.get(value) {
            return Ok(*number);
        }
        let number = self.values.len() as u32;
        self.numbers.insert(value.clone(), number);
        self.values.push(value.clone());
        Err(number)
    }

    /// A place for one more?
    fn has_room(&self, value: &T, most: usize) -> bool {
        self.values.len() < most || self.numbers.contains_key(value)
    }
}

impl SampleLedger {
    pub(super) fn new() -> Self {
        Self {
            text: Vec::new(),
            modules: NumberedValues::new(),
            places: NumberedValues::new(),
            sites: NumberedValues::new(),
            live: FxHashMap::default(),
            next: 0,
            most_sites: SITES,
        }
    }

    pub(super) fn allocated(&mut self, ms: u64, new: NewSample, stack: &CallStack) {
        self.freed(ms, new.key);
        let (number, site) = (self.next, self.site(stack));
        self.next += 1;
        let kind = new.kind().to_owned();
        let NewSample { device, bytes, weight, .. } = new;
        self.line(&ProfileLine::Allocated(SampledAllocation {
            ms,
            number,
            site,
            device,
            bytes,
            weight_bytes: weight,
            kind,
        }));
        self.live.insert(new.key, LiveSample { number, site, new, is_held: true, mappings: 0 });
    }

    /// Is it a sample that lives?
    pub(super) fn knows(&self, key: SampleKey) -> bool {
        self.live.contains_key(&key)
    }

    /// What is no sample is left out.
    pub(super) fn freed(&mut self, ms: u64, key: SampleKey) {
        if let Some(sample) = self.live.remove(&key) {
            self.line(&ProfileLine::Freed(SampledFree { ms, number: sample.number }));
        }
    }

    /// What became of a piece, which lives as long as it is held or mapped.
    pub(super) fn piece(&mut self, ms: u64, number: u64, step: PieceStep) {
        let key = SampleKey::Piece(number);
        let Some(sample) = self.live.get_mut(&key) else { return };
        match step {
            PieceStep::Made { .. } => {}
            PieceStep::Mapped => sample.mappings += 1,
            PieceStep::Unmapped => sample.mappings = sample.mappings.saturating_sub(1),
            PieceStep::Released => sample.is_held = false,
            PieceStep::Held => sample.is_held = true,
        }
        if !sample.is_held && sample.mappings == 0 {
            self.freed(ms, key);
        }
    }

    /// All memory of a device is gone.
    pub(super) fn device_ended(&mut self, ms: u64, device: CUdevice) {
        let of_device = |sample: &&LiveSample| sample.new.device == device;
        let mut gone: Vec<_> = self.live.values().filter(of_device).map(|sample| sample.new.key).collect();
        gone.sort_unstable_by_key(|key| self.live.get(key).map(|sample| sample.number));
        gone.into_iter().for_each(|key| self.freed(ms, key));
    }

    pub(super) fn refused(&mut self, ms: u64, device: CUdevice, asked_bytes: u64) {
        self.line(&ProfileLine::OutOfMemory(ProfileRefusal { ms, device, asked_bytes }));
    }

    pub(super) fn mark(&mut self, ms: u64, text: &str) {
        self.line(&ProfileLine::Mark(ProfileMark { ms, text: text.to_owned() }));
    }

    fn site(&mut self, stack: &CallStack) -> u32 {
        let modules: Vec<u32> = stack.native.objects.iter().map(|object| self.module(object)).collect();
        let native = stack.native.places.iter().map(|place| {
            let module = place.object.and_then(|index| modules.get(index).copied());
            RecordedPlace::Native(NativePlace { module, offset: place.offset })
        });
        let python = stack.python.iter().cloned().map(RecordedPlace::Python);
        let places: Vec<RecordedPlace> = native.chain(python).collect();
        let frames: Option<Box<[u32]>> = places.iter().map(|place| self.place(place)).collect();
        let frames = frames.filter(|frames| self.sites.has_room(frames, self.most_sites)).unwrap_or_default();
        match self.sites.number(&frames) {
            Ok(known) => known,
            Err(id) => {
                let is_cut = stack.is_cut || stack.native.is_cut;
                self.line(&ProfileLine::Site(ProfileSite { id, frames: frames.into_vec(), is_cut }));
                id
            }
        }
    }

    fn module(&mut self, object: &CodeObject) -> u32 {
        self.modules.number(object).unwrap_or_else(|id| {
            let CodeObject { path, build_id, base } = object.clone();
            self.line(&ProfileLine::Module(ProfileModule { id, path, build_id, base }));
            id
        })
    }

    fn place(&mut self, place: &RecordedPlace) -> Option<u32> {
        if !self.places.has_room(place, PLACES) {
            return None;
        }
        Some(self.places.number(place).unwrap_or_else(|id| {
            let (native, python) = match place.clone() {
                RecordedPlace::Native(native) => (Some(native), None),
                RecordedPlace::Python(python) => (None, Some(python)),
            };
            self.line(&ProfileLine::Frame(ProfileFrame { id, native, python }));
            id
        }))
    }

    /// The sites that hold the most, at most so many, and the bytes of all others.
    pub(super) fn holders(&self, most: usize) -> (Vec<Holder>, u64) {
        let mut sites: FxHashMap<(u32, CUdevice, &str), (u64, f64)> = FxHashMap::default();
        for sample in self.live.values() {
            let NewSample { device, bytes, weight, .. } = sample.new;
            let held = sites.entry((sample.site, device, sample.new.kind())).or_default();
            held.0 += weight;
            held.1 += weight as f64 / bytes.max(1) as f64;
        }
        let mut sites: Vec<_> = sites.into_iter().collect();
        sites.sort_unstable_by(|one, other| other.1.0.cmp(&one.1.0).then(one.0.cmp(&other.0)));
        let others = sites.split_off(most.min(sites.len()));
        let holder = |((site, device, kind), (bytes, count)): ((u32, CUdevice, &str), (u64, f64))| Holder {
            device,
            bytes,
            count: count.round() as u64,
            kind: kind.to_owned(),
            address: None,
            frames: self.frames(site),
        };
        (sites.into_iter().map(holder).collect(), others.iter().map(|other| other.1.0).sum())
    }

    fn frames(&self, site: u32) -> Vec<HolderFrame> {
        let frames = self.sites.values.get(site as usize).into_iter().flatten();
        let places = frames.filter_map(|frame| self.places.values.get(*frame as usize));
        places.map(|place| self.frame(place)).collect()
    }

    fn frame(&self, place: &RecordedPlace) -> HolderFrame {
        match place {
            RecordedPlace::Python(place) => HolderFrame { python: Some(place.clone()), native: None },
            RecordedPlace::Native(NativePlace { module, offset }) => {
                let object = module.and_then(|module| self.modules.values.get(module as usize));
                let (path, build_id) =
                    object.map(|object| (object.path.clone(), object.build_id.clone())).unwrap_or_default();
                HolderFrame { native: Some(ObjectPlace { path, build_id, offset: *offset }), python: None }
            }
        }
    }

    pub(super) fn line(&mut self, line: &impl Serialize) {
        // A vector takes every byte, and the maps of these types have keys of text.
        let _always_fits = serde_json::to_writer(&mut self.text, line);
        let _always_fits = self.text.write_all(b"\n");
    }

    pub(super) fn is_full(&self) -> bool {
        self.text.len() >= CHUNK
    }
}

impl EventText for SampleLedger {
    fn text(&self) -> &[u8] {
        &self.text
    }

    fn clear(&mut self) {
        self.text.clear();
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.text)
    }
}

impl NewSample {
    fn kind(&self) -> &'static str {
        match self.key {
            SampleKey::Block(_) => "block",
            SampleKey::Piece(_) => "piece",
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): memory that is gone is said to be held, or held memory is left out.
    use proptest::prelude::*;

    use super::*;
    use crate::profile::native::CodePlace;

    fn stack(function: &str) -> CallStack {
        let object = CodeObject { path: "/lib/a.so".into(), build_id: "ab".into(), base: 0x1000 };
        let places =
            vec![CodePlace { object: Some(0), offset: 0x20 }, CodePlace { object: None, offset: 0x30 }];
        CallStack {
            native: NativeStack { places, objects: vec![object], is_cut: false },
            python: vec![PythonPlace { function: function.into(), file: "a.py".into(), line: 3 }],
            is_cut: false,
        }
    }

    fn block(address: u64, bytes: u64) -> NewSample {
        NewSample { key: SampleKey::Block(address), device: 0, bytes, weight: bytes * 2 }
    }

    fn lines(ledger: &mut SampleLedger) -> Vec<ProfileLine> {
        let text = String::from_utf8(ledger.take()).expect("text");
        text.lines().map(|line| serde_json::from_str(line).expect("a line of the schema")).collect()
    }

    #[test]
    fn a_number_is_defined_once_and_before_it_is_used() {
        let mut ledger = SampleLedger::new();
        ledger.allocated(1, block(0x10, 5), &stack("f"));
        ledger.allocated(2, block(0x20, 7), &stack("f"));
        ledger.freed(3, SampleKey::Block(0x10));
        let lines = lines(&mut ledger);
        let kinds: Vec<String> = lines
            .iter()
            .map(|line| format!("{line:?}").split('(').next().unwrap_or_default().to_owned())
            .collect();
        let expected = ["Module", "Frame", "Frame", "Frame", "Site", "Allocated", "Allocated", "Freed"]
            .map(str::to_owned);
        assert_eq!(kinds, expected);
        let ProfileLine::Allocated(second) = &lines[6] else { panic!("{lines:?}") };
        assert_eq!((second.number, second.site, second.bytes, second.weight_bytes), (1, 0, 7, 14));
        assert_eq!(lines[7], ProfileLine::Freed(SampledFree { ms: 3, number: 0 }));
    }

    #[test]
    fn holders_are_sites_and_the_largest_come_first() {
        let mut ledger = SampleLedger::new();
        for (address, bytes, function) in
            [(1, 10, "small"), (2, 300, "large"), (3, 20, "small"), (4, 1, "tiny")]
        {
            ledger.allocated(0, block(address, bytes), &stack(function));
        }
        let (holders, others) = ledger.holders(2);
        let name = |holder: &Holder| holder.frames[2].python.clone().expect("Python").function;
        let found: Vec<_> = holders.iter().map(|holder| (name(holder), holder.bytes, holder.count)).collect();
        assert_eq!(found, [("large".to_owned(), 600, 2), ("small".to_owned(), 60, 4)]);
        assert_eq!(
            (others, holders[0].frames[0].native.clone().expect("native").path.as_str()),
            (2, "/lib/a.so")
        );
    }

    #[test]
    fn a_piece_lives_as_long_as_it_is_held_or_mapped() {
        let mut ledger = SampleLedger::new();
        let held = |ledger: &SampleLedger| ledger.holders(9).0.iter().map(|holder| holder.bytes).sum::<u64>();
        ledger.allocated(0, NewSample { key: SampleKey::Piece(7), ..block(0, 9) }, &stack("f"));
        for (step, expected) in [
            (PieceStep::Mapped, 18),
            (PieceStep::Released, 18),
            (PieceStep::Held, 18),
            (PieceStep::Released, 18),
            (PieceStep::Unmapped, 0),
            (PieceStep::Mapped, 0),
        ] {
            ledger.piece(0, 7, step);
            ledger.piece(0, 8, step);
            assert_eq!(held(&ledger), expected, "{step:?}");
        }
    }

    #[test]
    fn code_that_is_made_again_and_again_does_not_fill_the_memory() {
        const SITES: usize = 50;
        let mut ledger = SampleLedger { most_sites: SITES, ..SampleLedger::new() };
        for index in 0..SITES + 10 {
            ledger.allocated(0, block(1, 1), &stack(&index.to_string()));
            ledger.take();
        }
        assert_eq!(ledger.sites.values.len(), SITES + 1, "one for all others");
        assert_eq!(ledger.frames(SITES as u32), []);
    }

    proptest! {
        /// The lines, played again, give what the ledger holds.
        #[test]
        fn what_is_written_is_what_is_held(
            steps in proptest::collection::vec((0u64..8, 0u8..4, 1u64..100, 0i32..2), 1..100),
        ) {
            let mut ledger = SampleLedger::new();
            for (address, step, bytes, device) in steps {
                match step {
                    0 | 1 => ledger.allocated(0, NewSample { device, ..block(address, bytes) }, &stack("f")),
                    2 => ledger.freed(0, SampleKey::Block(address)),
                    _ if bytes == 1 => ledger.device_ended(0, device),
                    _ => {}
                }
            }
            let (holders, _) = ledger.holders(usize::MAX);
            let mut live = std::collections::BTreeMap::new();
            for line in lines(&mut ledger) {
                match line {
                    ProfileLine::Allocated(it) => prop_assert!(live.insert(it.number, it.weight_bytes).is_none()),
                    ProfileLine::Freed(it) => prop_assert!(live.remove(&it.number).is_some()),
                    _ => {}
                }
            }
            let held: u64 = holders.iter().map(|holder| holder.bytes).sum();
            prop_assert_eq!(live.values().sum::<u64>(), held);
        }
    }
}
