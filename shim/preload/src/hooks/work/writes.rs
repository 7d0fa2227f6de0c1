//! What a call that passes the gate writes, for sharing: it hears of it before the driver does.
//!
//! Which kind a function is of is decided when this is compiled ([`super::write_kinds`]); what a call of it writes follows from its arguments. A call that is not understood ends
//! sharing.
//!
//! Invariant: nothing is looked at while sharing is off.

use std::ops::Range;

use wm_abi::*;

use super::write_kinds::WriteKind;
use crate::dedup::program::{self, Submission};
use crate::hooks::call::boundary;
use crate::hooks::call::stream::{Legacy, PerThread, is_any_captured, is_captured, is_per_thread};
use crate::hooks::copy::volume::{self, Description};
use crate::launches::LaunchArguments;
use crate::registry;

/// What one call does.
#[derive(Debug, Clone, PartialEq, Eq)]
enum WriteEffect {
    Loaded(Range<u64>),
    Written(Range<u64>),
    Copied(Range<u64>, u64),
}

/// An argument as a word of 64 bits; those that are larger are not looked at.
pub(in crate::hooks) fn word<T: Copy>(argument: &T) -> u64 {
    let mut word = 0_u64;
    if size_of::<T>() <= size_of::<u64>() {
        // SAFETY: as many bytes as the argument has, which are no more than the word's. The driver's arguments are numbers, handles and pointers.
        unsafe {
            std::ptr::copy_nonoverlapping(
                std::ptr::from_ref(argument).cast::<u8>(),
                (&raw mut word).cast::<u8>(),
                size_of::<T>(),
            );
        }
    }
    word
}

/// Shows a call to sharing, before it is made.
///
/// # Safety
/// The arguments are those of a call of the function, which the program makes.
pub(in crate::hooks) unsafe fn look(name: &'static str, kind: WriteKind, arguments: &[u64]) {
    let submission = |stream: Option<u64>| {
        if !is_any_captured() {
            return Submission::Now;
        }
        let is_captured = stream.is_some_and(|stream| {
            let stream = CUstream(stream as usize);
            if is_per_thread(name) { is_captured::<PerThread>(stream) } else { is_captured::<Legacy>(stream) }
        });
        if is_captured {
            return Submission::Captured;
        }
        program::submitted_beside();
        Submission::Now
    };
    let asynchronous = || arguments.last().copied().filter(|_| name.contains("Async"));
    let [zero, one, two, three] = std::array::from_fn(|at| arguments.get(at).copied().unwrap_or(0));
    // SAFETY (of every read below): by contract, what the driver reads in this call.
    match kind {
        WriteKind::Nothing => {}
        WriteKind::Launch | WriteKind::LaunchCooperative => {
            let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
            let extra = if kind == WriteKind::Launch { argument(10) } else { 0 };
            // SAFETY: by contract.
            unsafe { launched(zero, [argument(9), extra], submission(Some(argument(8)))) };
        }
        WriteKind::LaunchEx => {
            // SAFETY: null, or the program's description of a launch.
            let config = unsafe { (zero as *const CUlaunchConfig).as_ref() };
            let stream = config.map(|config| word(&config.hStream));
            // SAFETY: by contract.
            unsafe { launched(one, [two, three], submission(stream)) };
        }
        WriteKind::KernelNode(at) | WriteKind::FirstKernelNode(at) => {
            let is_first = matches!(kind, WriteKind::FirstKernelNode(_));
            // SAFETY: null, or the program's description of a node.
            unsafe { kernel_node(arguments.get(at).copied().unwrap_or(0) as *const _, is_first) };
            node_changes(name, [zero, one]);
            program::instantiating();
        }
        WriteKind::AnyNode(at) => {
            // SAFETY: the same.
            unsafe { any_node(name, arguments.get(at).copied().unwrap_or(0) as *const _) };
            node_changes(name, [zero, one]);
            program::instantiating();
        }
        WriteKind::OtherNode => node_changes(name, [zero, one]),
        WriteKind::Reads => {
            submission(asynchronous());
        }
        WriteKind::GraphLaunch => {
            submission(Some(one));
            program::graph_launching(CUgraphExec(zero as usize));
        }
        WriteKind::Instantiate | WriteKind::Update => boundary::look(program::instantiating),
        WriteKind::GraphEnd => program::graph_changes(CUgraph(zero as usize)),
        WriteKind::ExecutableEnd => program::executable_changes(CUgraphExec(zero as usize)),
        WriteKind::Foreign => boundary::look(|| program::give_up(reason(name))),
        _ => boundary::look(|| {
            let is_node = matches!(kind, WriteKind::VolumeNode(_) | WriteKind::SetNode(_));
            let is_of_stream = matches!(kind, WriteKind::Word | WriteKind::Words);
            let stream = if is_of_stream { Some(zero) } else { asynchronous() };
            let when = if is_node { Submission::Node } else { submission(stream) };
            // SAFETY: by contract.
            match unsafe { effects(kind, arguments) } {
                Some(effects) => effects.into_iter().for_each(|effect| tell(effect, when)),
                None => program::give_up(reason(name)),
            }
            if is_node {
                program::instantiating();
            }
        }),
    }
}

