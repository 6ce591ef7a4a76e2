/* The kernels as host code: one thread after the other does what the threads of a GPU do at once. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

struct dim { unsigned x; };
static struct dim blockIdx, threadIdx, blockDim, gridDim;

/* Threads of a block that work together are fibers, each of which runs until it comes to a barrier. */
enum { FIBERS = 256, STACK = 64 << 10 };
static ucontext_t scheduler, fibers[FIBERS];
static char stacks[FIBERS][STACK];
static int ended[FIBERS];
static void (*together)(void);

static inline void barrier(void) { swapcontext(&fibers[threadIdx.x], &scheduler); }

#define SHARED static
#define BARRIER() barrier()

#include "kernels.cu"
#include "kernels/tensors.cu"
#include "kernels/choices.cu"

/* Runs `call` as each thread of the grid. */
#define RUN(blocks, threads, call)                                                     \
    do {                                                                               \
        gridDim.x = (blocks);                                                          \
        blockDim.x = (threads);                                                        \
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)                     \
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) { call; }   \
    } while (0)

static void fiber(void) { together(); ended[threadIdx.x] = 1; }

/* Every thread of a block up to its next barrier or its end: forwards and backwards in turn, so that what
 * a thread needs of its neighbours on either side is missing where a barrier is. How many have ended. */
static int phase(int turn) {
    int done = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) {
        unsigned own = turn % 2 ? blockDim.x - 1 - i : i;
        threadIdx.x = own;
        if (!ended[own]) swapcontext(&scheduler, &fibers[own]);
        done += ended[own];
    }
    return done;
}

/* Runs `call` as each thread of the grid, block by block. A barrier that not all threads come to would
 * hang a GPU: it ends the process here. */
static inline void run_together(unsigned blocks, unsigned threads, void (*call)(void)) {
    gridDim.x = blocks;
    blockDim.x = threads;
    together = call;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
        for (unsigned own = 0; own < threads; ++own) {
            getcontext(&fibers[own]);
            fibers[own].uc_stack.ss_sp = stacks[own];
            fibers[own].uc_stack.ss_size = STACK;
            fibers[own].uc_link = &scheduler;
            makecontext(&fibers[own], fiber, 0);
            ended[own] = 0;
        }
        unsigned done = 0;
        for (int turn = 0; done == 0; ++turn) done = phase(turn);
        if (done != threads) abort();
    }
}

typedef void (*reduce_kernel)(void *, const void *, u64);
typedef void (*fold_kernel)(struct places, struct places, u64);
typedef void (*divide_kernel)(void *, u32, u64);
typedef void (*scale_kernel)(void *, f32, u64);
typedef void (*fill_kernel)(void *, u64, u64);
typedef void (*pointwise_kernel)(void *, u64);
typedef void (*place_kernel)(void *, const void *, struct axes, u64);
typedef void (*transpose_kernel)(void *, const void *, struct axes, u32);
typedef void (*along_kernel)(void *, const void *, struct along);
typedef void (*convert_kernel)(void *, const void *, u32, u32, u64);
typedef void (*take_kernel)(void *, const void *, const i64 *, struct take, u64);
typedef void (*one_hot_kernel)(void *, const i64 *, u64, u64, u64, u64);
typedef void (*select_kernel)(void *, const boolean *, const void *, const void *, u64);
typedef void (*scan_kernel)(void *, const void *, struct scan);
typedef void (*arg_kernel)(i64 *, const void *, const i64 *, u64, struct along);
typedef void (*product_kernel)(void *, const void *, const void *, struct product);
