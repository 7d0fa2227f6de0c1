"""The settings of ``wmshim.enable``, as types (docs/settings.md).

Written by ``cargo xtask settings`` from shim/preload/src/settings/table.rs. Do not edit.
"""

import os
from typing import Dict, Literal, Optional, Union

Path = Union[str, "os.PathLike[str]"]
# Bytes, or a text with a unit, such as 48GiB, or a share, such as 80%.
Size = Union[int, str]

VARIABLES: Dict[str, str] = {
    "stitch": "WMSHIM_STITCH",
    "disable": "WMSHIM_DISABLE",
    "driver": "WMSHIM_DRIVER",
    "device_limit": "WMSHIM_DEVICE_LIMIT",
    "headroom": "WMSHIM_HEADROOM",
    "keep_idle": "WMSHIM_KEEP_IDLE",
    "overflow": "WMSHIM_OVERFLOW",
    "overflow_created": "WMSHIM_OVERFLOW_CREATED",
    "host_limit": "WMSHIM_HOST_LIMIT",
    "peer_limit": "WMSHIM_PEER_LIMIT",
    "migrate": "WMSHIM_MIGRATE",
    "kept_copies": "WMSHIM_KEPT_COPIES",
    "pause": "WMSHIM_PAUSE",
    "pause_arena": "WMSHIM_PAUSE_ARENA",
    "share": "WMSHIM_SHARE",
    "torch_allocator": "WMSHIM_TORCH_ALLOCATOR",
    "torch_pieces": "WMSHIM_TORCH_PIECES",
    "jax_allocator": "WMSHIM_JAX_ALLOCATOR",
    "multipath": "WMSHIM_MULTIPATH",
    "multipath_min": "WMSHIM_MULTIPATH_MIN",
    "dedup": "WMSHIM_DEDUP",
    "dedup_from": "WMSHIM_DEDUP_FROM",
    "dedup_share": "WMSHIM_DEDUP_SHARE",
    "broker": "WMSHIM_BROKER",
    "guard": "WMSHIM_GUARD",
    "verify": "WMSHIM_VERIFY",
    "log": "WMSHIM_LOG",
    "log_file": "WMSHIM_LOG_FILE",
    "log_format": "WMSHIM_LOG_FORMAT",
    "trace": "WMSHIM_TRACE",
    "trace_launches": "WMSHIM_TRACE_LAUNCHES",
    "profile": "WMSHIM_PROFILE",
    "stats_socket": "WMSHIM_STATS_SOCKET",
    "stats_dir": "WMSHIM_STATS_DIR",
    "stats_signal": "WMSHIM_STATS_SIGNAL",
    "stats_at_exit": "WMSHIM_STATS_AT_EXIT",
}
SIZES = {
    "WMSHIM_DEVICE_LIMIT",
    "WMSHIM_HEADROOM",
    "WMSHIM_KEEP_IDLE",
    "WMSHIM_HOST_LIMIT",
    "WMSHIM_PEER_LIMIT",
    "WMSHIM_MULTIPATH_MIN",
    "WMSHIM_DEDUP_FROM",
}
SWITCHES = {
    "WMSHIM_STITCH",
    "WMSHIM_DISABLE",
    "WMSHIM_MIGRATE",
    "WMSHIM_KEPT_COPIES",
    "WMSHIM_PAUSE",
    "WMSHIM_DEDUP",
    "WMSHIM_TRACE_LAUNCHES",
}


