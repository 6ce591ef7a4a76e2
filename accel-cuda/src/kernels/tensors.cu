// What is computed with the values of tensors, and how their elements are put in other places.
//
// This text follows that of kernels.cu and keeps to the same part of both languages. Where threads of a
// block work together, a C compiler is given SHARED and BARRIER by whoever runs the text.

#ifdef __CUDACC__
#define SHARED __shared__
#define BARRIER() __syncthreads()
#endif

#define THREADS 256

// Arithmetic in the type W; what is shorter is rounded once.

#define ARITHMETIC_OPS(T, exp_of, ln_of, fma_of) \
    INLINE T negate_##T(T a) { return -a; } \
    INLINE T relu_##T(T a) { return a <= (T)0 ? (T)0 : a; } \
    INLINE T exp_##T(T a) { return exp_of(a); } \
    INLINE T ln_##T(T a) { return ln_of(a); } \
    INLINE T add_##T(T a, T b) { return a + b; } \
    INLINE T subtract_##T(T a, T b) { return a - b; } \
    INLINE T multiply_##T(T a, T b) { return a * b; } \
    INLINE T divide_##T(T a, T b) { return a / b; } \
    INLINE T add_product_##T(T a, T b, T to) { return fma_of(a, b, to); }
ARITHMETIC_OPS(f32, expf, logf, fmaf) ARITHMETIC_OPS(f64, exp, log, fma)

// values[i] = op(values[i]). As long as they are aligned, 16 bytes move at a time.
#define POINTWISE(op, T, W) \
    KERNEL mw_pointwise_##op##_##T(T *values, u64 count) { \
        const u64 lanes = 16 / sizeof(T); \
        u64 packed = (u64)values % 16 == 0 ? count / lanes : 0; \
        for (u64 i = FIRST; i < packed; i += STRIDE) { \
            union { uint4 pack; T lane[16 / sizeof(T)]; } a; \
            a.pack = ((const uint4 *)values)[i]; \
            UNROLL \
            for (u32 j = 0; j < 16 / sizeof(T); ++j) a.lane[j] = narrow_##T(op##_##W(widen_##T(a.lane[j]))); \
            ((uint4 *)values)[i] = a.pack; \
        } \
        for (u64 i = packed * lanes + FIRST; i < count; i += STRIDE) \
            values[i] = narrow_##T(op##_##W(widen_##T(values[i]))); \
    }
#define PAIRWISE(op, T, W) IN_PLACE(mw_pairwise_##op##_##T, op, T, W)
#define ELEMENTWISE(T, W) \
    POINTWISE(negate, T, W) POINTWISE(relu, T, W) POINTWISE(exp, T, W) POINTWISE(ln, T, W) \
    PAIRWISE(add, T, W) PAIRWISE(subtract, T, W) PAIRWISE(multiply, T, W) PAIRWISE(divide, T, W)
ELEMENTWISE(f16, f32) ELEMENTWISE(bf16, f32) ELEMENTWISE(f32, f32) ELEMENTWISE(f64, f64)

#define AXES 16

// Axes of so many elements each, the last of which changes fastest, and how far apart neighbours are; the
// first that is read, after which others may lie before it, as numbers wrap.
struct axes {
    u32 count;
    u64 first;
    u64 size[AXES], from[AXES], into[AXES];
};

// The index along each axis of element i, in numbers N that hold it: division by shorter ones is faster.
#define WALK(N) { \
        N rest = (N)i; \
        for (u32 axis = axes.count; --axis > 0;) { \
            N size = (N)axes.size[axis], left = rest / size; \
            u64 index = rest - left * size; \
            rest = left; \
            at += index * axes.from[axis]; \
            to += index * axes.into[axis]; \
        } \
        at += rest * axes.from[0]; \
        to += rest * axes.into[0]; \
    }

// into[to] = from[at] for all indices along at least one axis, of which there are count.
#define PLACE(bytes, T) \
    KERNEL mw_place_##bytes(T *into, const T *from, struct axes axes, u64 count) { \
        for (u64 i = FIRST; i < count; i += STRIDE) { \
            u64 at = axes.first, to = 0; \
            if (count >> 32) WALK(u64) else WALK(u32) \
            into[to] = from[at]; \
        } \
    }
PLACE(1, u8) PLACE(2, u16) PLACE(4, u32) PLACE(8, u64) PLACE(16, uint4)

// The same, where neighbours that are read lie along the last axis but one, and neighbours that are written
// along the last: a block transposes SQUARE by SQUARE elements of these axes at a time, so that it reads and writes
// neighbours. One column more keeps its threads apart in the banks of shared memory.
#define SQUARE 32

