//! Handles that PyTorch has released stay mapped where they were, and serve its next pieces.
//!
//! PyTorch's expandable segments answer a shortage by unmapping and releasing every page that is
//! free, to make as many again at other addresses, with five driver calls each. Here a page that is
//! released keeps its memory, which is *idle*, and its mapping. A page that is made gets an *alias*
//! in place of a handle, with no memory of its own yet. The alias is bound when it is mapped: if
//! idle memory of its kind is mapped at that address, to that memory, so that a program that
//! repeats itself makes no call; else to other idle memory, which is then mapped at both places.
//!
//! Invariants: memory has at most one holder, and is idle if it has none; there is idle memory for
//! each alias that is not bound, unless its device was reset since: then its memory is made when it
//! is mapped; at an address there is at most one mapping of ours, which grants access from the
//! beginning; memory that was shared is never idle here.
//!
//! A piece on the host of any other maker has an alias too, so that it can become device memory
//! while the program holds it, and so has one that may move. Its memory is never idle, and has the
//! access that is granted.
//! Which memory is idle, and which is reserved, is in the device's pool ([`HandlePool`]). Nothing
//! here waits for the GPU: a program that unmaps has waited.

pub(crate) mod adopted;
mod exchange;
mod give_back;
mod passed_on;
pub(crate) mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasherDefault;

use smallvec::SmallVec;
use wm_abi::{CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUdevice, CUresult};
use wm_memory::{HandlePool, PieceKind};

use super::book::HandleMap;

/// Aliases are told from the driver's handles, which are addresses, by their first bits.
const ALIASES: u64 = 0xB00C << 48;

/// Access rights of a mapping: devices, with `CU_MEM_ACCESS_FLAGS_*`.
pub(crate) type Access = SmallVec<[(CUdevice, u32); 1]>;

/// The driver's calls, and the pool of each device.
pub(crate) trait Vmm {
    /// `None` where the device has no pool: its contexts are gone.
    fn pool<T>(&self, device: CUdevice, change: impl FnOnce(&mut HandlePool) -> T) -> Option<T>;
    fn make(&self, kind: &PieceKind) -> Result<u64, CUresult>;
    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), CUresult>;
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), CUresult>;
    fn release(&self, handle: u64) -> Result<(), CUresult>;
    fn allow(&self, address: u64, bytes: u64, access: &Access) -> Result<(), CUresult>;
}

#[derive(Debug)]
struct CachedHandle {
    kind: PieceKind,
    /// The driver's.
    handle: u64,
    /// The alias that it is bound to, or else it is idle.
    holder: Option<u64>,
    /// When it became idle.
    idle_since: u64,
    /// Where it is mapped.
    mappings: SmallVec<[u64; 2]>,
    /// It serves a later piece when the program gives it up, unless it is shared.
    kept: bool,
    /// Another holder may use it.
    shared: bool,
    /// It is made as the device's manager makes memory.
    movable: bool,
    /// The manager moves it: the handle may be another one by now.
    adopted: bool,
}

impl CachedHandle {
    /// The driver gets it when the program gives it up.
    fn is_returned(&self) -> bool {
        self.shared || !self.kept
    }
}

#[derive(Debug, Clone)]
struct CachedMapping {
    memory: u64,
    bytes: u64,
    access: Access,
    /// The program has it mapped. A mapping that it has given up serves the next piece.
    used: bool,
}

#[derive(Debug, Clone, Copy)]
struct Alias {
    kind: PieceKind,
    memory: Option<u64>,
    /// Addresses at which the program has it mapped.
    mappings: usize,
    /// Times that the program has mapped or shared it: from the first one on its memory holds bytes
    /// that stay with it.
    uses: usize,
    /// From its creation, and from each time that the program asked for it by an address.
    references: usize,
}

/// A piece, as it is before an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldPiece {
    pub(crate) kind: PieceKind,
    /// The driver's handle of its memory.
    pub(crate) handle: u64,
    /// Addresses at which the program has it mapped.
    pub(crate) at: Vec<u64>,
    /// Another holder may use its memory.
    pub(crate) shared: bool,
    uses: usize,
}

/// The cached handles of all devices.
#[derive(Debug)]
pub(crate) struct HandleCache<V> {
    vmm: V,
    memories: HandleMap<CachedHandle>,
    aliases: HandleMap<Alias>,
    mappings: BTreeMap<u64, CachedMapping>,
    /// Where adopted pieces are that may be mapped elsewhere, too, by mappings without use.
    with_others: BTreeSet<u64>,
    /// Aliases that a thread gives other memory.
    in_exchange: Vec<u64>,
    last: u64,
}

