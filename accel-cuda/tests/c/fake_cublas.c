/* Products of matrices that lie column after column, by the textbook: no matrix is read by rows here, so a
 * caller whose matrices lie row after row has to say so in the sizes and the order.
 *
 * Buffers are those of fake_cuda.c, whose lazy streams are brought up to date first, as with fake_nccl.c.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "host.h"

enum { OK = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, INTERNAL = 14, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_64F = 1, R_16F = 2, R_16BF = 14, COMPUTE_32F = 68, COMPUTE_64F = 70, WHOLE_SUMS = 16 };

struct handle { void *stream; unsigned mode; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long alive, products;
static int (*synchronize)(void *);

long fake_count(int kind) {
    pthread_mutex_lock(&lock);
    long count = kind == 0 ? alive : products;
    pthread_mutex_unlock(&lock);
    return count;
}

/* How to bring a stream up to date: given by the test, as this library does not know the driver. */
void fake_streams(int (*function)(void *)) { synchronize = function; }

int cublasGetProperty(unsigned which, int *value) { *value = which == 0 ? 13 : which == 1 ? 0 : 2; return OK; }
const char *cublasGetStatusString(unsigned code) { return code == NOT_INITIALIZED ? "not initialized" : "refused"; }

int cublasCreate_v2(struct handle **handle) {
#ifdef TOO_NEW
    *handle = NULL;
    return NOT_INITIALIZED;
#endif
    pthread_mutex_lock(&lock);
    alive++;
    pthread_mutex_unlock(&lock);
    *handle = calloc(1, sizeof **handle);
    return OK;
}
int cublasDestroy_v2(struct handle *handle) {
    pthread_mutex_lock(&lock);
    alive--;
    pthread_mutex_unlock(&lock);
    free(handle);
    return OK;
}
int cublasSetStream_v2(struct handle *handle, void *stream) { handle->stream = stream; return OK; }
int cublasSetMathMode(struct handle *handle, unsigned mode) { handle->mode = mode; return OK; }

static double number(const void *at, unsigned type, long long place) {
    switch (type) {
    case R_16F: return widen_f16(((const f16 *)at)[place]);
    case R_16BF: return widen_bf16(((const bf16 *)at)[place]);
    case R_32F: return ((const f32 *)at)[place];
    default: return ((const f64 *)at)[place];
    }
}

static void put(void *at, unsigned type, long long place, double value) {
    switch (type) {
    case R_16F: ((f16 *)at)[place] = narrow_f16((f32)value); break;
    case R_16BF: ((bf16 *)at)[place] = narrow_bf16((f32)value); break;
    case R_32F: ((f32 *)at)[place] = (f32)value; break;
    default: ((f64 *)at)[place] = value;
    }
}

int cublasGemmStridedBatchedEx(struct handle *handle, unsigned transa, unsigned transb, int m, int n, int k,
                               const void *alpha, const void *a, unsigned atype, int lda, long long astride,
                               const void *b, unsigned btype, int ldb, long long bstride,
                               const void *beta, void *c, unsigned ctype, int ldc, long long cstride,
                               int batch, unsigned compute, int algorithm) {
#ifdef WITHOUT_BF16
    if (atype == R_16BF) return NOT_SUPPORTED;
#endif
    if (!handle->stream || handle->mode != WHOLE_SUMS) return INTERNAL;
    if (transa || transb || m < 1 || n < 1 || k < 1 || batch < 1 || algorithm != -1) return INVALID_VALUE;
    if (lda < m || ldb < k || ldc < m || cstride < (long long)ldc * n) return INVALID_VALUE;
    if (atype != btype || atype != ctype || compute != (atype == R_64F ? COMPUTE_64F : COMPUTE_32F)) return NOT_SUPPORTED;
    double one = compute == COMPUTE_64F ? *(const double *)alpha : *(const float *)alpha;
    double zero = compute == COMPUTE_64F ? *(const double *)beta : *(const float *)beta;
    if (one != 1 || zero != 0) return INVALID_VALUE;
    synchronize(handle->stream);
    for (long long place = 0; place < batch; ++place)
        for (long long i = 0; i < m; ++i)
            for (long long j = 0; j < n; ++j) {
                double sum = 0;
                for (long long l = 0; l < k; ++l)
                    sum += number(a, atype, place * astride + l * lda + i) * number(b, btype, place * bstride + j * ldb + l);
                put(c, ctype, place * cstride + j * ldc + i, sum);
            }
    pthread_mutex_lock(&lock);
    products++;
    pthread_mutex_unlock(&lock);
    return OK;
}
