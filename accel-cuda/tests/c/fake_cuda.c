/* A driver without a GPU: memory is the host's, kernels are host code, and everything is counted.
 *
 * It is as lazy as a driver may be: work that is put into a stream is done only when somebody waits, in
 * the order that streams and events ask for. So a program that reuses memory too early, or does not put
 * two streams in order, gets wrong results here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "host.h"

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101,
       INVALID_CONTEXT = 201, INVALID_HANDLE = 400, ALREADY_REGISTERED = 712, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL = 700 };

#define MOST_GPUS 4

/* What a test may change before the first call. */
int fake_version = 13000, fake_gpus = 2, fake_pools = 1;

#define GPU_BYTES (64ull << 20)

/* What is alive, by kind, and mistakes that were made: what fake_count tells. */
enum { MEMORIES, PINNED, STREAMS, EVENTS, MODULES, CONTEXTS, PUSHED, MISTAKES, REGISTERED, TO_DEVICE, TO_HOST, KEEPING, KINDS };
static long counts[KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Which call of which function is to fail, and how: set by fake_fail. */
static char failing[48];
static int failing_after, failing_code;

/* Which function waits at its beginning until another is named, and whether one does: set by fake_hold. */
static char held[48];
static int is_held;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;

/* Waits until somebody has turned something; 0 when that is overdue, for tests to fail instead of hang. */
static int turned(void) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 60;
    return !pthread_cond_timedwait(&turn, &lock, &end);
}

struct context { int gpu; unsigned long long used, kept; int retained; };
static struct context contexts[MOST_GPUS + 1];
static __thread struct context *current[16];
static __thread int depth;

/* Allocated on a GPU, pinned by the driver, or pinned of the program's own. */
enum { PLAIN, ALLOCATED, FOREIGN };
struct memory { struct memory *next; char *bytes; size_t size; struct context *context; int pinned; };
static struct memory *memories;

struct event { struct context *context; struct stream *stream; unsigned long long until; };

struct work {
    struct work *next;
    enum { SET, MOVE, KERNEL_CALL, WAIT, FREE } what;
    unsigned long long number;
    void *to; const void *from; size_t size; int value;
    char name[48]; void *function; unsigned blocks, threads;
    struct places targets, sources; u64 count, bits, first, classes; void *into; const void *with, *and, *or; u32 by; f32 factor;
    struct axes axes; struct along along; struct product product; struct take take; struct scan scan;
    u32 result, source;
    struct stream *other; unsigned long long until;
};
struct stream { struct stream *next; struct context *context; struct work *first, **last; unsigned long long queued, done; };
static struct stream *streams;
struct module { struct context *context; };

static int mistake(int code) { counts[MISTAKES]++; return code; }

/* Each function begins with this: it takes the lock, and fails where it is told to. */
static int begins(const char *name) {
    pthread_mutex_lock(&lock);
    if (!strcmp(held, name)) {
        is_held = 1;
        pthread_cond_broadcast(&turn);
        while (!strcmp(held, name) && turned()) {}
        is_held = 0;
    }
    if (!strcmp(failing, name) && failing_after-- == 0) { failing[0] = 0; return failing_code; }
    return OK;
}
static int ends(int code) { pthread_mutex_unlock(&lock); return code; }
#define BEGIN do { int failed = begins(__func__); if (failed) return ends(failed); } while (0)
#define HERE (depth > 0 ? current[depth - 1] : NULL)

static struct memory *holding(const void *at, size_t size) {
    for (struct memory *m = memories; m; m = m->next)
        if ((const char *)at >= m->bytes && (const char *)at + size <= m->bytes + m->size) return m;
    return NULL;
}

/* Whether so many bytes are memory of this context; of any, or pinned, for NULL. */
static int inside(const void *at, size_t size, struct context *context) {
    struct memory *m = holding(at, size);
    return m && (context ? m->context == context && !m->pinned : m->pinned);
}

static void run_until(struct stream *stream, unsigned long long until);
static int release(void *at, int pinned);

