//! Hazard (wrong result): a block stays shared while a call writes it, or is shared again after
//! sharing ended.
//!
//! The simulated driver is the model of the GPU. No background thread runs: the tests give the
//! broker's replies themselves.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use wm_abi::{CUcontext, CUfunction, CUresult, CUstream};
use wm_dedup::chunk::CHUNK_BYTES;
use wm_dedup::policy::tracked_blocks::Exclusion;
use wm_dedup::readers::ParameterKey;
use wm_driver::gpu::OomAnswer;
use wm_driver::loader::Loader;
use wm_driver::{Api, Device, Fingerprinting, Table};
use wm_kernels::Arguments;
use wm_kernels::dedup::{FingerprintChunks, IMAGE};
use wm_memory::{Manager, Order};

use super::Sharing;
use crate::dedup::mailbox::{BackgroundRequest, PassReply};
use crate::dedup::prepared::ChunkToGive;
use crate::dedup::tracked_blocks::TrackedBlock;
use crate::gate::GATE;
use crate::launches::{Launch, LaunchArguments, LaunchPlace, Submission};
use crate::process::{driver, open_once};
use crate::registry::{self, Callbacks};

const BYTES: u64 = 2 * CHUNK_BYTES;

/// Longest wait for an effect that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process with one device, one block and a value of [`Sharing`].
struct Scene {
    sharing: &'static Sharing,
    manager: &'static Manager<Device>,
    context: CUcontext,
    address: u64,
}

impl Scene {
    /// Sharing is on, and the block arrived by a copy.
    fn loaded() -> Self {
        let (manager, context) = device();
        GATE.turn_on();
        let sharing: &'static Sharing = Box::leak(Box::new(Sharing::new()));
        sharing.status.begin(true);
        sharing.started.call_once(|| {});
        let address = manager.allocate(BYTES as usize, Order::Device).expect("a block");
        let scene = Self { sharing, manager, context, address };
        scene.write(7).expect("private memory");
        sharing.loaded(address..address + BYTES, 0, Submission::Now);
        scene
    }

    /// The block was fingerprinted twice, and the broker has no chunk of its names.
    fn asked() -> Self {
        let scene = Self::loaded();
        let minute = Instant::now().checked_sub(Duration::from_secs(60)).expect("a minute of uptime");
        scene.block().facts().overwritten(minute);
        scene.pass();
        scene.pass();
        let chunks = scene.sharing.next_chunks(scene.manager);
        assert_eq!(chunks.len(), 2, "the block is eligible");
        for chunk in chunks {
            let give = ChunkToGive::export(scene.manager.gpu(), chunk.address()).expect("exported");
            scene.sharing.mailbox.reply([PassReply::Missing(chunk, give)]);
        }
        scene
    }

    /// Both chunks of the block are shared.
    fn shared() -> Self {
        let scene = Self::asked();
        scene.until("chunks are shared", || scene.shared_bytes() == BYTES);
        scene
    }

    /// A copy from the host into the whole block, as the driver makes it.
    fn write(&self, byte: u8) -> Result<(), wm_abi::CUresult> {
        let bytes = vec![byte; BYTES as usize];
        // SAFETY: the block is as long as the bytes.
        unsafe { driver().memcpy_htod(self.address, bytes.as_ptr().cast(), bytes.len()) }
    }

    /// A kernel that the program loaded.
    fn kernel() -> CUfunction {
        let module = driver().module_load_data(IMAGE.ptx.as_bytes()).expect("a module");
        driver().module_function(module, c"wm_fingerprint_chunks").expect("its kernel")
    }

    /// Tells sharing of a launch of a kernel, whose first parameter points into the block.
    fn launch(&self, kernel: CUfunction, submission: Submission) {
        self.launch_at(kernel, self.address + 8, submission);
    }

