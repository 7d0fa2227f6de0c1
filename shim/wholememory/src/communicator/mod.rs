//! Ranks that make calls together, each with its GPU.
//!
//! Invariants: each rank checks a call by itself and exchanges the result before any rank acts on
//! it, so a collective call fails on all ranks or on none. A rank with a reason of its own returns
//! that reason.

mod fabric;
mod identity;
mod ranks;

use std::any::Any;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use wm_abi::{CUcontext, CUdevice};
use wm_driver::api::Named;
use wm_driver::api::scope::Current;
use wm_driver::{Api, Table};
use wm_trust::environment;

use crate::error::{Error, Result, require};
use crate::exchange::parts::{NO_COLOR, ranks_of};
use crate::exchange::{Invitation, Key, Part, RankExchange};
use crate::kernels::Kernels;
use crate::nccl::library::Nccl;
use crate::spanning::fabric::Fabric;
use crate::vocabulary::codes::{Backend, Location, MemoryType};
use crate::vocabulary::islands::Islands;

pub use identity::{UNIQUE_ID_BYTES, unique_id};
pub use ranks::RankInfo;
use ranks::RankIslands;

/// See [`Communicator::landing`].
type SharedPart = Arc<dyn Any + Send + Sync>;

/// Ranks, as one of them sees them.
#[derive(Debug)]
pub struct Communicator {
    driver: Named<'static>,
    exchange: Arc<RankExchange>,
    key: Key,
    device: CUdevice,
    context: CUcontext,
    ranks: Vec<RankInfo>,
    islands: RankIslands,
    backend: AtomicU32,
    /// The connection of islands, once memory spans them.
    fabric: Mutex<Option<Fabric>>,
    /// What ranks of an island share beside it, of a type that this module does not know.
    landing: Mutex<Option<SharedPart>>,
    /// Loaded when they are first needed.
    kernels: OnceLock<Result<Arc<Kernels>>>,
    /// How often it was split: the key of each part follows from it.
    splits: AtomicU64,
}

