// Times of NCCL's groups between two GPUs, whose processes pose as two machines: a kernel,
// collective calls and exchanges by themselves, and in the order in which a gather over islands has
// them. Argument: 0 for a communicator that does not block, 1 for one that does. Medians, and the
// 10th and 90th percentile, of 200.
//
//   N=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])')
//   nvcc -O2 -std=c++17 -o groups tests/workloads/nccl_groups.cu \
//       -I$N/include -Xlinker $N/lib/libnccl.so.2
//   export NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1
//   LD_LIBRARY_PATH=$N/lib ./groups 0
#include <nccl.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <algorithm>
#include <chrono>
#include <functional>
#include <unistd.h>
#include <sys/wait.h>
#include <sched.h>
#define N(x) do { ncclResult_t r_ = (x); if (r_ != ncclSuccess && r_ != ncclInProgress) { fprintf(stderr, "%s: %s\n", #x, ncclGetErrorString(r_)); exit(1);} } while (0)
#define C(x) do { cudaError_t r_ = (x); if (r_ != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, cudaGetErrorString(r_)); exit(1);} } while (0)
static ncclComm_t comm; static cudaStream_t s; static cudaEvent_t ev; static int rank_, peer; static char *d, *h;
static double now() { return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
static void ready() { ncclResult_t st; do { N(ncclCommGetAsyncError(comm, &st)); if (st == ncclInProgress) sched_yield(); } while (st == ncclInProgress); if (st) { fprintf(stderr, "async %d\n", st); exit(1);} }
static void done() { C(cudaEventRecord(ev, s)); cudaError_t r; while ((r = cudaEventQuery(ev)) == cudaErrorNotReady) sched_yield(); C(r); }
static void gather() { N(ncclAllGather(d, d + 4096, 80, ncclInt8, comm, s)); }
static void both(size_t n) { N(ncclSend(d + (1 << 20), n, ncclInt8, peer, comm, s)); N(ncclRecv(d + (32 << 20), n, ncclInt8, peer, comm, s)); }
static void group(std::function<void()> f) { N(ncclGroupStart()); f(); N(ncclGroupEnd()); }
static void fetch() { C(cudaMemcpyAsync(h, d + 4096, 160, cudaMemcpyDeviceToHost, s)); }
__global__ void nothing(char *p) { if (p == nullptr) *p = 1; }
static void kernel() { nothing<<<8, 256, 0, s>>>(d); }
static void measure(const char *name, std::function<void()> f) {
  std::vector<double> t;
  for (int i = 0; i < 220; i++) { double a = now(); f(); if (i >= 20) t.push_back(now() - a); }
  std::sort(t.begin(), t.end());
  if (rank_ == 0) { printf("  %-46s p50 %7.1f  p10 %7.1f  p90 %7.1f us\n", name, t[t.size()/2], t[t.size()/10], t[t.size()*9/10]); fflush(stdout); }
}
int main(int argc, char **argv) {
  int blocking = atoi(argv[1]);
  int pipes[2]; if (pipe(pipes)) return 1;
  pid_t child = fork(); rank_ = child ? 0 : 1; peer = 1 - rank_;
  setenv("NCCL_HOSTID", rank_ ? "b" : "a", 1);
  C(cudaSetDevice(rank_)); C(cudaFree(0));
  ncclUniqueId id; if (rank_ == 0) { N(ncclGetUniqueId(&id)); if (write(pipes[1], &id, sizeof id) < 0) return 1; } else if (read(pipes[0], &id, sizeof id) < 0) return 1;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER; config.blocking = blocking;
  N(ncclCommInitRankConfig(&comm, 2, id, rank_, &config)); ready();
  C(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); C(cudaEventCreateWithFlags(&ev, cudaEventDisableTiming));
  C(cudaMalloc(&d, 64 << 20)); C(cudaMallocHost(&h, 4096));
  if (rank_ == 0) printf("blocking %d\n", blocking);
  measure("kernel, event", [] { kernel(); done(); });
  measure("dtoh 160, event", [] { fetch(); done(); });
  measure("all-gather 80: begun", [] { gather(); ready(); });
  done();
  measure("all-gather 80, event", [] { gather(); ready(); done(); });
  measure("send/recv 4K, event", [] { group([] { both(4096); }); ready(); done(); });
  measure("send/recv 512, event", [] { group([] { both(512); }); ready(); done(); });
  measure("send/recv 256K, event", [] { group([] { both(256 << 10); }); ready(); done(); });
  measure("all-gather + send/recv 4K in a group, event", [] { group([] { gather(); both(4096); }); ready(); done(); });
  for (size_t n : {(size_t)512, (size_t)(64 << 10), (size_t)(256 << 10)}) {
    char name[128];
    snprintf(name, 128, "now: 4 groups, 2 waits, rows %zu", n);
    measure(name, [n] { kernel(); gather(); ready(); fetch(); done(); group([] { both(4096); }); ready(); kernel(); group([n] { both(n); }); ready(); kernel(); gather(); ready(); done(); });
    snprintf(name, 128, "3 groups: numbers with the record, rows %zu", n);
    measure(name, [n] { kernel(); group([] { gather(); both(4096); }); ready(); fetch(); done(); kernel(); group([n] { both(n); }); ready(); kernel(); gather(); ready(); done(); });
    snprintf(name, 128, "2 groups, 2 waits, rows %zu", n);
    measure(name, [n] { kernel(); group([] { gather(); both(4096); }); ready(); fetch(); done(); kernel(); group([n] { both(n); }); ready(); kernel(); done(); });
    snprintf(name, 128, "2 groups, 1 wait, rows %zu", n);
    measure(name, [n] { kernel(); group([] { gather(); both(4096); }); ready(); fetch(); kernel(); group([n] { both(n); }); ready(); kernel(); done(); });
    snprintf(name, 128, "2 groups of send/recv only, 1 wait, rows %zu", n);
    measure(name, [n] { kernel(); group([] { both(4096); }); ready(); fetch(); kernel(); group([n] { both(n); }); ready(); kernel(); done(); });
    snprintf(name, 128, "2 send/recv groups, 2 waits, rows %zu", n);
    measure(name, [n] { kernel(); group([] { both(4096); }); ready(); fetch(); done(); kernel(); group([n] { both(n); }); ready(); kernel(); done(); });
  }
  C(cudaDeviceSynchronize());
  N(ncclCommFinalize(comm)); ready(); N(ncclCommDestroy(comm));
  if (child) { int st; waitpid(child, &st, 0); }
  return 0;
}