    /// The same with any address.
    fn launch_at(&self, kernel: CUfunction, address: u64, submission: Submission) {
        let arguments = FingerprintChunks { chunks: address, count: 1, fingerprints: 64 };
        let pointers = arguments.pointers();
        let parameters = pointers.as_ref().as_ptr().cast_mut().cast();
        let arguments = LaunchArguments { parameters, extra: std::ptr::null_mut() };
        let place = LaunchPlace { stream: CUstream(0x40), submission };
        // SAFETY: they are the arguments of that kernel.
        self.sharing.launched(&unsafe { Launch::of_kernel(kernel, arguments, place) });
    }

    fn holds(&self, byte: u8) -> bool {
        let mut bytes = vec![!byte; BYTES as usize];
        // SAFETY: the block is as long as the bytes.
        let read = unsafe { driver().memcpy_dtoh(bytes.as_mut_ptr().cast(), self.address, bytes.len()) };
        read.is_ok() && bytes.iter().all(|found| *found == byte)
    }

    fn block(&self) -> Arc<TrackedBlock> {
        self.sharing.blocks.find(self.address).expect("a tracked block")
    }

    /// A pass for which everything is due. On a busy machine several tries may find the GPU busy.
    fn pass(&self) {
        let passes = || self.sharing.counts.passes.load(Relaxed);
        let before = passes();
        self.until("a pass", || passes() > before || self.sharing.status.is_ending());
    }

    /// Tries passes until they had an effect.
    fn until(&self, effect: &str, happened: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !happened() {
            assert!(Instant::now() < end, "passes without effect: {effect}");
            self.sharing.drop_tools();
            self.sharing.run_pass(self.manager, self.context);
        }
    }

    fn shared_bytes(&self) -> u64 {
        let ranges = self.manager.shared_in(self.address..self.address + BYTES);
        ranges.into_iter().map(|range| range.end - range.start).sum()
    }

    /// Chunks that are offered to the broker.
    fn offered(&self) -> usize {
        let next = || self.sharing.mailbox.next_request(Duration::ZERO);
        std::iter::from_fn(next)
            .map(|request| if let BackgroundRequest::Offer(chunks) = request { chunks.len() } else { 0 })
            .sum()
    }

    fn copied_back(&self) -> u64 {
        self.sharing.counts.copied_back_bytes.load(Relaxed)
    }
}

/// The first device of the simulated driver, which a build of the workspace puts beside this
/// program, in its primary context.
fn device() -> (&'static Manager<Device>, CUcontext) {
    let tests = std::env::current_exe().expect("this program");
    let built = tests.ancestors().nth(2).expect("a folder of a build").join("libsimcuda.so");
    assert!(built.is_file(), "{} is missing: cargo build -p simcuda", built.display());
    open_once(|| Table::open(&Loader::system(), &built).ok());
    driver().init().expect("a driver");
    registry::set_callbacks(Callbacks {
        on_shortage: |_, _| OomAnswer::Spill,
        idle_host_memory: |_, _| None,
        may_be_held: || false,
        on_overflow: || {},
        fingerprints: Fingerprinting { prepare: |_| (), take: |_, _| Err(CUresult::NOT_SUPPORTED) },
        knows_contexts: || false,
        on_change: || {},
        on_create: || {},
    });
    let context = driver().primary_ctx_retain(0).expect("a context");
    driver().ctx_push_current(context).expect("current");
    (registry::current_site().expect("a manager").manager, context)
}

/// Hazard (latency): a call with an absurd length, which the driver refuses, is looked up for
/// hours.
#[test]
fn a_range_without_end_is_looked_up_at_once() {
    let scene = Scene::loaded();
    let found = |range| scene.sharing.blocks.within(&range).len();
    assert_eq!(found(0x1000..u64::MAX), 1);
    assert_eq!(found(scene.address + BYTES - 1..u64::MAX), 1);
    assert_eq!(found(scene.address + BYTES..u64::MAX), 0);
    assert_eq!(found(0x1000..scene.address), 0);
    assert_eq!(found(u64::MAX - 1..u64::MAX), 0);
}

