"""The statistics of a process, as types (docs/schema.md). Fields of an older library may be absent.

Written by ``cargo xtask schema`` from shim/schema/src. Do not edit.
"""

from typing import Dict, List, Optional, TypedDict


class DriverInfo(TypedDict, total=False):
    """The real driver."""

    path: str
    version: Optional[int]


class TierUsage(TypedDict, total=False):
    """The memory in a tier, in bytes."""

    live_bytes: int
    reserved_bytes: int
    peak_live_bytes: int
    peak_reserved_bytes: int


class Tiers(TypedDict, total=False):
    """The memory in a device's tiers."""

    device: TierUsage
    peer: TierUsage
    host: TierUsage


class BytesByTier(TypedDict, total=False):
    """Bytes by tier."""

    device: int
    peer: int
    host: int


class PieceStats(TypedDict, total=False):
    """Physical memory that the program made itself with `cuMemCreate`."""

    device_bytes: int
    idle_bytes: int
    host_bytes: int
    host_idle_bytes: int
    peak_device_bytes: int
    peak_host_bytes: int
    peak_bytes: int
    overflows: int


class Counters(TypedDict, total=False):
    """Events so far."""

    allocations: int
    frees: int
    hits: int
    splits: int
    reuses: int
    stitches: int
    creates: int
    overflows: int
    orders: int
    waits: int
    evictions: int
    rollbacks: int
    releases: int
    failed_releases: int
    out_of_memory: int


class CallCount(TypedDict, total=False):
    """An intercepted function."""

    name: str
    count: int
    errors: int


class Bucket(TypedDict, total=False):
    """Calls that took at most this time, and longer than the bucket before."""

    le_ns: Optional[int]
    count: int


class DriverCall(TypedDict, total=False):
    """A function that the library called."""

    name: str
    count: int
    errors: int
    total_ns: int
    histogram: List[Bucket]


class CopyStats(TypedDict, total=False):
    """The copies over one path in one direction."""

    path: str
    direction: str
    count: int
    bytes: int


class RelayStats(TypedDict, total=False):
    """A device that other devices' copies go through."""

    ordinal: int
    staging_bytes: int
    context_bytes_at_most: int


class GuardStats(TypedDict, total=False):
    """The counts of guards."""

    mode: str
    guarded: int
    looks: int
    overrun: int
    unwatched: int


class Reason(TypedDict, total=False):
    """A reason and its count: the library fell back to the driver, or memory stayed in place."""

    reason: str
    count: int


class MoveStats(TypedDict, total=False):
    """Memory of live blocks that moved between tiers, by size of handles."""

    in_bytes: int
    out_bytes: int
    clean_bytes: int
    unprinted_bytes: int
    unequal_bytes: int
    refused: List[Reason]


class DeviceStats(TypedDict, total=False):
    """A device."""

    ordinal: int
    name: str
    uuid: str
    pci: str
    total_bytes: int
    limit_bytes: int
    headroom_bytes: int
    tiers: Tiers
    memory: Optional[Tiers]
    pieces: PieceStats
    peak_live_bytes: int
    moves: MoveStats
    cached_bytes: int
    idle_bytes: int
    utilization: float
    largest_free_run_bytes: int
    extents: int
    idle_views: int
    quarantined: int
    counters: Counters
    audit: Optional[str]


class DedupStats(TypedDict, total=False):
    """Memory stored once for several processes. In the mode `advise` the figures are estimates."""

    mode: str
    candidate_bytes: int
    shared_bytes: int
    saved_bytes: int
    copied_back_bytes: int
    faults_avoided: int
    readers: int
    writers: int
    unknown: int
    launches: int
    turns: int
    refused: List[Reason]


class FailOpen(TypedDict, total=False):
    """Times that the library fell back to the driver."""

    count: int
    reasons: List[Reason]


class BlockEntry(TypedDict, total=False):
    """A block that the program holds."""

    address: int
    bytes: int
    id: int
    stream: Optional[int]
    tiers: BytesByTier


class PieceRange(TypedDict, total=False):
    """Addresses that a piece is mapped at."""

    address: int
    bytes: int


class PieceEntry(TypedDict, total=False):
    """Physical memory that the program made itself with `cuMemCreate`, and holds or has mapped."""

    bytes: int
    id: int
    tiers: BytesByTier
    mappings: List[PieceRange]


class DeviceBlocks(TypedDict, total=False):
    """Blocks of a device."""

    ordinal: int
    blocks: List[BlockEntry]
    pieces: List[PieceEntry]


class BlockList(TypedDict, total=False):
    """The answer to `blocks`."""

    schema: str
    pid: int
    devices: List[DeviceBlocks]


class DeviceBudget(TypedDict, total=False):
    """The limits that follow from the settings, for a device; null if there is no limit."""

    ordinal: int
    device_limit_bytes: Optional[int]
    headroom_bytes: int
    keep_idle_bytes: int
    host_limit_bytes: Optional[int]
    peer_limit_bytes: Optional[int]


class Config(TypedDict, total=False):
    """The answer to `config`."""

    schema: str
    pid: int
    library: Optional[str]
    settings: Dict[str, Optional[str]]
    devices: List[DeviceBudget]


