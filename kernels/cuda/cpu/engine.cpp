// The scheduler of one block's threads, and the pool of engines.
//
// Words: a thread is *parked* when it waits and its fiber keeps its stack; *ready* when the event
// that it waits for has happened.
//
// Invariants:
// * Every thread of the block is exactly one of: not started, running (one), parked, ready, gone.
// * A thread that completes a barrier or an exchange goes on at once; those it frees become ready,
//   in order.
// * An engine serves one launch at a time. Engines, with their stacks, are kept for later launches
//   and never freed: there are as many as there were launches at once.
#include "engine.hpp"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "fault.hpp"
#include "fiber.hpp"

namespace wm_cpu {

__thread Context* current __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

constexpr uint32_t LANES = 32;
constexpr uint32_t MAX_THREADS = 1024;  // a block's limit on every GPU; src/cpu.rs refuses more
constexpr uint32_t NO_LANE = LANES;

// The lanes that wait in an exchange, and the value of each.
struct Warp {
    uint32_t waiting;  // bit per lane
    uint32_t gone;     // bit per lane that ended or never existed
    uint32_t mask[LANES];
    uint32_t source[LANES];
    unsigned long long value[LANES];
    unsigned long long result[LANES];
};

struct Engine : Context {
    Thunk thunk;
    const void* const* arguments;

    uint32_t threads;  // in a block
    uint32_t next;     // first thread not started
    uint32_t gone;     // threads that ended
    uint32_t at_barrier;
    uint32_t barrier[MAX_THREADS];  // the threads at it
    Warp warps[MAX_THREADS / LANES];
    Fiber* parked[MAX_THREADS];  // by thread
    uint32_t ready[MAX_THREADS];  // ring of threads
    uint32_t ready_first, ready_count;

    Fiber* running;
    Fiber fibers[MAX_THREADS];
    uint32_t created;
    Fiber* idle[MAX_THREADS];
    uint32_t idle_count;