#[test]
fn a_copied_block_is_fingerprinted_and_asked_about() {
    let scene = Scene::asked();
    assert_eq!(scene.sharing.mailbox.replies(), 2);
    assert_eq!(scene.sharing.next_chunks(scene.manager).len(), 0, "each chunk once");
    assert_eq!(scene.shared_bytes(), 0);
}

#[test]
fn a_block_that_no_kernel_has_used_is_not_shared_at_once() {
    let scene = Scene::loaded();
    scene.pass();
    scene.pass();
    assert_eq!(scene.sharing.next_chunks(scene.manager).len(), 0);
}

#[test]
fn a_given_block_is_mapped_for_reading_and_offered() {
    let scene = Scene::shared();
    assert_eq!(scene.offered(), 2);
    assert!(scene.block().is_shared());
    assert!(scene.holds(7) && scene.write(8).is_err() && scene.holds(7));
}

#[test]
fn a_write_makes_the_block_private_before_the_call() {
    let scene = Scene::shared();
    scene.sharing.written(scene.address..scene.address + 1, Submission::Now);
    assert_eq!((scene.shared_bytes(), scene.copied_back()), (0, BYTES));
    assert!(!scene.block().is_shared() && scene.holds(7));
    scene.write(8).expect("private memory");
    assert_eq!(scene.sharing.next_chunks(scene.manager).len(), 0, "its bytes are others");
}

#[test]
fn a_write_after_the_question_ends_the_exchange() {
    let scene = Scene::asked();
    scene.sharing.written(scene.address..scene.address + 1, Submission::Now);
    scene.until("the replies are read", || scene.sharing.mailbox.replies() == 0);
    assert_eq!((scene.shared_bytes(), scene.offered()), (0, 0));
}

/// Hazard (process crash): a kernel writes into shared memory through a pointer that no launch
/// shows, because it lies in a table in device memory.
#[test]
fn a_block_with_its_address_in_device_memory_is_private() {
    for at in [0, 4, 8 * 1024 - 4, 8 * 1024, 20_000 * 4] {
        let scene = Scene::shared();
        let table = scene.manager.allocate(128 << 10, Order::Device).expect("a table");
        let mut bytes = vec![0xff_u8; 128 << 10];
        scene.sharing.loaded(table..table + bytes.len() as u64, bytes.as_ptr() as u64, Submission::Now);
        assert_eq!(scene.shared_bytes(), BYTES, "no address of it");
        bytes[at..at + 8].copy_from_slice(&(scene.address + BYTES - 1).to_ne_bytes());
        scene.sharing.loaded(table..table + bytes.len() as u64, bytes.as_ptr() as u64, Submission::Now);
        assert_eq!(scene.shared_bytes(), 0, "its address is at byte {at}");
        assert_eq!(scene.block().facts().exclusion(), Some(Exclusion::StoredAddress));
        assert!(scene.holds(7));
    }
}

#[test]
fn a_kernel_that_is_no_reader_gets_a_private_block_before_its_launch() {
    let scene = Scene::shared();
    scene.launch(Scene::kernel(), Submission::Now);
    assert_eq!((scene.shared_bytes(), scene.copied_back()), (0, BYTES));
    assert!(scene.holds(7));
}

/// Hazard (process crash): a kernel gets an address beside a block, and writes into the block by an
/// offset.
#[test]
fn an_address_beside_a_block_counts_for_it() {
    for beside in [-8_i64, -(64 << 10), BYTES as i64, BYTES as i64 + 4096] {
        let scene = Scene::shared();
        scene.launch_at(Scene::kernel(), scene.address.wrapping_add_signed(beside), Submission::Now);
        assert_eq!(scene.shared_bytes(), 0, "{beside}");
    }
    for beside in [-(64 << 10) - 8, BYTES as i64 + (64 << 10)] {
        let scene = Scene::shared();
        scene.launch_at(Scene::kernel(), scene.address.wrapping_add_signed(beside), Submission::Now);
        assert_eq!(scene.shared_bytes(), BYTES, "{beside}");
    }
}

