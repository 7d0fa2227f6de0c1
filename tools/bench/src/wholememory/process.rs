//! The parts of a rank that last as long as its process: the driver, the library, its communicator,
//! and one stream.

use std::ffi::c_int;
use std::path::Path;
use std::ptr::null_mut;

use anyhow::Result;
use wm_abi::CUstream;
use wm_driver::Api;
use wm_driver::api::Named;

use super::api::{ApiHandle, GroupId, WholeGraphLibrary, call};
use super::environment::EnvironmentFunctions;
use super::islands::IslandShape;
use super::kernels::MeasureKernels;
use super::nccl::PlainNetwork;
use super::opened::driver;

/// `LEVEL_WARN`, `CU_STREAM_NON_BLOCKING`
const WARNINGS: u32 = 2;
const NON_BLOCKING: u32 = 1;

/// A rank without its table.
#[derive(Debug)]
pub(super) struct RankProcess {
    pub(super) library: WholeGraphLibrary,
    pub(super) driver: Named<'static>,
    pub(super) kernels: MeasureKernels,
    pub(super) stream: CUstream,
    pub(super) comm: ApiHandle,
    pub(super) number: usize,
    pub(super) shape: IslandShape,
    /// NCCL by itself, if it is measured.
    pub(super) network: Option<PlainNetwork>,
    environment: EnvironmentFunctions,
}

impl RankProcess {
    /// Opens the library on the GPU of the rank with this number.
    ///
    /// # Errors
    /// The first call that failed, with its code.
    pub(super) fn enter(library: &Path, number: usize, shape: IslandShape) -> Result<Self> {
        let driver = driver()?;
        driver.init()?;
        let device = shape.gpu_of(number) as c_int;
        let context = driver.primary_ctx_retain(device)?;
        driver.ctx_set_current(context)?;
        let stream = driver.stream_create(NON_BLOCKING)?;
        let kernels = MeasureKernels::load(driver, stream)?;
        let library = WholeGraphLibrary::open(library)?;
        call!(library, wholememory_init(0, WARNINGS))?;
        let environment = EnvironmentFunctions::new(driver);
        let (comm, network) = (null_mut(), None);
        Ok(Self { library, driver, kernels, stream, comm, number, shape, network, environment })
    }

    /// A unique id for a new communicator, as hexadecimal digits.
    pub(super) fn identify(&self) -> Result<String> {
        let mut id = GroupId([0; 128]);
        call!(self.library, wholememory_create_unique_id(&mut id))?;
        Ok(id.to_hex())
    }

    /// Joins the communicator with this id. All ranks do it at once.
    pub(super) fn meet(&mut self, id: &str) -> Result<()> {
        let (id, number, ranks) = (GroupId::from_hex(id)?, self.number as c_int, self.shape.ranks as c_int);
        call!(self.library, wholememory_create_communicator(&mut self.comm, id, number, ranks))
    }

    /// Joins the communicator of NCCL's with this id. All ranks do it at once.
    pub(super) fn meet_network(&mut self, id: &str) -> Result<()> {
        self.network = Some(PlainNetwork::meet(id, self.number, self.shape.ranks)?);
        Ok(())
    }

    pub(super) fn barrier(&self) -> Result<()> {
        call!(self.library, wholememory_communicator_barrier(self.comm))
    }

    /// Waits for the stream.
    pub(super) fn drain(&self) -> Result<()> {
        Ok(self.driver.stream_synchronize(self.stream)?)
    }

    /// The memory functions that the library's operations take.
    pub(super) fn environment(&self) -> *mut EnvironmentFunctions {
        std::ptr::from_ref(&self.environment).cast_mut()
    }

    /// Leaves the communicator and ends the library.
    pub(super) fn leave(self) -> Result<()> {
        self.network.map_or(Ok(()), PlainNetwork::leave)?;
        if !self.comm.is_null() {
            call!(self.library, wholememory_destroy_communicator(self.comm))?;
        }
        call!(self.library, wholememory_finalize())
    }
}
