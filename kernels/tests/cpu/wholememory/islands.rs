//! Ranks of several islands, with a model of which island has which row.

use wm_kernels::wholememory::{Chunks, IslandRows};

use super::support::Draws;
use crate::support::read;

/// Ranks with rows, dealt to islands.
pub(super) struct Islands {
    starts: Vec<u64>,
    islands: Vec<u64>,
    firsts: Vec<u64>,
    pub(super) count: u64,
    equal: u64,
}

impl Islands {
    pub(super) fn draw(draws: &mut Draws) -> Self {
        let (ranks, count) = (1 + draws.below(7) as usize, 1 + draws.below(5));
        let each = 1 + draws.below(60);
        let equal = if draws.below(2) == 0 { each } else { 0 };
        let (mut starts, mut firsts, mut islands) = (vec![0], Vec::new(), Vec::new());
        let mut ends = vec![0; count as usize];
        for _ in 0..ranks {
            let rows = if equal == 0 { draws.below(3).min(1) * draws.below(60) } else { each };
            let island = draws.below(count);
            firsts.push(ends[island as usize]);
            ends[island as usize] += rows;
            islands.push(island);
            starts.push(starts[starts.len() - 1] + rows);
        }
        Self { starts, islands, firsts, count, equal }
    }

    pub(super) fn rows(&self) -> u64 {
        self.starts[self.islands.len()]
    }

    /// Island and number there of a row.
    pub(super) fn place(&self, row: u64) -> (u64, i64) {
        let rank = (0..self.islands.len()).find(|rank| row < self.starts[rank + 1]).expect("a rank");
        (self.islands[rank], (row - self.starts[rank] + self.firsts[rank]) as i64)
    }

    pub(super) fn table(&self, first: u64, rows: u64, own: u32) -> IslandRows {
        let (ranks, equal) = (self.islands.len() as u32, self.equal);
        IslandRows {
            chunks: Chunks { bases: 16, starts: read(&self.starts), equal, count: ranks },
            islands: read(&self.islands),
            firsts: read(&self.firsts),
            rows,
            first,
            own,
            count: self.count as u32,
        }
    }
}