/// Shows a call to sharing that was made, of the kinds that are understood only then.
///
/// # Safety
/// As for [`look`].
pub(in crate::hooks) unsafe fn look_after(kind: WriteKind, result: CUresult, arguments: &[u64]) {
    let [first, graph] = std::array::from_fn(|at| arguments.get(at).copied().unwrap_or(0) as usize);
    if result != CUresult::SUCCESS {
        return;
    }
    let executable = match kind {
        // SAFETY: after a success the driver has written it there.
        WriteKind::Instantiate => unsafe { (first as *const CUgraphExec).as_ref() }.copied(),
        WriteKind::Update => Some(CUgraphExec(first)),
        _ => None,
    };
    if let Some(executable) = executable {
        program::instantiated(executable, CUgraph(graph));
    }
}

/// A node is made, changed or removed, other than by a capture: of an executable graph, of a graph, or of one that the call does not name.
fn node_changes(name: &str, [first, second]: [u64; 2]) {
    if name.starts_with("cuGraphExec") || name.starts_with("cuGraphNodeSetEnabled") {
        program::executable_changes(CUgraphExec(first as usize));
    } else if name.starts_with("cuGraphAdd") {
        program::graph_changes(CUgraph(second as usize));
    } else {
        program::graphs_change();
    }
}

/// # Safety
/// Null, or a description of a node that a call of the program's names. One of the first version ends before `kern`: no more is read of it.
unsafe fn kernel_node(node: *const CUDA_KERNEL_NODE_PARAMS, is_first: bool) {
    if node.is_null() {
        return;
    }
    // SAFETY: by contract; no reference is made, for it would be to the whole.
    let (named, parameters) = unsafe {
        let kernel = if is_first { 0 } else { (*node).kern.0 };
        ([(*node).func.0, kernel], [(*node).kernelParams as u64, (*node).extra as u64])
    };
    // A node without a function is the driver's to refuse.
    if let Some(function) = named.into_iter().find(|handle| *handle != 0) {
        // SAFETY: by contract.
        unsafe { launched(function as u64, parameters, Submission::Node) };
    }
}

/// A node whose kind is told with it.
///
/// # Safety
/// As for [`kernel_node`].
unsafe fn any_node(name: &'static str, node: *const CUgraphNodeParams) {
    // SAFETY: by contract.
    let Some(node) = (unsafe { node.as_ref() }) else { return };
    let effects = match node.type_ {
        // SAFETY: the part of a kernel, whose newer form begins like the one here.
        CU_GRAPH_NODE_TYPE_KERNEL => return unsafe { kernel_node((&raw const node.body).cast(), false) },
        // SAFETY: the part of a copy.
        CU_GRAPH_NODE_TYPE_MEMCPY => described(Some(unsafe { &node.body.memcpy.copyParams })),
        CU_GRAPH_NODE_TYPE_MEMSET => {
            // SAFETY: the part of a memset.
            let set = unsafe { node.body.memset };
            let width = (set.width as u64).saturating_mul(set.elementSize.into());
            Some(vec![WriteEffect::Written(rows(set.dst, set.pitch as u64, width, set.height as u64))])
        }
        // Functions of the host, other graphs, whose nodes were seen when they were made, events, and memory that comes and goes.
        CU_GRAPH_NODE_TYPE_HOST..=CU_GRAPH_NODE_TYPE_MEM_FREE | CU_GRAPH_NODE_TYPE_CONDITIONAL => return,
        _ => None,
    };
    match effects {
        Some(effects) => effects.into_iter().for_each(|effect| tell(effect, Submission::Node)),
        None => boundary::look(|| program::give_up(reason(name))),
    }
}