/* Whose threads are working together. */
static struct work *now;
static void run_transpose(void) { ((transpose_kernel)now->function)(now->into, now->with, now->axes, (u32)now->count); }
static void run_along(void) { ((along_kernel)now->function)(now->into, now->with, now->along); }
static void run_scan(void) { ((scan_kernel)now->function)(now->into, now->with, now->scan); }
static void run_arg(void) { ((arg_kernel)now->function)(now->into, now->with, now->and, now->count, now->along); }
static void run_product(void) { ((product_kernel)now->function)(now->into, now->with, now->and, now->product); }

static void run(struct stream *stream, struct work *w) {
    (void)stream;
    if (w->what == WAIT) { if (w->other) run_until(w->other, w->until); return; }
    if (w->what == FREE) { release(w->to, 0); return; }
    if (w->what == SET) { memset(w->to, w->value, w->size); return; }
    if (w->what == MOVE) { memmove(w->to, w->from, w->size); return; }
    if (!strncmp(w->name, "mw_reduce_", 10)) {
        RUN(w->blocks, w->threads, ((reduce_kernel)w->function)(w->into, w->with, w->count));
    } else if (!strncmp(w->name, "mw_fold_", 8)) {
        RUN(w->blocks, w->threads, ((fold_kernel)w->function)(w->targets, w->sources, w->count));
    } else if (!strncmp(w->name, "mw_divide_", 10)) {
        RUN(w->blocks, w->threads, ((divide_kernel)w->function)(w->into, w->by, w->count));
    } else if (!strncmp(w->name, "mw_scale_", 9)) {
        RUN(w->blocks, w->threads, ((scale_kernel)w->function)(w->into, w->factor, w->count));
    } else if (!strncmp(w->name, "mw_pointwise_", 13)) {
        RUN(w->blocks, w->threads, ((pointwise_kernel)w->function)(w->into, w->count));
    } else if (!strncmp(w->name, "mw_pairwise_", 12)) {
        RUN(w->blocks, w->threads, ((reduce_kernel)w->function)(w->into, w->with, w->count));
    } else if (!strncmp(w->name, "mw_place_", 9)) {
        RUN(w->blocks, w->threads, ((place_kernel)w->function)(w->into, w->with, w->axes, w->count));
    } else if (!strncmp(w->name, "mw_transpose_", 13)) {
        now = w;
        run_together(w->blocks, w->threads, run_transpose);
    } else if (!strcmp(w->name, "mw_convert")) {
        RUN(w->blocks, w->threads, ((convert_kernel)w->function)(w->into, w->with, w->result, w->source, w->count));
    } else if (!strncmp(w->name, "mw_take_", 8)) {
        RUN(w->blocks, w->threads, ((take_kernel)w->function)(w->into, w->with, w->and, w->take, w->count));
    } else if (!strncmp(w->name, "mw_one_hot_", 11)) {
        RUN(w->blocks, w->threads, ((one_hot_kernel)w->function)(w->into, w->with, w->first, w->classes, w->bits, w->count));
    } else if (!strncmp(w->name, "mw_select_", 10)) {
        RUN(w->blocks, w->threads, ((select_kernel)w->function)(w->into, w->with, w->and, w->or, w->count));
    } else if (!strncmp(w->name, "mw_scan_", 8)) {
        now = w;
        run_together(w->blocks, w->threads, run_scan);
    } else if (!strncmp(w->name, "mw_along_", 9)) {
        now = w;
        run_together(w->blocks, w->threads, run_along);
    } else if (!strncmp(w->name, "mw_arg_", 7)) {
        now = w;
        run_together(w->blocks, w->threads, run_arg);
    } else if (!strncmp(w->name, "mw_product_", 11)) {
        now = w;
        run_together(w->blocks, w->threads, run_product);
    } else {
        RUN(w->blocks, w->threads, ((fill_kernel)w->function)(w->into, w->bits, w->count));
    }
}

static void run_until(struct stream *stream, unsigned long long until) {
    while (stream->first && stream->first->number <= until) {
        struct work *w = stream->first;
        stream->first = w->next;
        if (!stream->first) stream->last = &stream->first;
        run(stream, w);
        stream->done = w->number;
        free(w);
    }
}