class ArenaStats(TypedDict, total=False):
    """Host memory that lies ready for a pause."""

    bytes: int
    lacking_bytes: int
    is_filling: bool
    is_full: bool


class StayedBytes(TypedDict, total=False):
    """Memory that stays on the device in a pause."""

    reason: str
    bytes: int


class PauseStats(TypedDict, total=False):
    """A process that can be paused."""

    state: str
    is_awaited: bool
    is_deep: bool
    pauses: int
    pause_s: float
    resume_s: float
    out_bytes: int
    clean_bytes: int
    file_bytes: int
    common_bytes: int
    is_in_memory: bool
    done_bytes: int
    whole_bytes: int
    in_bytes: int
    left_bytes: int
    stayed_bytes: int
    stayed: List[StayedBytes]
    problem: Optional[str]
    arena: ArenaStats


class PauseAnswer(TypedDict, total=False):
    """The answer to `pause`, `resume` and `pause_state`. All answer at once."""

    schema: str
    pid: int
    pause: PauseStats


class TurnStats(TypedDict, total=False):
    """A process that takes turns (`WMSHIM_SHARE=turns`)."""

    state: str
    has_broker: bool
    asks: int
    gave_way: int
    given_bytes: int
    wait_s: float
    longest_wait_s: float


class Stats(TypedDict, total=False):
    """The answer to `stats` and `final`."""

    schema: str
    version: str
    pid: int
    program: str
    uptime_s: float
    driver: Optional[DriverInfo]
    torch_allocator: str
    devices: List[DeviceStats]
    calls: List[CallCount]
    driver_calls: List[DriverCall]
    copies: List[CopyStats]
    relays: List[RelayStats]
    guard: Optional[GuardStats]
    dedup: Optional[DedupStats]
    pause: Optional[PauseStats]
    turn: Optional[TurnStats]
    fail_open: FailOpen
    out_of_bounds: int
    detached: bool


class StayingBytes(TypedDict, total=False):
    """Memory that stays where it is."""

    reason: str
    bytes: int


class DeviceChange(TypedDict, total=False):
    """What a step did on a device."""

    ordinal: int
    uuid: str
    limit_bytes: Optional[int]
    limit_source: str
    held_bytes: int
    beyond_bytes: int
    elsewhere_bytes: int
    out_bytes: int
    back_bytes: int
    given_bytes: int
    stays: List[StayingBytes]


class ProcessChange(TypedDict, total=False):
    """The answer to a request that changes the process. A request makes one step of bounded time."""

    schema: str
    pid: int
    detached: bool
    goes_on: bool
    devices: List[DeviceChange]
    remains: List[str]


class FullDevice(TypedDict, total=False):
    """A device at that time."""

    ordinal: int
    total_bytes: int
    limit_bytes: int
    headroom_bytes: int
    memory: Tiers


class ObjectPlace(TypedDict, total=False):
    """A place in the machine code of a file."""

    path: str
    build_id: str
    offset: int


class ProfileHeader(TypedDict, total=False):
    """The recording."""

    schema: str
    version: str
    pid: int
    program: str
    interval_bytes: int
    began_unix_ms: int
    python: Optional[str]


class ProfileModule(TypedDict, total=False):
    """A loaded object."""

    id: int
    path: str
    build_id: str
    base: int


class NativePlace(TypedDict, total=False):
    """A place in machine code."""

    module: Optional[int]
    offset: int


class PythonPlace(TypedDict, total=False):
    """A line of a Python program."""

    function: str
    file: str
    line: int


class HolderFrame(TypedDict, total=False):
    """A place in code: a native one or one of Python."""

    native: Optional[ObjectPlace]
    python: Optional[PythonPlace]


class Holder(TypedDict, total=False):
    """One that holds memory."""

    device: int
    bytes: int
    count: int
    kind: str
    address: Optional[int]
    frames: List[HolderFrame]


class OutOfMemory(TypedDict, total=False):
    """The file."""

    schema: str
    version: str
    pid: int
    program: str
    unix_ms: int
    device: int
    asked_bytes: int
    would_be_enough_bytes: int
    reason: str
    devices: List[FullDevice]
    holders_by: str
    holders: List[Holder]
    other_bytes: int


class ProfileFrame(TypedDict, total=False):
    """A place in code: a native one or one of Python."""

    id: int
    native: Optional[NativePlace]
    python: Optional[PythonPlace]


class ProfileSite(TypedDict, total=False):
    """A stack: the places from the driver's call outwards."""

    id: int
    frames: List[int]
    is_cut: bool


class SampledAllocation(TypedDict, total=False):
    """An allocation that was sampled."""

    ms: int
    number: int
    site: int
    device: int
    bytes: int
    weight_bytes: int
    kind: str


class SampledFree(TypedDict, total=False):
    """A sampled allocation is gone."""

    ms: int
    number: int


class ProfileRefusal(TypedDict, total=False):
    """The program was refused memory."""

    ms: int
    device: int
    asked_bytes: int


class ProfileMark(TypedDict, total=False):
    """The program said where it is."""

    ms: int
    text: str
