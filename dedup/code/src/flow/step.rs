//! The effect of one instruction on the values.

use super::forms::{is_byte_of_table, is_one, is_size, is_small, is_window, is_zero};
use super::guards::PredicateGuard;
use super::state::{MachineState, StatePlaces};
use super::value::{CODED, GLOBAL, Id, LITERAL, MEMORY, NUMBER, PLACES, UNKNOWN, VARIABLE, Values, WINDOW};
use crate::kernel::{KernelCode, ParameterBank};
use crate::sass::{Action, MachineInstruction, Operand, Registers, Space};

/// Parameters have no more bytes.
const PARAMETERS: u32 = 1 << 15;

/// Constants of the driver on sm_90 that hold generic addresses of constants: the byte at which
/// such an address stands, and the byte that it is of.
const ADDRESSES_OF_CONSTANTS: [(u32, u32); 2] = [(0xc0, 0), (0x198, 0x1e0)];

/// The first byte of the parameters among the constants, on sm_90.
const PARAMETERS_ON_SM_90: u32 = 0x210;

/// The upper half of an address, if it is written into the code, is one of these.
const LITERALS: std::ops::RangeInclusive<u32> = 1..=0x1_ffff;

/// What the analysis knows beside the state at one place.
#[derive(Debug)]
pub(super) struct World {
    pub(super) values: Values,
    pub(super) places: StatePlaces,
    /// The memory of the block, as one value.
    pub(super) shared: Id,
    /// The thread's memory behind addresses that are not known, as one value.
    pub(super) local: Id,
    pub(super) parameters: ParameterBank,
    /// One of all words of the parameters.
    any: Id,
    /// The same, of eight bytes.
    any_address: Id,
    /// The places of instructions that the loader changes.
    relocated: Vec<usize>,
    /// The places behind calls, in rising order.
    returns: Vec<usize>,
    /// The guard of the instruction that is followed.
    guard: Option<PredicateGuard>,
}

/// What an instruction does to memory that others see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryAccess {
    /// It reads at this address.
    Read(Id),
    /// It writes this value at this address.
    Write(Id, Id),
    /// It reads, then writes.
    Change(Id, Id),
    /// It writes this value by the descriptor of a tensor, which is in the parameters from this
    /// word on. The first word is the tensor's address; of the others none is one.
    WriteTensor(u16, Id),
    /// Its effect is not known.
    Unknown,
}

impl World {
    pub(super) fn new(kernel: &KernelCode, places: StatePlaces, returns: Vec<usize>) -> World {
        let begin = if kernel.sm >= 100 {
            0x380
        } else if kernel.sm >= 90 {
            PARAMETERS_ON_SM_90
        } else {
            0x160
        };
        let none = ParameterBank { begin, bytes: 0, parameters: Vec::new() };
        let parameters = kernel.parameters.clone().unwrap_or(none);
        let mut values = Values::new();
        let words = parameters.bytes.min(PARAMETERS).div_ceil(8) as u16;
        let [any, any_address] =
            [false, true].map(|is_long| if words == 0 { NUMBER } else { values.any_of(0..words, is_long) });
        let mut relocated: Vec<usize> =
            kernel.relocations.iter().map(|relocation| relocation.at & !15).collect();
        relocated.sort_unstable();
        World {
            values,
            places,
            shared: NUMBER,
            local: NUMBER,
            parameters,
            any,
            any_address,
            relocated,
            returns,
            guard: None,
        }
    }

    /// Changes the state as the instruction at this byte does.
    pub(super) fn step(
        &mut self,
        at: usize,
        one: &MachineInstruction,
        state: &mut MachineState,
    ) -> Option<MemoryAccess> {
        self.guard = PredicateGuard::of(one);
        let access = self.follow(at, one, state);
        state.guards.end(one);
        self.guard = None;
        access
    }

