//! The table of all cases: the one place to add one. Each area has a file of its own.
//!
//! A row names a function `fn(&mut Case) -> Verdict`, the hazard that it guards, and its needs. If
//! a need is not met, the case is skipped with the reason.

mod apart;
mod array;
mod bad_input;
mod bounds;
mod context;
mod copy;
mod copy_newer;
mod copy_shapes;
mod faults;
mod graph;
mod graph_changes;
mod graph_memory;
mod graph_names;
mod graph_nodes;
mod host;
mod host_device;
mod init;
mod lookup;
mod managed;
mod memory;
mod memset;
mod module;
mod order_beside;
mod order_capture;
mod order_contexts;
mod order_ends;
mod order_green;
mod order_legacy;
mod order_pool;
mod order_waits;
mod peer;
mod peer_forms;
mod pointer;
mod pool;
mod pool_order;
mod pool_share;
mod process;
mod row;
mod share;
mod share_ends;
mod share_peers;
mod stream;
mod texture;
mod vmm;

pub use row::{Need, Row};

use crate::fixture::process::Role;

macro_rules! cases {
    ($($area:ident::$name:ident $([$($need:expr),*])? $guards:literal,)*) => {
        &[$(Row {
            name: concat!(stringify!($area), ".", stringify!($name)),
            run: $area::$name,
            guards: $guards,
            needs: &[$($($need),*)?],
        },)*]
    };
}

use Need::{Alone, Devices, Export};

