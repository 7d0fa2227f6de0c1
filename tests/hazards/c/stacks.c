/* Allocates from stacks that a walk of callers may lose itself in: `base` has a frame pointer that
 * leads nowhere, `pool` runs on a stack of the program's own, `handler` on a signal's, `little` on a
 * thread with little stack, `generated` from code that the program made, and `ample` on a thread with
 * more stack. Each allocates one block of its own number of MiB and keeps it. */

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "driver.h"

enum { STACK = 64 << 10, AMPLE = 1 << 20 };

static CUcontext context;

__attribute__((noinline)) static void take(size_t mib)
{
    CUdeviceptr address;
    MUST(cuMemAlloc_v2(&address, mib << 20));
}

/* Code that does not keep its caller's frame pointer may have anything in that register. */
static void base(void)
{
    void (*function)(size_t) = take;
    size_t mib = 1;
    __asm__ volatile("push %%rbp\n\t"
                     "mov $0x6b6b6b6b6b6b6b6b, %%rbp\n\t"
                     "sub $8, %%rsp\n\t"
                     "call *%1\n\t"
                     "add $8, %%rsp\n\t"
                     "pop %%rbp\n\t"
                     : "+D"(mib)
                     : "b"(function)
                     : "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "memory", "cc");
}

static ucontext_t outside, inside;

static void pool(void)
{
    take(2);
}

static void on_own_stack(void)
{
    static char stack[STACK];
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = sizeof stack;
    inside.uc_link = &outside;
    makecontext(&inside, pool, 0);
    swapcontext(&outside, &inside);
}

static void handler(int signal)
{
    (void)signal;
    take(3);
}

static void on_signal_stack(void)
{
    static char stack[STACK];
    stack_t alternate = { .ss_sp = stack, .ss_size = sizeof stack };
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
    sigaltstack(&alternate, NULL);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
}

static void *little(void *unused)
{
    MUST(cuCtxSetCurrent(context));
    take(4);
    return unused;
}

static void *ample(void *unused)
{
    MUST(cuCtxSetCurrent(context));
    take(6);
    return unused;
}

static void on_thread(void *(*function)(void *), size_t stack)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack);
    pthread_create(&thread, &attributes, function, NULL);
    pthread_join(thread, NULL);
}

/* sub rsp, 8; mov rax, take; call rax; add rsp, 8; ret */
static void generated(void)
{
    unsigned char code[] = { 0x48, 0x83, 0xec, 8, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0x48, 0x83, 0xc4, 8, 0xc3 };
    void (*function)(size_t) = take;
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code + 6, &function, sizeof function);
    memcpy(page, code, sizeof code);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    memcpy(&function, &page, sizeof function);
    function(5);
}

int main(void)
{
    begin();
    MUST(cuCtxGetCurrent(&context));
    base();
    on_own_stack();
    on_signal_stack();
    on_thread(little, STACK);
    on_thread(ample, AMPLE);
    generated();
    return 0;
}