    fn follow(
        &mut self,
        at: usize,
        one: &MachineInstruction,
        state: &mut MachineState,
    ) -> Option<MemoryAccess> {
        let moved = self.relocated.binary_search(&at).is_ok();
        if moved && !one.sources.iter().any(|source| matches!(source, Operand::Immediate(_) | Operand::Wide))
        {
            return (one.action != Action::Jump).then_some(MemoryAccess::Unknown);
        }
        self.stack(one, state);
        match one.action {
            Action::Nothing | Action::Jump => None,
            Action::Number if is_window(one) => self.put(one, state, [WINDOW; 4]),
            Action::Number => self.put(one, state, [NUMBER; 4]),
            Action::Load(space) => self.load(space, one, state),
            Action::Store(space) => self.store(space, one, state),
            Action::Atomic(space) => self.atomic(space, one, state),
            Action::ToShared => {
                let address = self.address(one, state);
                self.shared = self.values.join(self.shared, MEMORY);
                Some(MemoryAccess::Read(address))
            }
            Action::TensorLoad => {
                self.shared = self.values.join(self.shared, MEMORY);
                Some(MemoryAccess::Read(self.address(one, state)))
            }
            Action::TensorStore => Some(self.store_tensor(one, state)),
            _ => {
                let words = std::array::from_fn(|word| self.result(one, word, state, moved));
                self.put(one, state, words)
            }
        }
    }

    /// One word of the result of arithmetic.
    fn result(&mut self, one: &MachineInstruction, word: usize, state: &MachineState, moved: bool) -> Id {
        if word >= usize::from(one.destination.count) {
            return NUMBER;
        }
        let [a, b, c] = one.sources;
        match one.action {
            Action::Constant if is_byte_of_table(one) => NUMBER,
            Action::Choice | Action::Constant => {
                let mut chosen = None;
                for source in one.sources.iter().filter(|source| **source != Operand::None) {
                    let value = self.word(source, word, state, moved);
                    chosen = Some(chosen.map_or(value, |other| self.values.join(other, value)));
                }
                chosen.unwrap_or(NUMBER)
            }
            Action::Sum => {
                // The loader changes the number of such an instruction.
                if !moved && let Some(place) = self.moved_place([a, b, c], word, state) {
                    return place;
                }
                let terms = [a, b, c].map(|source| self.term(&source, word, state, moved));
                let sum = self.total(terms);
                let terms = [a, b, c].iter().filter(|term| **term != Operand::None && !is_zero(term)).count();
                if terms > 1 { self.values.computed(sum) } else { sum }
            }
            Action::Product => {
                let product = match (is_one(&a), is_one(&b)) {
                    (true, _) => self.term(&b, 0, state, moved),
                    (_, true) => self.term(&a, 0, state, moved),
                    _ if is_zero(&a) || is_zero(&b) => NUMBER,
                    _ => self.product(&a, &b, state, moved),
                };
                let term = self.term(&c, word, state, moved);
                let sum = self.values.add(product, term);
                if product == NUMBER { sum } else { self.values.computed(sum) }
            }
            Action::UpperProduct => {
                let product = self.product(&a, &b, state, moved);
                let term = self.factor(&c, state, moved);
                self.values.add(product, term)
            }
            Action::ShiftedSum => {
                let shifted = [a, c].map(|source| self.factor(&source, state, moved));
                let term = self.term(&b, word, state, moved);
                self.total([shifted[0], shifted[1], term])
            }
            Action::Bits if is_small(one) => NUMBER,
            // A constant of the code may be made so.
            Action::Float => {
                let is_literal = |source: &Operand| {
                    let value = self.word(source, 0, state, moved);
                    self.values.get(value).literal
                };
                if [a, b, c].iter().any(is_literal) { LITERAL } else { NUMBER }
            }
            // How far it is shifted is no part of the result.
            Action::Shift => {
                let parts = [a, c].map(|source| self.factor(&source, state, moved));
                self.values.add(parts[0], parts[1])
            }
            _ => {
                let parts = [a, b, c].map(|source| self.factor(&source, state, moved));
                self.total(parts)
            }
        }
    }

    fn product(&mut self, one: &Operand, other: &Operand, state: &MachineState, moved: bool) -> Id {
        let [one, other] = [one, other].map(|source| self.factor(source, state, moved));
        self.values.product(one, other)
    }

    /// The sum of the place of a constant and of a number that stands in the code.
    fn moved_place(&mut self, terms: [Operand; 3], word: usize, state: &MachineState) -> Option<Id> {
        let (mut place, mut number) = (None, 0_u32);
        for term in terms.iter().filter(|term| **term != Operand::None && !is_zero(term)) {
            match *term {
                Operand::Immediate(more) => number = number.wrapping_add(more),
                Operand::Registers(registers, false) if place.is_none() && word == 0 => {
                    place = self.values.get(self.register(registers, 0, state)).constant;
                    place?;
                }
                _ => return None,
            }
        }
        place.map(|constant| self.values.constants_memory(constant.wrapping_add(number)))
    }

