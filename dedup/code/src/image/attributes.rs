//! The attributes of a kernel: the section `.nv.info.NAME`.
//!
//! It is a row of items: a byte for the form, a byte for the kind, and two bytes that are the
//! value, or, in the form 4, the number of bytes that follow.

use super::bytes::{u16, u32};
use crate::kernel::{IndirectBranch, ParameterBank, ParameterSpan};

/// The form of an item with bytes behind it.
const SIZED: u8 = 4;

/// Symbol (32 bits), first byte in bank 0 (16), bytes (16).
const PARAM_CBANK: u8 = 0x0a;
/// Index (32 bits), ordinal (16), offset (16), flags (18), bytes (14).
const KPARAM_INFO: u8 = 0x17;
/// Of each jump: place (32 bits), zero (32), count (32), and so many targets (32 bits each).
const INDIRECT_BRANCH_TARGETS: u8 = 0x34;
/// Index (32 bits), ordinal (16), offset (16), bytes (32).
const KPARAM_INFO_V2: u8 = 0x45;

/// The attributes that matter here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) parameters: Option<ParameterBank>,
    pub(super) indirect_branches: Vec<IndirectBranch>,
}

/// Reads the items. `None`: an item leads out of the section, or one of these kinds is not as it
/// should be.
pub(super) fn read(mut section: &[u8]) -> Option<Attributes> {
    let mut attributes = Attributes::default();
    let mut parameters = Vec::new();
    while !section.is_empty() {
        let ([form, kind, _, _], rest) = section.split_first_chunk()?;
        let bytes = if *form == SIZED { usize::from(u16(section, 2)?) } else { 0 };
        let (item, rest) = rest.split_at_checked(bytes)?;
        section = rest;
        match *kind {
            PARAM_CBANK => attributes.parameters = Some(bank(item)?),
            KPARAM_INFO => parameters.push(parameter(item, |size| size >> 18)?),
            KPARAM_INFO_V2 => parameters.push(parameter(item, |size| size)?),
            INDIRECT_BRANCH_TARGETS => attributes.indirect_branches.extend(branches(item)?),
            _ => {}
        }
    }
    parameters.sort_unstable_by_key(|parameter| parameter.offset);
    match &mut attributes.parameters {
        Some(bank) => bank.parameters = parameters,
        None if parameters.is_empty() => {}
        None => return None,
    }
    Some(attributes)
}

fn bank(item: &[u8]) -> Option<ParameterBank> {
    let (begin, bytes) = (u16(item, 4)?.into(), u16(item, 6)?.into());
    Some(ParameterBank { begin, bytes, parameters: Vec::new() })
}

fn parameter(item: &[u8], size: impl Fn(u32) -> u32) -> Option<ParameterSpan> {
    Some(ParameterSpan { offset: u16(item, 6)?.into(), bytes: size(u32(item, 8)?) })
}

/// Each with its targets, one behind the other.
fn branches(mut item: &[u8]) -> Option<Vec<IndirectBranch>> {
    let mut branches = Vec::new();
    while !item.is_empty() {
        let (at, count) = (u32(item, 0)? as usize, u32(item, 8)? as usize);
        let (targets, rest) = item.get(12..)?.split_at_checked(count.checked_mul(4)?)?;
        let targets = targets.chunks_exact(4).filter_map(|target| u32(target, 0));
        branches.push(IndirectBranch { at, targets: targets.map(|target| target as usize).collect() });
        item = rest;
    }
    Some(branches)
}
