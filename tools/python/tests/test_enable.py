"""Hazards: a process runs bare although ``enable`` returned, or not as it was although ``enable`` raised; a child does not follow; an
argument is no setting, or takes a word that the library does not."""

import os
import pickle
import socket
import subprocess
import sys
import tempfile
import typing
import unittest
from pathlib import Path

import wmshim
from wmshim import _settings

PACKAGE = Path(wmshim.__file__).parents[1]
# Where the library and the simulated driver were built; the tests of wmctl name them.
LIBRARY, DRIVER = os.environ.get("TEST_LIBRARY"), os.environ.get("TEST_DRIVER")
NEEDS_LIBRARY = unittest.skipUnless(LIBRARY and DRIVER, "run by `cargo xtask test`, which builds the library")

BEGIN = """
import ctypes, os, subprocess, sys, wmshim
def driver_has_memory(mib):
    driver, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
    assert driver.cuInit(0) == driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == driver.cuCtxSetCurrent(context) == 0
    return driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20)) == 0
def raised(call, *arguments, **settings):
    try:
        call(*arguments, **settings)
    except wmshim.Error as error:
        return error
    raise AssertionError("no error")
"""


def run(code, folder=None, **variables):
    """A Python of its own, without a preload, on a simulated device of 64 MiB."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WMSHIM_", "LD_", "SIMCUDA_", "PYTORCH_"))}
    settings = {"WMSHIM_LIB": LIBRARY or "", "WMSHIM_DRIVER": DRIVER or "", "SIMCUDA_MEMORY": "64MiB", "WMSHIM_STATS_SOCKET": "off"}
    environment = {**kept, "PYTHONPATH": str(PACKAGE), **settings, "WMSHIM_LOG": "off", **variables}
    script = [sys.executable, "-B", "-c", BEGIN + code]
    if folder:
        Path(folder, "script.py").write_text(BEGIN + code, encoding="utf-8")
        script = [sys.executable, "-B", str(Path(folder, "script.py"))]
    return subprocess.run(script, env=environment, capture_output=True, text=True, check=False)


@NEEDS_LIBRARY
class EnableTest(unittest.TestCase):
    def succeed(self, code, folder=None, **variables):
        outcome = run(code, folder, **variables)
        self.assertEqual((outcome.returncode, outcome.stderr), (0, ""), outcome.stdout + outcome.stderr)
        return outcome.stdout

    def test_without_a_launcher_a_program_has_one_and_a_half_times_the_device(self):
        code = "wmshim.enable(); import wmshim.demo as d; sys.exit(d.main(['--seconds', '0']))"
        told = self.succeed(code, SIMCUDA_MEMORY="2GiB", WMSHIM_DRIVER="sim")
        self.assertIn("Simulated GPU: 2.0 GiB", told)
        self.assertIn("holding 3.0 GiB", told)

    def test_settings_are_in_force_and_both_names_of_the_driver_are_the_library(self):
        self.succeed("""
assert not wmshim.active()
wmshim.enable(device_limit=40 << 20, overflow="off", migrate=True)
assert wmshim.active() and os.environ["WMSHIM_MIGRATE"] == "on"
assert driver_has_memory(30) and not driver_has_memory(30)
assert hasattr(ctypes.CDLL("libcuda.so"), "wmshim_version")
""")

    def test_a_driver_that_is_loaded_already_is_told_whatever_its_path(self):
        with tempfile.TemporaryDirectory() as folder:
            real = Path(folder).resolve() / "libcuda.so.580.65.06"
            real.write_bytes(Path(DRIVER).read_bytes())
            os.symlink(real, Path(folder) / "libcuda.so.1")
            other = Path(folder).resolve() / "driver.so"
            os.symlink(real, other)
            for name in ("libcuda.so.1", str(real), str(Path(folder) / "libcuda.so.1"), str(other)):
                self.succeed(f"""
before = dict(os.environ)
assert ctypes.CDLL({name!r}).cuInit(0) == 0
error = raised(wmshim.enable, device_limit="1GiB")
assert isinstance(error, wmshim.TooLate) and {str(real)!r} in str(error) and "restart the kernel" in str(error), error
assert dict(os.environ) == before and not wmshim.active() and "libwmshim" not in open("/proc/self/maps").read()
""", LD_LIBRARY_PATH=folder)

    def test_a_wrong_setting_changes_nothing(self):
        self.succeed("""
