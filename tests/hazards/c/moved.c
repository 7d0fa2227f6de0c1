/* Memory that the program makes itself, while the library moves it. A device with room for six
 * pieces has ten, side by side; a kernel fills each with a word of its own, over and over, so that
 * pieces come and go. The first argument is the image of the kernel; each other one is done then:
 * "rounds" (the kernel runs on all of them in turn), "remap" (a piece is mapped elsewhere by its
 * handle), "twice" (at two addresses at once), "retain" (by the handle of its address), "release"
 * (the handle goes before the mapping), "rights" (it is read-only for a while), "export" (another
 * handle of it is imported), "peer" (another device has access), "graph" (a graph sets it), "fork",
 * "threads" (four do all of that that has no end, on pieces of their own). Between two actions the
 * program advises the library to move each piece out, or in. Prints the library's statistics. Ends
 * with 0 if every byte is as written, with 70 if one is not, and with 80 if a call fails. */

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fill.h"
#include "report.h"

enum { PIECE = 4 << 20, PIECES = 10, EACH = 3, THREADS = 4, PREFETCH = 1, COLD = 2, READ = 1, ROUNDS = 12 };

CUresult wmshim_advise(CUdeviceptr address, size_t bytes, int advice);
CUresult cuMemGetAccess(unsigned long long *flags, const struct location *location, CUdeviceptr at);
CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, void **graph);
CUresult cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags);
CUresult cuGraphLaunch(void *executable, CUstream stream);
CUresult cuGraphExecDestroy(void *executable);
CUresult cuGraphDestroy(void *graph);

static const struct property WANTED = { .type = 1, .handle_types = DESCRIPTOR, .location = { DEVICE, 0 } };
static const struct access FULL = { { DEVICE, 0 }, READWRITE }, READING = { { DEVICE, 0 }, READ };
static const struct access FOR_PEER = { { DEVICE, 1 }, READWRITE };

struct piece {
    unsigned long long handle;
    CUdeviceptr at;
    unsigned word;
    CUstream stream;
};

static void check(int holds, const char *what, CUdeviceptr at)
{
    if (!holds) {
        fprintf(stderr, "the piece at %llx %s\n", at, what);
        exit(70);
    }
}

static void write_piece(struct piece *piece, unsigned word)
{
    piece->word = word;
    MUST(fill_by_kernel(piece->at, PIECE, word, piece->stream));
    MUST(cuStreamSynchronize(piece->stream));
}

static void check_at(const struct piece *piece, CUdeviceptr at)
{
    static _Thread_local unsigned seen[PIECE / 4];
    MUST(cuMemcpyDtoH_v2(seen, at, PIECE));
    for (int i = 0; i < PIECE / 4; i++)
        check(seen[i] == piece->word, "has other bytes", at);
}

/* Whatever becomes of the advice: the program may not rely on it. */
static void advise(const struct piece *piece, int advice)
{
    (void)wmshim_advise(piece->at, PIECE, advice);
    check_at(piece, piece->at);
}

static void map(struct piece *piece, CUdeviceptr at)
{
    piece->at = at;
    MUST(cuMemMap(at, PIECE, 0, piece->handle, 0));
    MUST(cuMemSetAccess(at, PIECE, &FULL, 1));
}

static CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr base;
    MUST(cuMemAddressReserve(&base, bytes, 0, 0, 0));
    return base;
}

static void make(struct piece *piece, CUdeviceptr at, unsigned word)
{
    MUST(cuStreamCreate(&piece->stream, 1));
    MUST(make_piece(&piece->handle, PIECE, &WANTED));
    map(piece, at);
    write_piece(piece, word);
}

static void check_kind(const struct piece *piece)
{
    struct property is;
    int type = 0, ordinal = -1;
    unsigned long long flags = 0;
    MUST(cuMemGetAllocationPropertiesFromHandle(&is, piece->handle));
    check(is.location.type == DEVICE && is.location.id == 0, "is said to be elsewhere", piece->at);
    check(is.handle_types == WANTED.handle_types && !is.flags.rdma, "is said to be another kind", piece->at);
    MUST(cuPointerGetAttribute(&type, 2, piece->at));
    MUST(cuPointerGetAttribute(&ordinal, 9, piece->at));
    check(type == 2 && ordinal == 0, "is no device memory", piece->at);
    MUST(cuMemGetAccess(&flags, &FULL.location, piece->at));
    check(flags == READWRITE, "has another access", piece->at);
}

