//! Lists of unique nodes and graphs with self loops, against plain loops.
//!
//! Hazards: a node that is in the list twice, or mapped to another's place; an edge that is lost or
//! leads to another row.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::ptr::null_mut;

use crate::api::Description;
use crate::environment::{Caller, Memory};
use crate::rank::{Rank, SUCCESS, Verdict, byte_at, local, must, unpacked, want};

/// `WHOLEMEMORY_DT_*`
const INT: c_uint = 5;
const INT64: c_uint = 6;

pub(super) fn unique(rank: &Rank) -> Verdict {
    // More neighbours than a tile of the scan, and exactly one.
    for (targets, neighbors, range) in
        [(0, 0, 1), (5, 0, 9), (0, 40, 9), (1, 1, 1), (100, 5000, 900), (30, 4096, 1 << 24)]
    {
        let nothing = Description { dim: 0, dtype: 0, ..Description::array(0, INT) };
        let mut absent = null_mut();
        want!(SUCCESS, rank.wholememory_make_tensor_from_pointer(&mut absent, null_mut(), &nothing))?;
        // Python's binding passes a tensor over null if the caller does not want the mapping.
        for (dtype, no_mapping) in
            [(INT, None), (INT64, None), (INT64, Some(null_mut())), (INT, Some(absent))]
        {
            let drawn = |at: usize| {
                (0..3).fold(0, |sum, byte| sum << 8 | i64::from(byte_at(at * 3 + byte, rank.number + 5)))
            };
            let mut list: Vec<i64> = (0..targets).map(|target| target * 3 - 20).collect();
            let nodes: Vec<i64> = (0..neighbors).map(|at| drawn(at) % range - range / 4).collect();
            let (first, second) = (local(rank, &list, dtype)?, local(rank, &nodes, dtype)?);
            let mapping = local(rank, &vec![-7; nodes.len()], INT)?;
            let (caller, output) = (Caller::new(rank), Memory::new(rank));
            let place = no_mapping.unwrap_or(mapping.tensor);
            want!(
                SUCCESS,
                rank.graph_append_unique(
                    first.tensor,
                    second.tensor,
                    output.context(),
                    place,
                    &caller.functions(),
                    null_mut()
                )
            )?;
            caller.is_even()?;
            let mut places: HashMap<i64, usize> =
                list.iter().enumerate().map(|(place, node)| (*node, place)).collect();
            let place_of = |node: &i64| {
                let place = *places.entry(*node).or_insert(list.len());
                if place == list.len() {
                    list.push(*node);
                }
                place as i64
            };
            let places: Vec<i64> = nodes.iter().map(place_of).collect();
            must(unpacked(&output.read()?, dtype) == list, || {
                format!("{targets} targets, {neighbors} neighbours: another list")
            })?;
            let wanted = if no_mapping.is_none() { places } else { vec![-7; nodes.len()] };
            must(unpacked(&mapping.read()?, INT) == wanted, || {
                format!("{targets} targets, {neighbors} neighbours: another mapping")
            })?;
        }
        want!(SUCCESS, rank.wholememory_destroy_tensor(absent))?;
    }
    Ok(())
}

pub(super) fn self_loops(rank: &Rank) -> Verdict {
    for rows in [0usize, 1, 7, 400] {
        let mut row_ptr = vec![0i64];
        (0..rows).for_each(|row| row_ptr.push(row_ptr[row] + i64::from(byte_at(row, rank.number)) % 50));
        let col: Vec<i64> = (0..row_ptr[rows]).map(|edge| edge * 13 % 1000).collect();
        let (mut pointers, mut wanted) = (vec![0], Vec::new());
        for row in 0..rows {
            wanted.push(row as i64);
            wanted.extend(&col[row_ptr[row] as usize..row_ptr[row + 1] as usize]);
            pointers.push(wanted.len() as i64);
        }
        let (first, second) = (local(rank, &row_ptr, INT)?, local(rank, &col, INT)?);
        let (third, fourth) =
            (local(rank, &vec![-7; rows + 1], INT)?, local(rank, &vec![-7; wanted.len()], INT)?);
        want!(
            SUCCESS,
            rank.csr_add_self_loop(first.tensor, second.tensor, third.tensor, fourth.tensor, null_mut())
        )?;
        must(unpacked(&third.read()?, INT) == pointers, || format!("{rows} rows: other row pointers"))?;
        must(unpacked(&fourth.read()?, INT) == wanted, || format!("{rows} rows: other neighbours"))?;
    }
    Ok(())
}