impl<V: Vmm> HandleCache<V> {
    pub(crate) const fn new(vmm: V) -> Self {
        Self {
            vmm,
            memories: HandleMap::with_hasher(BuildHasherDefault::new()),
            aliases: HandleMap::with_hasher(BuildHasherDefault::new()),
            mappings: BTreeMap::new(),
            with_others: BTreeSet::new(),
            in_exchange: Vec::new(),
            last: 0,
        }
    }

    fn oldest(&self, kind: PieceKind) -> Option<u64> {
        self.vmm.pool(kind.device, |pool| pool.oldest(kind)).flatten()
    }

    fn end_reservation(&self, kind: PieceKind) {
        self.vmm.pool(kind.device, |pool| pool.end_reservation(kind));
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The driver's handle; `None` for an alias that is not bound yet, and for foreign numbers.
    pub(crate) fn handle(&self, alias: u64) -> Option<u64> {
        self.memories.get(&self.aliases.get(&alias)?.memory?).map(|memory| memory.handle)
    }

    /// An alias for idle memory that is reserved in the pool.
    pub(crate) fn reserve(&mut self, kind: PieceKind) -> u64 {
        self.alias(kind, None)
    }

    /// An alias for memory that was made.
    pub(crate) fn made(&mut self, kind: PieceKind, handle: u64) -> u64 {
        let number = self.remember(kind, handle);
        let alias = self.alias(kind, Some(number));
        self.hand_over(number, alias);
        alias
    }

    fn hand_over(&mut self, number: u64, alias: u64) {
        if let Some(memory) = self.memories.get_mut(&number) {
            memory.holder = Some(alias);
        }
    }

    fn remember(&mut self, kind: PieceKind, handle: u64) -> u64 {
        let number = self.next();
        let memory = CachedHandle {
            kind,
            handle,
            holder: None,
            idle_since: 0,
            mappings: SmallVec::new(),
            kept: true,
            shared: false,
            movable: false,
            adopted: false,
        };
        self.memories.insert(number, memory);
        number
    }

    fn alias(&mut self, kind: PieceKind, memory: Option<u64>) -> u64 {
        let alias = ALIASES | self.next();
        self.aliases.insert(alias, Alias { kind, memory, mappings: 0, uses: 0, references: 1 });
        alias
    }

    /// Maps the handle that an alias stands for. `None`: the driver's answer is not known here, and
    /// nothing has changed.
    pub(crate) fn map(&mut self, address: u64, bytes: u64, alias: u64) -> Option<Result<(), CUresult>> {
        let found = *self.aliases.get(&alias).filter(|found| bytes == found.kind.bytes)?;
        if found.references == 0 || self.overlaps_used(address, bytes) {
            return Some(Err(CUresult::INVALID_VALUE));
        }
        Some(self.map_alias(address, bytes, alias, found))
    }

    fn map_alias(&mut self, address: u64, bytes: u64, alias: u64, found: Alias) -> Result<(), CUresult> {
        let there =
            if found.uses > 0 { self.own_at(address, alias) } else { self.idle_at(address, found.kind) };
        if let Some(number) = there {
            self.bind(alias, number);
            self.used(address, alias);
            return Ok(());
        }
        self.clear(address, bytes)?;
        let number = match found.memory.or_else(|| self.oldest(found.kind)) {
            Some(number) => number,
            // Idle memory went back to the driver with the device's contexts.
            None => self.make_idle(found.kind)?,
        };
        let placed = self.place(address, bytes, number);
        let number = match placed {
            Ok(()) => number,
            Err(error) if found.memory.is_some() => return Err(error),
            // The driver refuses memory that it made: it is not given out again.
            Err(error) => {
                let made = self.make_idle(found.kind).map_err(|_| error)?;
                let _left = self.give_up_handle(number);
                let number = made;
                self.place(address, bytes, number)?;
                number
            }
        };
        self.bind(alias, number);
        self.used(address, alias);
        Ok(())
    }

    /// New memory, which is idle.
    fn make_idle(&mut self, kind: PieceKind) -> Result<u64, CUresult> {
        let made = self.vmm.make(&kind)?;
        let number = self.remember(kind, made);
        let since = self.next();
        if let Some(memory) = self.memories.get_mut(&number) {
            memory.idle_since = since;
        }
        self.vmm.pool(kind.device, |pool| pool.park(kind, since, number));
        Ok(number)
    }

    /// Maps memory at one more address.
    fn place(&mut self, address: u64, bytes: u64, number: u64) -> Result<(), CUresult> {
        let access = self.usual_access(number);
        let Some(memory) = self.memories.get_mut(&number) else { return Err(CUresult::INVALID_VALUE) };
        self.vmm.map(address, bytes, memory.handle)?;
        // At once: if memory is unmapped at one address while it has no access at another one yet,
        // later maps of it fail.
        let allowed = if access.is_empty() { Ok(()) } else { self.vmm.allow(address, bytes, &access) };
        if let Err(error) = allowed {
            let _left = self.vmm.unmap(address, bytes);
            return Err(error);
        }
        memory.mappings.push(address);
        self.mappings.insert(address, CachedMapping { memory: number, bytes, access, used: false });
        Ok(())
    }

    /// Memory that is mapped at an address and may be had there.
    fn idle_at(&self, address: u64, kind: PieceKind) -> Option<u64> {
        let view = self.mappings.get(&address)?;
        let memory = self.memories.get(&view.memory)?;
        (memory.holder.is_none() && memory.kind == kind).then_some(view.memory)
    }

    /// The alias's own memory, if it is mapped at an address.
    fn own_at(&self, address: u64, alias: u64) -> Option<u64> {
        let view = self.mappings.get(&address)?;
        let memory = self.memories.get(&view.memory)?;
        (memory.holder == Some(alias)).then_some(view.memory)
    }

    /// The access that the program granted at the last mapping, else the one that it will grant.
    /// Memory that serves no later piece has what the program grants.
    fn usual_access(&self, number: u64) -> Access {
        let Some(memory) = self.memories.get(&number).filter(|memory| memory.kept) else {
            return Access::new();
        };
        let before = memory
            .mappings
            .last()
            .and_then(|at| self.mappings.get(at))
            .filter(|view| !view.access.is_empty());
        before.map_or_else(
            || Access::from([(memory.kind.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)]),
            |view| view.access.clone(),
        )
    }

    /// Binds an alias to memory. The memory that it had before is idle.
    fn bind(&mut self, alias: u64, number: u64) {
        let Some(found) = self.aliases.get_mut(&alias) else { return };
        let (kind, before) = (found.kind, found.memory.replace(number));
        if before == Some(number) {
            return;
        }
        let before = before.and_then(|before| Some((self.leave(before)?, before)));
        if let Some(memory) = self.memories.get_mut(&number) {
            memory.holder = Some(alias);
            let since = memory.idle_since;
            // In one step: another thread may reserve idle memory before and after it.
            let bound = self.vmm.pool(kind.device, |pool| pool.bind(kind, (since, number), before));
            if let Some((_, before)) = before.filter(|_| bound.is_none()) {
                let _left = self.give_up_handle(before);
            }
        }
    }

    /// Memory has no holder any more. The value is the time since when it is idle.
    fn leave(&mut self, number: u64) -> Option<u64> {
        let since = self.next();
        let memory = self.memories.get_mut(&number)?;
        (memory.holder, memory.idle_since) = (None, since);
        Some(since)
    }

    fn used(&mut self, address: u64, alias: u64) {
        if let Some(view) = self.mappings.get_mut(&address) {
            view.used = true;
        }
        if let Some(alias) = self.aliases.get_mut(&alias) {
            alias.mappings += 1;
            alias.uses += 1;
        }
    }

    fn overlaps_used(&self, address: u64, bytes: u64) -> bool {
        self.overlapping(address, bytes).iter().any(|at| self.mappings[at].used)
    }

    fn overlapping(&self, address: u64, bytes: u64) -> Vec<u64> {
        let before = self.mappings.range(..address).next_back();
        let reaches = before.filter(|(at, view)| *at + view.bytes > address).map(|(at, _)| *at);
        let inside = self.mappings.range(address..address.saturating_add(bytes)).map(|(at, _)| *at);
        reaches.into_iter().chain(inside).collect()
    }

    /// Removes mappings that the program has given up and that reach into a range, before something
    /// else is mapped there.
    pub(crate) fn clear(&mut self, address: u64, bytes: u64) -> Result<(), CUresult> {
        for at in self.overlapping(address, bytes) {
            if !self.mappings[&at].used {
                self.take_down(at)?;
            }
        }
        Ok(())
    }

    fn take_down(&mut self, address: u64) -> Result<(), CUresult> {
        let Some(view) = self.mappings.get(&address) else { return Ok(()) };
        self.vmm.unmap(address, view.bytes)?;
        let memory = view.memory;
        self.mappings.remove(&address);
        if let Some(memory) = self.memories.get_mut(&memory) {
            memory.mappings.retain(|at| *at != address);
        }
        Ok(())
    }

    /// The program unmaps a range. `None`: it is not a whole number of its mappings of ours, and
    /// the driver is to answer.
    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) -> Option<Result<(), CUresult>> {
        if bytes == 0 || !self.is_used_throughout(address, bytes) {
            return None;
        }
        let inside = self.mappings.range(address..address.saturating_add(bytes));
        let inside: Vec<(u64, u64)> = inside.map(|(at, view)| (*at, view.memory)).collect();
        Some(inside.into_iter().try_for_each(|(at, memory)| self.give_up(at, memory)))
    }

