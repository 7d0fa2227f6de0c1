//! Where the addresses of a kernel's loads and stores come from: a forward analysis of its machine
//! code to a fixed point.

mod forms;
mod graph;
mod guards;
mod hash;
mod local;
mod machine;
mod state;
mod step;
mod value;

use crate::kernel::KernelCode;
use crate::verdict::{AddressSource, CodeVerdict, Effects, Why, WordSet};
use graph::FlowGraph;
use machine::FixedPoint;
use step::MemoryAccess;
use value::{GLOBAL, Id, PLACES, RegisterValue, Values};

/// The architectures with the encodings that are known.
const ARCHITECTURES: [u32; 8] = [80, 86, 87, 89, 90, 100, 103, 120];

/// What the kernel may do to memory.
pub fn judge(kernel: &KernelCode) -> CodeVerdict {
    effects(kernel).map_or_else(CodeVerdict::Undecided, CodeVerdict::Decided)
}

fn effects(kernel: &KernelCode) -> Result<Effects, Why> {
    if !ARCHITECTURES.contains(&kernel.sm) {
        return Err(Why::Architecture(kernel.sm));
    }
    let graph = FlowGraph::of(kernel)?;
    let mut machine = FixedPoint::new(kernel, &graph)?;
    machine.run()?;
    let mut found = FoundAccesses::default();
    machine.accesses(|values, offset, access| found.add(values, offset, access))?;
    Ok(found.effects())
}

/// The addresses and data of all accesses, each once.
#[derive(Default)]
struct FoundAccesses {
    stores: std::collections::BTreeSet<Id>,
    reads: std::collections::BTreeSet<Id>,
    effects: Effects,
}

impl FoundAccesses {
    fn add(&mut self, values: &Values, offset: usize, access: MemoryAccess) -> Result<(), Why> {
        let (read, written) = match access {
            MemoryAccess::Read(address) => (Some(address), None),
            MemoryAccess::Write(address, data) => (None, Some((address, data))),
            MemoryAccess::Change(address, data) => (Some(address), Some((address, data))),
            MemoryAccess::WriteTensor(first, data) => {
                let words = [u32::from(first)].into_iter().collect();
                self.effects.stores.push(AddressSource { words, ..AddressSource::default() });
                return self.add_data(values, offset, data);
            }
            MemoryAccess::Unknown => return Err(Why::Address { offset }),
        };
        if let Some(address) = read
            && self.reads.insert(address)
        {
            self.effects.reads.extend(sources(values.get(address), offset)?);
        }
        if let Some((address, data)) = written {
            if self.stores.insert(address) {
                self.effects.stores.extend(sources(values.get(address), offset)?);
            }
            self.add_data(values, offset, data)?;
        }
        Ok(())
    }

    fn add_data(&mut self, values: &Values, offset: usize, data: Id) -> Result<(), Why> {
        let data = values.get(data);
        if data.unknown {
            return Err(Why::Address { offset });
        }
        self.effects.escapes.extend_from(&words(&data.words));
        Ok(())
    }

    fn effects(mut self) -> Effects {
        for sources in [&mut self.effects.stores, &mut self.effects.reads] {
            sources.sort();
            sources.dedup();
        }
        self.effects
    }
}

/// The sources of an address: all its words without what was loaded, and each least alternative
/// with something loaded.
fn sources(value: &RegisterValue, offset: usize) -> Result<Vec<AddressSource>, Why> {
    if value.unknown {
        return Err(Why::Address { offset });
    }
    let offsets = words(&value.offsets);
    let mut found = vec![AddressSource {
        words: words(&value.words),
        offsets: offsets.clone(),
        memory: false,
        globals: value.words.contains(&GLOBAL),
    }];
    for (summands, _) in value.least.iter().filter(|(_, memory)| *memory) {
        found.push(AddressSource {
            words: words(summands),
            offsets: offsets.clone(),
            memory: true,
            globals: summands.contains(&GLOBAL),
        });
    }
    Ok(found)
}

fn words(set: &[u16]) -> WordSet {
    set.iter().filter(|word| **word < PLACES).map(|word| u32::from(*word)).collect()
}

#[cfg(test)]
mod tests;