/// Every case.
pub const CASES: &[Row] = cases! {
    init::calls_before_init "a call before cuInit crashes or succeeds",
    init::works_before_init "a runtime looks functions up before it initialises",
    init::init_arguments "cuInit twice, or with flags",
    init::version "a version that programs turn away",
    init::devices "wrong ordinals",
    init::identities "devices hidden, renumbered or confused",
    init::attributes "features hidden from programs that branch on them",
    init::attribute_arguments "wrong attributes",
    init::total_memory "two calls that disagree about the size of a device",
    init::error_names "error texts that name another error",

    context::needs_one "memory calls without a context",
    context::primary_counts "a primary context that dies early or never",
    context::primary_arguments "wrong devices and flags of primary contexts",
    context::release_frees_memory "memory that outlives the last release of its context",
    context::inner_release_keeps_memory "memory that dies with a release that was not the last",
    context::reset "the state after a reset",
    context::create_and_destroy "created contexts and wrong arguments",
    context::stack "contexts pushed and popped out of order",
    context::stack_of_thread "a context that leaks into another thread",
    context::destroy_frees_memory "memory that outlives its destroyed context",
    context::memory_crosses_contexts "memory bound to the context that happens to be current",
    context::identity "contexts and streams that do not know each other",
    context::limits "limits that are lost",
    context::other_names "memory that outlives a context ended by another name of the call",
    context::newest_create [Export(c"cuCtxCreate_v4")] "contexts that were created in a newer way",
    context::wait_for_named [Export(c"cuCtxSynchronize_v2")] "a wait for a context that is not current",

    memory::size_zero "size 0 must be refused, not rounded up",
    memory::size_absurd "sizes whose rounding overflows",
    memory::null_out "null pointers followed",
    memory::free_null "cuMemFree(0), which programs rely on",
    memory::free_twice "a double free that frees another owner's memory",
    memory::free_interior "an interior pointer taken for an allocation",
    memory::free_foreign "a foreign pointer that crashes a table look-up",
    memory::frees_of_other_families "memory of one family freed by another family's call",
    memory::many_sizes "overlap, alignment and ranges at the borders of size classes",
    memory::contents_survive "contents lost when neighbours are freed",
    memory::reuse_many_times "reused memory that is mapped wrong",
    memory::info_accounts [Alone] "free and live memory that exceed the total",
    memory::info_null "null pointers in cuMemGetInfo, which real programs pass",
    memory::pitch "pitched rows that overlap or suit no texture",
    memory::pitch_arguments "wrong pitched shapes",
    memory::range_arguments "ranges of wrong and freed addresses",
    memory::free_and_running_work "memory unmapped under running work",
    memory::managed "managed memory taken over by mistake",
    memory::managed_calls "calls for managed memory that answer otherwise for memory from mappings",
    managed::calls_on_other_memory "every call for managed memory, asked about memory that is served from mappings",
    managed::calls_on_managed_memory "managed memory that no longer takes its own calls",
    managed::batches [Export(c"cuMemPrefetchBatchAsync")] "prefetches and discards in batches",

    bad_input::double_frees "a double free that errs otherwise, or frees a neighbour",
    bad_input::interior_frees "an interior free that errs otherwise, or frees the block around it",
    bad_input::foreign_frees "a foreign free that errs otherwise, or crashes a look-up",
    bad_input::absurd_sizes "a size that overflows, or errs otherwise in one of the families",
    bad_input::after_the_context "memory that is known or freed after its context was destroyed",
    bad_input::after_a_reset "memory that is known or freed after a reset, and a device that is of no use afterwards",
    bad_input::without_a_context "memory that a thread without context frees, or frees half",

    pool::arguments "wrong arguments of stream-ordered memory",
    pool::contents "contents lost in a pool",
    pool::used_accounts "pool statistics that frameworks read",
    pool::small_sizes_accounts "rounding that statistics show",
    pool::high_water_resets "high-water marks that cannot be reset",
    pool::settings "pool settings that are lost",
    pool::threshold_and_trim "memory kept or given back against the threshold",
    pool::device_pools "the current pool of a device",
    pool::own_pool "memory that dies with its pool's handle",
    pool::limited_pool "a pool's limit",
    pool::create_arguments "wrong pool properties",
    pool::access "access of the owning device",
    pool::mixed_frees "memory of one allocator freed by the other's call",
    pool::context_end_keeps_pool "pool memory that dies with a context",

    pool_share::every_attribute "an attribute of a pool that is answered otherwise",
    pool_share::chosen_by_location [Export(c"cuMemSetMemPool")] "a pool chosen by CUDA 13's names, and not used",
    pool_share::exported "exported pools that another process sees differently",
    pool_share::not_exportable "memory given to another process that cannot reach it",

    pool_order::reuse_on_one_stream "reuse out of order on one stream",
    pool_order::reused_at_once_on_one_stream "reuse that needlessly waits",
    pool_order::no_reuse_while_in_flight "memory reused while its last owner still writes",
    pool_order::many_streams_never_overlap "two streams that own one block",
    pool_order::reuse_after_event "order by events ignored",
    pool_order::freed_on_another_stream "a free ordered by the wrong stream",
    pool_order::default_streams "the default streams' special handles",
    pool_order::per_thread_variants "per-thread variants that land on the wrong stream",
    pool_order::outlives_its_stream "memory that dies with its stream",
    pool_order::stream_ends_with_frees_pending "frees forgotten when their stream ends",

    order_legacy::temporaries "temporaries of the default stream with two owners at once",
    order_legacy::next_owner_waits "a block's next owner that overtakes its last, which works in a blocking stream",
    order_legacy::free_is_an_action "blocking streams that a free in the default stream does not order",
    order_legacy::events_are_actions "blocking streams that events of the default stream do not order",
    order_legacy::allocation_as_an_action "blocking streams that an allocation in the default stream does not order",
    order_legacy::wait_for_a_free "a wait for a blocking stream that leaves a free in it out, and two owners of its block",
    order_legacy::waits_of_idle_streams "a wait for a stream without work taken for proof about another",
    order_legacy::behind_the_default_stream "allocations and frees that overtake the default stream",
    order_legacy::beside_the_default_stream "non-blocking streams held up by allocations and frees in the default stream",
    order_legacy::data_ordered_by_temporaries "data read before they are written, where temporaries order the streams",

    order_contexts::freed_in_another_device [Devices(2)] "a block given away that another device still reads",
    order_contexts::plain_free_beside_another_device [Devices(2)] "a block given away after cuMemFree that another device still reads",
    order_contexts::freed_in_another_context "a block given away that another context still reads",
    order_contexts::plain_free_beside_another_context "a block given away after cuMemFree that another context still reads",
    order_contexts::stream_of_another_context "a block given away that a stream of another context still reads",
    order_contexts::default_streams_are_apart "a default stream that orders another context's streams",
    order_contexts::plain_free_waits_for "a cuMemFree that is taken for a wait for other contexts",
    order_contexts::plain_free_waits_for_devices [Devices(2)] "a cuMemFree that is taken for a wait for another device",

    order_beside::another_context [Alone] "a library's context on the program's device that waits for the program's streams",
    order_beside::beside_a_thread_that_waits "calls of a program that wait for a thread which gives memory back",
    order_beside::the_primary_ends "another context's work or memory that is lost when the program resets its device",
    order_beside::lives_are_numbered "a context taken for one that had its handle before",
    order_beside::waits_for_events "work of the default stream that overtakes a blocking stream's wait",
    order_beside::pageable_copies_in_held_streams "an asynchronous copy of pageable memory that waits where the driver's returns",
    order_beside::pageable_sources "a source that is read before the stream has made it",

    order_ends::refused_destroy "memory lost in a destruction that the driver refused",
    order_ends::ends_with_work "a block given away that a dying context still works on",
    order_ends::detached "contexts ended by the oldest call",
    order_ends::reset_with_work [Alone] "a device lost to the process by a reset with work in flight",
    order_ends::release_with_work [Alone] "a device lost to the process by the last release with work in flight",
    order_ends::ends_with_a_capture "a capture that outlives its context, and forbids memory for ever",

    order_capture::default_streams_of_two_threads "a captured allocation served from outside the graph after another thread's capture",
    order_capture::default_stream_beside_a_capture "one thread's capture taken for another's",
    order_capture::calls_beside_a_global_capture "calls that a global capture forbids, and captures that they spoil",
    order_capture::calls_beside_a_thread_local_capture "calls that a thread-local capture forbids, and captures that they spoil",
    order_capture::calls_beside_a_relaxed_capture "calls that a relaxed capture must not forbid",
    order_capture::event_of_a_context [Export(c"cuCtxRecordEvent")] "captures that an event of their context spoils",
    order_capture::memory_after_a_lost_capture "memory lost to a free that a capture refused",
    order_capture::captured_stream_destroyed "a capture that outlives its stream, and forbids memory for ever",

    order_green::identity [Export(c"cuGreenCtxCreate")] "a stream of a green context taken for one of another context",
    order_green::memory [Export(c"cuGreenCtxCreate")] "memory lost with the green context that was current when it was allocated",
    order_green::waits [Export(c"cuGreenCtxCreate")] "a wait that is taken for proof about a green context's work",
    order_green::waits_for_an_event [Export(c"cuGreenCtxCreate")] "an event that a green context does not wait for",
    order_green::reused_after_a_plain_free [Export(c"cuGreenCtxCreate")] "a block given away after cuMemFree that a green context still reads",
    order_green::reused_after_a_free_in_order [Export(c"cuGreenCtxCreate")] "a block given away that a green context's stream still reads",
    order_green::destroyed [Export(c"cuGreenCtxCreate")] "a green context used after its end",
    order_green::destroyed_while_held [Export(c"cuGreenCtxCreate")] "work lost with a green context, or an end that waits",
    order_green::stream_outlives_it [Export(c"cuGreenCtxCreate")] "memory in the streams of a green context that has ended",
    order_green::beside_the_default_stream [Export(c"cuGreenCtxCreate")] "green contexts' streams held up by the default stream",

    order_waits::other_waits "a wait for one stream that waits for all: deadlock beside a receive or a persistent kernel",
    order_waits::work_after_the_free "an allocation that waits for work submitted after the free: deadlock in pipelines",
    order_waits::without_internal_dependencies "dependencies between streams that the program has forbidden",
    order_waits::many_streams "a small allocation that waits for every stream with freed memory",
    order_waits::taken_again "cuMemAlloc that waits for work submitted after a cuMemFree: deadlock with room for it",
    order_waits::plain_allocation "cuMemAlloc that waits for work: deadlock with room for it",
    order_waits::plain_free_as_a_wait "a cuMemFree that programs take for a wait",
    order_waits::plain_memory_freed_in_order "cuMemAlloc memory freed in a stream, and given away early or waited for",
    order_waits::held_streams_of_every_kind [Alone] "memory calls that wait for streams which they have nothing to do with",
    order_waits::held_by_a_host_function "memory calls that wait for a host function, which may wait for them",
    order_waits::threads_that_wait [Alone] "a thread that waits in the driver, and keeps others from memory",

    order_pool::reuse_switches "reuse that the program has switched off",
    order_pool::given_back_after "memory that other processes wait for, and that a wait did not give back",
    order_pool::kept_by_threshold "memory kept above, or given back below the threshold",
    order_pool::chosen_pool_destroyed "the pool that is current after the chosen one has ended",
    order_pool::what_is_free_can_be_had [Alone] "memory that is said to be free, and cannot be had",
    order_pool::context_of_a_block "a block said to be of another context",

    vmm::granularities "units of physical memory",
    vmm::reserve "reservations: sizes, alignment, wishes",
    vmm::create "physical memory: wrong properties",
    vmm::map_arguments "mappings outside their reservation or handle",
    vmm::unmap_rules "half a mapping unmapped",
    vmm::binds_refused "memory bound to objects of several devices that there are not",
    vmm::access_rules "rights on ranges that are not fully mapped",
    vmm::copies_need_access "copies to memory that is mapped but not allowed",
    vmm::read_only_copies "copies into read-only memory",
    vmm::read_only_beside_writable "a right that holds for other mappings of the memory, or not at once",
    vmm::aliases "one handle mapped twice shows two contents",
    vmm::released_while_mapped "physical memory that dies with its handle",
    vmm::retain_arguments "handles of memory that has none",
    vmm::stitched "operations that stop at a seam between handles",
    vmm::backing_changes "stale contents after remapping",
    vmm::host_and_device "operations that stop at the border of device and host memory",
    vmm::does_not_wait "mapping calls that wait for running work",

    faults::unmapped "a kernel's access to unmapped memory goes unnoticed",
    faults::no_access "a kernel's access without rights goes unnoticed",
    faults::read_only "a kernel's write to read-only memory goes unnoticed",
    faults::after_unmap "stale translations after unmapping",
    faults::told_by_a_free "work that fails, where only a cuMemFree asks",
    faults::the_device_afterwards "a process that goes on after a fault, on a device that is lost to it",

    pointer::device "attributes of cuMemAlloc memory, which frameworks branch on",
    pointer::context_of_its_maker "memory taken for another context's of its device",
    pointer::small_device "attributes of memory cut from a larger piece",
    pointer::pitched "attributes of pitched memory",
    pointer::from_pool "attributes of pool memory",
    pointer::from_own_pool "attributes of memory of a pool that the program made",
    pointer::mapped_device "attributes of mapped device memory",
    pointer::mapped_host "attributes of mapped host memory",
    pointer::managed "attributes of managed memory",
    pointer::pinned "attributes of pinned memory",
    pointer::registered "attributes of registered memory",
    pointer::unknown "attributes of addresses without an owner",
    pointer::several "several attributes at once, also of foreign addresses",
    pointer::buffer_ids "registration caches keyed by a buffer id that comes back",
    pointer::sync_memops "SYNC_MEMOPS, which RDMA stacks set",
    pointer::rare_attributes "attributes that no program may set, and tokens of old RDMA stacks",

    copy::round_trips "bytes changed by a copy",
    copy::asynchronous "bytes changed by an asynchronous copy",
    copy::pageable_asynchronous "pageable memory copied late",
    copy::direction_by_address "a direction guessed wrong",
    copy::offsets "bytes written beside the target",
    copy::arguments "copies of nothing, and to nowhere",
    copy::past_the_end "copies past the end",
    bounds::of_plain_memory "reads past the end of plain memory, byte by byte",
    bounds::of_pool_memory "reads past the end of a pool's memory, byte by byte",
    bounds::of_pitched_memory "reads past the end of pitched memory",
    bounds::of_every_form "every form of copy and memset past the end",
    bounds::of_nodes "nodes that run past the end",
    bounds::of_a_batch [Export(c"cuMemcpyBatchAsync")] "batches with a copy that runs past the end",
    copy::freed_memory "copies into freed memory",
    copy::freed_small_memory "copies into freed memory that shares its pages",
    copy::in_stream_order "copies that overtake",
    copy::per_thread_variants "per-thread variants that land on the wrong stream",
    copy::batch [Export(c"cuMemcpyBatchAsync")] "batches of copies",
    copy::host_to_host "copies between host memories",
    copy_newer::with_attributes [Export(c"cuMemcpyWithAttributesAsync")] "copies with attributes",
    copy_newer::second_batch [Export(c"cuMemcpyBatchAsync_v2")] "batches of copies by the newer call",
    copy_newer::volumes_in_a_batch [Export(c"cuMemcpy3DBatchAsync")] "batches of slices",
    copy_newer::volumes_in_a_second_batch [Export(c"cuMemcpy3DBatchAsync_v2")] "batches of slices by the newer call",
    copy_newer::volume_with_attributes [Export(c"cuMemcpy3DWithAttributesAsync")] "slices with attributes",
    copy_shapes::planes "rows copied to the wrong place",
    copy_shapes::planes_to_host "rows copied to the wrong place on the host",
    copy_shapes::plane_arguments "wrong planes",
    copy_shapes::volumes "slices copied to the wrong place",
    copy_shapes::volume_to_host "slices copied to the wrong place on the host",
    copy_shapes::volume_between_contexts "copies that name their contexts",
    copy_shapes::arrays "copies to and from arrays",
    array::rows "bytes changed between arrays and served memory",
    array::planes_of_every_family "rows changed between arrays and served memory",
    array::volumes "slices changed between arrays and served memory",
    array::levels "levels of mipmapped arrays",
    array::arguments "wrong arrays and copies past their ends",
    texture::linear_memory "textures over memory that moved, is misaligned or not there",
    texture::pitched_memory "a pitch that suits no texture",
    texture::array_memory "textures over arrays",
    texture::descriptions "texture objects that name other memory",
    texture::surfaces "surfaces over arrays",
    texture::references "texture references that name other memory",
    texture::tensor_maps [Export(c"cuTensorMapEncodeTiled")] "maps for copy engines over memory of the wrong alignment",
    memset::widths "memsets of the wrong width or extent",
    memset::planes "memsets past the row",
    memset::arguments "memsets of nothing, to nowhere, misaligned",
    memset::of_host_memory "memsets of host memory",

    host::alloc "flags and device pointers of pinned memory",
    host::alloc_arguments "wrong arguments of pinned memory",
    host::kernels_reach_it "kernels that cannot reach pinned memory",
    host::register "registration counted wrong",
    host::register_arguments "wrong registrations",
    host_device::host_calls_on_device_memory "device memory taken for the host's",
    host_device::mapping_calls_on_other_memory "served memory that shows it is made of mappings",
    host_device::odd_registrations "registrations that begin and end anywhere",

    stream::query "a query that does not tell the truth",
    stream::synchronize_waits "a wait that returns early",
    stream::non_blocking_runs_beside_default "non-blocking streams held up by the default stream",
    stream::blocking_waits_for_default "blocking streams that overtake the default stream",
    stream::default_waits_for_blocking "a default stream that overtakes blocking streams",
    stream::per_thread_is_of_thread "one per-thread stream for all threads",
    stream::wait_event "waits for the wrong record of an event",
    stream::handles "wrong flags, equal ids",
    stream::priorities "priorities lost",
    stream::destroyed_while_busy "work lost with its stream",
    stream::callbacks "callbacks early, late or twice",
    stream::host_function_with_a_mode [Export(c"cuLaunchHostFunc_v2")] "host functions of a newer runtime early or twice",
    stream::driver_calls_in_callback "driver calls in a callback that wait for themselves",
    stream::memory_operations "words in memory that streams wait for and write",
    stream::wide_memory_operations "wide words, and several operations at once",
    stream::older_memory_operations [Export(c"cuStreamBatchMemOp")] "the first versions of operations on words",
    stream::kernels_in_order "launches out of order",
    stream::events "events that are true too early",
    stream::elapsed_time "times that are not times",
    stream::event_destroyed_early "waits that die with their event",

    module::images "bad images accepted",
    module::names "unknown kernels found",
    module::parameters "parameters lost on one of the ways to pass them",
    module::launches_that_cannot_be "impossible launches accepted, or fatal",
    module::results "kernels that compute something else",
    module::libraries "libraries and kernel handles, which the CUDA runtime uses",
    module::variables "variables of modules, which are memory without an allocation",
    module::other_sources "code from files and containers",

    graph::capture_and_replay "captured work done at once, or replayed wrong",
    graph::forked_capture "branches of a capture out of order",
    graph::pool_memory_becomes_nodes "graph memory served from outside the graph",
    graph::allocation_in_relaxed_mode "allocations that spoil a relaxed capture",
    graph::allocation_in_global_mode "allocations in a global capture",
    graph::forbidden_in_capture "captures that survive a forbidden call",
    graph::foreign_free_in_capture "frees in a capture of memory from before",
    graph::capture_mode_of_thread "a thread's capture mode changed behind its back",

    graph_memory::nodes "memory nodes served from outside the graph",
    graph_memory::node_arguments "nodes that free memory of other owners",
    graph_memory::replay_after_other_allocations "a replay that finds other memory at its addresses",
    graph_memory::outlives_its_launch "graph memory that is freed outside of the graph",
    graph_memory::accounts "graph memory counted with other memory",
    graph_memory::changed_nodes "nodes that are pointed at other memory",
    graph_nodes::kernel_and_copy "nodes with addresses of served memory",
    graph_nodes::parameters "parameters of nodes that name other memory",
    graph_changes::copy_of_any_kind [Export(c"cuGraphNodeSetParams")] "a copy's node changed to other memory, no context named",
    graph_changes::ready_copy_of_any_kind [Export(c"cuGraphExecNodeSetParams")] "the same of a graph that can run",
    graph_changes::ready_copy [Export(c"cuGraphAddNode")] "the same by the call for copies",
    graph_changes::ready_copy_of_pool_memory [Export(c"cuGraphAddNode")] "a copy's node changed to memory of another kind",
    graph_changes::memsets [Export(c"cuGraphAddNode_v2")] "a memset's node changed to other memory, no context named",
    graph_nodes::allocation_of_any_kind [Export(c"cuGraphAddNode")] "memory nodes by the call for all kinds",
    graph_names::instantiations "graphs made by another name of the call",
    graph_names::update "a renewed graph that still names the old memory",
    graph_names::captures [Export(c"cuStreamBeginCaptureToGraph")] "captures begun by another name of the call",
    graph_names::graphics [Export(c"cuStreamBeginCaptureToCig")] "a capture for an interface that is not there",
    graph_names::recapture [Export(c"cuStreamBeginRecaptureToGraph")] "a graph whose nodes are captured again",

    share::descriptor "exported memory that another process sees differently",
    share::descriptor_outlives_handle "exported memory that dies with its handle",
    share::descriptor_arguments "exports of memory that cannot be exported",
    share::ipc "cuIpc memory that another process sees differently",
    share::ipc_arguments "wrong cuIpc handles",
    share::ipc_handles_differ "a cuIpc handle that comes back for other memory",
    share::ipc_small "a cuIpc handle of memory cut from a larger piece",
    share::ipc_event "events that another process waits for",
    share::dma_buf "dma-bufs, which RDMA stacks export",
    share::dma_buf_of_families "dma-bufs of memory of many pieces, and of every family",
    share_ends::dead_exporter "a hang, or another owner's memory, where the exporter has ended",
    share_ends::freed_by_exporter "another owner's memory, where the exporter has freed",
    share_ends::families "handles of memory that has none",
    share_ends::opened "opened memory that is not like memory",
    share_ends::many_pieces "memory of many pieces that another process sees cut",
    share_ends::closed_in_a_capture "opened memory that cannot be closed, or is unmapped under running work",
    share_peers::opened_elsewhere [Devices(2)] "memory opened on another device than it lies on",
    share_peers::copied_to_a_peer [Devices(2)] "opened memory copied to a peer that has no access",
    share_peers::used_by_a_peer [Devices(2)] "opened memory that peers cannot reach, enabled before or after",
    share_peers::used_without_access [Devices(2)] "opened memory that peers reach without leave",

    peer::enable [Devices(2)] "peer access counted wrong",
    peer::copies [Devices(2)] "copies between devices",
    peer::kernels [Devices(2)] "memory that peers cannot reach, made before or after enabling",
    peer::without_access [Devices(2)] "memory that peers reach without leave",
    peer::mapped_memory [Devices(2)] "mapped memory of a peer",
    peer::pool_access [Devices(2)] "pool memory of a peer",
    peer::accounts_are_separate [Devices(2), Alone] "memory counted on the wrong device",
    peer::abilities [Devices(2)] "abilities of peers that are hidden",

    apart::device_part_to_a_peer [Devices(2)] "the part on the device of a block on two tiers",
    apart::host_part_to_a_peer [Devices(2)] "the part on the host, which a copy between contexts may not take",
    apart::host_part_to_a_peer_in_a_stream [Devices(2)] "the same, in a stream",
    apart::host_part_by_address [Devices(2)] "the same, by addresses",
    apart::host_part_in_a_stream [Devices(2)] "the same from device to device, in a stream",
    apart::host_part_as_a_volume [Devices(2)] "the same as a volume",
    apart::device_part_that_only_its_device_may_use [Devices(2)] "copies between devices that are no peers",
    apart::volume_that_only_its_device_may_use [Devices(2)] "the same as a volume",
    apart::unified_volume_that_only_its_device_may_use [Devices(2)] "the same, of a unified address",
    apart::by_address_without_a_right [Devices(2)] "the answers of the forms that name no context",
    apart::host_and_the_other_device [Devices(2)] "the host and a device that is no peer of the current one",
    apart::captured_between_contexts [Devices(2)] "a captured copy between devices that are no peers",
    apart::in_the_other_devices_stream [Devices(2)] "a copy in a stream of a device that has no right to the memory",
    peer_forms::by_address [Devices(2)] "copies to a peer that need no access",
    peer_forms::by_address_in_a_stream [Devices(2)] "the same, in a stream",
    peer_forms::in_a_stream [Devices(2)] "device-to-device copies to a peer in a stream",
    peer_forms::planes [Devices(2)] "rows copied to a peer",
    peer_forms::planes_in_a_stream [Devices(2)] "the same, in a stream",
    peer_forms::volumes [Devices(2)] "slices copied to a peer",
    peer_forms::volumes_in_a_stream [Devices(2)] "the same, in a stream",
    peer_forms::volumes_between_contexts [Devices(2)] "slices copied between named contexts, in a stream",
    peer_forms::batches [Devices(2), Export(c"cuMemcpyBatchAsync")] "batches of copies to a peer",
    peer_forms::nodes [Devices(2)] "nodes of graphs that copy to a peer",
    peer_forms::nodes_of_any_kind [Devices(2), Export(c"cuGraphAddNode")] "the same by the call for all kinds",
    peer_forms::pool_memory [Devices(2)] "pool memory copied to a peer",
    peer_forms::memsets [Devices(2)] "memsets of a peer's memory",
    peer_forms::attributes [Devices(2)] "a peer's memory taken for one's own",
    peer_forms::disabled [Devices(2)] "access that outlives its end",
    peer_forms::freed_from_the_other_side [Devices(2)] "memory freed from another device's context",

    lookup::runtime_12 "a look-up of the CUDA 12 runtime answered with another function",
    lookup::runtime_13 "a look-up of the CUDA 13 runtime answered with another function",
    lookup::arguments "unknown names and versions",
    lookup::first_version "the first form of cuGetProcAddress",

    process::threads_allocate "allocator state shared between threads",
    process::threads_on_streams "stream-ordered memory shared between threads",
    process::freed_by_another_thread "memory bound to the thread that made it",
    process::threads_end "thread-local state torn down",
    process::fork_in_use "a child that inherits locks, or uses its parent's context",
    process::fork_after_init "a child of an initialised process",
    process::fork_before_use "a child, and a parent, that use the driver after fork",
    process::exit_with_work_in_flight "a process that cannot end",
};

/// The roles of a case's partner process.
pub const ROLES: &[Role] = &[
    Role { name: "import", play: share::import },
    Role { name: "ipc", play: share::ipc_open },
    Role { name: "ipc-small", play: share::ipc_open_small },
    Role { name: "ipc-event", play: share::ipc_open_event },
    Role { name: "ipc-export", play: share_ends::export },
    Role { name: "ipc-attributes", play: share_ends::ask },
    Role { name: "ipc-pieces", play: share_ends::open_pieces },
    Role { name: "ipc-capture", play: share_ends::close_in_a_capture },
    Role { name: "ipc-elsewhere", play: share_peers::open_elsewhere },
    Role { name: "ipc-copy", play: share_peers::copy },
    Role { name: "ipc-enable", play: share_peers::enable_after },
    Role { name: "ipc-enabled", play: share_peers::enable_before },
    Role { name: "ipc-no-access", play: share_peers::use_without_access },
    Role { name: "pool", play: pool_share::import },
];
