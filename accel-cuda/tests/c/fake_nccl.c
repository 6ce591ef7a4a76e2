/* Collectives between threads of one process: calls are taken in, and done by the last rank that comes.
 *
 * Buffers are those of fake_cuda.c, whose lazy streams are brought up to date first, so that a test
 * knows what to expect: NCCL itself does all of this on the GPU.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

/* What a test may change before the first call. */
int fake_version = 23007;
/* Whether nobody is told when another rank has aborted, as happens where nothing is sent meanwhile. */
int fake_quiet;
/* The number of a collective that is done wrong, for tests of what finds that. */
int fake_wrong;

enum { OK = 0, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE = 6, IN_PROGRESS = 7 };
enum { RANKS = 8 };

/* What ranks that belong together share. */
struct clique {
    struct clique *next;
    char id[128];
    int world, joined, aborted, arrived, turn;
    struct call { int what; uint64_t from, to; size_t count; unsigned type, op; int root; void *stream; } calls[RANKS];
};
struct comm { struct clique *clique; int rank, turn, finalized, answers; };
struct config { size_t size; unsigned magic, version; int blocking; };

enum { ALL_REDUCE = 1, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct clique *cliques;
static long alive, aborts, ids, performed;

/* The next call of this rank is refused, with this code: set by fake_refuse. */
static int refused_rank = -1, refused_code;
static int (*synchronize)(void *);

long fake_count(int kind) {
    pthread_mutex_lock(&lock);
    long count = kind == 0 ? alive : kind == 1 ? aborts : performed;
    pthread_mutex_unlock(&lock);
    return count;
}

void fake_refuse(int rank, int code) {
    pthread_mutex_lock(&lock);
    refused_rank = rank;
    refused_code = code;
    pthread_mutex_unlock(&lock);
}

/* How to bring a stream up to date: given by the test, as this library does not know the driver. */
void fake_streams(int (*function)(void *)) { synchronize = function; }

int ncclGetVersion(int *version) { *version = fake_version; return OK; }
int ncclGetUniqueId(char *id) {
    memset(id, 0, 128);
    pthread_mutex_lock(&lock);
    snprintf(id, 128, "clique %ld", ++ids);
    pthread_mutex_unlock(&lock);
    return OK;
}
const char *ncclGetErrorString(unsigned code) { return code == REMOTE ? "remote process exited" : "invalid usage"; }
const char *ncclGetLastError(void *comm) { return comm ? "unused" : "said the fake"; }

static struct clique *clique_of(const char *id, int world) {
    for (struct clique *c = cliques; c; c = c->next)
        if (!memcmp(c->id, id, 128)) return c;
    struct clique *c = calloc(1, sizeof *c);
    memcpy(c->id, id, 128);
    c->world = world;
    c->next = cliques;
    return cliques = c;
}

static struct comm *member(struct clique *clique, int rank) {
    struct comm *comm = calloc(1, sizeof *comm);
    comm->clique = clique;
    comm->rank = rank;
    clique->joined++;
    alive++;
    return comm;
}

struct id { char internal[128]; };

int ncclCommInitRankConfig(struct comm **comm, int world, struct id id, int rank, struct config *config) {
    if (world > RANKS || config->magic != 0xcafebeef || config->size < 48 || config->blocking) return INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    if (rank == refused_rank) {
        refused_rank = -1;
        pthread_mutex_unlock(&lock);
        return refused_code;
    }
    *comm = member(clique_of(id.internal, world), rank);
    pthread_mutex_unlock(&lock);
    return IN_PROGRESS;
}

static size_t size_of(unsigned type) { return type < 2 ? 1 : type < 4 || type == 7 ? 4 : type == 6 || type == 9 ? 2 : 8; }

/* Sum, product, largest and smallest of each type that NCCL has, in the order of its numbers. */
#define KERNEL_OF(op, T) (reduce_kernel)(void (*)(void))mw_reduce_##op##_##T
#define OPS(T) {KERNEL_OF(sum, T), KERNEL_OF(product, T), KERNEL_OF(max, T), KERNEL_OF(min, T)}
static const reduce_kernel kernels[][4] = {OPS(i8), OPS(u8), OPS(i32), OPS(u32), OPS(i64), OPS(u64), OPS(f16), OPS(f32), OPS(f64), OPS(bf16)};

static void combine(char *into, const char *from, size_t count, unsigned type, unsigned op) {
    RUN(1, 1, kernels[type][op](into, from, count));
}

static void reduce_all(struct clique *c, char *total, size_t count) {
    unsigned type = c->calls[0].type;
    memcpy(total, (void *)c->calls[0].from, count * size_of(type));
    for (int r = 1; r < c->world; ++r) combine(total, (void *)c->calls[r].from, count, type, c->calls[0].op);
}

/* Everybody is here: what they came for is done. */
static void perform(struct clique *c) {
    struct call *first = &c->calls[0];
    size_t bytes = first->count * size_of(first->type);
    for (int r = 0; r < c->world; ++r)
        if (c->calls[r].stream) synchronize(c->calls[r].stream);
    char *whole = calloc(c->world + 1, bytes + 64);
    for (int r = 0; r < c->world; ++r) {
        struct call *call = &c->calls[r];
        if ((call->what == ALL_REDUCE || call->what == REDUCE) && r == 0) reduce_all(c, whole, call->count);
        if (call->what == REDUCE_SCATTER && r == 0) reduce_all(c, whole, call->count * c->world);
        if (call->what == ALL_GATHER) memcpy(whole + r * bytes, (void *)call->from, bytes);
        if (call->what == BROADCAST && r == call->root) memcpy(whole, (void *)call->from, bytes);
    }
    for (int r = 0; r < c->world; ++r) {
        struct call *call = &c->calls[r];
        int wrong = call->what == fake_wrong, last = r == c->world - 1, block = wrong ? 0 : r;
        if ((call->what == ALL_REDUCE || call->what == BROADCAST) && !(wrong && last)) memcpy((void *)call->to, whole, bytes);
        if (call->what == REDUCE && (wrong || r == call->root)) memcpy((void *)call->to, whole, bytes);
        if (call->what == ALL_GATHER) memcpy((void *)call->to, whole, bytes * (c->world - wrong));
        if (call->what == REDUCE_SCATTER) memcpy((void *)call->to, whole + block * bytes, bytes);
    }
    free(whole);
}

/* Takes a call in; the last rank of the clique lets it happen. */
static int take(struct comm *comm, struct call call) {
    pthread_mutex_lock(&lock);
    struct clique *c = comm->clique;
    if (comm->rank == refused_rank) {
        refused_rank = -1;
        pthread_mutex_unlock(&lock);
        return refused_code;
    }
    c->calls[comm->rank] = call;
    comm->turn++;
    comm->answers = 2;
    if (++c->arrived == c->world) {
        perform(c);
        performed++;
        c->arrived = 0;
        c->turn++;
    }
    pthread_mutex_unlock(&lock);
    return IN_PROGRESS;
}

int ncclCommGetAsyncError(struct comm *comm, unsigned *state) {
    pthread_mutex_lock(&lock);
    struct clique *c = comm->clique;
    int waits = c->joined < c->world || c->turn < comm->turn || comm->answers-- > 0;
    *state = c->aborted && !fake_quiet ? REMOTE : waits ? IN_PROGRESS : OK;
    pthread_mutex_unlock(&lock);
    return OK;
}
int ncclCommCount(struct comm *comm, int *count) { *count = comm->clique->world; return OK; }
int ncclCommUserRank(struct comm *comm, int *rank) { *rank = comm->rank; return OK; }
int ncclCommFinalize(struct comm *comm) { comm->finalized = 1; return OK; }
int ncclCommDestroy(struct comm *comm) {
    pthread_mutex_lock(&lock);
    int code = comm->finalized ? OK : INVALID_USAGE;
    alive--;
    free(comm);
    pthread_mutex_unlock(&lock);
    return code;
}
int ncclCommAbort(struct comm *comm) {
    pthread_mutex_lock(&lock);
    comm->clique->aborted = 1;
    alive--;
    aborts++;
    free(comm);
    pthread_mutex_unlock(&lock);
    return OK;
}

int ncclAllReduce(uint64_t from, uint64_t to, size_t count, unsigned type, unsigned op, struct comm *comm, void *stream) {
    return take(comm, (struct call){ALL_REDUCE, from, to, count, type, op, 0, stream});
}
int ncclReduce(uint64_t from, uint64_t to, size_t count, unsigned type, unsigned op, int root, struct comm *comm, void *stream) {
    return take(comm, (struct call){REDUCE, from, to, count, type, op, root, stream});
}
int ncclAllGather(uint64_t from, uint64_t to, size_t count, unsigned type, struct comm *comm, void *stream) {
    return take(comm, (struct call){ALL_GATHER, from, to, count, type, 0, 0, stream});
}
int ncclReduceScatter(uint64_t from, uint64_t to, size_t count, unsigned type, unsigned op, struct comm *comm, void *stream) {
    return take(comm, (struct call){REDUCE_SCATTER, from, to, count, type, op, 0, stream});
}
int ncclBroadcast(uint64_t from, uint64_t to, size_t count, unsigned type, int root, struct comm *comm, void *stream) {
    return take(comm, (struct call){BROADCAST, from, to, count, type, 0, root, stream});
}
