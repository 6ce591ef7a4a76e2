/* The kernels as host code: one thread after the other does what the threads of a GPU do at once. */
#include <stdint.h>

struct dim { unsigned x; };
static struct dim blockIdx, threadIdx, blockDim, gridDim;

#include "kernels.cu"

/* Runs `call` as each thread of the grid. */
#define RUN(blocks, threads, call)                                                     \
    do {                                                                               \
        gridDim.x = (blocks);                                                          \
        blockDim.x = (threads);                                                        \
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)                     \
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) { call; }   \
    } while (0)

typedef void (*reduce_kernel)(void *, const void *, u64);
typedef void (*fold_kernel)(struct places, struct places, u64);
typedef void (*divide_kernel)(void *, u32, u64);
typedef void (*fill_kernel)(void *, u64, u64);
