//! Holders of memory, as a tree for a flame graph and as rows of a table. Pure.

use std::collections::BTreeMap;

use super::address::class_of;
use super::model::{HeldRange, MemoryHolder};
use crate::human;

/// Holders without call sites: kind, class and size of ranges.
pub(crate) fn by_size(ranges: &[HeldRange]) -> Vec<MemoryHolder> {
    let mut sizes: BTreeMap<(bool, u64), (u64, u64)> = BTreeMap::new();
    for range in ranges {
        let (bytes, count) = sizes.entry((range.is_piece, range.bytes)).or_default();
        *bytes = bytes.saturating_add(range.bytes);
        *count += 1;
    }
    let holder = |((is_piece, size), (bytes, count)): ((bool, u64), (u64, u64))| {
        let kind = if is_piece { "made by the program" } else { "blocks" };
        let from = class_of(size);
        let class = format!("{} to {}", human::bytes(from), human::bytes(from.saturating_mul(2)));
        let path = vec![kind.to_owned(), class, human::bytes(size)];
        MemoryHolder { path, bytes, count }
    };
    sorted(sizes.into_iter().map(holder).collect())
}

/// The most first.
pub(crate) fn sorted(mut holders: Vec<MemoryHolder>) -> Vec<MemoryHolder> {
    holders.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.path.cmp(&other.path)));
    holders
}

/// A frame of a flame graph, with the frames that it called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FlameNode {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) count: u64,
    pub(crate) children: Vec<FlameNode>,
}

/// The tree of all holders. The children of each frame are sorted, the most first.
pub(crate) fn tree(holders: &[MemoryHolder]) -> FlameNode {
    let mut root = FlameNode { name: "all".to_owned(), ..FlameNode::default() };
    for holder in holders {
        add(&mut root, &holder.path, holder);
    }
    sort(&mut root);
    root
}

fn add(node: &mut FlameNode, path: &[String], holder: &MemoryHolder) {
    node.bytes = node.bytes.saturating_add(holder.bytes);
    node.count = node.count.saturating_add(holder.count);
    let Some((first, rest)) = path.split_first() else { return };
    let place = node.children.iter().position(|child| child.name == *first).unwrap_or_else(|| {
        node.children.push(FlameNode { name: first.clone(), ..FlameNode::default() });
        node.children.len() - 1
    });
    add(&mut node.children[place], rest, holder);
}

fn sort(node: &mut FlameNode) {
    node.children.sort_by_key(|child| std::cmp::Reverse(child.bytes));
    node.children.iter_mut().for_each(sort);
}