    /// Is a range a whole number of mappings of ours that the program has?
    fn is_used_throughout(&self, address: u64, bytes: u64) -> bool {
        let mut end = address;
        for (at, view) in self.mappings.range(address..address.saturating_add(bytes)) {
            if *at != end || !view.used {
                return false;
            }
            end += view.bytes;
        }
        end == address.saturating_add(bytes)
    }

    /// The driver has unmapped a range by itself.
    pub(crate) fn unmapped(&mut self, address: u64, bytes: u64) {
        for at in self.overlapping(address, bytes) {
            let Some(view) = self.mappings.remove(&at) else { continue };
            let Some(memory) = self.memories.get_mut(&view.memory) else { continue };
            memory.mappings.retain(|other| *other != at);
            let holder = memory.holder.filter(|_| view.used);
            if let Some(alias) = holder.and_then(|holder| self.aliases.get_mut(&holder)) {
                alias.mappings = alias.mappings.saturating_sub(1);
            }
            holder.into_iter().for_each(|holder| self.settle(holder));
        }
    }

    fn give_up(&mut self, address: u64, number: u64) -> Result<(), CUresult> {
        let Some(memory) = self.memories.get(&number) else { return Ok(()) };
        let (holder, is_returned) = (memory.holder, memory.is_returned());
        if is_returned {
            self.take_down(address)?;
        } else if let Some(view) = self.mappings.get_mut(&address) {
            view.used = false;
        }
        if let Some(alias) = holder.and_then(|holder| self.aliases.get_mut(&holder)) {
            alias.mappings = alias.mappings.saturating_sub(1);
        }
        holder.into_iter().for_each(|holder| self.settle(holder));
        Ok(())
    }

