/* Times one MPI collective on float32 the way `meshwork bench` times its own: a sample is as many
 * calls in a row, after a barrier, as take about 5 ms; its time is the slowest rank's; the median over
 * samples is printed. Values are checked before and after.
 *
 *   mpicc -O3 -march=native -o mpi_collectives mpi_collectives.c
 *   mpirun -np 2 --bind-to core ./mpi_collectives allgather 1048576,16777216 2
 *
 * Sizes are bytes of a rank's larger buffer. Prints peer,op,ranks,bytes,median_us,algbw_GBps,busbw_GBps. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static float pattern(int of, size_t at) { return (float)(at % 1000 + of); }

struct trial {
    const char *op;
    float *in, *out;
    size_t in_count, out_count, block;
};

static void call(struct trial *t) {
    int block = (int)t->block, all = (int)t->in_count;
    MPI_Comm world = MPI_COMM_WORLD;
    if (!strcmp(t->op, "allreduce"))
        MPI_Allreduce(MPI_IN_PLACE, t->in, all, MPI_FLOAT, MPI_SUM, world);
    else if (!strcmp(t->op, "allgather"))
        MPI_Allgather(t->in, block, MPI_FLOAT, t->out, block, MPI_FLOAT, world);
    else if (!strcmp(t->op, "reducescatter"))
        MPI_Reduce_scatter_block(t->in, t->out, block, MPI_FLOAT, MPI_SUM, world);
    else if (!strcmp(t->op, "broadcast"))
        MPI_Bcast(t->in, all, MPI_FLOAT, 0, world);
    else
        MPI_Alltoall(t->in, block, MPI_FLOAT, t->out, block, MPI_FLOAT, world);
}

static float expected(struct trial *t, size_t at) {
    size_t block = t->block;
    float sum = 0;
    if (!strcmp(t->op, "allgather")) return pattern((int)(at / block), at % block);
    if (!strcmp(t->op, "broadcast")) return pattern(0, at);
    if (!strcmp(t->op, "alltoall")) return pattern((int)(at / block), rank * block + at % block);
    if (!strcmp(t->op, "reducescatter")) at += rank * block;
    for (int r = 0; r < ranks; r++) sum += pattern(r, at);
    return sum;
}

static int wrong(struct trial *t) {
    for (size_t i = 0; i < t->in_count; i++) t->in[i] = pattern(rank, i);
    call(t);
    float *got = t->out_count ? t->out : t->in;
    size_t count = t->out_count ? t->out_count : t->in_count;
    int bad = 0, any;
    for (size_t i = 0; i < count; i++) bad |= got[i] != expected(t, i);
    MPI_Allreduce(&bad, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return any;
}

static double seconds(struct trial *t, int calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    for (int i = 0; i < calls; i++) call(t);
    return (MPI_Wtime() - begun) / calls;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static float *buffer(size_t count) {
    void *memory = NULL;
    if (count && posix_memalign(&memory, 4096, count * sizeof(float))) MPI_Abort(MPI_COMM_WORLD, 1);
    if (count) memset(memory, 0, count * sizeof(float));
    return memory;
}

static void measure(const char *op, size_t bytes, double budget) {
    size_t elements = bytes / sizeof(float), block = (elements + ranks - 1) / ranks;
    struct trial t = {.op = op, .block = block, .in_count = elements};
    if (!strcmp(op, "allgather")) t.in_count = block, t.out_count = block * ranks;
    if (!strcmp(op, "reducescatter")) t.in_count = block * ranks, t.out_count = block;
    if (!strcmp(op, "alltoall")) t.in_count = t.out_count = block * ranks;
    t.in = buffer(t.in_count);
    t.out = buffer(t.out_count);
    int bad = wrong(&t), calls = 1;
    memset(t.in, 0, t.in_count * sizeof(float));
    double each = 0;
    for (int i = 0; i < 3; i++) {
        each = seconds(&t, calls);
        MPI_Bcast(&each, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        calls = (int)(5e-3 / each);
        calls = calls < 1 ? 1 : calls > 5000 ? 5000 : calls;
    }
    int samples = (int)(budget / (each * calls));
    samples = samples < 7 ? 7 : samples > 101 ? 101 : samples;
    double times[101];
    for (int s = 0; s < samples; s++) {
        double own = seconds(&t, calls);
        MPI_Allreduce(&own, &times[s], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    }
    bad |= wrong(&t);
    qsort(times, samples, sizeof(double), ascending);
    double time = times[samples / 2], rate = bytes / time / 1e9;
    double factor = !strcmp(op, "allreduce") ? 2.0 : 1.0;
    if (strcmp(op, "broadcast")) factor *= (ranks - 1.0) / ranks;
    if (rank == 0) {
        printf("openmpi,%s%s,%d,%zu,%.2f,%.4f,%.4f\n", op, bad ? "_WRONG" : "", ranks, bytes,
               time * 1e6, rate, rate * factor);
        fflush(stdout);
    }
    free(t.in);
    free(t.out);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3) {
        if (rank == 0)
            fprintf(stderr, "usage: %s allreduce|allgather|reducescatter|broadcast|alltoall "
                            "bytes[,bytes…] [seconds per size]\n", argv[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    double budget = argc > 3 ? atof(argv[3]) : 2.0;
    for (char *size = strtok(argv[2], ","); size; size = strtok(NULL, ","))
        measure(argv[1], strtoull(size, NULL, 10), budget);
    MPI_Finalize();
    return 0;
}