    /// Bytes of the block's memory go to a tensor. The descriptor in the parameters has its
    /// address.
    fn store_tensor(&mut self, one: &MachineInstruction, state: &MachineState) -> MemoryAccess {
        let constant = self.values.get(self.register(one.address[0], 0, state)).constant;
        let at = constant.and_then(|constant| constant.checked_sub(self.parameters.begin));
        match at.filter(|at| *at < self.parameters.bytes.min(PARAMETERS) && at % 8 == 0) {
            Some(at) if !self.values.get(self.shared).window => {
                MemoryAccess::WriteTensor((at / 8) as u16, self.shared)
            }
            _ => MemoryAccess::Unknown,
        }
    }

    fn total(&mut self, terms: [Id; 3]) -> Id {
        let sum = self.values.add(terms[0], terms[1]);
        self.values.add(sum, terms[2])
    }

    /// A summand; a negated one is no base.
    fn term(&mut self, source: &Operand, word: usize, state: &MachineState, moved: bool) -> Id {
        let value = self.word(source, word, state, moved);
        match source {
            Operand::Registers(_, true) | Operand::Constant { negated: true, .. } => {
                self.values.offset(value)
            }
            _ => value,
        }
    }

    /// All words of a source, as something that is no base.
    fn factor(&mut self, source: &Operand, state: &MachineState, moved: bool) -> Id {
        let count = match source {
            Operand::Registers(registers, _) => registers.count,
            Operand::Constant { words, .. } => *words,
            _ => 1,
        };
        let mut all = NUMBER;
        for word in 0..usize::from(count) {
            let value = self.word(source, word, state, moved);
            let value = self.values.offset(value);
            all = self.values.add(all, value);
        }
        all
    }

    /// One word of a source.
    fn word(&mut self, source: &Operand, word: usize, state: &MachineState, moved: bool) -> Id {
        match *source {
            Operand::None => NUMBER,
            Operand::Registers(registers, _) => self.register(registers, word, state),
            Operand::Immediate(_) if moved => VARIABLE,
            Operand::Immediate(number) => {
                let plain = match number {
                    0 => NUMBER,
                    _ if LITERALS.contains(&number) => LITERAL,
                    _ => CODED,
                };
                self.place(number as usize).map_or(plain, |place| self.values.word(place))
            }
            Operand::Wide if moved => VARIABLE,
            Operand::Wide => LITERAL,
            Operand::Constant { bank, offset, words, index, .. } => {
                if word >= usize::from(words) {
                    return NUMBER;
                }
                let table = match (index.count, words) {
                    (0, _) => None,
                    (_, 2) => Some(self.any_address),
                    _ => Some(self.any),
                };
                self.constant(bank, offset + 4 * word as u32, table)
            }
        }
    }

    /// What a call through registers may call.
    pub(super) fn target(&self, one: &MachineInstruction, state: &MachineState) -> Id {
        let [low, high] = [0, 1].map(|word| self.register(one.address[0], word, state));
        if low == high { low } else { UNKNOWN }
    }

    /// The place behind a call, as a word.
    pub(super) fn place(&self, at: usize) -> Option<u16> {
        let index = self.returns.binary_search(&at).ok()?;
        PLACES.checked_add(u16::try_from(index).ok()?).filter(|place| *place < GLOBAL)
    }

    pub(super) fn register(&self, registers: Registers, word: usize, state: &MachineState) -> Id {
        if word >= usize::from(registers.count) {
            return NUMBER;
        }
        let number = usize::from(registers.first) + word;
        let place = self.places.register(registers.file, number);
        self.guard.and_then(|guard| state.guards.value(place, guard)).unwrap_or(state.values[place])
    }

    /// A word of a bank of constants. `table`: what it is if the place is computed.
    fn constant(&mut self, bank: u8, offset: u32, table: Option<Id>) -> Id {
        if let (0, Some(table)) = (bank, table) {
            return table;
        }
        let ParameterBank { begin, bytes, .. } = self.parameters;
        match bank {
            0 if offset < begin => {
                let known = ADDRESSES_OF_CONSTANTS.iter().find(|(at, _)| *at == offset);
                match known.filter(|_| begin == PARAMETERS_ON_SM_90) {
                    Some((_, constant)) => self.values.constants_memory(*constant),
                    None if is_size(begin, offset) => NUMBER,
                    None => WINDOW,
                }
            }
            0 if offset - begin < bytes.min(PARAMETERS) => self.values.word(((offset - begin) / 8) as u16),
            0 => UNKNOWN,
            // The compiler's own constants.
            2 => LITERAL,
            // The program's: the host may have put pointers there.
            3 => MEMORY,
            4 => VARIABLE,
            _ => UNKNOWN,
        }
    }

