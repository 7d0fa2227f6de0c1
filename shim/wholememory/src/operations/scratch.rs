//! Device memory of one operation: taken and given back in the stream's order, so no host waits for
//! it.
//!
//! It comes from the caller's functions where there are any: they know memory that is free, and
//! keep it for the next operation. Else it comes from the driver's pool.

use wm_abi::{CUcontext, CUdeviceptr, CUstream};
use wm_driver::Api;
use wm_driver::api::Named;
use wm_driver::api::scope::Current;

use crate::communicator::Communicator;
use crate::environment::{Environment, ScratchLayout, Temporary};
use crate::error::Result;

/// Each piece of scratch memory begins at a multiple of this number of bytes.
const ALIGNMENT: u64 = 256;

/// The source of an operation's memory, and the stream in whose order it is used.
#[derive(Debug, Clone, Copy)]
pub struct Workspace<'a> {
    /// The communicator of the operation.
    pub communicator: &'a Communicator,
    /// The caller's stream.
    pub stream: CUstream,
    /// The caller's functions, if it has any for temporary memory.
    pub environment: Option<&'a Environment>,
}

/// Some memory, in pieces.
#[derive(Debug)]
pub enum Scratch {
    /// The caller's.
    Callers(Temporary),
    /// Of the driver's pool.
    Pooled(PooledMemory),
}

/// Memory of the driver's pool.
#[derive(Debug)]
pub struct PooledMemory {
    driver: Named<'static>,
    context: CUcontext,
    stream: CUstream,
    address: CUdeviceptr,
}

impl Workspace<'_> {
    /// Memory for pieces of so many bytes, and where each is.
    ///
    /// # Errors
    /// The driver's, or those of [`Environment::temporary`].
    pub fn allocate<const COUNT: usize>(
        &self,
        bytes: [u64; COUNT],
    ) -> Result<(Scratch, [CUdeviceptr; COUNT])> {
        let mut end = 0;
        let offsets = bytes.map(|bytes| {
            let offset = end;
            end += bytes.next_multiple_of(ALIGNMENT);
            offset
        });
        let (scratch, address) = match self.environment {
            // In the context that the caller has made current, not in one of ours.
            Some(environment) => {
                let mut parts = ScratchLayout::default();
                let all = parts.add(end.max(ALIGNMENT), 1)?;
                let memory = environment.temporary(parts)?;
                let address = memory.at(all);
                (Scratch::Callers(memory), address)
            }
            None => {
                let memory = PooledMemory::new(self.communicator, self.stream, end.max(ALIGNMENT))?;
                let address = memory.address;
                (Scratch::Pooled(memory), address)
            }
        };
        Ok((scratch, offsets.map(|offset| address + offset)))
    }
}

impl PooledMemory {
    fn new(communicator: &Communicator, stream: CUstream, bytes: u64) -> Result<Self> {
        let (driver, context) = (communicator.driver(), communicator.context());
        let _current = communicator.enter()?;
        let address = driver.mem_alloc_async(bytes as usize, stream)?;
        Ok(Self { driver, context, stream, address })
    }
}

impl Drop for PooledMemory {
    fn drop(&mut self) {
        let _current = Current::make(self.driver.0, self.context);
        let _ = self.driver.mem_free_async(self.address, self.stream);
    }
}
