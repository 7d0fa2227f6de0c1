//! A list of nodes with the neighbours that are not in it, each once.
//!
//! Targets first, then new neighbours in the order in which they first come. No node is -2^63, and
//! no target is there twice.

use wm_kernels::wholememory::{NodeMap, UniqueClear, UniqueInsert, UniqueMark, UniqueNumber};

use super::array::{Array, NODES};
use super::scan::Scan;
use crate::environment::{Environment, MemoryContext, ScratchLayout};
use crate::error::{Result, require};
use crate::stream::CallerStream;
use crate::tensor::Tensor;
use crate::vocabulary::codes::{AllocationType, ElementType};
use crate::vocabulary::description::ArrayDescription;

/// Writes the list to an output, and each neighbour's place in it to `mapping`, if there is one.
///
/// # Errors
/// [`Error::Input`](crate::error::Error::Input) for arrays that do not fit each other, or for null
/// where the list goes; those of the environment; the driver's.
pub fn append(
    targets: &Tensor,
    neighbors: &Tensor,
    list: MemoryContext,
    mapping: Option<&Tensor>,
    environment: &Environment,
    stream: &CallerStream,
) -> Result {
    let (targets, neighbors) =
        (Array::new(targets, NODES, "targets")?, Array::new(neighbors, NODES, "neighbours")?);
    require(targets.kind == neighbors.kind, "targets and neighbours are of different types")?;
    require(!list.is_null(), "the context of the list is null")?;
    let mapping =
        mapping.map(|mapping| Array::new(mapping, &[ElementType::Int], "the mapping")).transpose()?;
    require(
        mapping.is_none_or(|mapping| mapping.count == neighbors.count),
        "the mapping has one number for each neighbour",
    )?;
    let positions = targets.count.saturating_add(neighbors.count);
    require(positions < 1 << 31, "more nodes than 31 bits can count")?;
    stream.can_wait()?;

    let (mut parts, capacity) = (ScratchLayout::default(), (2 * positions).max(2).next_power_of_two());
    let (nodes, places) = (parts.add(capacity, 8)?, parts.add(capacity, 4)?);
    let (marks, scan) = (parts.add(neighbors.count + 1, 4)?, Scan::new(neighbors.count, &mut parts)?);
    let memory = environment.temporary(parts)?;
    let (map, marks) =
        (NodeMap { nodes: memory.at(nodes), positions: memory.at(places), capacity }, memory.at(marks));

    let (kind, targets, neighbors) = (targets.kind, targets.numbers(), neighbors.numbers());
    stream.launch(&UniqueClear { map }, capacity)?;
    for (nodes, first_position) in [(targets, 0), (neighbors, targets.count)] {
        stream.launch(&UniqueInsert { map, nodes, first_position }, nodes.count)?;
    }
    stream.launch(&UniqueMark { map, neighbors, targets: targets.count, marks }, neighbors.count)?;
    let new = scan.run(stream, &memory, marks)?;

    let shape =
        ArrayDescription { size: targets.count.cast_signed() + new, storage_offset: 0, dtype: kind.code() };
    let output = environment.output(list, shape.into(), AllocationType::Device)?;
    let (unique, mapping) = (output.address(), mapping.map_or(0, |mapping| mapping.address));
    let number = UniqueNumber { map, targets, neighbors, sums: marks, unique, mapping };
    stream.launch(&number, targets.count.max(neighbors.count))?;
    output.hand_over();
    Ok(())
}