def enable(
    *,
    stitch: Optional[Union[bool, Literal["on", "off"]]] = None,
    disable: Optional[Union[bool, Literal["on", "off"]]] = None,
    driver: Optional[Path] = None,
    device_limit: Optional[Size] = None,
    headroom: Optional[Size] = None,
    keep_idle: Optional[Size] = None,
    overflow: Optional[Literal["host", "peer", "host,peer", "off"]] = None,
    overflow_created: Optional[Literal["auto", "torch", "all", "off"]] = None,
    host_limit: Optional[Size] = None,
    peer_limit: Optional[Size] = None,
    migrate: Optional[Union[bool, Literal["auto", "on", "asked", "off"]]] = None,
    kept_copies: Optional[Union[bool, Literal["auto", "on", "off"]]] = None,
    pause: Optional[Union[bool, Literal["on", "auto", "paused", "off"]]] = None,
    pause_arena: Optional[str] = None,
    share: Optional[Literal["turns", "off"]] = None,
    torch_allocator: Optional[Literal["auto", "async", "native", "expandable"]] = None,
    torch_pieces: Optional[Literal["keep", "release"]] = None,
    jax_allocator: Optional[Literal["native", "auto", "async"]] = None,
    multipath: Optional[Union[int, str]] = None,
    multipath_min: Optional[Size] = None,
    dedup: Optional[Union[bool, Literal["off", "advise", "auto", "on"]]] = None,
    dedup_from: Optional[Size] = None,
    dedup_share: Optional[str] = None,
    broker: Optional[Path] = None,
    guard: Optional[Literal["page", "canary", "off"]] = None,
    verify: Optional[Literal["moves", "off"]] = None,
    log: Optional[Literal["error", "warn", "info", "debug", "trace", "off"]] = None,
    log_file: Optional[Path] = None,
    log_format: Optional[Literal["text", "json"]] = None,
    trace: Optional[Path] = None,
    trace_launches: Optional[Union[bool, Literal["on", "off"]]] = None,
    profile: Optional[Path] = None,
    stats_socket: Optional[Path] = None,
    stats_dir: Optional[Path] = None,
    stats_signal: Optional[Union[int, str]] = None,
    stats_at_exit: Optional[Path] = None,
) -> None:
    """Loads wmshim into this process, before its first use of CUDA. No launcher is needed.

    Children follow: `LD_PRELOAD` and the settings go into `os.environ`. If PyTorch is not imported yet, its allocator is chosen as
    under `wmshim-run`. In a process that runs under wmshim already, settings are checked, and changed before the first CUDA call.
    An argument that is not given keeps the value of its variable.

    Raises TooLate if a driver is loaded already, SettingError for a value that is not understood, FileNotFoundError if the library is
    not there. In these cases this process stays as it was.

    stitch (on, off; default: on): Off: every allocation is the driver's, as without wmshim.
    disable (on, off; default: off): On: every call is forwarded, nothing is intercepted.
    driver (a path, or sim; default: searched): The real driver library, or the folder it is in. `sim`: the simulated
        driver of this installation (a folder of that name is `./sim`).
    device_limit (a size above 0 with its unit such as 512MiB or 32GiB, a share such as 80%, or off for no limit;
        default: off): Most device memory to hold, for each device.
    headroom (a size with its unit such as 64MiB or 1GiB, a share below 100% such as 5%, or 0; default: 1 %, 32 MiB to 1
        GiB): Device memory left to the driver's own needs.
    keep_idle (a size with its unit such as 512MiB or 2GiB, a share such as 5%, or 0; default: 512MiB): Idle device
        memory that stays with the process after a `cuMemFree`, of blocks and of the pages of PyTorch's segments
        together; the rest goes back to the driver, for other processes. A program that needs that memory again within
        two seconds keeps as much more, up to half of the device, until it was idle for two to four seconds.
    overflow (host, peer, or both as host,peer; off; default: host): Where blocks go when the device is full; peers come
        before the host.
    overflow_created (auto, torch, all, off; default: auto): Which memory of `cuMemCreate` goes to the host too. Auto:
        that of callers which do not need device memory, as NCCL, NVSHMEM and network cards do. Torch: that of PyTorch's
        expandable segments alone. Or all, or none.
    host_limit (a size with its unit such as 512MiB or 32GiB, a share of the machine such as 80%, 0, or off; default:
        50%): Most host memory to pin, for all devices of the process together. A share is one of the machine's memory,
        or of the process's control group. Half of what the limit leaves stays available, a quarter of the machine at
        most, whatever all processes pin. Off: what is available.
    peer_limit (a size with its unit such as 512MiB or 32GiB, a share such as 80%, 0, or off for no limit; default:
        off): Most memory to take on each other device. As much as `WMSHIM_HEADROOM` says stays free there.
    migrate (auto, on, asked, off; default: auto): Live memory may migrate between GPU and host; addresses do not change
        (overflow.md). Auto: after a shortage, memory that is used often changes places with other memory while the host
        waits for the GPU, and memory moves before kernel launches where that was measured to be faster. On: it also
        moves when an allocation finds no room, and at launches from the first shortage on. Asked: it moves only when
        `wmctl limit` or `wmctl detach`, or the program itself, asks for it (operations.md). Unless it is off, calls
        that submit work cost some nanoseconds more.
    kept_copies (auto, on, off; default: auto): With `WMSHIM_MIGRATE`: memory that came back from the host keeps its
        copy there while there is room, and the GPU finds out by fingerprints which of it was written since. Only that
        is copied out again. Auto: while fingerprints take a quarter of the link's time at most (overflow.md).
    pause (on, auto, paused, off; default: off): On: the process can be paused (`wmctl pause`, `wmshim_pause`): its
        device memory goes to the host and to the driver, and its calls wait until it is resumed (pause.md). Unless
        `WMSHIM_MIGRATE` is off it can be without this setting, too. Auto: a call that finds it paused resumes it.
        Paused: it is paused from its first call on (`wmctl run --paused`). Calls that submit work cost some nanoseconds
        more.
    pause_arena (auto, off, or a size with its unit such as 32GiB, or a share of the machine such as 25%; default: off):
        With `WMSHIM_PAUSE` or `WMSHIM_SHARE`: host memory for a pause is made ahead, while the program runs, and stays
        pinned. Auto: for all that could leave. A size: up to that, of the process. `WMSHIM_HOST_LIMIT` bounds it
        (pause.md).
    share (turns, off; default: off): Turns: processes of one user that have this setting take turns at a GPU that is
        too small for all of them. A call whose memory is away waits, and the process that launched least recently is
        paused for it, as far as room is needed (pause.md). Calls that submit work cost some nanoseconds more.
    torch_allocator (auto, async, native, expandable; default: auto): PyTorch's allocator, chosen when Python starts.
        `auto` gives PyTorch's own allocator expandable segments. It leaves a choice of the user alone, and PyTorch's
        default where processes could not share such memory, as in most containers (pytorch.md).
    torch_pieces (keep, release; default: keep): `keep`: pages that PyTorch's expandable segments give up stay mapped
        and serve the next ones, up to `WMSHIM_KEEP_IDLE` and the recent high-water mark (pytorch.md).
    jax_allocator (native, auto, async; default: native): JAX's allocator, chosen when Python starts. Native: JAX's
        environment is left alone. `auto` gives JAX `cuda_async` without preallocation where memory may overflow,
        because its own allocator ends at 75 % of the device; it leaves a choice of the user alone (overflow.md). Async:
        also where memory does not overflow.
    multipath (own, auto, off, or devices by number such as 0,1,2; default: own): `own`: threads carry large pageable
        copies over the GPU's own link. `auto`, or devices: large copies use these siblings' links too. Off: all copies
        are the driver's (multipath.md).
    multipath_min (a size with its unit such as 32MiB or 1GiB; default: as measured): Smallest copy that threads carry
        or several links share.
    dedup (off, advise, auto, on; default: auto): Memory with the same bytes as another process's, such as weights of
        one model, is stored once on each GPU (dedup.md). `auto`: once this process and another one of the user have
        copied much from the host. `on`: from the first bytes on. Set it before Python starts. `advise`: the library
        counts what would be shared and changes no memory.
    dedup_from (a size such as 1GiB; default: 1GiB): With `WMSHIM_DEDUP=auto`: a process begins to share once it has
        copied this much from the host, and another process of the user, too.
    dedup_share (a share above 0% such as 1% or 0.5%; default: 1%): Most of the GPU's time to spend on fingerprints of
        memory.
    broker (a path; default: `wmshimd` beside `libwmshim.so`): The program that holds memory for all processes of a user
        that share it (dedup.md).
    guard (page, canary, off; default: off): Finds writes past the end of a block, and names the block (guard.md).
    verify (moves, off; default: off): Moves: memory that is not copied because its fingerprint is the same
        (`WMSHIM_KEPT_COPIES`) is read and compared, too. Where it differs, an error line names the block, and it is
        copied.
    log (error, warn, info, debug, trace, off; default: warn): The lines that the library writes, to stderr unless
        `WMSHIM_LOG_FILE` names a file.
    log_file (a path, or off; default: off): The file that log lines are appended to; `%p` is the process. A line that
        cannot be written there goes to stderr (operations.md).
    log_format (text, json; default: text): Json: each line is an object with `time`, `pid`, `level`, `message`.
    trace (a path, or off; default: off): The file of a recording of allocations and frees, for `wmctl replay`; `%p` is
        the process, `%d` the device (replay).
    trace_launches (on, off; default: off): A trace also has each kernel launch, with the blocks that its parameters
        point into, for `bench tiers`.
    profile (a path, a path and a size such as p.gz,1MiB, or off; default: off): The file of a profile: which code holds
        how much device memory, for `wmctl profile`; `%p` is the process. Behind a comma, the mean of the bytes from one
        sampled allocation to the next (profile.md).
    stats_socket (a path, or off; default: in `WMSHIM_STATS_DIR`): The statistics socket (statistics). Off: the signal,
        the file at exit and the black box are off as well.
    stats_dir (a path; default: `$XDG_RUNTIME_DIR/wmshim`, else `$TMPDIR/wmshim-$UID`): Folder of sockets, dumps and
        black boxes; see sharing.
    stats_signal (USR1, USR2, the number of a real-time signal from 34 to 64, or off; default: off): The signal that
        writes statistics to a file. No signal is touched unless one is named: a program may rely on any signal's
        default action.
    stats_at_exit (a path, or off; default: off): A new file for the last statistics, written when the process exits;
        `%p` is the process.
    """
    given = dict(locals())
    from . import _enable

    _enable.enable({VARIABLES[name]: value for name, value in given.items() if value is not None})
