"""Compiles the kernels for GPUs: a PTX file and two cubins for each folder of cuda/, and a manifest of hashes.

Usage: compile.py OUTPUT_FOLDER (run by `cargo xtask kernels`, in a Python that has tools/requirements.txt).

The compiler is NVRTC, called through ctypes: no toolkit, no host compiler. The outputs depend on the sources and
on this file alone (no paths, no times), so that compiling again gives the same bytes.
"""

import ctypes
import hashlib
import pathlib
import subprocess
import sys

import nvidia

KERNELS = pathlib.Path(__file__).resolve().parent.parent
CUDA = KERNELS / "cuda"
OPTIONS = ["--std=c++17"]
# (suffix of the output, --gpu-architecture, which form NVRTC is asked for)
TARGETS = [
    ("ptx", "compute_80", "PTX"),
    ("sm_80.cubin", "sm_80", "CUBIN"),
    ("sm_90.cubin", "sm_90", "CUBIN"),
]


def package(folder):
    """The folder of an nvidia-*-cu12 package."""
    return pathlib.Path(nvidia.__path__[0]) / folder


class Nvrtc:
    """The few calls of NVRTC that a compilation takes."""

    def __init__(self):
        folder = package("cuda_nvrtc") / "lib"
        # NVRTC looks its built-ins up by bare name; having them open already is what makes it find them.
        ctypes.CDLL(str(folder / "libnvrtc-builtins.so.12.2"), mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(folder / "libnvrtc.so.12"))
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: {self.library.nvrtcGetErrorString(code).decode()}")

    def read(self, program, what):
        """One of the program's results: PTX, CUBIN or ProgramLog."""
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def compile(self, name, source, architecture, form):
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
        options = [*OPTIONS, f"--gpu-architecture={architecture}", f"--include-path={CUDA}",
                   f"--include-path={package('cuda_runtime') / 'include'}"]
        array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        try:
            self.call("nvrtcCompileProgram", program, len(options), array)
        except RuntimeError as error:
            log = self.read(program, "ProgramLog").rstrip(b"\0").decode()
            raise SystemExit(f"{name} for {architecture}: {error}\n{log}") from None
        return self.read(program, form)


def images():
    """Each folder of cuda/ with .cu files in it: its name, these files and its headers, sorted."""
    for folder in sorted(CUDA.iterdir()):
        files = sorted(folder.glob("*.cu"))
        if files:
            yield folder.name, files, sorted(folder.glob("*.cuh"))


def check_ptx(path):
    """The offline gate: 12.2's ptxas takes what driver 535 takes."""
    ptxas = package("cuda_nvcc") / "bin" / "ptxas"
    subprocess.run([ptxas, "--gpu-name=sm_80", "--output-file=/dev/null", path], check=True)


def manifest_line(kind, path, shown):
    return f"{kind}\t{hashlib.sha256(path.read_bytes()).hexdigest()}\t{shown}\n"


def main():
    output = pathlib.Path(sys.argv[1])
    nvrtc = Nvrtc()
    sources = [CUDA / "device.cuh", KERNELS / "tools/compile.py", KERNELS / "tools/requirements.txt"]
    outputs = []
    for image, files, headers in images():
        sources += files + headers
        unit = "".join(f'#include "{file.relative_to(CUDA)}"\n' for file in files)
        for suffix, architecture, form in TARGETS:
            path = output / f"{image}.{suffix}"
            code = nvrtc.compile(f"{image}.cu", unit, architecture, form)
            path.write_bytes(code.rstrip(b"\0") if form == "PTX" else code)
            outputs.append(path)
        check_ptx(output / f"{image}.ptx")
    lines = [manifest_line("source", path, path.relative_to(KERNELS)) for path in sorted(sources)]
    lines += [manifest_line("output", path, f"compiled/{path.name}") for path in outputs]
    (output / "manifest.tsv").write_text("".join(lines))


if __name__ == "__main__":
    main()
