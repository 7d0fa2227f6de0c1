#!/usr/bin/env python3
"""Packs the wheel: this package with the finished libraries, wmctl and the simulated driver inside. Needs Python alone, and no
network.

    python3 tools/python/build_wheel.py dist --out dist/python

The wheel is a zip with a list of its files' hashes. It is the same byte for byte for the same inputs.
"""

import argparse
import base64
import hashlib
import re
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# All of them ask for this glibc; packaging checks that they ask for no more.
TAG = "py3-none-manylinux_2_31_x86_64"
# The files beside the Python files, and their places in dist/.
BINARIES = {
    "wmshim/lib/libwmshim.so": "lib/libwmshim.so",
    "wmshim/bin/wmctl": "bin/wmctl",
    "wmshim/bin/wmshimd": "bin/wmshimd",
    "wmshim/sim/libcuda.so.1": "sim/libcuda.so.1",
    "wmshim/wholegraph/libwholegraph.so": "wholegraph/libwholegraph.so",
}
# Folders and files of dist/ that go in as they are: the C header, the pages, the examples.
TEXTS = ["include", "docs", "examples", "README.md", "CHANGELOG.md", "SECURITY.md"]
# A zip holds no links, so the library's other names are made where it runs (`wmctl paths`), and the small program that becomes
# the package's wmctl goes in twice: as programs that pip copies to the PATH, where no Python starts before them.
PROGRAMS = ["wmctl", "wmshim-run"]
LAUNCHER = "python/launcher"
# The oldest date that a zip can hold: a wheel has no use for the day it was made.
DATE = (1980, 1, 1, 0, 0, 0)


def version():
    """The workspace's version."""
    text = (HERE.parents[1] / "Cargo.toml").read_text()
    found = re.search(r'^\[workspace\.package\][^\[]*?^version = "([^"]+)"', text, re.MULTILINE | re.DOTALL)
    if not found:
        sys.exit("no version under [workspace.package] in Cargo.toml")
    return found.group(1)


def check_version():
    """The package says the workspace's version."""
    own = re.search(r'__version__ = "([^"]+)"', (HERE / "wmshim/_version.py").read_text())
    if not own or own.group(1) != version():
        sys.exit(f"tools/python/wmshim/_version.py must say {version()}, as Cargo.toml does")


def contents(dist, repository):
    """Path in the wheel, bytes and mode of every file but the list."""
    check_version()
    for path in sorted([*(HERE / "wmshim").rglob("*.py"), HERE / "wmshim" / "py.typed"]):
        yield path.relative_to(HERE).as_posix(), path.read_bytes(), 0o644
    info = f"wmshim-{version()}.dist-info"
    programs = {f"wmshim-{version()}.data/scripts/{name}": LAUNCHER for name in PROGRAMS}
    for name, source in {**BINARIES, **programs}.items():
        path = dist / source
        if not path.is_file():
            sys.exit(f"{path} is not there: run `make dist` first")
        yield name, path.read_bytes(), 0o755
    for path in texts(dist):
        yield f"wmshim/{path.relative_to(dist).as_posix()}", path.read_bytes(), 0o644
    yield f"{info}/METADATA", metadata(dist, repository).encode(), 0o644
    yield f"{info}/WHEEL", wheel().encode(), 0o644
    yield f"{info}/licenses/LICENSE", (HERE.parents[1] / "LICENSE").read_bytes(), 0o644


def texts(dist):
    """The files of TEXTS, sorted."""
    found = [path for name in TEXTS for path in [dist / name, *(dist / name).rglob("*")] if path.is_file()]
    if not found:
        sys.exit(f"{dist} has no pages: run `make dist` first")
    return sorted(found)


def addresses(repository):
    """The lines of the description that lead to the repository."""
    places = {
        "Homepage": "",
        "Documentation": f"/blob/v{version()}/README.md#documentation",
        "Changelog": f"/blob/v{version()}/CHANGELOG.md",
        "Issues": "/issues",
    }
    return "".join(f"Project-URL: {name}, {repository}{place}\n" for name, place in places.items())


def described(readme, repository):
    """The long description. An index shows it far from the pages: links lead to the repository, if its address is known, and
    become their names if it is not."""
    target = rf"[\1]({repository}/blob/v{version()}/\2)" if repository else r"\1"
    return re.sub(r"\[([^]]*)\]\((?!https?:|#)([^)]*)\)", target, readme)


def metadata(dist, repository):
    """The package's description."""
    readme = described((dist / "README.md").read_text(), repository)
    return (
        "Metadata-Version: 2.4\n"
        "Name: wmshim\n"
        f"Version: {version()}\n"
        "Summary: GPU memory that does not fragment and does not end at the GPU, for unmodified CUDA programs\n"
        "Author: The wmshim contributors\n"
        "License-Expression: Apache-2.0\n"
        "License-File: LICENSE\n"
        "Classifier: Development Status :: 3 - Alpha\n"
        "Classifier: Environment :: GPU :: NVIDIA CUDA\n"
        "Classifier: Operating System :: POSIX :: Linux\n"
        "Classifier: Typing :: Typed\n"
        "Requires-Python: >=3.9\n"
        "Description-Content-Type: text/markdown\n" + (addresses(repository) if repository else "") + "\n" + readme
    )


def wheel():
    """The kind of wheel: binaries inside, and no compiled extension."""
    return f"Wheel-Version: 1.0\nGenerator: wmshim build_wheel.py\nRoot-Is-Purelib: false\nTag: {TAG}\n"


def record(name, data):
    """A line of the list: path, hash, size."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def build(dist, out, repository=None):
    """Writes the wheel; returns its path."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"wmshim-{version()}-{TAG}.whl"
    lines = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, mode in contents(dist, repository):
            add(archive, name, data, mode)
            lines.append(record(name, data))
        listing = f"wmshim-{version()}.dist-info/RECORD"
        add(archive, listing, "".join([*lines, f"{listing},,\n"]).encode(), 0o644)
    return path


def add(archive, name, data, mode):
    """Adds a regular file."""
    entry = zipfile.ZipInfo(name, DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3  # Unix: the mode below counts
    entry.external_attr = (0o100000 | mode) << 16
    archive.writestr(entry, data)


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description="Pack the wmshim wheel from a filled dist folder")
    parser.add_argument("dist", type=Path, help="folder with lib/libwmshim.so, wholegraph/libwholegraph.so and bin/wmctl")
    parser.add_argument("--out", type=Path, default=Path("."), help="where to put the wheel")
    parser.add_argument("--repository", help="address of the repository, such as https://example.org/wmshim")
    arguments = parser.parse_args()
    print(build(arguments.dist, arguments.out, (arguments.repository or "").rstrip("/") or None))


if __name__ == "__main__":
    main()
