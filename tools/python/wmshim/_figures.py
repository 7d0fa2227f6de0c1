"""Figures about a device's memory, in the shape of ``torch.cuda.memory_stats``.

They are those of the device's memory pool, as PyTorch's ``cudaMallocAsync`` back end reports them, and the counters of wmshim.
"""

from typing import Any, Dict, Iterator, Tuple, cast

from . import _driver
from ._client import stats

# Sections of PyTorch's dict that are about blocks and segments of its own allocator: zero, as in that back end.
ARRAYS = (
    "allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
    "inactive_split_bytes", "requested_bytes",
)
SINGLES = ("oversize_allocations", "oversize_segments")
PLAIN = (
    "num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free", "max_split_size",
)

# Counters at the last reset of the accumulated ones, by device.
_before: Dict[int, Dict[str, int]] = {}


def nested(device: int) -> Dict[str, Any]:
    """The value of ``torch.cuda.memory_stats_as_nested_dict``."""
    answer: Dict[str, Any] = {name: {pool: _stat() for pool in ("all", "small_pool", "large_pool")} for name in ARRAYS}
    answer.update({name: _stat() for name in SINGLES})
    answer.update({name: 0 for name in PLAIN})
    used = _stat(_driver.figure(device, _driver.USED), _driver.figure(device, _driver.USED_PEAK))
    for name in ("allocated_bytes", "active_bytes", "requested_bytes"):
        answer[name]["all"] = dict(used)
    reserved = _driver.figure(device, _driver.RESERVED), _driver.figure(device, _driver.RESERVED_PEAK)
    answer["reserved_bytes"]["all"] = _stat(*reserved)
    _count(answer, device)
    return answer


def flat(device: int) -> Dict[str, int]:
    """The same by dotted names, as ``torch.cuda.memory_stats`` has them."""
    return dict(sorted(_leaves("", nested(device))))


def _leaves(name: str, value: Any) -> Iterator[Tuple[str, int]]:
    if not isinstance(value, dict):
        yield name, value
        return
    for key, inner in value.items():
        yield from _leaves(f"{name}.{key}" if name else key, inner)


def _stat(current: int = 0, peak: int = 0) -> Dict[str, int]:
    return {"current": current, "peak": peak, "allocated": 0, "freed": 0}


def _count(answer: Dict[str, Any], device: int) -> None:
    now, before = counters(device), _before.get(device, {})
    since = {name: count - before.get(name, 0) for name, count in now.items()}
    answer["num_ooms"] = since.get("out_of_memory", 0)
    answer["num_device_alloc"], answer["num_device_free"] = since.get("creates", 0), since.get("releases", 0)
    allocation = answer["allocation"]["all"]
    allocation["allocated"], allocation["freed"] = since.get("allocations", 0), since.get("frees", 0)
    allocation["current"] = now.get("allocations", 0) - now.get("frees", 0)


def counters(device: int) -> Dict[str, int]:
    """wmshim's own counters of a device; empty before it has served one."""
    for row in stats().get("devices", []):
        if row.get("ordinal") == device:
            # All fields of the type are numbers, which Python's types cannot say.
            return cast(Dict[str, int], row.get("counters", {}))
    return {}


def reset_accumulated(device: int) -> None:
    """Counters start from 0 again."""
    _before[device] = counters(device)


def reset_peak(device: int) -> None:
    """Peaks start from the current values."""
    _driver.reset_peak(device, _driver.USED_PEAK)
    _driver.reset_peak(device, _driver.RESERVED_PEAK)