    /// Writes the result. An instruction with a guard may leave the old values.
    fn put(
        &mut self,
        one: &MachineInstruction,
        state: &mut MachineState,
        words: [Id; 4],
    ) -> Option<MemoryAccess> {
        for (word, number) in one.destination.iter().enumerate() {
            let place = self.places.register(one.destination.file, number);
            let value = words[word.min(3)];
            let Some(old) = state.values.get_mut(place) else { continue };
            state.guards.write(place, self.guard, value);
            *old = if one.fields.guarded() { self.values.join(*old, value) } else { value };
        }
        None
    }

    /// The address in memory: the sum of its registers.
    fn address(&mut self, one: &MachineInstruction, state: &MachineState) -> Id {
        let mut sum = NUMBER;
        for registers in one.address {
            for word in 0..usize::from(registers.count) {
                let value = self.register(registers, word, state);
                sum = self.values.add(sum, value);
                let value = self.values.get(value);
                // An address that is written into the code counts as one that was loaded.
                if word == 1 && value.literal && !value.has_base() {
                    sum = self.values.join(sum, MEMORY);
                }
            }
        }
        sum
    }

    fn load(
        &mut self,
        space: Space,
        one: &MachineInstruction,
        state: &mut MachineState,
    ) -> Option<MemoryAccess> {
        if space == Space::Local {
            let words = std::array::from_fn(|word| self.local_word(one, word, state));
            return self.put(one, state, words);
        }
        if space == Space::Shared {
            return self.put(one, state, [self.shared; 4]);
        }
        let address = self.address(one, state);
        let loaded = self.loaded(address, state);
        self.put(one, state, [loaded; 4]);
        Some(MemoryAccess::Read(address))
    }

    /// What a load from this address may give. If the address may be a window on other memory,
    /// that is the block's or the thread's, or the parameters.
    fn loaded(&mut self, address: Id, state: &MachineState) -> Id {
        if self.values.get(address).has_base() {
            return MEMORY;
        }
        let mut all = [MEMORY, self.shared, self.local, self.any]
            .into_iter()
            .fold(MEMORY, |all, one| self.values.join(all, one));
        for slot in self.places.slots() {
            all = self.values.join(all, state.values[slot]);
        }
        all
    }

    fn store(
        &mut self,
        space: Space,
        one: &MachineInstruction,
        state: &mut MachineState,
    ) -> Option<MemoryAccess> {
        let data = self.data(one, state);
        match space {
            Space::Shared => {
                self.shared = self.values.join(self.shared, data);
                None
            }
            Space::Local => {
                self.store_local(one, state);
                None
            }
            Space::Global | Space::Generic => {
                let address = self.address(one, state);
                self.stored(address, data);
                Some(self.written(address, data, MemoryAccess::Write))
            }
        }
    }

    /// If the address of the block's or the thread's memory is stored where all see it, loads of it
    /// would later give values that nothing knows of.
    fn written(&self, address: Id, data: Id, access: fn(Id, Id) -> MemoryAccess) -> MemoryAccess {
        if self.values.get(data).window { MemoryAccess::Unknown } else { access(address, data) }
    }

    /// A store behind an address that may be a window on the block's or the thread's memory.
    fn stored(&mut self, address: Id, data: Id) {
        if !self.values.get(address).has_base() {
            self.shared = self.values.join(self.shared, data);
            self.local = self.values.join(self.local, data);
        }
    }

    /// What is stored, all words of it together.
    fn data(&mut self, one: &MachineInstruction, state: &MachineState) -> Id {
        let mut all = NUMBER;
        for source in &one.sources {
            let Operand::Registers(registers, _) = *source else { continue };
            for word in 0..usize::from(registers.count) {
                let value = self.register(registers, word, state);
                all = self.values.join(all, value);
            }
        }
        all
    }

    fn atomic(
        &mut self,
        space: Space,
        one: &MachineInstruction,
        state: &mut MachineState,
    ) -> Option<MemoryAccess> {
        let data = self.data(one, state);
        if space == Space::Shared {
            self.shared = self.values.join(self.shared, data);
            return self.put(one, state, [self.shared; 4]);
        }
        let address = self.address(one, state);
        self.stored(address, data);
        let loaded = self.loaded(address, state);
        self.put(one, state, [loaded; 4]);
        Some(self.written(address, data, MemoryAccess::Change))
    }
}