static struct work *queue(struct stream *stream, int what) {
    struct work *w = calloc(1, sizeof *w);
    w->what = what;
    w->number = ++stream->queued;
    *stream->last = w;
    stream->last = &w->next;
    return w;
}

/* What tests ask for. */

long fake_count(int kind) { pthread_mutex_lock(&lock); long n = counts[kind]; pthread_mutex_unlock(&lock); return n; }

void fake_fail(const char *name, int after, int code) {
    pthread_mutex_lock(&lock);
    snprintf(failing, sizeof failing, "%s", name);
    failing_after = after;
    failing_code = code;
    pthread_mutex_unlock(&lock);
}

void fake_hold(const char *name) {
    pthread_mutex_lock(&lock);
    snprintf(held, sizeof held, "%s", name);
    pthread_cond_broadcast(&turn);
    pthread_mutex_unlock(&lock);
}

int fake_is_held(void) {
    pthread_mutex_lock(&lock);
    while (!is_held && turned()) {}
    int yes = is_held;
    pthread_mutex_unlock(&lock);
    return yes;
}

/* The driver. */

int cuInit(unsigned flags) { BEGIN; return ends(flags ? INVALID_VALUE : fake_gpus ? OK : NO_DEVICE); }
int cuDriverGetVersion(int *version) { BEGIN; *version = fake_version; return ends(OK); }
int cuGetErrorName(unsigned code, const char **text) {
    *text = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : code == ILLEGAL ? "CUDA_ERROR_ILLEGAL_ADDRESS" : NULL;
    return *text ? OK : INVALID_VALUE;
}
int cuGetErrorString(unsigned code, const char **text) {
    *text = code == OUT_OF_MEMORY ? "out of memory" : code == ILLEGAL ? "an illegal memory access was encountered" : NULL;
    return *text ? OK : INVALID_VALUE;
}
int cuDeviceGetCount(int *count) { BEGIN; *count = fake_gpus; return ends(OK); }
int cuDeviceGet(int *device, int ordinal) {
    BEGIN;
    if (ordinal < 0 || ordinal >= fake_gpus) return ends(INVALID_DEVICE);
    *device = 70 + ordinal; /* a handle is not a number */
    return ends(OK);
}
int cuDeviceGetName(char *name, int len, int device) { BEGIN; snprintf(name, len, "Fake %d", device - 70); return ends(OK); }
int cuDeviceGetPCIBusId(char *id, int len, int device) { BEGIN; snprintf(id, len, "0000:0%d:00.0", device - 70); return ends(OK); }
int cuDeviceGetAttribute(int *value, int which, int device) {
    BEGIN;
    (void)device;
    *value = which == 16 ? 2 : which == 75 ? 9 : which == 76 ? 0 : which == 115 ? fake_pools : -1;
    return ends(*value < 0 ? INVALID_VALUE : OK);
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { BEGIN; (void)device; *bytes = GPU_BYTES; return ends(OK); }
int cuDevicePrimaryCtxRetain(void **context, int device) {
    BEGIN;
    struct context *c = &contexts[device - 70];
    c->gpu = device - 70;
    c->retained++;
    counts[CONTEXTS]++;
    *context = c;
    return ends(OK);
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    BEGIN;
    counts[CONTEXTS]--;
    return ends(contexts[device - 70].retained-- > 0 ? OK : mistake(INVALID_CONTEXT));
}
int cuCtxPushCurrent_v2(void *context) {
    BEGIN;
    struct context *c = context;
    if (!c || !c->retained || depth == 16) return ends(mistake(INVALID_CONTEXT));
    current[depth++] = c;
    counts[PUSHED]++;
    return ends(OK);
}
int cuCtxPopCurrent_v2(void **context) {
    BEGIN;
    if (!depth) return ends(mistake(INVALID_CONTEXT));
    *context = current[--depth];
    counts[PUSHED]--;
    return ends(OK);
}
int cuMemGetInfo_v2(size_t *free, size_t *total) {
    BEGIN;
    if (!HERE) return ends(mistake(INVALID_CONTEXT));
    *total = GPU_BYTES;
    *free = GPU_BYTES - HERE->used;
    return ends(OK);
}

static int allocate(void **at, size_t size, int pinned) {
    if (!HERE) return mistake(INVALID_CONTEXT);
    if (!size) return mistake(INVALID_VALUE);
    if (!pinned && size > GPU_BYTES - HERE->used) return OUT_OF_MEMORY;
    struct memory *m = malloc(sizeof *m);
    m->bytes = aligned_alloc(256, (size + 255) / 256 * 256);
    memset(m->bytes, 0xA5, size); /* nothing is zero by itself */
    m->size = size;
    m->context = HERE;
    m->pinned = pinned;
    m->next = memories;
    memories = m;
    if (!pinned) HERE->used += size;
    counts[pinned ? PINNED : MEMORIES]++;
    *at = m->bytes;
    return OK;
}

/* Frees at once, though work may be left: that is for the program to see to. */
static int release(void *at, int pinned) {
    for (struct memory **m = &memories; *m; m = &(*m)->next) {
        if ((*m)->bytes != at || (*m)->pinned != pinned) continue;
        struct memory *gone = *m;
        *m = gone->next;
        if (!pinned) gone->context->used -= gone->size;
        counts[pinned ? PINNED : MEMORIES]--;
        memset(gone->bytes, 0x5A, gone->size);
        free(gone->bytes);
        free(gone);
        return OK;
    }
    return mistake(INVALID_VALUE);
}

int cuMemAlloc_v2(u64 *at, size_t size) { BEGIN; void *m = NULL; int code = allocate(&m, size, 0); *at = (u64)m; return ends(code); }
int cuMemFree_v2(u64 at) { BEGIN; return ends(release((void *)at, 0)); }
/* The only pool of a GPU: it is its context. What is freed goes at once, and so is never among what it keeps. */
int cuDeviceGetDefaultMemPool(void **pool, int device) { BEGIN; *pool = &contexts[device - 70]; return ends(OK); }
int cuMemPoolSetAttribute(void *pool, int which, void *value) {
    BEGIN;
    if (!pool || which != 4) return ends(mistake(INVALID_VALUE));
    struct context *c = pool;
    counts[KEEPING] -= c->kept != 0;
    c->kept = *(u64 *)value;
    counts[KEEPING] += c->kept != 0;
    return ends(OK);
}
int cuMemPoolGetAttribute(void *pool, int which, void *value) {
    BEGIN;
    struct context *c = pool;
    if (which != 4 && which != 5 && which != 7) return ends(mistake(INVALID_VALUE));
    *(u64 *)value = which == 4 ? c->kept : c->used;
    return ends(OK);
}
int cuMemPoolTrimTo(void *pool, size_t kept) { BEGIN; return ends(pool && !kept ? OK : mistake(INVALID_VALUE)); }
int cuMemAllocAsync(u64 *at, size_t size, void *stream) {
    BEGIN;
    struct stream *s = stream;
    if (!s || s->context != HERE) return ends(mistake(INVALID_HANDLE));
    void *m = NULL;
    int code = allocate(&m, size, 0);
    *at = (u64)m;
    return ends(code);
}
int cuMemFreeAsync(u64 at, void *stream) {
    BEGIN;
    struct stream *s = stream;
    if (!s || s->context != HERE || !inside((void *)at, 1, HERE)) return ends(mistake(ILLEGAL));
    queue(s, FREE)->to = (void *)at;
    return ends(OK);
}
int cuMemHostAlloc(void **at, size_t size, unsigned flags) { BEGIN; return ends(flags == 1 ? allocate(at, size, 1) : INVALID_VALUE); }
int cuMemFreeHost(void *at) { BEGIN; return ends(release(at, 1)); }

/* What kind of memory it is, of which GPU, where it begins and how large it is. */
int cuPointerGetAttribute(void *value, int which, u64 at) {
    BEGIN;
    struct memory *m = holding((void *)at, 1);
    if (!m) return ends(INVALID_VALUE);
    if (which == 2) *(unsigned *)value = m->pinned ? 1 : 2;
    else if (which == 9) *(int *)value = m->context->gpu;
    else if (which == 11) *(u64 *)value = (u64)m->bytes;
    else if (which == 12) *(size_t *)value = m->size;
    else return ends(mistake(INVALID_VALUE));
    return ends(OK);
}

int cuMemHostRegister_v2(void *at, size_t size, unsigned flags) {
    BEGIN;
    if (!HERE || flags != 1 || !size) return ends(mistake(INVALID_VALUE));
    for (struct memory *m = memories; m; m = m->next)
        if ((char *)at < m->bytes + m->size && m->bytes < (char *)at + size) return ends(mistake(ALREADY_REGISTERED));
    struct memory *m = malloc(sizeof *m);
    *m = (struct memory){memories, at, size, HERE, FOREIGN};
    memories = m;
    counts[REGISTERED]++;
    return ends(OK);
}

/* Whether work that is still to be done reads or writes this memory. */
static int awaited(struct memory *m) {
    for (struct stream *s = streams; s; s = s->next)
        for (struct work *w = s->first; w; w = w->next)
            if (w->what == MOVE && (holding(w->to, 1) == m || holding(w->from, 1) == m)) return 1;
    return 0;
}

int cuMemHostUnregister(void *at) {
    BEGIN;
    for (struct memory **m = &memories; *m; m = &(*m)->next) {
        struct memory *gone = *m;
        if (gone->bytes != at || gone->pinned != FOREIGN) continue;
        char *page = (char *)((u64)at & ~4095ull);
        /* Memory that was unmapped before, or is still copied from or to. */
        int wrong = msync(page, gone->bytes + gone->size - page, MS_ASYNC) != 0 || awaited(gone);
        *m = gone->next;
        counts[REGISTERED]--;
        free(gone);
        return ends(wrong ? mistake(INVALID_VALUE) : OK);
    }
    return ends(mistake(INVALID_VALUE));
}

/* Work may only be put into a stream of the context that is current. */
static int bad(struct stream *stream) { return !stream || !HERE || stream->context != HERE; }

/* The handle by which each thread means a stream of its own. */
#define PER_THREAD ((void *)2)

/* The default stream of the context that is current, where none is named, or that of the calling thread:
 * others than this crate use these. They are kept, as events that were recorded on them may be waited for. */
static struct stream *named(void *stream) {
    static struct stream *defaults[MOST_GPUS + 1];
    static __thread struct stream *own[MOST_GPUS + 1];
    if (stream && stream != PER_THREAD) return stream;
    if (!HERE) return NULL;
    struct stream **s = stream ? &own[HERE - contexts] : &defaults[HERE - contexts];
    if (!*s) {
        *s = calloc(1, sizeof **s);
        (*s)->context = HERE;
        (*s)->last = &(*s)->first;
        (*s)->next = streams;
        streams = *s;
    }
    return *s;
}

static int move(void *to, const void *from, size_t size, struct stream *stream) {
    struct work *w = queue(stream, MOVE);
    w->to = to;
    w->from = from;
    w->size = size;
    return OK;
}

int cuMemsetD8Async(u64 to, unsigned char value, size_t size, void *stream) {
    BEGIN;
    stream = named(stream);
    if (bad(stream) || !inside((void *)to, size, HERE)) return ends(mistake(ILLEGAL));
    struct work *w = queue(stream, SET);
    w->to = (void *)to;
    w->value = value;
    w->size = size;
    return ends(OK);
}
int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t size, void *stream) {
    BEGIN;
    if (bad(stream) || !inside((void *)to, size, HERE) || !inside(from, size, NULL)) return ends(mistake(ILLEGAL));
    counts[TO_DEVICE]++;
    return ends(move((void *)to, from, size, stream));
}
int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t size, void *stream) {
    BEGIN;
    stream = named(stream);
    if (bad(stream) || !inside((void *)from, size, HERE) || !inside(to, size, NULL)) return ends(mistake(ILLEGAL));
    counts[TO_HOST]++;
    return ends(move(to, (void *)from, size, stream));
}
int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t size, void *stream) {
    BEGIN;
    if (bad(stream) || !inside((void *)to, size, HERE) || !inside((void *)from, size, HERE)) return ends(mistake(ILLEGAL));
    return ends(move((void *)to, (void *)from, size, stream));
}
int cuMemcpyPeerAsync(u64 to, void *there, u64 from, void *here, size_t size, void *stream) {
    BEGIN;
    if (bad(stream) || !inside((void *)to, size, there) || !inside((void *)from, size, here)) return ends(mistake(ILLEGAL));
    return ends(move((void *)to, (void *)from, size, stream));
}