static void remap(struct piece *piece)
{
    CUdeviceptr before = piece->at, other = reserve(PIECE);
    MUST(cuMemUnmap(before, PIECE));
    map(piece, other);
    advise(piece, COLD);
    advise(piece, PREFETCH);
    MUST(cuMemUnmap(other, PIECE));
    MUST(cuMemAddressFree(other, PIECE));
    map(piece, before);
    check_at(piece, before);
}

static void map_twice(struct piece *piece)
{
    CUdeviceptr first = piece->at, second = reserve(PIECE);
    MUST(cuMemMap(second, PIECE, 0, piece->handle, 0));
    MUST(cuMemSetAccess(second, PIECE, &FULL, 1));
    advise(piece, COLD);
    check_at(piece, second);
    piece->at = second;
    write_piece(piece, piece->word + 1);
    piece->at = first;
    check_at(piece, first);
    advise(piece, PREFETCH);
    MUST(cuMemUnmap(second, PIECE));
    MUST(cuMemAddressFree(second, PIECE));
    check_at(piece, first);
}

static void retain(struct piece *piece)
{
    unsigned long long again = 0;
    MUST(cuMemRetainAllocationHandle(&again, (void *)(piece->at + 4096)));
    check(again == piece->handle, "has another handle", piece->at);
    advise(piece, COLD);
    check_kind(piece);
    MUST(cuMemRelease(again));
    advise(piece, PREFETCH);
}

/* The memory lives by its mapping, and gets a handle again. */
static void release(struct piece *piece)
{
    MUST(cuMemRelease(piece->handle));
    advise(piece, COLD);
    advise(piece, PREFETCH);
    MUST(cuMemRetainAllocationHandle(&piece->handle, (void *)piece->at));
    check_at(piece, piece->at);
    remap(piece);
}

static void change_rights(struct piece *piece)
{
    unsigned long long flags = 0;
    MUST(cuMemSetAccess(piece->at, PIECE, &READING, 1));
    advise(piece, COLD);
    MUST(cuMemGetAccess(&flags, &FULL.location, piece->at));
    check(flags == READ, "has more access than it was given", piece->at);
    MUST(cuMemSetAccess(piece->at, PIECE, &FULL, 1));
    advise(piece, COLD);
    check_kind(piece);
}

static void pass_on(struct piece *piece)
{
    unsigned long long copy;
    int descriptor = -1;
    CUdeviceptr second = reserve(PIECE);
    /* Another thread may use the device. */
    CUresult exported = export_piece(&descriptor, piece->handle, DESCRIPTOR);
    if (exported) {
        check(exported == 2, "is not exported", piece->at);
        MUST(cuMemAddressFree(second, PIECE));
        return;
    }
    advise(piece, COLD);
    MUST(import_piece(&copy, descriptor, DESCRIPTOR));
    close(descriptor);
    MUST(cuMemMap(second, PIECE, 0, copy, 0));
    MUST(cuMemSetAccess(second, PIECE, &FULL, 1));
    check_at(piece, second);
    write_piece(piece, piece->word + 1);
    advise(piece, COLD);
    check_at(piece, second);
    MUST(cuMemUnmap(second, PIECE));
    MUST(cuMemRelease(copy));
    MUST(cuMemAddressFree(second, PIECE));
}

static void let_peer(struct piece *piece)
{
    unsigned long long flags = 0;
    MUST(cuMemSetAccess(piece->at, PIECE, &FOR_PEER, 1));
    advise(piece, COLD);
    MUST(cuMemGetAccess(&flags, &FOR_PEER.location, piece->at));
    check(flags == READWRITE, "lost an access", piece->at);
    check_kind(piece);
}

