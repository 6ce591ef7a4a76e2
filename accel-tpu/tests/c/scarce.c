// XLA's plugin for the CPU, of whose devices each says that it has LIMIT bytes and that all are free.

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// PJRT_Device_MemoryStats_Args, as far as it is filled in.
struct stats {
    size_t size;
    void *extension, *device;
    int64_t in_use, most_in_use;
    bool has_most_in_use;
    int64_t allocations;
    bool has_allocations;
    int64_t largest;
    bool has_largest;
    int64_t limit;
    bool has_limit;
};

static void *memory_stats(struct stats *stats) {
    stats->in_use = 0;
    stats->limit = LIMIT;
    stats->has_limit = true;
    return NULL;
}

// In front of the functions of PJRT_Api there are five words; PJRT_Device_MemoryStats is the 35th.
enum { MEMORY_STATS = 5 + 34 };

const void *GetPjrtApi(void) {
    static void **scarce;
    if (scarce == NULL) {
        void *plugin = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
        void **(*of_plugin)(void) = plugin ? (void **(*)(void))dlsym(plugin, "GetPjrtApi") : NULL;
        if (of_plugin == NULL) {
            return NULL;
        }
        void **table = of_plugin();
        size_t size = *(size_t *)table;
        scarce = malloc(size);
        memcpy(scarce, table, size);
        scarce[MEMORY_STATS] = (void *)memory_stats;
    }
    return scarce;
}
