"""The client's side of the statistics endpoint (docs/statistics.md)."""

import ctypes
import json
import os
import socket
from pathlib import Path

from ._library import loaded

# A program answers from a thread of its own: seconds mean that it is stopped.
PATIENCE_S = 5.0


class Unavailable(RuntimeError):
    """The process has no endpoint, or its endpoint does not answer. The message says why and what to do."""


def stats(pid=None):
    """Statistics of a process, by default this one, as a dict in the schema of docs/statistics.md.

    Raises Unavailable for a process that does not run under the library or has made no CUDA call yet.
    """
    own = _own_stats() if pid is None else None
    return own if own is not None else ask("stats", os.getpid() if pid is None else pid)


def ask(request, pid):
    """One request (``stats``, ``blocks``, ``config`` or ``dump``) to a process; returns its answer.

    Raises Unavailable where there is no answer, or the answer is an error.
    """
    answer = _decode(_exchange(_find(pid), request))
    if isinstance(answer, dict) and "error" in answer:
        raise Unavailable(f"process {pid} answered: {answer['error']}")
    return answer


def directories():
    """Where sockets may be. Only ``WMSHIM_STATS_DIR``, if that is set."""
    chosen = os.environ.get("WMSHIM_STATS_DIR")
    if chosen:
        return [Path(chosen)]
    user = os.geteuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}"
    temporary = os.environ.get("TMPDIR") or "/tmp"
    return [Path(runtime) / "wmshim", Path(temporary) / f"wmshim-{user}"]


def _own_stats():
    """What this process's own library says, without a socket; None if it is not loaded."""
    library = loaded()
    if library is None or not hasattr(library, "wmshim_stats_json"):
        return None
    library.wmshim_stats_json.restype = ctypes.c_void_p
    text = library.wmshim_stats_json()
    if not text:
        return None
    try:
        return json.loads(ctypes.string_at(text))
    finally:
        release = ctypes.CDLL(None).free
        release.argtypes = [ctypes.c_void_p]
        release(text)


def _find(pid):
    for directory in directories():
        path = directory / f"{pid}.sock"
        if path.is_socket():
            return path
    places = ", ".join(map(str, directories()))
    raise Unavailable(
        f"process {pid} has no socket in {places}: start it with `wmshim-run COMMAND`; "
        "the socket appears with its first CUDA call"
    )


def _exchange(path, request):
    line = json.dumps({"request": request}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE_S)
            client.connect(str(path))
            client.sendall(line)
            return client.makefile("rb").readline()
    except ConnectionRefusedError as error:
        raise Unavailable(f"{path} is left over from a process that ended") from error
    except OSError as error:
        raise Unavailable(f"no answer from {path}: {error}") from error


def _decode(line):
    try:
        return json.loads(line)
    except ValueError as error:
        raise Unavailable("the process ended while it answered") from error
