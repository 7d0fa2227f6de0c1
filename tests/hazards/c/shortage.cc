/* A program with PyTorch's core loaded asks the library's allocator for too much, and catches what
 * PyTorch would catch. */

#include <functional>

#include "c10.h"

extern "C" {
#include "driver.h"
void *wmshim_torch_malloc(long size, int device, void *stream);
void wmshim_torch_free(void *address, long size, int device, void *stream);
void wmshim_torch_memory_fraction(double fraction, int device);
}

static const long MIB = 1 << 20;

/* As PyTorch holds it: the exception passes through frames of the C++ library. */
static std::function<void *(size_t, int, CUstream)> give = wmshim_torch_malloc;

static void check(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s\n", what);
        exit(70);
    }
}

/* The outcome of a request for this number of bytes, in words. */
static std::string outcome(long bytes)
{
    try {
        wmshim_torch_free(give(bytes, 0, nullptr), bytes, 0, nullptr);
    } catch (const c10::OutOfMemoryError &error) {
        return "out of memory: " + error.where() + ": " + error.what();
    } catch (const c10::Error &error) {
        return "error: " + error.where() + ": " + error.what();
    }
    return "given";
}

int main(void)
{
    begin();
    printf("%s\n%s\n", outcome(1L << 40).c_str(), outcome(-1).c_str());
    for (int i = 0; i < 100; i++)
        check(outcome(1L << 40) != "given", "what cannot be had was given");
    check(c10::Error::living == 0, "exceptions are left over");
    /* A fraction of a device of 64 MiB. */
    check(outcome(20 * MIB) == "given", "refused without a limit");
    wmshim_torch_memory_fraction(0.25, 0);
    check(outcome(20 * MIB) != "given" && outcome(16 * MIB) == "given", "a quarter is not 16 MiB");
    wmshim_torch_memory_fraction(1.0, 0);
    check(outcome(20 * MIB) == "given", "refused with the limit taken away");
    wmshim_torch_memory_fraction(0.5, 77);
    return 0;
}
