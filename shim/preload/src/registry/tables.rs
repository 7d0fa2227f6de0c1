//! The registry as a value: the facts about devices that the process knows without a question to
//! the driver.

use std::sync::{Arc, OnceLock};

use wm_abi::CUdevice;
use wm_driver::{Device, Fingerprinting, Handle, OomAnswer, Shortfall};
use wm_memory::{HostBudget, Manager};

use super::context_blocks::ContextBlocks;
use super::context_users::ContextUsers;
use super::limits::LimitBook;
use super::living::LivingContexts;
use super::managers::{DEVICES, Managers};
use super::peer_rights::PeerRights;
use crate::process::{DeviceSet, DeviceValues, THREAD_HOT, streams};

/// The questions and news of a manager to other subsystems.
pub(crate) struct Callbacks {
    /// The answer that the calling code accepts if a device has no room for a block of so many
    /// bytes.
    pub(crate) on_shortage: fn(CUdevice, Shortfall) -> OomAnswer,
    /// Idle memory of the host of so many bytes, which no manager has.
    pub(crate) idle_host_memory: fn(CUdevice, u64) -> Option<Handle>,
    /// May the host hold a stream back now?
    pub(crate) may_be_held: fn() -> bool,
    /// A block was given out that its device has no room for.
    pub(crate) on_overflow: fn(),
    /// Keyed fingerprints of chunks.
    pub(crate) fingerprints: Fingerprinting,
    /// Are all contexts noted that the program makes?
    pub(crate) knows_contexts: fn() -> bool,
    /// The memory of a manager has changed. Called without a lock.
    pub(crate) on_change: fn(),
    /// A manager was made.
    pub(crate) on_create: fn(),
}

/// A device's name, size and identity, for logs and statistics.
#[derive(Debug)]
pub(crate) struct Label {
    pub(crate) name: String,
    /// As NVIDIA's tools write it; empty where the driver does not tell.
    pub(crate) uuid: String,
    /// On the PCI bus.
    pub(crate) pci: String,
    /// All of its memory, bytes; 0 where the driver does not tell.
    pub(crate) total: u64,
}

/// The process's devices.
pub(crate) struct DeviceRegistry {
    pub(super) managers: Managers<Manager<Device>>,
    pub(super) callbacks: OnceLock<Callbacks>,
    /// One limit of the host for all managers.
    pub(super) host_budget: OnceLock<Arc<HostBudget>>,
    /// Devices whose manager could not be made.
    pub(super) unmanaged: DeviceSet,
    /// Devices whose default pool forbids internal dependencies (a stream that waits for another
    /// stream's free).
    pub(super) independent: DeviceSet,
    /// Release threshold of each device's default pool, bytes. As the driver's it is 0 unless the
    /// program sets it.
    pub(crate) release_thresholds: DeviceValues,
    /// Has this process more than one device? Set once the driver has told.
    pub(crate) has_several_devices: OnceLock<bool>,
    /// The label of each device, once it is asked for.
    pub(super) labels: [OnceLock<Label>; DEVICES],
    pub(super) peers: PeerRights,
    pub(crate) context_blocks: ContextBlocks,
    pub(crate) context_users: ContextUsers,
    pub(crate) living_contexts: LivingContexts,
    pub(super) limits: LimitBook,
}

/// The process's registry. It is a static of this layer: all subsystems above import it, and a miss
/// finds its device's manager without a look-up.
pub(crate) static REGISTRY: DeviceRegistry = DeviceRegistry {
    managers: Managers::new(),
    callbacks: OnceLock::new(),
    host_budget: OnceLock::new(),
    unmanaged: DeviceSet::new(),
    independent: DeviceSet::new(),
    release_thresholds: DeviceValues::new(0),
    has_several_devices: OnceLock::new(),
    labels: [const { OnceLock::new() }; DEVICES],
    peers: PeerRights::new(),
    context_blocks: ContextBlocks::new(),
    context_users: ContextUsers::new(),
    living_contexts: LivingContexts::new(),
    limits: LimitBook::new(),
};

/// Once, before the first hook is connected.
pub(crate) fn set_callbacks(callbacks: Callbacks) {
    REGISTRY.callbacks.get_or_init(|| callbacks);
}

/// The device's manager, if it has one yet.
pub(crate) fn existing(device: CUdevice) -> Option<&'static Manager<Device>> {
    REGISTRY.managers.existing(device)
}

/// Has any device a manager?
pub(crate) fn any() -> bool {
    all().next().is_some()
}

/// Every manager there is.
pub(crate) fn all() -> impl Iterator<Item = &'static Manager<Device>> {
    REGISTRY.managers.all()
}

/// Bytes of the host that all devices but one hold: the user's limit is one for all.
pub(crate) fn host_of_others(device: CUdevice) -> u64 {
    all().filter(|manager| manager.gpu().ordinal() != device).map(Manager::held_on_host).sum()
}

/// The manager whose address space contains `address`; the current device's first, for it is mostly
/// that one.
#[inline]
pub(crate) fn owner(address: u64) -> Option<&'static Manager<Device>> {
    let last = THREAD_HOT.with(|mine| mine.last.get()).map(|last| last.site.manager);
    last.filter(|manager| manager.gpu().contains(address)).or_else(|| search(address))
}

#[cold]
#[inline(never)]
fn search(address: u64) -> Option<&'static Manager<Device>> {
    all().find(|manager| manager.gpu().contains(address))
}

/// A withdrawn manager holds nothing any more: it may serve the device's next context.
pub(crate) fn rest(device: CUdevice, manager: &'static Manager<Device>) {
    REGISTRY.managers.rest(device, manager);
}

/// Withdraws the device's manager, unless it is used through a context. Once it holds nothing, it
/// may [`rest`].
pub(crate) fn withdraw(device: CUdevice) -> Option<&'static Manager<Device>> {
    let manager = REGISTRY.managers.withdraw(device, |manager| manager.gpu().context().is_null())?;
    streams().advance_epoch();
    Some(manager)
}
