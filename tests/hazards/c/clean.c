/* A program whose blocks leave the device and come back again and again, of which parts are written in between.
 *
 *   clean IMAGE SEED ROUNDS   checks all bytes in each round; then prints the bytes that are to be copied off the device: all of them once, and each chunk of 2 MiB
 *                             that was written since; and the shim's figures */

#include <string.h>

#include "fill.h"
#include "wmshim.h"

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t words, CUstream stream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);

enum { MIB = 1 << 20, BLOCKS = 4, CHUNK = 2 * MIB, BYTES = 16 * MIB, WORDS = BYTES / 4, NOT_READY = 600, NON_BLOCKING = 1 };

static CUdeviceptr blocks[BLOCKS];
static unsigned expected[BLOCKS][WORDS], before[BLOCKS][WORDS], found[WORDS];
static unsigned state;
static CUstream stream;

static unsigned draw(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

/* Repeated while the GPU has work: on a slow machine an event in an idle stream may complete late. */
static void move(int block, int advice)
{
    int answer = NOT_READY;
    for (int tries = 0; tries < 500 && answer == NOT_READY; tries++) {
        MUST(cuCtxSynchronize());
        answer = wmshim_advise((void *)(size_t)blocks[block], BYTES, advice);
    }
    MUST(answer);
}

static void check(int block)
{
    MUST(cuMemcpyDtoHAsync_v2(found, blocks[block], BYTES, stream));
    MUST(cuStreamSynchronize(stream));
    for (size_t i = 0; i < WORDS; i++)
        if (found[i] != expected[block][i]) {
            fprintf(stderr, "word %zu of block %d is %u and not %u\n", i, block, found[i], expected[block][i]);
            exit(81);
        }
}

static void write_some(int block)
{
    size_t first = draw() % WORDS, count = 1 + draw() % (draw() % 2 ? 64 : WORDS - first);
    if (count > WORDS - first)
        count = WORDS - first;
    CUdeviceptr at = blocks[block] + 4 * first;
    unsigned word = draw(), *here = &expected[block][first];
    int other = draw() % BLOCKS;
    switch (draw() % 4) {
    case 0:
        MUST(fill_by_kernel(at, 4 * count, word, stream));
        break;
    case 1:
        MUST(cuMemsetD32Async(at, word, count, stream));
        break;
    case 2:
        if (other == block)
            return;
        MUST(cuMemcpyDtoDAsync_v2(at, blocks[other] + 4 * first, 4 * count, stream));
        memcpy(here, &expected[other][first], 4 * count);
        return;
    default:
        for (size_t i = 0; i < count; i++)
            here[i] = word + i;
        MUST(cuMemcpyHtoDAsync_v2(at, here, 4 * count, stream));
        MUST(cuStreamSynchronize(stream));
        return;
    }
    for (size_t i = 0; i < count; i++)
        here[i] = word;
}

/* Chunks of a block whose bytes differ from those that it came with. A write of the same bytes is none. */
static size_t written(int block)
{
    size_t bytes = 0;
    for (size_t at = 0; at < WORDS; at += CHUNK / 4)
        if (memcmp(&expected[block][at], &before[block][at], CHUNK))
            bytes += CHUNK;
    return bytes;
}

int main(int count, char **argument)
{
    if (count < 4)
        return 90;
    load(argument[1]);
    state = atoi(argument[2]);
    MUST(cuStreamCreate(&stream, NON_BLOCKING));
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAlloc_v2(&blocks[i], BYTES));
        if (blocks[i] % CHUNK)
            return 83;
        MUST(cuMemsetD32Async(blocks[i], i, WORDS, stream));
        for (size_t word = 0; word < WORDS; word++)
            expected[i][word] = i;
    }
    size_t due = 0;
    for (int round = 0; round < atoi(argument[3]); round++) {
        for (int i = 0; i < BLOCKS; i++) {
            due += round ? written(i) : BYTES;
            move(i, WMSHIM_COLD);
            check(i);
        }
        memcpy(before, expected, sizeof before);
        for (int i = 0; i < BLOCKS; i++)
            move(i, WMSHIM_PREFETCH);
        for (unsigned writes = draw() % 4; writes > 0; writes--)
            write_some(draw() % BLOCKS);
        for (int i = 0; i < BLOCKS; i++)
            check(i);
    }
    printf("%zu\n", due);
    puts(wmshim_stats_json());
    return 0;
}