    Run run;  // how to leave the kernel when it faults
    void* scheduler;  // the stack pointer of the operating-system thread, while a fiber runs
    Engine* next_free;
    alignas(16) unsigned char shared_memory[SHARED_BYTES];
};

Engine* engine() { return static_cast<Engine*>(current); }

Warp& warp_of(Engine* e, uint32_t thread) { return e->warps[thread / LANES]; }

uint32_t bit(uint32_t lane) { return 1u << lane; }

// Makes `thread` the one that the kernel code sees.
void become(Engine* e, uint32_t thread) {
    const Index3 d = e->block_dim;
    e->linear_thread = thread;
    // Most blocks have one dimension, and divisions are slow.
    e->thread = d.x == e->threads ? Index3{thread, 0, 0} : Index3{thread % d.x, thread / d.x % d.y, thread / d.x / d.y};
}

void make_ready(Engine* e, uint32_t thread) {
    e->ready[(e->ready_first + e->ready_count++) % MAX_THREADS] = thread;
}

uint32_t take_ready(Engine* e) {
    const uint32_t thread = e->ready[e->ready_first];
    e->ready_first = (e->ready_first + 1) % MAX_THREADS;
    e->ready_count--;
    return thread;
}

// Parks the running fiber. A ready thread goes on at once; if there is none, the scheduler does.
void park_running(Engine* e) {
    Fiber* self = e->running;
    if (e->ready_count == 0) return park(self, e->scheduler);
    e->running = e->parked[take_ready(e)];
    pass(self, e->running);
}

// Parks the running thread until another thread marks it as ready.
void wait_until_ready(Engine* e) {
    const uint32_t thread = e->linear_thread;
    e->parked[thread] = e->running;
    park_running(e);
    become(e, thread);
}

void release_barrier(Engine* e) {
    for (uint32_t i = 0; i < e->at_barrier; i++) make_ready(e, e->barrier[i]);
    e->at_barrier = 0;
}

// Hands each lane of `group` that has the value of `lane` a bit for each of them.
uint32_t deliver_alike(Warp& w, uint32_t group, uint32_t lane) {
    uint32_t alike = 0;
    for (uint32_t other = lane; other < LANES; other++)
        if (group & bit(other) && w.value[other] == w.value[lane]) alike |= bit(other);
    for (uint32_t left = alike; left != 0; left &= left - 1) w.result[__builtin_ctz(left)] = alike;
    return alike;
}

// Hands each lane of `group` the value of the lane it asked for, or which lanes are alike.
void deliver(Warp& w, uint32_t group) {
    uint32_t done = 0;
    for (uint32_t left = group; left != 0; left &= left - 1) {
        const uint32_t lane = uint32_t(__builtin_ctz(left)), source = w.source[lane];
        if (source != LANES_ALIKE)
            w.result[lane] = w.value[group & bit(source) ? source : lane];
        else if (!(done & bit(lane)))
            done |= deliver_alike(w, group, lane);
    }
    w.waiting &= ~group;
}

// The lanes that wait together with `lane`, if all of them have come; else 0.
uint32_t complete_group(Engine* e, const Warp& w, uint32_t lane) {
    const uint32_t group = w.mask[lane] & ~w.gone;
    if ((w.waiting & group) != group) return 0;
    for (uint32_t left = group; left != 0; left &= left - 1)
        if (w.mask[__builtin_ctz(left)] != w.mask[lane]) leave(&e->run, {DIVERGENCE, 0});
    return group;
}

// Ends the exchange of `lane`'s group if it is complete. `arriving` is the lane that runs: it is
// not parked.
bool settle(Engine* e, uint32_t warp, uint32_t lane, uint32_t arriving) {
    Warp& w = e->warps[warp];
    const uint32_t group = complete_group(e, w, lane);
    if (group == 0) return false;
    deliver(w, group);
    const uint32_t parked = arriving == NO_LANE ? group : group & ~bit(arriving);
    for (uint32_t left = parked; left != 0; left &= left - 1) make_ready(e, warp * LANES + uint32_t(__builtin_ctz(left)));
    return true;
}

// The siblings of a thread that ends may have waited for it alone.
void end_thread(Engine* e) {
    const uint32_t warp = e->linear_thread / LANES;
    e->gone++;
    e->warps[warp].gone |= bit(e->linear_thread % LANES);
    if (e->at_barrier != 0 && e->at_barrier == e->threads - e->gone) release_barrier(e);
    for (uint32_t lane = 0; e->warps[warp].waiting != 0 && lane < LANES; lane++)
        if (e->warps[warp].waiting & bit(lane)) settle(e, warp, lane, NO_LANE);
}

// The function of every fiber: it runs threads, one after another, until there is no new one. No
// thread-local variable is read here (see fiber.cpp).
void run_threads(void* argument) {
    Engine* e = static_cast<Engine*>(argument);
    for (;;) {
        while (e->next < e->threads) {
            become(e, e->next++);
            e->thunk(e->arguments);
            end_thread(e);
        }
        e->idle[e->idle_count++] = e->running;
        park_running(e);
    }
}

Fiber* idle_fiber(Engine* e) {
    if (e->idle_count != 0) return e->idle[--e->idle_count];
    Fiber* fiber = &e->fibers[e->created];
    if (!create(fiber, e->created)) leave(&e->run, {OUT_OF_MEMORY, 0});
    e->created++;
    return fiber;
}

// The fiber to go on with: a ready thread's, else one to start new threads on, else none.
Fiber* pick(Engine* e) {
    if (e->ready_count != 0) return e->parked[take_ready(e)];
    return e->next < e->threads ? idle_fiber(e) : nullptr;
}

void reset_block(Engine* e) {
    e->next = e->gone = e->at_barrier = e->ready_count = 0;
    for (uint32_t warp = 0; warp * LANES < e->threads; warp++) {
        const uint32_t left = e->threads - warp * LANES;
        e->warps[warp].waiting = 0;
        e->warps[warp].gone = left >= LANES ? 0 : ~0u << left;
    }
}

void run_block(Engine* e) {
    reset_block(e);
    while (Fiber* fiber = pick(e)) {
        e->running = fiber;
        e->run.in_kernel = 1;
        resume(fiber, &e->scheduler, run_threads, e);
        e->run.in_kernel = 0;
    }
    if (e->gone != e->threads) leave(&e->run, {DIVERGENCE, 0});
}

void run_grid(Engine* e) {
    for (uint32_t z = 0; z < e->grid_dim.z; z++)
        for (uint32_t y = 0; y < e->grid_dim.y; y++)
            for (uint32_t x = 0; x < e->grid_dim.x; x++) {
                e->block = {x, y, z};
                run_block(e);
            }
}

// After a fault every stack may hold a thread that will never go on.
void abandon_fibers(Engine* e) {
    for (uint32_t i = 0; i < e->created; i++) {
        e->fibers[i].entered = false;
        e->idle[i] = &e->fibers[i];
    }
    e->idle_count = e->created;
}

pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
Engine* free_engines = nullptr;

Engine* take_engine() {
    pthread_mutex_lock(&pool_lock);
    Engine* e = free_engines;
    if (e != nullptr) free_engines = e->next_free;
    pthread_mutex_unlock(&pool_lock);
    return e != nullptr ? e : static_cast<Engine*>(calloc(1, sizeof(Engine)));
}

void give_back(Engine* e) {
    pthread_mutex_lock(&pool_lock);
    e->next_free = free_engines;
    free_engines = e;
    pthread_mutex_unlock(&pool_lock);
}

void prepare(Engine* e, Thunk thunk, const Launch* launch) {
    e->thunk = thunk;
    e->arguments = launch->arguments;
    e->grid_dim = launch->grid;
    e->block_dim = launch->block;
    e->threads = launch->block.x * launch->block.y * launch->block.z;
    e->started = nanoseconds();
    e->shared = e->shared_memory;
}

// Runs the prepared grid with the fault handler armed. The only function that a fault returns to.
Fault run_guarded(Engine* e) {
    e->run.fault = {NO_FAULT, 0};
    if (_setjmp(e->run.way_out) == 0) {
        run_grid(e);
    } else {
        abandon_fibers(e);
    }
    return e->run.fault;
}

}  // namespace