static void set_by_graph(struct piece *piece)
{
    void *graph, *executable;
    MUST(cuStreamBeginCapture_v2(piece->stream, 1));
    MUST(cuMemsetD32Async(piece->at, piece->word + 1, PIECE / 4, piece->stream));
    MUST(cuStreamEndCapture(piece->stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
    for (int i = 0; i < 3; i++) {
        advise(piece, COLD);
        MUST(cuGraphLaunch(executable, piece->stream));
        MUST(cuStreamSynchronize(piece->stream));
        piece->word += i == 0;
        check_at(piece, piece->at);
    }
    MUST(cuGraphExecDestroy(executable));
    MUST(cuGraphDestroy(graph));
    advise(piece, COLD);
}

static void fork_child(struct piece *piece)
{
    pid_t child = fork();
    if (child == 0) {
        /* The driver refuses a child, and the library leaves that to it. */
        _exit(cuMemUnmap(piece->at, PIECE) == 0);
    }
    int status = 0;
    check(waitpid(child, &status, 0) == child && status == 0, "was unmapped in a child", piece->at);
    advise(piece, COLD);
    advise(piece, PREFETCH);
}

static void (*const ACTIONS[])(struct piece *) = { remap, map_twice, retain, release, change_rights, set_by_graph, pass_on };

static void *act(void *seed)
{
    struct piece pieces[EACH];
    unsigned state = (unsigned)(size_t)seed;
    CUdeviceptr base = reserve(EACH * PIECE);
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < EACH; i++)
        make(&pieces[i], base + (CUdeviceptr)i * PIECE, state * 1000 + (unsigned)i);
    for (int i = 0; i < ROUNDS; i++) {
        state = state * 1664525 + 1013904223;
        /* A piece that was passed on stays, and one is enough. */
        ACTIONS[(state >> 16) % (i < ROUNDS - 1 ? 6 : 7)](&pieces[(state >> 8) % EACH]);
        for (int j = 0; j < EACH; j++) {
            advise(&pieces[j], (state >> j) & 1 ? COLD : PREFETCH);
            write_piece(&pieces[j], pieces[j].word + 7);
        }
    }
    for (int i = 0; i < EACH; i++) {
        MUST(cuMemUnmap(pieces[i].at, PIECE));
        MUST(cuMemRelease(pieces[i].handle));
    }
    MUST(cuMemAddressFree(base, EACH * PIECE));
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        check(!pthread_create(&threads[i], NULL, act, (void *)(i + 1)), "has no thread", 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(int arguments, char **argument)
{
    static const struct { const char *name; void (*act)(struct piece *); } NAMED[] = {
        { "remap", remap }, { "twice", map_twice }, { "retain", retain }, { "release", release },
        { "rights", change_rights }, { "export", pass_on }, { "peer", let_peer }, { "graph", set_by_graph },
        { "fork", fork_child },
    };
    struct piece pieces[PIECES];
    load(argument[1]);
    CUdeviceptr base = reserve(PIECES * PIECE);
    for (int i = 0; i < PIECES; i++)
        make(&pieces[i], base + (CUdeviceptr)i * PIECE, 100 + (unsigned)i);
    report("full");
    for (int word = 2; word < arguments; word++) {
        for (int round = 0; !strcmp(argument[word], "rounds") && round < ROUNDS; round++)
            for (int i = 0; i < PIECES; i++) {
                write_piece(&pieces[i], 1000u * (unsigned)round + (unsigned)i);
                check_at(&pieces[(i + 5) % PIECES], pieces[(i + 5) % PIECES].at);
            }
        for (size_t name = 0; name < sizeof NAMED / sizeof *NAMED; name++)
            for (int i = 0; !strcmp(argument[word], NAMED[name].name) && i < PIECES; i++) {
                advise(&pieces[i], i % 2 ? COLD : PREFETCH);
                NAMED[name].act(&pieces[i]);
            }
        if (!strcmp(argument[word], "threads"))
            run_threads();
        for (int i = 0; i < PIECES; i++)
            check_at(&pieces[i], pieces[i].at);
    }
    report("then");
    for (int i = 0; i < PIECES; i++) {
        check_at(&pieces[i], pieces[i].at);
        MUST(cuMemUnmap(pieces[i].at, PIECE));
        MUST(cuMemRelease(pieces[i].handle));
    }
    MUST(cuMemAddressFree(base, PIECES * PIECE));
    report("empty");
    return 0;
}
