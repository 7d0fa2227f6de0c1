//! The blocks and pieces of a launch, in groups of neighbours that it uses as one.

use smallvec::SmallVec;

use crate::launches::TouchedBlock;

/// See above. Blocks of the library are groups of one.
#[derive(Debug, Default)]
pub(super) struct TouchedGroups {
    blocks: SmallVec<[TouchedBlock; 8]>,
    /// Where each group ends.
    ends: SmallVec<[u32; 8]>,
}

impl TouchedGroups {
    /// One more block of the last group.
    pub(super) fn push(&mut self, block: TouchedBlock) {
        self.blocks.push(block);
    }

    /// The last group has all its blocks.
    pub(super) fn end_group(&mut self) {
        let end = self.blocks.len() as u32;
        if self.ends.last().copied().unwrap_or(0) < end {
            self.ends.push(end);
        }
    }

    /// Adds blocks, each as a group.
    pub(super) fn add_each(&mut self, blocks: &[TouchedBlock]) {
        for block in blocks {
            self.push(*block);
            self.end_group();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[TouchedBlock]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.blocks[begin as usize..*end as usize])
    }
}
