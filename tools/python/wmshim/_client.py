"""The client's side of the statistics endpoint (docs/wmctl.md).

The client checks a socket before it trusts it: in ``/tmp`` any user can make a folder of this user's name first. One deadline
holds for connecting, asking and the whole answer, which has the endpoint's own limit.
"""

import ctypes
import json
import os
import socket
import stat
import struct
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Literal, Optional, Union

from ._errors import Unavailable
from ._library import library_path, loaded, wmctl_path
from ._schema import Stats

Request = Literal["stats", "blocks", "config", "dump"]
# What ``wmctl`` is asked for a request.
WORDS = {"stats": ["stats"], "blocks": ["stats", "--blocks"], "config": ["stats", "--config"], "dump": ["dump"]}

# A program answers from a thread of its own: seconds mean that it is stopped.
PATIENCE_S = 5.0
# The endpoint's limit, and the line's end.
LONGEST = (8 << 20) + 1


def stats(pid: Optional[int] = None) -> Stats:
    """Statistics of a process, by default this one, as a dict in the schema of docs/schema.md.

    Raises Unavailable for a process that does not run under the library or has made no CUDA call yet.
    """
    own = _own_stats() if pid is None else None
    answer: Stats = own if own is not None else ask("stats", os.getpid() if pid is None else pid)
    return answer


def ask(request: Request, pid: int) -> Any:
    """One request (``stats``, ``blocks``, ``config`` or ``dump``) to a process; returns its answer.

    A process that has no socket in this one's folders is found as ``wmctl`` finds it: by its own variables, in its own root, and if this
    process is root, also of another user. Raises Unavailable where there is no answer, or the answer is an error.
    """
    if isinstance(pid, bool) or not isinstance(pid, int):
        raise TypeError(f"a process is named by its number, not by {pid!r}")
    if pid <= 0:
        raise ValueError(f"{pid} is no process: numbers of processes are above 0")
    path = _find(pid)
    try:
        answer = _decode(_exchange(path, request)) if isinstance(path, Path) else _wmctl(request, pid, path)
    except ConnectionRefusedError:
        # Another process had the number before: the one that has it now may have folders of its own.
        why = Unavailable(f"{path} is left over from a process that ended; `wmctl clean` removes it")
        answer = _wmctl(request, pid, why)
    if isinstance(answer, dict) and "error" in answer:
        raise Unavailable(f"process {pid} answered: {_shown(str(answer['error']))}")
    return answer


def directories() -> List[Path]:
    """Where sockets may be. Only ``WMSHIM_STATS_DIR``, if that is set."""
    chosen = os.environ.get("WMSHIM_STATS_DIR")
    if chosen:
        return [Path(chosen)]
    user = os.geteuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}"
    temporary = os.environ.get("TMPDIR") or "/tmp"
    return [Path(runtime) / "wmshim", Path(temporary) / f"wmshim-{user}"]


def _own_stats() -> Optional[Stats]:
    """The answer of this process's own library, without a socket; None if it is not loaded."""
    library = loaded()
    if library is None or not hasattr(library, "wmshim_stats_json"):
        return None
    library.wmshim_stats_json.restype = ctypes.c_void_p
    text = library.wmshim_stats_json()
    if not text:
        return None
    try:
        own: Stats = json.loads(ctypes.string_at(text))
        return own
    finally:
        release = ctypes.CDLL(None).free
        release.argtypes = [ctypes.c_void_p]
        release(text)


def _find(pid: int) -> Union[Path, Unavailable]:
    """The socket of a process in the folders of this one, or why there is none."""
    problems = []
    for directory in directories():
        path = directory / f"{pid}.sock"
        problem = _distrust(directory)
        if problem:
            problems.append(problem)
        elif path.is_socket() and not path.is_symlink():
            return path
    places = ", ".join(map(str, directories()))
    return Unavailable(
        f"process {pid} has no socket in {places}: start it with `wmshim-run COMMAND`, or call wmshim.enable() in it; "
        "the socket appears with its first CUDA call" + "".join(f"; {problem}" for problem in problems)
    )


def _wmctl(request: str, pid: int, why: Unavailable) -> Any:
    """The answer that ``wmctl`` gets. ``why`` there is none in the folders of this process, if there is no ``wmctl`` to be asked."""
    if os.environ.get("WMSHIM_STATS_DIR") or request not in WORDS:
        raise why
    try:
        library = library_path()
        command = [wmctl_path(library), *WORDS[request], "--json", str(pid)]
        run = subprocess.run(command, env={**os.environ, "WMSHIM_LIB": library}, capture_output=True, text=True, check=False)
    except OSError:
        raise why from None
    if run.returncode != 0:
        raise Unavailable(run.stderr.strip().removeprefix("wmctl: ") or str(why))
    answer = _decode(run.stdout.encode())
    return answer["processes"][0]["answer"] if "processes" in answer else answer


def _distrust(directory: Path) -> Optional[str]:
    """Why a folder cannot be believed; None for one that can, or that is not there."""
    try:
        status = os.lstat(directory)
    except OSError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return f"{directory} is a symbolic link and was not looked into"
    if not stat.S_ISDIR(status.st_mode):
        return f"{directory} is no folder"
    if status.st_uid != os.geteuid():
        return f"{directory} belongs to user {status.st_uid} and was not looked into"
    if status.st_mode & 0o022:
        return f"{directory} can be written by others and was not looked into"
    return None


def _exchange(path: Path, request: str) -> bytes:
    """The line that a socket answers. Raises ConnectionRefusedError where no process listens at it."""
    line = json.dumps({"request": request}).encode() + b"\n"
    deadline = time.monotonic() + PATIENCE_S
    try:
        with socket.socket(socket.AF_UNIX) as client:
            _connect(client, path, deadline)
            user = _peer(client)
            if user not in (os.geteuid(), 0):
                raise Unavailable(f"user {user} listens at {path}, who is not to be believed; it was not asked")
            client.sendall(line)
            return b"".join(_receive(client, deadline))
    except ConnectionRefusedError:
        raise
    except OSError as error:
        raise Unavailable(f"no answer from {path}: {error}") from error


def _connect(client: socket.socket, path: Path, deadline: float) -> None:
    """Connects; tries again while the queue of connections is full."""
    while True:
        client.settimeout(0)
        try:
            client.connect(str(path))
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError("its queue is full: is the process stopped?") from None
            time.sleep(0.01)
        finally:
            client.settimeout(max(deadline - time.monotonic(), 0.001))


def _peer(client: socket.socket) -> int:
    """The user at the other end: the kernel says so, not the peer."""
    layout = struct.Struct("iII")
    _, user, _ = layout.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size))
    return int(user)


def _receive(client: socket.socket, deadline: float) -> Iterator[bytes]:
    """Pieces of one line."""
    length = 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out before the answer was whole")
        client.settimeout(left)
        piece = client.recv(1 << 16)
        yield piece
        length += len(piece)
        if length > LONGEST:
            raise Unavailable(f"the answer is longer than {LONGEST >> 20} MiB: no statistics are")
        if not piece or b"\n" in piece:
            return


def _decode(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise Unavailable("the process ended while it answered") from error


def _shown(text: str) -> str:
    """Text of a program, fit for a terminal."""
    shown = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    return shown if len(shown) <= 200 else shown[:197] + "..."