int cuStreamCreate(void **stream, unsigned flags) {
    BEGIN;
    if (!HERE || flags != 1) return ends(mistake(INVALID_VALUE));
    struct stream *s = calloc(1, sizeof *s);
    s->context = HERE;
    s->last = &s->first;
    s->next = streams;
    streams = s;
    counts[STREAMS]++;
    *stream = s;
    return ends(OK);
}
int cuStreamDestroy_v2(void *stream) {
    BEGIN;
    if (bad(stream)) return ends(mistake(INVALID_HANDLE));
    run_until(stream, ~0ull);
    counts[STREAMS]--;
    /* Kept, as events that were recorded on it may still be waited for. */
    return ends(OK);
}
int cuStreamGetCtx(void *stream, void **context) {
    BEGIN;
    struct stream *s = named(stream);
    if (!s) return ends(mistake(INVALID_HANDLE));
    *context = s->context;
    return ends(OK);
}
int cuStreamSynchronize(void *stream) {
    BEGIN;
    stream = named(stream);
    if (bad(stream)) return ends(mistake(INVALID_HANDLE));
    run_until(stream, ~0ull);
    return ends(OK);
}
int cuCtxSynchronize(void) {
    BEGIN;
    if (!HERE) return ends(mistake(INVALID_CONTEXT));
    for (struct stream *s = streams; s; s = s->next)
        if (s->context == HERE) run_until(s, ~0ull);
    return ends(OK);
}
int cuStreamQuery(void *stream) {
    BEGIN;
    struct stream *s = stream;
    if (bad(s)) return ends(mistake(INVALID_HANDLE));
    if (!s->first) return ends(OK);
    run_until(s, s->first->number); /* something gets done meanwhile */
    return ends(NOT_READY);
}
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    BEGIN;
    struct event *e = event;
    stream = named(stream);
    if (bad(stream) || flags) return ends(mistake(INVALID_HANDLE));
    struct work *w = queue(stream, WAIT);
    w->other = e->stream;
    w->until = e->until;
    return ends(OK);
}
int cuEventCreate(void **event, unsigned flags) {
    BEGIN;
    if (!HERE || flags != 2) return ends(mistake(INVALID_VALUE));
    struct event *e = calloc(1, sizeof *e);
    e->context = HERE;
    counts[EVENTS]++;
    *event = e;
    return ends(OK);
}
int cuEventRecord(void *event, void *stream) {
    BEGIN;
    struct event *e = event;
    struct stream *s = named(stream);
    if (bad(s) || e->context != s->context) return ends(mistake(INVALID_HANDLE));
    e->stream = s;
    e->until = s->queued;
    return ends(OK);
}
int cuEventSynchronize(void *event) {
    BEGIN;
    struct event *e = event;
    if (e->stream) run_until(e->stream, e->until);
    return ends(OK);
}
int cuEventDestroy_v2(void *event) { BEGIN; counts[EVENTS]--; free(event); return ends(OK); }

