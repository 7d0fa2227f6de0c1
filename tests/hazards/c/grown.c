/* PyTorch's allocator with expandable segments, as far as a driver sees it. The file is compiled
 * under the name of PyTorch's library.
 *
 * A segment reserves 1.125 times the device's memory and is filled with pieces: all pieces that a
 * request lacks are made before any is mapped; if one is refused, the pieces made for the request
 * are released. A request goes to the first segment of its stream and pool that has the addresses,
 * else to a new one. As in PyTorch, nothing checks that the new one is large enough: the code then
 * looks for a block behind its last one, and there is none. A refused request is made once more
 * after the cache has been emptied. */

#include <stdint.h>
#include <string.h>

#include "grown.h"
#include "pieces.h"
#include "pools.h"

enum { SMALL = 2 << 20, LARGE = 20 << 20, OUT_OF_MEMORY = 2 };

CUresult cuMemCreate(unsigned long long *handle, size_t bytes, const struct property *property, unsigned long long flags);

struct segment {
    CUdeviceptr base;
    size_t piece, pieces;
    unsigned long long *handles;
};

struct block {
    struct block *before, *behind, *all;
    struct segment *segment;
    int stream, is_small, is_mapped, is_used;
    CUdeviceptr at;
    size_t bytes;
};

static const struct access FOR_DEVICE = { { DEVICE, 0 }, READWRITE };
static const struct property WANTED = { .type = 1, .handle_types = DESCRIPTOR, .location = { DEVICE, 0 } };
static struct block *blocks;

static struct block *new_block(const struct block *like)
{
    struct block *block = malloc(sizeof *block);
    *block = *like;
    block->all = blocks;
    return blocks = block;
}

static void drop(struct block *block)
{
    struct block **link = &blocks;
    while (*link != block)
        link = &(*link)->all;
    *link = block->all;
    free(block);
}

/* Splits the block behind this number of bytes. */
static void split(struct block *block, size_t bytes)
{
    if (block->bytes == bytes)
        return;
    struct block *rest = new_block(block);
    rest->at += bytes, rest->bytes -= bytes, rest->before = block;
    if (rest->behind)
        rest->behind->before = rest;
    block->behind = rest, block->bytes = bytes;
}

static int alike(const struct block *one, const struct block *other)
{
    return one && other && !one->is_used && !other->is_used && one->is_mapped == other->is_mapped;
}

/* Merges free neighbours of the same kind into the block. */
static struct block *merge(struct block *block)
{
    while (alike(block, block->before))
        block = block->before;
    while (alike(block, block->behind)) {
        struct block *gone = block->behind;
        block->bytes += gone->bytes, block->behind = gone->behind;
        if (gone->behind)
            gone->behind->before = block;
        drop(gone);
    }
    return block;
}

static struct segment *reserve(size_t piece)
{
    struct segment *segment = malloc(sizeof *segment);
    size_t device;
    MUST(cuDeviceTotalMem_v2(&device, 0));
    *segment = (struct segment){ .piece = piece, .pieces = (device + device / 8 + piece - 1) / piece };
    segment->handles = calloc(segment->pieces, sizeof *segment->handles);
    MUST(cuMemAddressReserve(&segment->base, segment->pieces * piece, 0, 0, 0));
    return segment;
}

/* Maps the first bytes of a block that is not mapped. */
static int map(struct block *block, size_t bytes)
{
    struct segment *segment = block->segment;
    size_t piece = segment->piece, first = (block->at - segment->base) / piece, end = first + (bytes + piece - 1) / piece;
    for (size_t i = first; i < end; i++) {
        CUresult made = cuMemCreate(&segment->handles[i], piece, &WANTED, 0);
        if (made == OUT_OF_MEMORY) {
            while (i-- > first)
                MUST(cuMemRelease(segment->handles[i]));
            return 0;
        }
        MUST(made);
    }
    for (size_t i = first; i < end; i++)
        MUST(cuMemMap(segment->base + i * piece, piece, 0, segment->handles[i], 0));
    MUST(cuMemSetAccess(segment->base + first * piece, (end - first) * piece, &FOR_DEVICE, 1));
    split(block, (end - first) * piece);
    block->is_mapped = 1;
    return 1;
}

static int has_room(const struct block *block, size_t bytes)
{
    size_t found = 0;
    for (; found < bytes && block && !block->is_used; block = block->behind)
        found += block->bytes;
    return found >= bytes;
}

static struct block *find(int stream, int is_small, size_t bytes)
{
    for (struct block *block = blocks; block; block = block->all) {
        struct block *first = block->before && !block->before->is_used ? block->before : block;
        if (block->stream == stream && block->is_small == is_small && !block->is_mapped && has_room(first, bytes))
            return first;
    }
    struct segment *segment = reserve(is_small ? SMALL : LARGE);
    struct block whole = { .segment = segment, .stream = stream, .is_small = is_small, .at = segment->base };
    whole.bytes = segment->piece * segment->pieces;
    return new_block(&whole);
}

static size_t least(size_t one, size_t other) { return one < other ? one : other; }

static struct block *grow(int stream, int is_small, size_t bytes)
{
    struct block *block = find(stream, is_small, bytes);
    if (!block->is_mapped && !map(block, least(block->bytes, bytes)))
        return NULL;
    block = merge(block);
    while (block->bytes < bytes) {
        /* A segment that is too small has no block behind its last one. */
        if (!map(block->behind, least(bytes - block->bytes, block->behind->bytes)))
            return NULL;
        block = merge(block);
    }
    return block;
}

static struct block *cached(int stream, int is_small, size_t bytes)
{
    struct block *best = NULL;
    for (struct block *block = blocks; block; block = block->all)
        if (block->stream == stream && block->is_small == is_small && block->is_mapped && !block->is_used
            && block->bytes >= bytes && (!best || block->bytes < best->bytes))
            best = block;
    return best;
}

void grown_empty_cache(void)
{
    for (struct block *block = blocks; block; block = block->all) {
        struct segment *segment = block->segment;
        size_t piece = segment->piece, first = (block->at - segment->base + piece - 1) / piece;
        size_t end = (block->at + block->bytes - segment->base) / piece;
        if (block->is_used || !block->is_mapped || first >= end)
            continue;
        for (size_t i = first; i < end; i++) {
            MUST(cuMemUnmap(segment->base + i * piece, piece));
            MUST(cuMemRelease(segment->handles[i]));
        }
        if (segment->base + first * piece > block->at) {
            split(block, segment->base + first * piece - block->at);
            block = block->behind;
        }
        split(block, (end - first) * piece);
        block->is_mapped = 0;
        merge(block);
        /* The list has changed. */
        grown_empty_cache();
        return;
    }
}

CUdeviceptr grown_malloc(int stream, size_t bytes)
{
    int is_small = bytes <= 1 << 20;
    bytes = (bytes + 511) / 512 * 512;
    struct block *block = cached(stream, is_small, bytes);
    if (!block)
        block = grow(stream, is_small, bytes);
    if (!block) {
        grown_empty_cache();
        block = grow(stream, is_small, bytes);
    }
    if (!block)
        return 0;
    split(block, bytes);
    block->is_used = 1;
    return block->at;
}

void grown_free(CUdeviceptr at)
{
    struct block *block = blocks;
    while (block->at != at || !block->is_used)
        block = block->all;
    block->is_used = 0;
    merge(block);
}