#define TRANSPOSE(bytes, T) \
    KERNEL mw_transpose_##bytes(T *into, const T *from, struct axes axes, u32 squares) { \
        SHARED T square[SQUARE][SQUARE + 1]; \
        const u32 last = axes.count - 1, x = threadIdx.x % SQUARE, y = threadIdx.x / SQUARE; \
        const u64 rows = axes.size[last], columns = axes.size[last - 1]; \
        const u32 down = (u32)((rows + SQUARE - 1) / SQUARE), across = (u32)((columns + SQUARE - 1) / SQUARE); \
        for (u32 i = blockIdx.x; i < squares; i += gridDim.x) { \
            u32 rest = i / across; \
            const u64 start = (u64)(i % across) * SQUARE, top = (u64)(rest % down) * SQUARE; \
            u64 at = axes.first, to = 0; \
            rest /= down; \
            for (u32 axis = last - 1; axis-- > 0;) { \
                const u32 size = (u32)axes.size[axis], index = rest % size; \
                rest /= size; \
                at += index * axes.from[axis]; \
                to += index * axes.into[axis]; \
            } \
            at += (top + y) * axes.from[last] + (start + x) * axes.from[last - 1]; \
            to += (top + x) * axes.into[last] + (start + y) * axes.into[last - 1]; \
            UNROLL \
            for (u32 k = 0; k < SQUARE; k += THREADS / SQUARE) \
                if (top + y + k < rows && start + x < columns) square[y + k][x] = from[at + k * axes.from[last]]; \
            BARRIER(); \
            UNROLL \
            for (u32 k = 0; k < SQUARE; k += THREADS / SQUARE) \
                if (top + x < rows && start + y + k < columns) into[to + k * axes.into[last - 1]] = square[x][y + k]; \
            BARRIER(); \
        } \
    }
TRANSPOSE(1, u8) TRANSPOSE(2, u16) TRANSPOSE(4, u32) TRANSPOSE(8, u64) TRANSPOSE(16, uint4)

// A block of sizes [outer, len, inner], whose middle axis is cut into chunks of per elements, the last of
// which may have less: count results. So many lanes share each; a power of two, as the threads are.
struct along {
    u64 len, inner, chunks, per, count;
    u32 lanes, wide;
};

#define WIDE_SOURCE 1
#define WIDE_RESULT 2

// Elements that a thread has on their way to it at the same time.
#define BATCH 8
#define SOURCE(T, W, place) (s.wide & WIDE_SOURCE ? ((const W *)from)[place] : widen_##T(((const T *)from)[place]))

// into[outer][chunk][inner] = op of from[outer][of the chunk][inner], in the type W, to which sources and
// results belong that are wide. Neighbouring threads have neighbouring results.
#define ALONG(op, name, T, W) \
    KERNEL mw_along_##op##_##name(void *into, const void *from, struct along s) { \
        SHARED W partial[THREADS]; \
        const u32 columns = blockDim.x / s.lanes; \
        const u32 own = threadIdx.x, lane = own / columns; \
        for (u64 first = (u64)blockIdx.x * columns; first < s.count; first += (u64)gridDim.x * columns) { \
            u64 result = first + own % columns, terms = 0; \
            if (result < s.count) { \
                u64 row = result / s.inner, start = row % s.chunks * s.per; \
                u64 at = (row / s.chunks * s.len + start) * s.inner + result % s.inner; \
                terms = s.len - start < s.per ? s.len - start : s.per; \
                const u64 apart = (u64)s.lanes * s.inner, ahead = (u64)s.lanes * (BATCH - 1); \
                u64 term = lane, place = at + lane * s.inner; \
                W total = 0; \
                if (term < terms) total = SOURCE(T, W, place); \
                for (term += s.lanes, place += apart; term + ahead < terms; term += ahead + s.lanes) { \
                    W values[BATCH]; \
                    UNROLL \
                    for (u32 k = 0; k < BATCH; ++k, place += apart) values[k] = SOURCE(T, W, place); \
                    UNROLL \
                    for (u32 k = 0; k < BATCH; ++k) total = op##_##W(total, values[k]); \
                } \
                for (; term < terms; term += s.lanes, place += apart) total = op##_##W(total, SOURCE(T, W, place)); \
                partial[own] = total; \
            } \
            for (u32 half = s.lanes / 2; half > 0; half /= 2) { \
                BARRIER(); \
                if (lane < half && lane + half < terms) \
                    partial[own] = op##_##W(partial[own], partial[own + half * columns]); \
            } \
            if (lane == 0 && terms > 0) { \
                if (s.wide & WIDE_RESULT) ((W *)into)[result] = partial[own]; \
                else ((T *)into)[result] = narrow_##T(partial[own]); \
            } \
            BARRIER(); \
        } \
    }