int cuModuleLoadData(void **module, const void *image) {
    BEGIN;
    if (!HERE || strncmp(image, "fake code for sm_90", 19)) return ends(mistake(INVALID_VALUE));
    struct module *m = calloc(1, sizeof *m);
    m->context = HERE;
    counts[MODULES]++;
    *module = m;
    return ends(OK);
}
int cuModuleUnload(void *module) { BEGIN; counts[MODULES]--; free(module); return ends(OK); }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    BEGIN;
    (void)module;
    Dl_info here;
    if (!dladdr((void *)cuModuleGetFunction, &here)) return ends(NOT_FOUND);
    void *self = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    void *found = self ? dlsym(self, name) : NULL;
    if (!found) return ends(NOT_FOUND);
    struct { char name[48]; void *code; } *f = calloc(1, 64); /* few, and kept for ever */
    snprintf(f->name, 48, "%s", name);
    f->code = found;
    *function = f;
    return ends(OK);
}

static int all_inside(const struct places *places, size_t size) {
    if (places->count > PLACES) return 0;
    for (u32 i = 0; i < places->count; ++i)
        if (!inside((void *)places->address[i], size, HERE)) return 0;
    return 1;
}

static size_t element_of(const char *name) {
    const char *type = strrchr(name, '_') + 1;
    if (type[0] >= '0' && type[0] <= '9') return atoi(type);
    if (!strcmp(type, "bool") || strchr(type, '8')) return 1;
    return strstr(type, "16") ? 2 : strstr(type, "32") ? 4 : 8;
}