before = dict(os.environ)
for wrong in ({"device_limit": "48"}, {"overflow": "hots"}, {"guard": True}, {"trace": 1.5}, {"device_limit": -1}):
    error = raised(wmshim.enable, **wrong)
    assert isinstance(error, wmshim.SettingError) and isinstance(error, ValueError), error
    assert f"WMSHIM_{next(iter(wrong)).upper()}" in str(error), error
assert dict(os.environ) == before and not wmshim.active()
wmshim.enable()
assert wmshim.active()
""")
        outcome = run("wmshim.enable()", WMSHIM_STITCH="maybe")
        self.assertIn("wmshim.SettingError: WMSHIM_STITCH=maybe is not understood; valid: on, off", outcome.stderr)

    def test_without_the_library_the_place_is_named(self):
        self.assertIn("FileNotFoundError: /nowhere is not there", run("wmshim.enable()", WMSHIM_LIB="/nowhere").stderr)

    def test_children_follow(self):
        child = "import os, wmshim; print(wmshim.active(), os.environ['WMSHIM_DEVICE_LIMIT'])"
        with tempfile.TemporaryDirectory() as folder:
            told = self.succeed(f"""
import multiprocessing
def ask(answer):
    answer.put((wmshim.active(), driver_has_memory(30) and driver_has_memory(30)))
if __name__ == "__main__":
    wmshim.enable(device_limit="40MiB", overflow="off")
    print(subprocess.run([sys.executable, "-c", {child!r}], capture_output=True, text=True).stdout.strip())
    for way in ("spawn", "fork", "forkserver"):
        context = multiprocessing.get_context(way)
        answer = context.Queue()
        process = context.Process(target=ask, args=[answer])
        process.start()
        print(way, answer.get(timeout=60))
        process.join()
""", folder)
        expected = "True 40MiB\nspawn (True, False)\nfork (True, False)\nforkserver (True, False)\n"
        self.assertEqual(told, expected)

    def test_pytorchs_variables_are_those_of_the_launcher(self):
        show = "print(*(os.environ.get(n) for n in ('PYTORCH_CUDA_ALLOC_CONF', 'PYTORCH_ALLOC_CONF')))"
        for variables in ({}, {"WMSHIM_TORCH_ALLOCATOR": "async"}, {"PYTORCH_CUDA_ALLOC_CONF": "a:1"}, {"WMSHIM_MIGRATE": "on"}):
            with_launcher = self.succeed(show, LD_PRELOAD=LIBRARY, **variables)
            # With another thread too, as in a notebook: a library that is loaded late writes no variable itself then.
            for thread in ("", "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start(); "):
                self.assertEqual(self.succeed(f"{thread}wmshim.enable(); {show}", **variables), with_launcher, variables)
        chosen = self.succeed(f"wmshim.enable(torch_allocator='async'); {show}")
        self.assertEqual(chosen, "backend:cudaMallocAsync None\n")

    def test_a_pytorch_that_is_imported_keeps_its_allocator(self):
        self.succeed("""
sys.modules["torch"] = sys
error = raised(wmshim.enable, torch_allocator="async")
assert isinstance(error, wmshim.TooLate) and "before `import torch`" in str(error) and not wmshim.active()
wmshim.enable()
assert not [name for name in os.environ if "ALLOC_CONF" in name or name == "WMSHIM_TORCH_CHOICE"]
""")

    def test_a_second_call_changes_what_the_library_has_not_read(self):
        for begin, variables in (("wmshim.enable(device_limit='20MiB', overflow='off')", {}), ("", {"LD_PRELOAD": LIBRARY, "WMSHIM_OVERFLOW": "off"})):
            self.succeed(f"""
{begin}
wmshim.enable()
assert isinstance(raised(wmshim.enable, device_limit="many"), wmshim.SettingError)
wmshim.enable(device_limit="40MiB")
assert driver_has_memory(30) and not driver_has_memory(30)
wmshim.enable(device_limit=40 << 20, overflow="off")
error = raised(wmshim.enable, device_limit="48MiB")
assert isinstance(error, wmshim.TooLate) and "WMSHIM_DEVICE_LIMIT is 40MiB, not 48MiB" in str(error), error
assert os.environ["WMSHIM_DEVICE_LIMIT"] == "40MiB"
""", **variables)

    def test_every_word_of_the_signature_is_understood(self):
        hints = typing.get_type_hints(_settings.enable)
        self.assertEqual({*hints} - {"return"}, {*_settings.VARIABLES})
        words = [
            (_settings.VARIABLES[name], word)
            for name, hint in hints.items()
            for part in (hint, *typing.get_args(hint), *(inner for part in typing.get_args(hint) for inner in typing.get_args(part)))
            if typing.get_origin(part) is typing.Literal
            for word in typing.get_args(part)
        ]
        self.assertGreater(len(words), 40)
        self.succeed(f"""