uint64_t nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
}

void yield_processor() { sched_yield(); }

}  // namespace wm_cpu

using namespace wm_cpu;

extern "C" Fault wm_cpu_run(Thunk thunk, const Launch* launch) {
    Engine* e = take_engine();
    if (e == nullptr) return {OUT_OF_MEMORY, 0};
    prepare(e, thunk, launch);
    Guard guard;
    arm(&guard, &e->run);
    Context* outer = current;
    current = e;
    const Fault fault = run_guarded(e);
    current = outer;
    disarm(&guard);
    give_back(e);
    return fault;
}

extern "C" void wm_cpu_sync_threads() {
    Engine* e = engine();
    if (e->at_barrier + 1 == e->threads - e->gone) return release_barrier(e);
    e->barrier[e->at_barrier++] = e->linear_thread;
    wait_until_ready(e);
}

extern "C" void wm_cpu_trap() { leave(&engine()->run, {TRAP, 0}); }

extern "C" unsigned long long wm_cpu_exchange(uint32_t mask, unsigned long long value, uint32_t source) {
    Engine* e = engine();
    const uint32_t thread = e->linear_thread, lane = thread % LANES;
    Warp& w = warp_of(e, thread);
    if (!(mask & bit(lane))) leave(&e->run, {DIVERGENCE, 0});
    w.mask[lane] = mask;
    w.value[lane] = value;
    w.source[lane] = source;
    w.waiting |= bit(lane);
    if (!settle(e, thread / LANES, lane, lane)) wait_until_ready(e);
    return w.result[lane];
}
