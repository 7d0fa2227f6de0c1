/* The part of PyTorch's CUDA core library that c10.h declares. */

#include "c10.h"

namespace c10 {

void run_out() { throw OutOfMemoryError({ "run_out", "c10_cuda", 1 }, "out"); }

}