from wmshim import _enable
library = ctypes.CDLL({LIBRARY!r})
for name, word in {words!r}:
    assert not _enable._judged(library, {{name: word}})["problems"], (name, word)
for name in {sorted(_settings.SIZES)!r}:
    assert not _enable._judged(library, {{name: _enable._text(name, 4 << 30)}})["problems"], name
for name in {sorted(_settings.SWITCHES)!r}:
    assert not _enable._judged(library, {{name: _enable._text(name, False)}})["problems"], name
""")

    def test_a_process_with_folders_of_its_own_is_found_beside_a_socket_of_the_dead(self):
        serve = "wmshim.enable(); assert driver_has_memory(1); print(os.getpid(), flush=True); sys.stdin.read()"
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as askers:
            environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "WMSHIM_LIB": LIBRARY, "WMSHIM_DRIVER": DRIVER}
            environment.update({"TMPDIR": folder, "XDG_RUNTIME_DIR": folder + "/none"})
            command = [sys.executable, "-B", "-c", BEGIN + serve]
            with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
                pid = int(process.stdout.readline())
                places = {"TMPDIR": askers, "XDG_RUNTIME_DIR": askers + "/none"}
                Path(askers, f"wmshim-{os.geteuid()}").mkdir(mode=0o700)
                with socket.socket(socket.AF_UNIX) as listener:
                    listener.bind(str(Path(askers, f"wmshim-{os.geteuid()}", f"{pid}.sock")))
                told = self.succeed(f"""
answers = {{request: wmshim.ask(request, {pid}) for request in ("stats", "blocks", "config", "dump")}}
assert answers["stats"]["pid"] == {pid} and answers["blocks"]["devices"] and answers["config"]["settings"], answers
assert answers["dump"]["path"].startswith({folder!r}), answers
print(wmshim.stats({pid})["devices"][0]["tiers"]["device"]["live_bytes"])
""", **places)
                process.stdin.close()
        self.assertEqual(told, f"{1 << 20}\n")


class PackageTest(unittest.TestCase):
    def test_an_import_loads_nothing_and_takes_no_time(self):
        command = [sys.executable, "-X", "importtime", "-c", "import sys; old = {*sys.modules}; import wmshim; print(sorted({*sys.modules} - old))"]
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        runs = [subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(5)]
        self.assertEqual(runs[0].stdout, "['wmshim', 'wmshim._version']\n")
        microseconds = [int(run.stderr.splitlines()[-1].split("|")[1]) for run in runs]
        self.assertLess(min(microseconds), 5000)

    def test_all_errors_have_one_base_and_public_names(self):
        errors = [value for name in wmshim.__all__ if isinstance(value := getattr(wmshim, name), type) and issubclass(value, Exception)]
        self.assertGreater(len(errors), 6)
        for error in errors:
            self.assertTrue(issubclass(error, wmshim.Error) and issubclass(error, RuntimeError), error)
            self.assertEqual(error.__module__, "wmshim")
        self.assertTrue(issubclass(wmshim.OutOfMemoryError, MemoryError))
        self.assertTrue(issubclass(wmshim.wholememory.OutOfMemory, wmshim.Error))
        for name in ("enable", "stats", "alloc", "Unified"):
            self.assertEqual(getattr(wmshim, name).__module__, "wmshim")
        self.assertIs(pickle.loads(pickle.dumps(wmshim.enable)), wmshim.enable)
        self.assertEqual(pickle.loads(pickle.dumps(wmshim.TooLate("x"))).args, ("x",))


if __name__ == "__main__":
    unittest.main()
