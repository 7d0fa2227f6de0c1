//! Steps with memory of the program's own.

use wm_abi::*;

use crate::mapped::MappedBlock;
use crate::program::Renewal;
use crate::running::Running;

fn code(result: Result<(), CUresult>) -> CUresult {
    result.err().unwrap_or(CUresult::SUCCESS)
}

impl Running<'_> {
    /// Every other block is for network cards as well.
    pub(super) fn make_mapped(&self, block: usize, bytes: u64, parts: usize, device: usize) -> CUresult {
        let made =
            MappedBlock::make(self.world.driver, bytes, parts as u64, device as CUdevice, block % 4 < 2);
        match made {
            Ok(made) => {
                let mut state = self.state();
                state.blocks.insert(block, (made.address, bytes));
                state.mapped.insert(block, made);
                CUresult::SUCCESS
            }
            Err(code) => code,
        }
    }

    /// Gives a block of pieces up; `None`: it is another one.
    pub(crate) fn give_mapped_up(&self, block: usize) -> Option<CUresult> {
        let mut state = self.state();
        let mapped = state.mapped.remove(&block)?;
        state.blocks.remove(&block);
        drop(state);
        Some(code(mapped.give_up(self.world.driver, 0)))
    }

    /// The thread that makes the step is the only one that uses the block.
    pub(super) fn renew(&self, block: usize, how: Renewal) -> Option<CUresult> {
        let mut mapped = self.state().mapped.remove(&block)?;
        let renewed = mapped.renew(self.world.driver, how);
        self.state().mapped.insert(block, mapped);
        Some(code(renewed))
    }
}