/// Why sharing ends, where a call is not understood.
fn reason(name: &'static str) -> &'static str {
    name
}

fn tell(effect: WriteEffect, when: Submission) {
    match effect {
        WriteEffect::Loaded(to) => program::loaded(to, when),
        WriteEffect::Written(to) => program::written(to, when),
        WriteEffect::Copied(to, from) => program::copied(to, from, when),
    }
}

/// # Safety
/// As for [`look`]: a function, its arguments as a list and as a buffer.
unsafe fn launched(function: u64, [parameters, extra]: [u64; 2], when: Submission) {
    let arguments = LaunchArguments { parameters: parameters as _, extra: extra as _ };
    // SAFETY: by contract.
    unsafe { program::launching(CUfunction(function as usize), arguments, when) };
}

/// What a copy or a memset writes; `None` if that is not known.
///
/// # Safety
/// As for [`look`].
unsafe fn effects(kind: WriteKind, arguments: &[u64]) -> Option<Vec<WriteEffect>> {
    let at = |index: usize| arguments.get(index).copied().unwrap_or(0);
    let to = |bytes: u64| at(0)..at(0).saturating_add(bytes);
    let one = |effect| Some(vec![effect]);
    match kind {
        WriteKind::Load => one(WriteEffect::Loaded(to(at(2)))),
        WriteKind::CopyWithin => one(WriteEffect::Copied(to(at(2)), at(1))),
        WriteKind::CopyUnified => one(unified(at(0), at(1), at(2))),
        WriteKind::FromArray => one(WriteEffect::Written(to(at(3)))),
        WriteKind::Set(element) => one(WriteEffect::Written(to(at(2).saturating_mul(element)))),
        WriteKind::SetRows(element) => {
            one(WriteEffect::Written(rows(at(0), at(1), at(3).saturating_mul(element), at(4))))
        }
        WriteKind::Word => one(WriteEffect::Written(at(1)..at(1).saturating_add(8))),
        // SAFETY: an array of as many entries, by contract.
        WriteKind::Words => unsafe { written_words(at(2) as *const u8, at(1) as usize) },
        // SAFETY: null, or a description of the program's.
        WriteKind::Rows => described(unsafe { (at(0) as *const CUDA_MEMCPY2D).as_ref() }),
        // SAFETY: the same.
        WriteKind::Volume => described(unsafe { (at(0) as *const CUDA_MEMCPY3D).as_ref() }),
        // SAFETY: the same.
        WriteKind::VolumeNode(index) => described(unsafe { (at(index) as *const CUDA_MEMCPY3D).as_ref() }),
        WriteKind::SetNode(index) => {
            // SAFETY: the same.
            let Some(set) = (unsafe { (at(index) as *const CUDA_MEMSET_NODE_PARAMS).as_ref() }) else {
                return Some(Vec::new());
            };
            let width = (set.width as u64).saturating_mul(set.elementSize.into());
            one(WriteEffect::Written(rows(set.dst, set.pitch as u64, width, set.height as u64)))
        }
        WriteKind::Batch => {
            let [targets, sources, sizes] = [at(0), at(1), at(2)].map(|array| array as *const u64);
            let is_read =
                (1..=at(3)).contains(&at(6)) && ![targets, sources, sizes].contains(&std::ptr::null());
            // The driver refuses the batch before it reads any of its copies.
            if !is_read {
                return Some(Vec::new());
            }
            // SAFETY: arrays of `count` entries, by contract.
            let entry = |array: *const u64, index: usize| unsafe { array.add(index).read() };
            let copies = (0..at(3) as usize)
                .map(|index| unified(entry(targets, index), entry(sources, index), entry(sizes, index)));
            Some(copies.collect())
        }
        _ => None,
    }
}

/// The driver takes no more operations at once, and refuses others before it reads one.
const MOST_WORDS: usize = 256;

/// What operations of a stream on single words write (`CUstreamBatchMemOpParams`); `None` for one that is not known.
///
/// # Safety
/// Null, or an array of so many.
unsafe fn written_words(operations: *const u8, count: usize) -> Option<Vec<WriteEffect>> {
    const BYTES: usize = 48;
    const ADDRESS: usize = 8;
    let mut effects = Vec::new();
    let is_read = !operations.is_null() && count <= MOST_WORDS;
    for index in 0..if is_read { count } else { 0 } {
        // SAFETY: by contract.
        let operation = unsafe { operations.add(index * BYTES) };
        // SAFETY: the same.
        match unsafe { operation.cast::<u32>().read() } {
            CU_STREAM_MEM_OP_WRITE_VALUE_32 | CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
                // SAFETY: the same.
                let to = unsafe { operation.add(ADDRESS).cast::<u64>().read() };
                effects.push(WriteEffect::Written(to..to.saturating_add(8)));
            }
            CU_STREAM_MEM_OP_WAIT_VALUE_32
            | CU_STREAM_MEM_OP_WAIT_VALUE_64
            | CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES
            | CU_STREAM_MEM_OP_BARRIER => {}
            _ => return None,
        }
    }
    Some(effects)
}

/// A copy whose ends are told by addresses alone.
fn unified(to: u64, from: u64, bytes: u64) -> WriteEffect {
    let range = to..to.saturating_add(bytes);
    let is_ours = |address: u64| registry::owner(address).is_some();
    match (is_ours(to), is_ours(from)) {
        (true, true) => WriteEffect::Copied(range, from),
        (true, false) if is_of_host(from) => WriteEffect::Loaded(range),
        _ => WriteEffect::Written(range),
    }
}

