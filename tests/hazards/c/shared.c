/* A program that holds what others hold, too.
 *
 *   shared IMAGE SEED BLOCKS   copies bytes that follow from SEED into blocks of 4 MiB, reads them by a kernel again and again, and obeys the words on its standard input:
 *
 *     share MIB      reads on until so much is shared, and says how much is shared and saved; or gives up after some seconds
 *     verify         is every byte of every block what it has to be?
 *     kernel, memset, htod, dtod, graph   writes block 0 so
 *     again          frees block 0, allocates it again, and writes it by a kernel
 *     stats          the shim's figures
 */

#include <string.h>
#include <time.h>

#include "fill.h"
#include "wmshim.h"

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t words);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);

enum { MIB = 1 << 20, BYTES = 4 << 20, WORDS = BYTES / 4, MOST = 16, SECONDS = 20 };

static CUdeviceptr blocks[MOST], out;
static uint32_t *contents[MOST], *bytes;
static int count;
static CUfunction copy;

static void read_block(CUdeviceptr block)
{
    uint64_t words = 64;
    void *parameters[] = {&out, &block, &words};
    MUST(cuLaunchKernel(copy, 1, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL));
}

static unsigned long long figure(const char *name)
{
    char key[64];
    const char *stats = wmshim_stats_json();
    const char *dedup = strstr(stats, "\"dedup\":");
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *found = dedup ? strstr(dedup, key) : NULL;
    return found ? strtoull(found + strlen(key), NULL, 10) : 0;
}

static void share(unsigned long long wanted)
{
    time_t end = time(NULL) + SECONDS;
    do {
        for (int block = 0; block < count; block++)
            read_block(blocks[block]);
        MUST(cuCtxSynchronize());
    } while (figure("shared_bytes") < wanted && time(NULL) < end);
    printf("shared %llu saved %llu\n", figure("shared_bytes") / MIB, figure("saved_bytes") / MIB);
}

static int verify(void)
{
    int wrong = 0;
    for (int block = 0; block < count; block++) {
        MUST(cuMemcpyDtoH_v2(bytes, blocks[block], BYTES));
        wrong += memcmp(bytes, contents[block], BYTES) != 0;
    }
    return wrong;
}

static void set(uint32_t *words, uint32_t word)
{
    for (int at = 0; at < WORDS; at++)
        words[at] = word;
}

static void by_graph(unsigned word)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    MUST(cuStreamCreate(&stream, 1));
    MUST(cuStreamBeginCapture_v2(stream, 0));
    MUST(fill_by_kernel(blocks[0], BYTES, word, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuCtxSynchronize());
}

static void obey(const char *command)
{
    static unsigned word = 0xabcd0000;
    word++;
    if (!strcmp(command, "kernel")) {
        MUST(fill_by_kernel(blocks[0], BYTES, word, NULL));
    } else if (!strcmp(command, "memset")) {
        MUST(cuMemsetD32_v2(blocks[0], word, WORDS));
    } else if (!strcmp(command, "htod")) {
        set(bytes, word);
        MUST(cuMemcpyHtoD_v2(blocks[0], bytes, BYTES));
    } else if (!strcmp(command, "dtod")) {
        MUST(cuMemcpyDtoD_v2(blocks[0], blocks[1], BYTES));
        memcpy(contents[0], contents[1], BYTES);
        return;
    } else if (!strcmp(command, "graph")) {
        by_graph(word);
    } else if (!strcmp(command, "again")) {
        MUST(cuMemFree_v2(blocks[0]));
        MUST(cuMemAlloc_v2(&blocks[0], BYTES));
        MUST(fill_by_kernel(blocks[0], BYTES, word, NULL));
    } else {
        exit(90);
    }
    MUST(cuCtxSynchronize());
    set(contents[0], word);
}

int main(int argc, char **argv)
{
    static char image[1 << 20];
    char command[64];
    CUmodule module;
    if (argc < 4)
        return 91;
    load(argv[1]);
    FILE *file = fopen(argv[1], "rb");
    if (!file || fread(image, 1, sizeof image - 1, file) == 0)
        return 92;
    fclose(file);
    MUST(cuModuleLoadData(&module, image));
    MUST(cuModuleGetFunction(&copy, module, "wm_copy_u32"));
    unsigned state = strtoul(argv[2], NULL, 10);
    count = atoi(argv[3]);
    bytes = malloc(BYTES);
    MUST(cuMemAlloc_v2(&out, MIB));
    for (int block = 0; block < count; block++) {
        contents[block] = malloc(BYTES);
        for (int at = 0; at < WORDS; at++)
            contents[block][at] = state = state * 1664525u + 1013904223u;
        MUST(cuMemAlloc_v2(&blocks[block], BYTES));
        MUST(cuMemcpyHtoD_v2(blocks[block], contents[block], BYTES));
    }
    printf("ready\n");
    fflush(stdout);
    while (scanf("%63s", command) == 1) {
        unsigned long long mib;
        if (!strcmp(command, "share") && scanf("%llu", &mib) == 1)
            share(mib * MIB);
        else if (!strcmp(command, "verify"))
            printf("wrong %d\n", verify());
        else if (!strcmp(command, "stats"))
            printf("copied back %llu avoided %llu\n", figure("copied_back_bytes") / MIB, figure("faults_avoided"));
        else {
            obey(command);
            printf("done\n");
        }
        fflush(stdout);
    }
    return 0;
}
