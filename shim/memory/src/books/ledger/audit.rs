//! Checks the ledger's invariants. Slow: for tests and for a person with a suspicion.

use wm_driver::Tier;

use super::{HandleKey, HandleRecord, Ledger};

impl Ledger {
    /// Reports the first invariant that does not hold, if there is one. `blocks` are the addresses
    /// and sizes of everything that is not free.
    pub(crate) fn audit(&self, blocks: &[(u64, u64)]) -> Result<(), String> {
        self.audit_pieces(blocks)?;
        self.handles.all().try_for_each(|(key, memory)| self.audit_handle(key, memory, blocks))?;
        self.audit_uses(blocks)?;
        self.audit_barred()?;
        self.audit_adopted()
    }

    /// Blocks and runs do not overlap, and every run lies where its handles are active.
    fn audit_pieces(&self, blocks: &[(u64, u64)]) -> Result<(), String> {
        let mut pieces: Vec<(u64, u64)> = blocks.to_vec();
        pieces.extend(self.runs.all().map(|(address, run)| (address, run.bytes)));
        pieces.sort_unstable();
        let overlap = pieces.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0);
        ensure(overlap.is_none(), || format!("pieces overlap: {overlap:x?}"))?;
        pieces.iter().try_for_each(|(address, bytes)| self.audit_backing(*address, *bytes))
    }

    fn audit_backing(&self, address: u64, bytes: u64) -> Result<(), String> {
        let mut backed = 0;
        for (part, key) in self.extents.touched(address, bytes) {
            let memory = self.handles.get(key).ok_or_else(|| format!("mapping at {part:x?} of no handle"))?;
            let active = memory.active.is_some_and(|at| (at..at + memory.bytes).contains(&part.start));
            ensure(active, || {
                format!("piece {address:#x} on a handle that is active at {:x?}", memory.active)
            })?;
            backed += part.end - part.start;
        }
        ensure(backed == bytes, || format!("piece {address:#x} of {bytes} bytes is backed by {backed}"))
    }

    fn audit_handle(
        &self,
        key: HandleKey,
        memory: &HandleRecord,
        blocks: &[(u64, u64)],
    ) -> Result<(), String> {
        let used = memory.active.map_or(0, |at| overlap(at, memory.bytes, blocks.iter().copied()));
        ensure(used == memory.used, || format!("{key:?}: {used} bytes under blocks, {} noted", memory.used))?;
        let indexed = self.handles.idle(memory.tier).any(|(idle, _)| idle == key);
        let is_idle = used == 0 && !(memory.held || memory.barred || memory.away || memory.unmapped);
        ensure(indexed == is_idle, || format!("{key:?}: idle index says {indexed}"))?;
        ensure(!memory.unmapped || memory.staging.is_some(), || format!("{key:?} is mapped nowhere"))?;
        let mut extents: Vec<_> =
            memory.mapped.iter().map(|at| self.extents.at(*at).map(|(base, _)| base)).collect();
        extents.sort_unstable();
        let twice = extents.windows(2).find(|pair| pair[0] == pair[1]);
        ensure(twice.is_none(), || format!("{key:?} is mapped twice in the extent {twice:x?}"))?;
        ensure(
            memory.staging.is_none_or(|at| memory.tier != Tier::Device && self.extents.at(at).is_none()),
            || format!("{key:?} of {:?} has a staging place at {:x?}", memory.tier, memory.staging),
        )?;
        let Some(at) = memory.active else { return Ok(()) };
        let free = overlap(at, memory.bytes, self.runs.all().map(|(address, run)| (address, run.bytes)));
        let due = if memory.barred { 0 } else { memory.bytes - used };
        ensure(free == due, || format!("{key:?}: {used} used and {free} free of {}", memory.bytes))
    }

    fn audit_uses(&self, blocks: &[(u64, u64)]) -> Result<(), String> {
        for (base, extent) in self.extents.all() {
            let used = overlap(base, extent.bytes, blocks.iter().copied());
            ensure(used == extent.used, || format!("extent {base:#x}: {used} used, {} noted", extent.used))?;
        }
        Ok(())
    }
}

fn overlap(address: u64, bytes: u64, pieces: impl Iterator<Item = (u64, u64)>) -> u64 {
    let end = address + bytes;
    pieces.map(|(at, length)| (at + length).min(end).saturating_sub(at.max(address))).sum()
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
