"""Hazard: a program written for libwholegraph's headers does not compile with ours, or means another type, number or field.

A C++ program prints the type of each function, the number of each enumerator and the layout of each structure; it is compiled with
the headers of both, and must print the same. WHOLEGRAPH_HEADERS is the folder of theirs.
"""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

OURS = Path(__file__).resolve().parents[3] / "shim" / "wholegraph" / "include"
THEIRS = Path(os.environ["WHOLEGRAPH_HEADERS"])
HEADERS = sorted(path.name for path in (THEIRS / "wholememory").glob("*.h"))
# The header of CUDA's runtime that theirs need, as far as they do.
CUDA = "#pragma once\nstruct cudaDeviceProp;\ntypedef struct CUstream_st* cudaStream_t;\n"


def text_of(folder):
    """All headers without comments."""
    text = "\n".join((folder / "wholememory" / name).read_text() for name in HEADERS)
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def program():
    """The program, for all names that their headers have."""
    text = text_of(THEIRS)
    functions = re.findall(r"(\w+)\s*\([^()]*\)\s*;", re.sub(r"\(\*\w+\)\s*\([^()]*\)\s*;", ";", text))
    structures = re.findall(r"struct (\w+) \{(.*?)\n\};", text, flags=re.DOTALL)
    enumerators = re.findall(r"^\s*((?:WHOLEMEMORY|LEVEL)_\w+)(?: = 0)?,?\s*$", text, flags=re.MULTILINE)
    lines = [f'show("{name}", typeid(decltype(&{name})).name(), 0);' for name in functions]
    lines += [f'show("{name}", typeid({name}).name(), {name});' for name in enumerators]
    for name, body in structures:
        lines.append(f'show("{name}", "", sizeof({name}));')
        for field in re.findall(r"(\w+)(?:\[\w+\])?;", body):
            lines.append(f'show("{name}.{field}", typeid(decltype({name}::{field})).name(), offsetof({name}, {field}));')
    includes = "".join(f"#include <wholememory/{name}>\n" for name in HEADERS)
    show = 'static void show(const char* name, const char* type, long number) { std::printf("%s %s %ld\\n", name, type, number); }\n'
    body = "\n".join(lines)
    return f"#define WITH_NVSHMEM_SUPPORT\n#include <cstddef>\n#include <cstdio>\n#include <typeinfo>\n{includes}{show}int main() {{\n{body}\n}}\n"


def printed(headers, work):
    """What the program prints with the headers of a folder. Names alone are used, so no library is linked."""
    source, binary = work / "program.cpp", work / "program"
    source.write_text(program())
    (work / "cuda_runtime_api.h").write_text(CUDA)
    flags = ["-std=c++17", "-I", work, "-I", headers, "-Wl,--unresolved-symbols=ignore-all"]
    subprocess.run(["g++", *flags, source, "-o", binary], check=True)
    return subprocess.run([binary], check=True, capture_output=True, text=True).stdout.splitlines()


class HeadersTest(unittest.TestCase):
    def test_functions_numbers_and_structures_are_theirs(self):
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = [printed(headers, Path(folder)) for headers in (THEIRS, OURS)]
        self.assertGreater(len(theirs), 190)
        self.assertEqual(theirs, ours)


if __name__ == "__main__":
    unittest.main()
