/* Runs kernels on what comes in, and answers with what comes of it: see tests/kernels.rs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

struct request {
    char name[48];
    uint64_t count;   /* elements of each buffer */
    uint64_t value;   /* the divisor, or the bits to fill with */
    uint32_t size;    /* bytes of an element */
    uint32_t sources; /* buffers that follow */
    uint32_t shift;   /* elements by which buffers miss their alignment */
    uint32_t blocks, threads, pad;
};

static void *buffer(const struct request *r) {
    size_t bytes = (r->count + r->shift + 1) * r->size;
    char *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) exit(2);
    return memory + r->shift * r->size;
}

int main(void) {
    struct request r;
    while (fread(&r, sizeof r, 1, stdin) == 1) {
        void *function = dlsym(RTLD_DEFAULT, r.name);
        if (!function || r.sources > PLACES) {
            fprintf(stderr, "no kernel %s\n", r.name);
            return 3;
        }
        struct places sources = {r.sources, {0}}, targets = {1, {0}};
        for (u32 i = 0; i < r.sources; ++i) {
            void *memory = buffer(&r);
            if (fread(memory, r.size, r.count, stdin) != r.count) return 4;
            sources.address[i] = (u64)memory;
        }
        void *first = (void *)sources.address[0];
        void *result = first;
        if (!strncmp(r.name, "mw_reduce_", 10)) {
            reduce_kernel kernel = (reduce_kernel)function;
            RUN(r.blocks, r.threads, kernel(first, (void *)sources.address[1], r.count));
        } else if (!strncmp(r.name, "mw_fold_", 8)) {
            fold_kernel kernel = (fold_kernel)function;
            result = buffer(&r);
            targets.address[0] = (u64)result;
            RUN(r.blocks, r.threads, kernel(targets, sources, r.count));
        } else if (!strncmp(r.name, "mw_divide_", 10)) {
            divide_kernel kernel = (divide_kernel)function;
            RUN(r.blocks, r.threads, kernel(first, (u32)r.value, r.count));
        } else {
            fill_kernel kernel = (fill_kernel)function;
            RUN(r.blocks, r.threads, kernel(first, r.value, r.count));
        }
        if (fwrite(result, r.size, r.count, stdout) != r.count || fflush(stdout)) return 5;
        for (u32 i = 0; i < r.sources; ++i)
            free((char *)sources.address[i] - r.shift * r.size);
        if (result != first) free((char *)result - r.shift * r.size);
    }
    return 0;
}
