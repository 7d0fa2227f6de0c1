/*
 * device_reference.cuh: elements of WholeMemory by number, in a kernel.
 *
 *     __global__ void kernel(wholememory_gref_t gref) {
 *       wholememory::device_reference<float> table(gref);
 *       table[threadIdx.x] = 1;
 *     }
 *
 * `gref` comes from wholememory_get_global_reference and goes to the kernel by value. Every part is a whole number of
 * elements.
 */
#ifndef WHOLEMEMORY_DEVICE_REFERENCE_CUH
#define WHOLEMEMORY_DEVICE_REFERENCE_CUH

#include <wholememory/global_reference.h>

namespace wholememory {

template <typename DataTypeT>
class device_reference {
 public:
  explicit __device__ __forceinline__ device_reference(const wholememory_gref_t& gref) : gref_(gref) {}
  __device__ device_reference() = delete;

  /* The element with a number, counted from the first rank's first one. */
  __device__ __forceinline__ DataTypeT& operator[](size_t index) {
    const size_t byte = index * sizeof(DataTypeT);
    if (gref_.stride == 0) return at(gref_.pointer, byte);
    void** parts = static_cast<void**>(gref_.pointer);
    if (gref_.same_chunk) {
      const size_t rank = byte / gref_.stride;
      return at(parts[rank], byte - rank * gref_.stride);
    }
    /* The last part that begins at or before the byte: parts may be empty. */
    int first = 0, last = gref_.world_size - 1;
    while (first < last) {
      const int middle = (first + last + 1) / 2;
      if (gref_.rank_memory_offsets[middle] <= byte) {
        first = middle;
      } else {
        last = middle - 1;
      }
    }
    return at(parts[first], byte - gref_.rank_memory_offsets[first]);
  }

 private:
  static __device__ __forceinline__ DataTypeT& at(void* begin, size_t byte) {
    return *reinterpret_cast<DataTypeT*>(static_cast<char*>(begin) + byte);
  }

  wholememory_gref_t gref_;
};

}  // namespace wholememory

#endif
