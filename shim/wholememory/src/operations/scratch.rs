//! Device memory of one operation: taken and given back in the stream's order, so no host waits for it.

use wm_abi::{CUcontext, CUdeviceptr, CUstream};
use wm_driver::Api;
use wm_driver::api::Named;
use wm_driver::api::scope::Current;

use crate::communicator::Communicator;
use crate::error::Result;

/// What each piece of scratch memory begins at a multiple of, bytes.
const ALIGNMENT: u64 = 256;

/// Some memory, in pieces.
#[derive(Debug)]
pub struct Scratch {
    driver: Named<'static>,
    context: CUcontext,
    stream: CUstream,
    address: CUdeviceptr,
}

impl Scratch {
    /// Memory for pieces of so many bytes, and where each is.
    ///
    /// # Errors
    /// The driver's.
    pub fn new<const COUNT: usize>(
        communicator: &Communicator,
        stream: CUstream,
        bytes: [u64; COUNT],
    ) -> Result<(Self, [CUdeviceptr; COUNT])> {
        let (driver, context) = (communicator.driver(), communicator.context());
        let _current = communicator.enter()?;
        let mut end = 0;
        let offsets = bytes.map(|bytes| {
            let offset = end;
            end += bytes.next_multiple_of(ALIGNMENT);
            offset
        });
        let address = driver.mem_alloc_async(end.max(ALIGNMENT) as usize, stream)?;
        Ok((Self { driver, context, stream, address }, offsets.map(|offset| address + offset)))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _current = Current::make(self.driver.0, self.context);
        let _ = self.driver.mem_free_async(self.address, self.stream);
    }
}