    /// The program releases an alias. `None`: it is not ours.
    pub(crate) fn release(&mut self, alias: u64) -> Option<Result<(), CUresult>> {
        let found = self.aliases.get_mut(&alias)?;
        let Some(left) = found.references.checked_sub(1) else {
            return Some(Err(CUresult::INVALID_VALUE));
        };
        found.references = left;
        self.settle(alias);
        Some(Ok(()))
    }

    /// An alias that is released and nowhere mapped is no more; its memory lies idle, or goes where
    /// others may use it.
    fn settle(&mut self, alias: u64) {
        let Some(found) =
            self.aliases.get(&alias).copied().filter(|found| found.references == 0 && found.mappings == 0)
        else {
            return;
        };
        self.aliases.remove(&alias);
        let Some(number) = found.memory else { return self.end_reservation(found.kind) };
        if self.memories.get(&number).is_some_and(CachedHandle::is_returned) {
            // If others have it, the rest of it is theirs.
            let _left = self.give_up_handle(number);
        } else {
            self.park(number);
        }
    }

    /// Grants access to a range. `None`: not all of it is ours, and the driver is to answer.
    /// Mappings that have it already are left out.
    pub(crate) fn allow(
        &mut self,
        address: u64,
        bytes: u64,
        access: &Access,
    ) -> Option<Result<(), CUresult>> {
        if bytes == 0 || !self.is_used_throughout(address, bytes) {
            return None;
        }
        let lacks = |view: &CachedMapping| !access.iter().all(|entry| view.access.contains(entry));
        let inside = self.mappings.range(address..address.saturating_add(bytes));
        let mut wanted: Vec<(u64, u64)> = Vec::new();
        for (at, view) in inside.filter(|(_, view)| lacks(view)) {
            match wanted.last_mut().filter(|(start, length)| start + length == *at) {
                Some((_, length)) => *length += view.bytes,
                None => wanted.push((*at, view.bytes)),
            }
        }
        if let Some(error) = wanted.iter().find_map(|(at, bytes)| self.vmm.allow(*at, *bytes, access).err()) {
            return Some(Err(error));
        }
        for (_, view) in self.mappings.range_mut(address..address.saturating_add(bytes)) {
            view.access.retain(|(device, _)| !access.iter().any(|(other, _)| other == device));
            view.access.extend(access.iter().copied());
        }
        Some(Ok(()))
    }

    /// The driver is asked to change a range's access rights: the recorded rights are dropped.
    pub(crate) fn forget_access(&mut self, address: u64, bytes: u64) {
        for at in self.overlapping(address, bytes) {
            if let Some(view) = self.mappings.get_mut(&at) {
                view.access.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests;
