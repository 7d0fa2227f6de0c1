"""Hazards: Python code keeps a view of bytes that are the GPU's again; a tensor's address is read wrongly; a refusal passes unseen."""

import shutil
import unittest

import wmshim
from tests.stand_in import run_under

# Memory of the process. A call that is right is noted in the first byte: 1 for the CPU's, 2 for the GPU's.
STAND_IN = """
#include <stddef.h>
static unsigned char memory[4096];
const char *wmshim_version(void) { return "0.1.0"; }
int wmshim_advise(const void *ptr, size_t size, int advice) { return 1; }
int wmshim_alloc(void **ptr, size_t size, unsigned int flags) { *ptr = memory; return flags == 4 ? 0 : 1; }
int wmshim_free(void *ptr) { return ptr == memory ? 0 : 1; }
int wmshim_access(const void *ptr, size_t size, unsigned int processor) {
    const unsigned char *at = ptr;
    if (at < memory || at + size > memory + sizeof memory || !size) return 1;
    if (memory[1] == 77) return 600;
    memory[0] = processor;
    return 0;
}
"""
TRY = """
import ctypes
import wmshim

block = wmshim.Unified(4096)
whose = lambda: ctypes.c_ubyte.from_address(block.ptr).value
with block.on_cpu() as view:
    print(whose(), len(view), view.readonly)
    view[8:12] = b"word"
print(whose(), ctypes.string_at(block.ptr + 8, 4).decode())

class Tensor:
    def data_ptr(self):
        return block.ptr + 16

for memory in (Tensor(), block, block.ptr):
    wmshim.access(memory, "cpu")
    first = whose()
    wmshim.access(memory, "gpu", 8)
    print(first, whose())
try:
    with block.on_cpu() as view:
        kept = memoryview(view)[4:8]
        array = (ctypes.c_ubyte * 4).from_buffer(view)
except BufferError:
    print("kept", whose())
for call in (lambda: wmshim.access(block.ptr, "cpu", 4097), lambda: wmshim.access(8, "gpu"), lambda: wmshim.access("text", "gpu")):
    try:
        call()
    except (wmshim.AdviceError, TypeError) as error:
        print(error)
ctypes.c_ubyte.from_address(block.ptr + 1).value = 77
try:
    wmshim.access(block, "gpu")
except wmshim.AdviceError as error:
    print(error.code)
block.free()
"""


class UnifiedTest(unittest.TestCase):
    def test_a_process_without_the_library_gets_a_clear_error(self):
        for call in (lambda: wmshim.access(1, "cpu"), lambda: wmshim.Unified(1)):
            self.assertRaisesRegex(RuntimeError, "wmshim-run", call)
        self.assertRaisesRegex(ValueError, "tpu.*cpu", wmshim.access, 1, "tpu")

    @unittest.skipUnless(shutil.which("cc"), "needs a C compiler")
    def test_the_bytes_are_the_cpus_within_the_block_and_refusals_are_exceptions(self):
        lines = run_under(STAND_IN, TRY)
        self.assertEqual(lines[:5], ["1 4096 False", "2 word", "1 2", "1 2", "1 2"])
        self.assertEqual(lines[5], "kept 1")
        self.assertIn("1 wmshim_access(cpu): CUDA_ERROR_INVALID_VALUE: it is no memory of", "1 " + lines[6])
        self.assertIn("wmshim_access(gpu): CUDA_ERROR_INVALID_VALUE", lines[7])
        self.assertIn("str is no address", lines[8])
        self.assertEqual(lines[9:], ["600"])


if __name__ == "__main__":
    unittest.main()
