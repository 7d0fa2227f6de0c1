/* Pieces of 4 MiB that lie now here, now there, as those of PyTorch's segments do, and move between the device and the host meanwhile:
 *
 *   shifted IMAGE SEED ROUNDS
 *
 * In each round a piece is made at a random place, or given up there, or advised to the host or back. Ends with 0 if each piece has its bytes
 * after each round, and all memory is the device's in the end; prints the shim's figures before that. */

#include "pieces.h"

int wmshim_advise(const void *pointer, size_t bytes, int advice);

enum { PREFETCH = 1, COLD = 2 };
enum { PIECE = 4 << 20, PLACES = 12, MOST = 8 };

static const struct access FOR_DEVICE = { { DEVICE, 0 }, READWRITE };
static const struct property WANTED = { .type = 1, .handle_types = DESCRIPTOR, .location = { DEVICE, 0 } };
static CUdeviceptr base;
/* What each byte of a place has; 0 if nothing is mapped there. */
static unsigned char bytes_of[PLACES];

static CUdeviceptr at(int place) { return base + (CUdeviceptr)place * PIECE; }

static void put(int place, unsigned char byte)
{
    unsigned long long handle;
    MUST(make_piece(&handle, PIECE, &WANTED));
    MUST(cuMemMap(at(place), PIECE, 0, handle, 0));
    MUST(cuMemSetAccess(at(place), PIECE, &FOR_DEVICE, 1));
    MUST(cuMemRelease(handle));
    MUST(cuMemsetD8_v2(at(place), byte, PIECE));
    bytes_of[place] = byte;
}

static void give_up(int place)
{
    MUST(cuMemUnmap(at(place), PIECE));
    bytes_of[place] = 0;
}

static void check(int round)
{
    static unsigned char seen[PIECE];
    for (int place = 0; place < PLACES; place++) {
        if (!bytes_of[place]) continue;
        MUST(cuMemcpyDtoH_v2(seen, at(place), PIECE));
        for (int i = 0; i < PIECE; i += 509)
            if (seen[i] != bytes_of[place]) {
                fprintf(stderr, "round %d: place %d has %d, not %d\n", round, place, seen[i], bytes_of[place]);
                exit(70);
            }
    }
}

int main(int arguments, char **argument)
{
    if (arguments != 4) return 64;
    srand(atoi(argument[2]));
    begin();
    MUST(cuMemAddressReserve(&base, (size_t)PLACES * PIECE, 0, 0, 0));
    int mapped = 0;
    for (int round = 0; round < atoi(argument[3]); round++) {
        int place = rand() % PLACES;
        if (!bytes_of[place] && mapped < MOST) {
            put(place, (unsigned char)(1 + rand() % 255));
            mapped++;
        } else if (bytes_of[place] && rand() % 2) {
            give_up(place);
            mapped--;
        } else if (bytes_of[place]) {
            /* Work may be in the way, and the memory is where it was then. */
            wmshim_advise((void *)at(place), PIECE, rand() % 2 ? COLD : PREFETCH);
        }
        check(round);
    }
    printf("then %s\n", wmshim_stats_json());
    for (int place = 0; place < PLACES; place++)
        if (bytes_of[place]) give_up(place);
    MUST(cuMemAddressFree(base, (size_t)PLACES * PIECE));
    CUdeviceptr all;
    MUST(cuMemAlloc_v2(&all, (size_t)30 * PIECE));
    return 0;
}