/* Whether all elements along all axes are memory, of which those may lie before the first whose distance
 * is a number that wraps. */
static int walked(const void *base, u64 first, const struct axes *axes, const u64 *apart, size_t size) {
    u64 low = first, high = first;
    for (u32 axis = 0; axis < axes->count; ++axis) {
        u64 way = (axes->size[axis] - 1) * apart[axis];
        if (way >> 63) low += way; else high += way;
    }
    return !(low >> 63) && inside((const char *)base + low * size, (high - low + 1) * size, HERE);
}

/* By the numbers of choices.cu. */
static size_t element_bytes(u32 type) {
    return type == 1 || type == 8 || type == 9 ? 1 : type >= 10 ? 2 : type == 2 || type == 4 || type == 6 ? 4 : 8;
}

static size_t wide(const char *name, size_t size) { return strstr(name, "f16") ? 4 : size; }

/* What a kernel was given, by its name; whether all that it will read and write is memory. */
static int taken(struct work *w, const char *name, void **given) {
    size_t size = element_of(name);
    w->into = *(void **)given[0];
    if (!strncmp(name, "mw_fold_", 8)) {
        w->targets = *(struct places *)given[0];
        w->sources = *(struct places *)given[1];
        w->count = *(u64 *)given[2];
        return all_inside(&w->targets, w->count * size) && all_inside(&w->sources, w->count * size);
    }
    if (!strncmp(name, "mw_pointwise_", 13)) {
        w->count = *(u64 *)given[1];
        return inside(w->into, w->count * size, HERE);
    }
    w->with = *(void **)given[1];
    if (!strncmp(name, "mw_along_", 9)) {
        struct along *s = &w->along;
        *s = *(struct along *)given[2];
        u64 outer = s->count / (s->chunks * s->inner);
        size_t read = s->wide & WIDE_SOURCE ? wide(name, size) : size, written = s->wide & WIDE_RESULT ? wide(name, size) : size;
        return s->lanes && !(s->lanes & (s->lanes - 1)) && s->count && (s->chunks - 1) * s->per < s->len && s->chunks * s->per >= s->len
            && inside(w->with, outer * s->len * s->inner * read, HERE) && inside(w->into, s->count * written, HERE);
    }
    if (!strncmp(name, "mw_arg_", 7)) {
        w->and = *(void **)given[2];
        w->count = *(u64 *)given[3];
        w->along = *(struct along *)given[4];
        struct along s = w->along;
        u64 lines = s.count / s.chunks;
        return s.lanes && !(s.lanes & (s.lanes - 1)) && s.count && (s.chunks - 1) * s.per < s.len && s.chunks * s.per >= s.len
            && inside(w->with, lines * w->count * size, HERE) && inside(w->into, s.count * 8, HERE)
            && (w->and ? inside(w->and, lines * s.len * 8, HERE) : s.len == w->count);
    }
    if (!strncmp(name, "mw_product_", 11)) {
        w->and = *(void **)given[2];
        w->product = *(struct product *)given[3];
        struct product p = w->product;
        return inside(w->into, p.depth * p.rows * p.columns * size, HERE) && inside(w->with, p.depth * p.rows * p.inner * size, HERE)
            && inside(w->and, p.depth * p.inner * p.columns * size, HERE);
    }
    if (!strcmp(name, "mw_convert")) {
        w->result = *(u32 *)given[2];
        w->source = *(u32 *)given[3];
        w->count = *(u64 *)given[4];
        return inside(w->into, w->count * element_bytes(w->result), HERE) && inside(w->with, w->count * element_bytes(w->source), HERE);
    }
    if (!strncmp(name, "mw_take_", 8)) {
        w->and = *(void **)given[2];
        w->take = *(struct take *)given[3];
        w->count = *(u64 *)given[4];
        struct take s = w->take;
        return s.inner && s.chosen && inside(w->into, w->count * size, HERE) && inside(w->and, s.chosen * 8, HERE)
            && (!s.len || inside(w->with, w->count / s.chosen * s.len * size, HERE));
    }
    if (!strncmp(name, "mw_one_hot_", 11)) {
        w->first = *(u64 *)given[2];
        w->classes = *(u64 *)given[3];
        w->bits = *(u64 *)given[4];
        w->count = *(u64 *)given[5];
        return w->classes && inside(w->into, w->count * size, HERE) && inside(w->with, w->count / w->classes * 8, HERE);
    }
    if (!strncmp(name, "mw_select_", 10)) {
        w->and = *(void **)given[2];
        w->or = *(void **)given[3];
        w->count = *(u64 *)given[4];
        return inside(w->into, w->count * size, HERE) && inside(w->with, w->count, HERE)
            && inside(w->and, w->count * size, HERE) && inside(w->or, w->count * size, HERE);
    }
    if (!strncmp(name, "mw_scan_", 8)) {
        w->scan = *(struct scan *)given[2];
        struct scan s = w->scan;
        return s.lanes && !(s.lanes & (s.lanes - 1)) && s.per * s.lanes >= s.len
            && inside(w->into, s.lines * s.len * size, HERE) && inside(w->with, s.lines * s.len * size, HERE);
    }
    if (!strncmp(name, "mw_place_", 9) || !strncmp(name, "mw_transpose_", 13)) {
        w->axes = *(struct axes *)given[2];
        w->count = name[3] == 'p' ? *(u64 *)given[3] : *(u32 *)given[3];
        return w->axes.count && w->axes.count <= AXES && (u64)w->into % size == 0 && (u64)w->with % size == 0
            && walked(w->into, 0, &w->axes, w->axes.into, size) && walked(w->with, w->axes.first, &w->axes, w->axes.from, size);
    }
    w->count = *(u64 *)given[2];
    if (!strncmp(name, "mw_reduce_", 10) || !strncmp(name, "mw_pairwise_", 12)) {
        if (!inside(w->with, w->count * size, HERE)) return 0;
    } else if (!strncmp(name, "mw_divide_", 10)) {
        w->by = *(u32 *)given[1];
    } else if (!strncmp(name, "mw_scale_", 9)) {
        w->factor = *(f32 *)given[1];
    } else {
        w->bits = *(u64 *)given[1];
    }
    return inside(w->into, w->count * size, HERE);
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **given, void **extra) {
    BEGIN;
    struct { char name[48]; void *code; } *f = function;
    if (bad(stream) || !gx || gx > 0x7FFFFFFFu || gy != 1 || gz != 1 || !bx || bx > 1024 || by != 1 || bz != 1
        || shared || extra)
        return ends(mistake(INVALID_VALUE));
    struct work w = {0};
    if (!taken(&w, f->name, given)) return ends(mistake(ILLEGAL));
    struct work *queued = queue(stream, KERNEL_CALL);
    struct work *next = queued->next;
    unsigned long long number = queued->number;
    *queued = w;
    queued->next = next;
    queued->number = number;
    queued->what = KERNEL_CALL;
    queued->function = f->code;
    queued->blocks = gx;
    queued->threads = bx;
    memcpy(queued->name, f->name, sizeof queued->name);
    return ends(OK);
}

/* Brings a stream up to date for another fake library, whatever is current. */
int fake_drain(void *stream) {
    pthread_mutex_lock(&lock);
    run_until(stream, ~0ull);
    pthread_mutex_unlock(&lock);
    return OK;
}