/// Is it memory that the driver knows nothing of, or pinned memory of the host?
fn is_of_host(address: u64) -> bool {
    use wm_driver::Api;
    use wm_driver::api::PointerAttribute;
    let kind = crate::process::driver().pointer_attribute(PointerAttribute::MEMORY_TYPE, address);
    kind.map_or(true, |kind| kind == CU_MEMORYTYPE_HOST)
}

/// All that rows of a pitch reach.
fn rows(to: u64, pitch: u64, width: u64, height: u64) -> Range<u64> {
    let last = pitch.saturating_mul(height.saturating_sub(1));
    to..to.saturating_add(if height == 0 { 0 } else { last.saturating_add(width) })
}

fn described<D: Description>(copy: Option<&D>) -> Option<Vec<WriteEffect>> {
    let Some(copy) = copy.map(|copy| volume::filled(&copy.general())) else { return Some(Vec::new()) };
    let [target, _] = volume::ends(&copy);
    let size = volume::size(&copy);
    let Some(end) = target.filter(|_| !size.contains(&0)) else { return Some(Vec::new()) };
    let reach = (0..3).fold(1_u64, |reach, axis| {
        reach.saturating_add((size[axis] - 1).saturating_mul(end.bytes.steps[axis]))
    });
    Some(vec![WriteEffect::Written(end.address()..end.address().saturating_add(reach))])
}

#[cfg(test)]
mod tests {
    //! Hazard: a call writes shared memory that sharing was not told of.
    use super::*;

    fn address<T>(value: &T) -> u64 {
        std::ptr::from_ref(value) as u64
    }

    fn told(kind: WriteKind, arguments: &[u64]) -> Vec<WriteEffect> {
        // SAFETY: arguments of the tests' own.
        unsafe { effects(kind, arguments) }.expect("understood")
    }

    #[test]
    fn copies_and_memsets_are_told_by_what_they_reach() {
        assert_eq!(told(WriteKind::Load, &[4096, 7, 100]), [WriteEffect::Loaded(4096..4196)]);
        assert_eq!(told(WriteKind::CopyWithin, &[4096, 64, 100]), [WriteEffect::Copied(4096..4196, 64)]);
        assert_eq!(told(WriteKind::Set(4), &[4096, 7, 100]), [WriteEffect::Written(4096..4496)]);
        assert_eq!(
            told(WriteKind::SetRows(2), &[4096, 512, 9, 10, 3]),
            [WriteEffect::Written(4096..4096 + 1024 + 20)]
        );
        assert_eq!(told(WriteKind::FromArray, &[4096, 7, 0, 50]), [WriteEffect::Written(4096..4146)]);
        assert_eq!(told(WriteKind::Word, &[1, 4096, 5, 0]), [WriteEffect::Written(4096..4104)]);
    }

    #[test]
    fn every_byte_of_a_described_copy_lies_in_what_is_told() {
        for (width, height, pitch, x, y) in [(10, 3, 64, 5, 2), (64, 1, 0, 0, 0), (1, 7, 16, 15, 1)] {
            let copy = CUDA_MEMCPY2D {
                dstMemoryType: CU_MEMORYTYPE_DEVICE,
                dstDevice: 1 << 30,
                dstPitch: pitch,
                dstXInBytes: x,
                dstY: y,
                WidthInBytes: width,
                Height: height,
                // SAFETY: all-zero is a description.
                ..unsafe { std::mem::zeroed() }
            };
            let [WriteEffect::Written(range)] = &told(WriteKind::Rows, &[address(&copy)])[..] else {
                panic!("one range")
            };
            let pitch = if pitch == 0 { x + width } else { pitch };
            for row in 0..height {
                let start = (1 << 30) + ((y + row) * pitch + x) as u64;
                assert!(range.start <= start && start + width as u64 <= range.end, "{range:?}");
            }
        }
    }

    #[test]
    fn words_that_streams_write_are_told_one_by_one() {
        let mut operations = [[0_u64; 6]; 3];
        operations[0][..2].copy_from_slice(&[CU_STREAM_MEM_OP_WRITE_VALUE_32.into(), 4096]);
        operations[1][..2].copy_from_slice(&[CU_STREAM_MEM_OP_WAIT_VALUE_64.into(), 64]);
        operations[2][..2].copy_from_slice(&[CU_STREAM_MEM_OP_WRITE_VALUE_64.into(), 512]);
        let words = told(WriteKind::Words, &[0, 3, address(&operations), 0]);
        assert_eq!(words, [WriteEffect::Written(4096..4104), WriteEffect::Written(512..520)]);
        operations[1][0] = 99;
        // SAFETY: an array of three.
        let unknown = unsafe { written_words(operations.as_ptr().cast(), 3) };
        assert!(unknown.is_none(), "what is new is not known");
    }
}