#[test]
fn the_start_of_another_block_is_that_blocks_alone() {
    let scene = Scene::shared();
    let mut others = Vec::new();
    let end = scene.address + BYTES;
    while scene.manager.block(end).is_none() && others.len() < 64 {
        others.push(scene.manager.allocate(BYTES as usize, Order::Device).expect("a block"));
    }
    scene.launch_at(Scene::kernel(), end, Submission::Now);
    let expected = if scene.manager.block(end).is_some() { BYTES } else { 0 };
    assert_eq!(scene.shared_bytes(), expected);
}

#[test]
fn a_reader_gets_the_shared_block() {
    let (scene, kernel) = (Scene::shared(), Scene::kernel());
    let parameter = ParameterKey { function: scene.sharing.kernels.key(kernel), offset: 0 };
    scene.sharing.kernels.readers().prove(parameter, true);
    scene.launch(kernel, Submission::Now);
    assert_eq!(scene.shared_bytes(), BYTES);
    let refuted = scene.sharing.kernels.readers().accuse([parameter]);
    assert_eq!(scene.sharing.distrust(&refuted).len(), 1, "the block relies on the kernel");
    scene.sharing.instantiating();
    assert_eq!(scene.shared_bytes(), 0, "before the next graph");
}

#[test]
fn a_kernel_in_a_graph_waits_for_a_private_block() {
    for (is_writer, exclusion) in [(false, None), (true, Some(Exclusion::GraphMayWrite))] {
        let (scene, kernel) = (Scene::shared(), Scene::kernel());
        let parameter = ParameterKey { function: scene.sharing.kernels.key(kernel), offset: 0 };
        if is_writer {
            scene.sharing.kernels.readers().prove(parameter, false);
        }
        scene.launch(kernel, Submission::Node);
        assert_eq!(scene.shared_bytes(), BYTES, "the node does not run yet");
        scene.sharing.instantiating();
        assert_eq!(scene.shared_bytes(), 0);
        assert_eq!(scene.block().facts().exclusion(), exclusion);
    }
}

#[test]
fn a_graph_that_may_write_waits_for_a_private_block() {
    let scene = Scene::shared();
    scene.sharing.written(scene.address..scene.address + 1, Submission::Node);
    assert_eq!(scene.shared_bytes(), BYTES, "the node writes nothing yet");
    scene.sharing.instantiating();
    assert_eq!(scene.shared_bytes(), 0);
    assert!(scene.block().facts().exclusion().is_some());
}

#[test]
fn a_foreign_call_makes_all_blocks_private_and_ends_sharing() {
    let scene = Scene::shared();
    scene.sharing.give_up("a reason");
    assert_eq!(scene.shared_bytes(), 0);
    assert!(!scene.sharing.is_on());
    scene.pass();
    assert_eq!(scene.sharing.next_chunks(scene.manager).len(), 0);
}

#[test]
fn chunks_without_a_broker_become_private_again() {
    let scene = Scene::shared();
    scene.pass();
    assert_eq!(scene.shared_bytes(), BYTES, "the offer is under way");
    assert_eq!(scene.offered(), 2);
    scene.sharing.mailbox.offered();
    scene.sharing.mailbox.offered();
    scene.until("chunks are private", || scene.shared_bytes() == 0);
    assert!(!scene.block().is_shared() && scene.block().facts().unregistered().is_empty());
    assert_eq!(scene.copied_back(), 0, "no write made it private");
}

#[test]
fn a_freed_block_is_forgotten() {
    let scene = Scene::shared();
    let block = scene.block();
    scene.sharing.freed(scene.address);
    assert!(block.is_gone() && scene.sharing.blocks.find(scene.address).is_none());
    assert!(scene.sharing.blocks.all().is_empty());
}

#[test]
fn off_means_that_no_block_is_tracked() {
    let (manager, _) = device();
    let sharing: &'static Sharing = Box::leak(Box::new(Sharing::new()));
    let address = manager.allocate(BYTES as usize, Order::Device).expect("a block");
    sharing.loaded(address..address + BYTES, 0, Submission::Now);
    assert!(sharing.blocks.all().is_empty() && !sharing.is_pass_due());
}