/// How long ranks wait for each other: `WMSHIM_WHOLEMEMORY_TIMEOUT`, in seconds.
fn patience() -> Duration {
    let Some(text) = environment::text("WMSHIM_WHOLEMEMORY_TIMEOUT") else { return RankExchange::PATIENCE };
    match text.trim().parse() {
        Ok(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => {
            log::warn!(
                "WMSHIM_WHOLEMEMORY_TIMEOUT={text}: not a number of seconds, such as 300; 300 is used"
            );
            RankExchange::PATIENCE
        }
    }
}

impl Communicator {
    /// Meets the other ranks that have the same unique id. A collective call of all of them; the
    /// GPU of the calling thread's current context becomes the rank's.
    ///
    /// # Errors
    /// A rank that is none of `size`, or ranks that do not come in time.
    pub fn create(driver: &'static Table, id: &[u8; UNIQUE_ID_BYTES], rank: i32, size: i32) -> Result<Self> {
        let ranks = usize::try_from(size).ok().filter(|size| *size > 0);
        let ranks = ranks.ok_or_else(|| Error::Input(format!("{size} ranks")))?;
        let rank = usize::try_from(rank).ok().filter(|rank| *rank < ranks);
        let rank = rank.ok_or_else(|| Error::Input(format!("not a rank of {ranks}")))?;
        let node = environment::text("WMSHIM_WHOLEMEMORY_NODE").unwrap_or_default();
        Self::meet(Named(driver), &identity::invitation(id, (rank, ranks), node)?, rank, ranks)
    }

    fn meet(driver: Named<'static>, invitation: &Invitation, rank: usize, size: usize) -> Result<Self> {
        let (device, context) = place(driver)?;
        let exchange = RankExchange::meet(invitation, rank, size, patience())?;
        let own = serde_json::to_vec(&RankInfo::own(driver, device)?);
        let own = own.map_err(|error| Error::System(error.to_string()))?;
        let parts = exchange.round("create_communicator", &own, &[])?;
        let ranks = parts.iter().map(|part| serde_json::from_slice(&part.bytes)).collect::<Result<_, _>>();
        let ranks =
            ranks.map_err(|error| Error::Communication(format!("a rank of another version: {error}")))?;
        Ok(Self::of_exchange(exchange, invitation.key, (driver, device, context), ranks))
    }

    fn of_exchange(
        exchange: RankExchange,
        key: Key,
        (driver, device, context): (Named<'static>, CUdevice, CUcontext),
        ranks: Vec<RankInfo>,
    ) -> Self {
        let (backend, splits) = (AtomicU32::new(Backend::Nccl.code()), AtomicU64::new(0));
        let islands = RankIslands::of(&ranks, exchange.roster());
        let (exchange, kernels) = (Arc::new(exchange), OnceLock::new());
        let (fabric, landing) = (Mutex::new(None), Mutex::new(None));
        Self {
            driver,
            exchange,
            key,
            device,
            context,
            ranks,
            islands,
            backend,
            fabric,
            landing,
            kernels,
            splits,
        }
    }

    /// Divides the ranks by color; in each part they are numbered by key, and by rank where keys
    /// are alike. `None` for a rank without a color. A collective call.
    ///
    /// The rank's GPU and context stay. `own` is the rank's color and key, or why it has none: then
    /// the call fails on all ranks.
    ///
    /// # Errors
    /// The rank's own, [`Error::Input`] for a negative color that is not -1, that of another rank,
    /// [`Error::Communication`] where a rank has ended.
    pub fn split(&self, own: Result<(i32, i32)>) -> Result<Option<Self>> {
        let call = "split_communicator";
        let own = own.and_then(|(color, key)| {
            require(color >= NO_COLOR, "a color is -1 or not negative")?;
            self.exchange.can_split()?;
            let [color, key] = [color, key].map(i32::cast_unsigned).map(u64::from);
            Ok(color << 32 | key)
        });
        let told = self.agree_on(call, own, &[])?;
        let number = self.splits.fetch_add(1, Ordering::Relaxed);
        let color_and_key = |told: &u64| ((told >> 32) as u32 as i32, *told as u32 as i32);
        let colors: Vec<_> = told.iter().map(color_and_key).collect();
        let color = colors[self.rank()].0;
        let key = self.key.of_part(number, color.into());
        let part = self.exchange.part(call, &colors, key);
        self.agree(call, part.as_ref().map(drop).map_err(Clone::clone), &[])?;
        let ranks = ranks_of(&colors, color).iter().map(|rank| self.ranks[*rank].clone()).collect();
        let place = (self.driver, self.device, self.context);
        Ok(part?.map(|exchange| Self::of_exchange(exchange, key, place, ranks)))
    }

    /// The ranks of this rank's island, in their order: those that map each other's memory at a
    /// location. A collective call.
    ///
    /// # Errors
    /// As [`split`](Self::split).
    pub fn of_island(&self, location: Location) -> Result<Arc<Self>> {
        let (rank, islands) = (self.rank(), self.islands(location));
        let part = self.split(Ok((islands.of(rank) as i32, rank as i32)))?;
        part.map(Arc::new).ok_or_else(|| Error::Communication("an island without this rank".to_owned()))
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.exchange.rank()
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.exchange.size()
    }

    /// How long ranks wait for each other.
    pub(crate) fn patience(&self) -> Duration {
        self.exchange.patience()
    }

    /// A number that is the same on all ranks.
    pub fn id(&self) -> u64 {
        self.key.id()
    }

    /// The driver.
    pub fn driver(&self) -> Named<'static> {
        self.driver
    }

    /// This rank's GPU.
    pub fn device(&self) -> CUdevice {
        self.device
    }

    /// The context that was current when the rank came.
    pub fn context(&self) -> CUcontext {
        self.context
    }

    /// Makes the rank's context current for a scope.
    ///
    /// # Errors
    /// [`Error::Cuda`] where it has ended.
    pub fn enter(&self) -> Result<Current<'static>> {
        let ended = |code| Error::Cuda(format!("the communicator's context is not usable: {code}"));
        Current::make(self.driver.0, self.context).map_err(ended)
    }

    /// The kernels of operations.
    ///
    /// # Errors
    /// The driver's, the first time and from then on.
    pub fn kernels(&self) -> Result<&Arc<Kernels>> {
        let load = || Kernels::of(self.driver, self.context);
        self.kernels.get_or_init(load).as_ref().map_err(Clone::clone)
    }

    /// The ranks.
    pub fn ranks(&self) -> &[RankInfo] {
        &self.ranks
    }

    /// The transport of operations on distributed memory between machines.
    pub fn backend(&self) -> Result<Backend> {
        Backend::of(self.backend.load(Ordering::Relaxed))
    }

    /// Chooses it.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for NVSHMEM, which is not built in.
    pub fn set_backend(&self, backend: Backend) -> Result {
        if backend == Backend::Nvshmem {
            return Err(Error::NotSupported("NVSHMEM is not built in".to_owned()));
        }
        self.backend.store(backend.code(), Ordering::Relaxed);
        Ok(())
    }

    /// How the ranks lie on islands: those that map each other's memory at a location. Memory of
    /// the host is mapped by all ranks of a machine, memory of GPUs if they reach each other, too.
    pub fn islands(&self, location: Location) -> &Islands {
        self.islands.at(location)
    }

    /// Whether memory of a kind can be made. Continuous and chunked memory is mapped by all ranks,
    /// so these must be on one island. Rows of the other types pass between islands by NCCL.
    ///
    /// # Errors
    /// [`Error::NotSupported`] with the reason.
    pub fn supports(&self, memory_type: MemoryType, location: Location) -> Result {
        let (islands, machines) = (self.islands(location).count(), self.islands(Location::Host).count());
        if islands == 1 {
            return Ok(());
        }
        if matches!(memory_type, MemoryType::Distributed | MemoryType::Hierarchy) {
            return Nccl::of_process().map(drop);
        }
        Err(Error::NotSupported(if machines > 1 {
            format!(
                "the ranks are on {machines} machines, and {memory_type:?} memory is mapped by all of them: make \
                 distributed memory"
            )
        } else {
            format!(
                "the ranks' GPUs do not all reach each other's memory (no peer access), which {memory_type:?} memory \
                 needs: make distributed memory, or place it on the host"
            )
        }))
    }

    /// Waits for all ranks, and for rows that they have under way between islands. A collective
    /// call.
    ///
    /// # Errors
    /// [`Error::Communication`] where one has ended.
    pub fn barrier(&self) -> Result {
        self.drain()?;
        self.exchange.barrier("barrier")
    }

    /// Hands bytes to all ranks.
    pub(crate) fn round(&self, call: &str, bytes: &[u8]) -> Result<Vec<Part>> {
        self.exchange.round(call, bytes, &[])
    }

    /// Hands bytes to all ranks, and a descriptor to those of this rank's machine. The parts of
    /// other machines come without descriptors.
    pub(crate) fn share(
        &self,
        call: &str,
        bytes: &[u8],
        descriptor: Option<std::os::fd::BorrowedFd<'_>>,
    ) -> Result<Vec<Part>> {
        self.exchange.round(call, bytes, descriptor.as_slice())
    }

    /// All ranks learn whether all are well, and gave the same arguments. A collective call.
    ///
    /// # Errors
    /// The rank's own error; else that of another rank; else [`Error::Input`] where arguments
    /// differ.
    pub(crate) fn agree(&self, call: &str, own: Result, arguments: &[u8]) -> Result {
        self.agree_on(call, own.map(|()| 0), arguments).map(drop)
    }

    /// As [`Communicator::agree`], and all ranks learn a number of each.
    ///
    /// # Errors
    /// As [`Communicator::agree`].
    pub(crate) fn agree_on(&self, call: &str, own: Result<u64>, arguments: &[u8]) -> Result<Vec<u64>> {
        let (code, number) = own.as_ref().map_or_else(|error| (error.code(), 0), |number| (0, *number));
        let parts =
            self.round(call, &[&code.to_le_bytes()[..], &number.to_le_bytes(), arguments].concat())?;
        own?;
        let number_of = |(rank, part): (usize, &Part)| {
            let (code, rest) = part.bytes.split_first_chunk().unwrap_or((&[0xff; 4], &[]));
            let (number, theirs) = rest.split_first_chunk().unwrap_or((&[0; 8], &[]));
            match u32::from_le_bytes(*code) {
                0 if theirs == arguments => Ok(u64::from_le_bytes(*number)),
                0 => Err(Error::Input(format!("rank {rank} gives other arguments to {call}"))),
                code => Err(Error::of_rank(rank, code)),
            }
        };
        parts.iter().enumerate().map(number_of).collect()
    }
}

/// The calling thread's GPU and context; without a context, that of device 0 becomes current, as in
/// the CUDA runtime.
fn place(driver: Named<'static>) -> Result<(CUdevice, CUcontext)> {
    driver.init()?;
    let current = driver.ctx_current()?;
    if current == CUcontext::NULL {
        let context = driver.primary_ctx_retain(0)?;
        driver.ctx_set_current(context)?;
        return Ok((0, context));
    }
    Ok((driver.ctx_device()?, current))
}
