/* One process makes pieces, some of which have no room on its device, and another one imports them,
 * as PyTorch shares tensors of expandable segments. The second one maps them side by side, asks for
 * their attributes, and copies over every border between two to its other device, and back. Both
 * print the library's statistics. Ends with 0 if every answer was the one for device memory and
 * every byte right. With the argument "here" the pieces are imported by the process that
 * made them. */

#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report.h"

enum { PIECES = 4, PIECE = 20 << 20, ACROSS = 2 << 20, MEMORY_TYPE = 2, DEVICE_POINTER = 3, HOST_POINTER = 4, ORDINAL = 9 };

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);

static const struct access FOR_DEVICE = { { DEVICE, 0 }, READWRITE };
static const struct property WANTED = { .type = 1, .handle_types = DESCRIPTOR, .location = { DEVICE, 0 } };
static unsigned char seen[ACROSS], sent[ACROSS];

static void check(int holds, const char *what, int piece)
{
    if (!holds) {
        fprintf(stderr, "piece %d: %s\n", piece, what);
        exit(70);
    }
}

static CUdeviceptr map_all(const unsigned long long *handles)
{
    CUdeviceptr base;
    MUST(cuMemAddressReserve(&base, (size_t)PIECES * PIECE, 0, 0, 0));
    for (int i = 0; i < PIECES; i++)
        MUST(cuMemMap(base + (size_t)i * PIECE, PIECE, 0, handles[i], 0));
    MUST(cuMemSetAccess(base, (size_t)PIECES * PIECE, &FOR_DEVICE, 1));
    return base;
}

static void send_all(int channel, const int *descriptors)
{
    char byte = 0, room[CMSG_SPACE(PIECES * sizeof(int))] = { 0 };
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS, rights->cmsg_len = CMSG_LEN(PIECES * sizeof(int));
    memcpy(CMSG_DATA(rights), descriptors, PIECES * sizeof(int));
    check(sendmsg(channel, &message, 0) == 1, "is not sent", 0);
}

static void receive_all(int channel, int *descriptors)
{
    char byte, room[CMSG_SPACE(PIECES * sizeof(int))];
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
    check(recvmsg(channel, &message, 0) == 1, "does not come", 0);
    memcpy(descriptors, CMSG_DATA(CMSG_FIRSTHDR(&message)), PIECES * sizeof(int));
}

static void check_answers(CUdeviceptr at, unsigned long long handle, int piece)
{
    int type = 0, ordinal = -1;
    void *host = NULL;
    CUdeviceptr start = 0, device = 0;
    size_t bytes = 0;
    struct property is;
    MUST(cuPointerGetAttribute(&type, MEMORY_TYPE, at + 5));
    MUST(cuPointerGetAttribute(&ordinal, ORDINAL, at + PIECE - 1));
    MUST(cuPointerGetAttribute(&device, DEVICE_POINTER, at + 7));
    check(type == 2 && ordinal == 0 && device == at + 7, "is not device memory", piece);
    check(cuPointerGetAttribute(&host, HOST_POINTER, at) != CUDA_SUCCESS, "has a pointer of the host", piece);
    MUST(cuMemGetAddressRange_v2(&start, &bytes, at + 9));
    check(start == at && bytes == PIECE, "has another range", piece);
    MUST(cuMemGetAllocationPropertiesFromHandle(&is, handle));
    check(is.location.type == DEVICE && is.location.id == 0 && is.handle_types == DESCRIPTOR, "is said to be elsewhere", piece);
}

/* From the end of one piece and the beginning of the next one to the other device, and from there
 * over the same border. */
static void check_border(CUdeviceptr border, CUdeviceptr block, CUcontext here, CUcontext there, int piece)
{
    CUdeviceptr from = border - ACROSS / 2;
    for (int i = 0; i < ACROSS; i++)
        sent[i] = (unsigned char)(i * 7 + i / 251 + piece);
    MUST(cuMemcpyHtoD_v2(from, sent, ACROSS));
    MUST(cuMemcpyPeerAsync(block, there, from, here, ACROSS, NULL));
    MUST(cuCtxSynchronize());
    MUST(cuMemsetD8_v2(from, 0, ACROSS));
    MUST(cuMemcpyDtoDAsync_v2(from, block, ACROSS, NULL));
    MUST(cuCtxSynchronize());
    MUST(cuMemcpyDtoH_v2(seen, from, ACROSS));
    check(!memcmp(seen, sent, ACROSS), "has other bytes at its end", piece);
}

/* As PyTorch's `fromShared`. */
static void use(const int *descriptors, CUcontext here)
{
    unsigned long long handles[PIECES];
    CUcontext there;
    CUdeviceptr block;
    for (int i = 0; i < PIECES; i++) {
        MUST(import_piece(&handles[i], descriptors[i], DESCRIPTOR));
        close(descriptors[i]);
    }
    CUdeviceptr base = map_all(handles);
    MUST(cuDevicePrimaryCtxRetain(&there, 1));
    MUST(cuCtxEnablePeerAccess(there, 0));
    MUST(cuCtxSetCurrent(there));
    MUST(cuMemAlloc_v2(&block, ACROSS));
    MUST(cuCtxSetCurrent(here));
    report("imported");
    for (int i = 1; i < PIECES; i++)
        check_border(base + (size_t)i * PIECE, block, here, there, i - 1);
    for (int i = 0; i < PIECES; i++)
        check_answers(base + (size_t)i * PIECE, handles[i], i);
    for (int i = 0; i < PIECES; i++) {
        MUST(cuMemUnmap(base + (size_t)i * PIECE, PIECE));
        MUST(cuMemRelease(handles[i]));
    }
    report("done");
}

static void import(int channel)
{
    int descriptors[PIECES];
    CUcontext here = begin();
    receive_all(channel, descriptors);
    use(descriptors, here);
    exit(0);
}

int main(int arguments, char **argument)
{
    unsigned long long handles[PIECES];
    int descriptors[PIECES], ends[2], status = 0;
    if (arguments > 2)
        import(atoi(argument[2]));
    int is_here = !strcmp(argument[1], "here");
    pid_t other = 0;
    /* Before the first call, for a process that has used a driver cannot be copied. */
    check(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "has no channel", 0);
    if (!is_here && !(other = fork())) {
        char number[12];
        snprintf(number, sizeof number, "%d", ends[1]);
        unsetenv("WMSHIM_DEVICE_LIMIT");
        execl("/proc/self/exe", argument[0], argument[1], number, NULL);
        _exit(71);
    }
    CUcontext here = begin();
    for (int i = 0; i < PIECES; i++)
        MUST(make_piece(&handles[i], PIECE, &WANTED));
    map_all(handles);
    report("made");
    for (int i = 0; i < PIECES; i++)
        MUST(export_piece(&descriptors[i], handles[i], DESCRIPTOR));
    if (is_here) {
        use(descriptors, here);
        return 0;
    }
    send_all(ends[0], descriptors);
    waitpid(other, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 72;
}