#define ALONG_BITS(name, T) ALONG(and, name, T, T) ALONG(or, name, T, T) ALONG(xor, name, T, T)
#define ALONG_EXTREMES(name, T, W) ALONG(min, name, T, W) ALONG(max, name, T, W)
#define ALONG_NUMBERS(name, T, W) ALONG(sum, name, T, W) ALONG(product, name, T, W) ALONG_EXTREMES(name, T, W)
#define ALONG_INTEGERS(T) ALONG_NUMBERS(T, T, T) ALONG_BITS(T, T)

ALONG_EXTREMES(bool, boolean, boolean) ALONG_BITS(bool, boolean)
ALONG_INTEGERS(i8) ALONG_INTEGERS(i16) ALONG_INTEGERS(i32) ALONG_INTEGERS(i64)
ALONG_INTEGERS(u8) ALONG_INTEGERS(u16) ALONG_INTEGERS(u32) ALONG_INTEGERS(u64)
ALONG_NUMBERS(f16, f16, f32) ALONG_NUMBERS(bf16, bf16, f32)
ALONG_NUMBERS(f32, f32, f32) ALONG_NUMBERS(f64, f64, f64)

// Matrices that lie row after row, one behind the other.
struct product {
    u64 depth, rows, inner, columns;
};

// A block of threads makes TILE by TILE elements at a time, each thread EACH by EACH of them that are SIDE
// apart, from STEP columns of the left tile and as many rows of the right one.
#define TILE 64
#define STEP 16
#define SIDE 16
#define EACH 4

#define PRODUCT(T, W) \
    KERNEL mw_product_##T(T *into, const T *left, const T *right, struct product s) { \
        SHARED W a[STEP][TILE + 1], b[STEP][TILE + 1]; \
        const u32 own = threadIdx.x, x = own % SIDE, y = own / SIDE; \
        const u64 down = (s.rows + TILE - 1) / TILE, across = (s.columns + TILE - 1) / TILE; \
        for (u64 tile = blockIdx.x; tile < s.depth * down * across; tile += gridDim.x) { \
            const u64 place = tile / (down * across); \
            const u64 top = tile / across % down * TILE, start = tile % across * TILE; \
            W sum[EACH][EACH]; \
            UNROLL \
            for (u32 i = 0; i < EACH * EACH; ++i) sum[i / EACH][i % EACH] = 0; \
            for (u64 step = 0; step < s.inner; step += STEP) { \
                UNROLL \
                for (u32 at = own; at < TILE * STEP; at += THREADS) { \
                    u64 row = top + at / STEP, k = step + at % STEP; \
                    W value = 0; \
                    if (row < s.rows && k < s.inner) value = widen_##T(left[(place * s.rows + row) * s.inner + k]); \
                    a[at % STEP][at / STEP] = value; \
                    u64 column = start + at % TILE; \
                    k = step + at / TILE; \
                    value = 0; \
                    if (column < s.columns && k < s.inner) \
                        value = widen_##T(right[(place * s.inner + k) * s.columns + column]); \
                    b[at / TILE][at % TILE] = value; \
                } \
                BARRIER(); \
                UNROLL \
                for (u32 k = 0; k < STEP; ++k) { \
                    UNROLL \
                    for (u32 i = 0; i < EACH * EACH; ++i) { \
                        W left_one = a[k][y + i / EACH * SIDE], right_one = b[k][x + i % EACH * SIDE]; \
                        sum[i / EACH][i % EACH] = add_product_##W(left_one, right_one, sum[i / EACH][i % EACH]); \
                    } \
                } \
                BARRIER(); \
            } \
            UNROLL \
            for (u32 i = 0; i < EACH * EACH; ++i) { \
                u64 row = top + y + i / EACH * SIDE, column = start + x + i % EACH * SIDE; \
                if (row < s.rows && column < s.columns) \
                    into[(place * s.rows + row) * s.columns + column] = narrow_##T(sum[i / EACH][i % EACH]); \
            } \
        } \
    }
PRODUCT(f16, f32) PRODUCT(bf16, f32) PRODUCT(f32, f32) PRODUCT(f64, f64)
