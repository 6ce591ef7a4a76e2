// The kernels: what meshwork_accel means by each op of each element type, to the last bit.
//
// NVRTC compiles this text for a GPU, and a C compiler the same text for tests, so it keeps to what both
// languages have. 16-bit floats are numbers of 16 bits here, computed with as f32 and rounded to the
// nearest, ties to even; no header is needed for them.

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void
#define INLINE static __device__ __forceinline__
#else
#define KERNEL void
#define INLINE static inline
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;
typedef u16 f16;
typedef u16 bf16;
typedef u8 boolean;

// Bits of floats.

INLINE u32 bits_f32(f32 value) {
    union { f32 value; u32 bits; } both;
    both.value = value;
    return both.bits;
}

INLINE f32 from_bits_f32(u32 bits) {
    union { f32 value; u32 bits; } both;
    both.bits = bits;
    return both.value;
}

INLINE u64 bits_f64(f64 value) {
    union { f64 value; u64 bits; } both;
    both.value = value;
    return both.bits;
}

INLINE f64 from_bits_f64(u64 bits) {
    union { f64 value; u64 bits; } both;
    both.bits = bits;
    return both.value;
}

INLINE int is_nan_f32(f32 value) { return (bits_f32(value) & 0x7FFFFFFFu) > 0x7F800000u; }
INLINE int is_nan_f64(f64 value) { return (bits_f64(value) & 0x7FFFFFFFFFFFFFFFull) > 0x7FF0000000000000ull; }

// widen: an element as what is computed with. narrow: back, with one NaN for all.

#define PLAIN(T) \
    INLINE T widen_##T(T value) { return value; } \
    INLINE T narrow_##T(T wide) { return wide; }
PLAIN(boolean)
PLAIN(i8) PLAIN(i16) PLAIN(i32) PLAIN(i64)
PLAIN(u8) PLAIN(u16) PLAIN(u32) PLAIN(u64)

INLINE f32 widen_f32(f32 value) { return value; }
INLINE f64 widen_f64(f64 value) { return value; }
INLINE f32 narrow_f32(f32 wide) { return is_nan_f32(wide) ? from_bits_f32(0x7FC00000u) : wide; }
INLINE f64 narrow_f64(f64 wide) { return is_nan_f64(wide) ? from_bits_f64(0x7FF8000000000000ull) : wide; }

INLINE f32 widen_bf16(bf16 value) { return from_bits_f32((u32)value << 16); }

// Half a unit of the last place that stays, less one bit where that place is even.
INLINE bf16 narrow_bf16(f32 wide) {
    u32 bits = bits_f32(wide);
    u32 rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    return (bf16)(is_nan_f32(wide) ? 0x7FC0u : rounded);
}

// A GPU has instructions for both; NaN gets bits of its own by them.
#ifdef __CUDACC__
INLINE f32 widen_f16(f16 value) {
    f32 wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value));
    return wide;
}

INLINE f16 narrow_f16(f32 wide) {
    f16 narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(wide));
    return is_nan_f32(wide) ? (f16)0x7E00u : narrow;
}
#else
INLINE f32 widen_f16(f16 value) {
    u32 sign = (u32)(value & 0x8000u) << 16;
    u32 rest = value & 0x7FFFu;
    // Subnormals are whole multiples of 2^-24.
    u32 subnormal = bits_f32((f32)rest * from_bits_f32(0x33800000u));
    u32 normal = (rest << 13) + ((127u - 15u) << 23);
    u32 special = (rest << 13) + (2u * (127u - 15u) << 23);
    u32 magnitude = rest < 0x0400u ? subnormal : rest < 0x7C00u ? normal : special;
    return from_bits_f32(sign | magnitude);
}

INLINE f16 narrow_f16(f32 wide) {
    u32 bits = bits_f32(wide);
    u32 sign = bits >> 16 & 0x8000u;
    u32 rest = bits & 0x7FFFFFFFu;
    // The last place of a number just above 0.5 is 2^-24, the smallest subnormal.
    u32 subnormal = bits_f32(from_bits_f32(rest) + 0.5f) - 0x3F000000u;
    // Rounding may carry into the exponent, up to infinity.
    u32 normal = (rest - ((127u - 15u) << 23) + 0x0FFFu + (rest >> 13 & 1u)) >> 13;
    u32 finite = rest < 0x38800000u ? subnormal : normal;
    u32 magnitude = rest < 0x47800000u ? finite : 0x7C00u;
    return (f16)(rest > 0x7F800000u ? 0x7E00u : (sign | magnitude));
}
#endif

// The ops. Integers wrap, so they are added and multiplied as unsigned numbers U.

#define INTEGER_OPS(T, U) \
    INLINE T sum_##T(T a, T b) { return (T)((U)a + (U)b); } \
    INLINE T product_##T(T a, T b) { return (T)((U)a * (U)b); } \
    INLINE T min_##T(T a, T b) { return a < b ? a : b; } \
    INLINE T max_##T(T a, T b) { return a > b ? a : b; } \
    INLINE T and_##T(T a, T b) { return (T)(a & b); } \
    INLINE T or_##T(T a, T b) { return (T)(a | b); } \
    INLINE T xor_##T(T a, T b) { return (T)(a ^ b); }
INTEGER_OPS(i8, u32) INTEGER_OPS(i16, u32) INTEGER_OPS(i32, u32) INTEGER_OPS(i64, u64)
INTEGER_OPS(u8, u32) INTEGER_OPS(u16, u32) INTEGER_OPS(u32, u32) INTEGER_OPS(u64, u64)

INLINE boolean min_boolean(boolean a, boolean b) { return a & b; }
INLINE boolean max_boolean(boolean a, boolean b) { return a | b; }
INLINE boolean and_boolean(boolean a, boolean b) { return a & b; }
INLINE boolean or_boolean(boolean a, boolean b) { return a | b; }
INLINE boolean xor_boolean(boolean a, boolean b) { return a ^ b; }

// Equal floats have equal bits but for the sign of a zero, where -0 is the smaller. A NaN stays.
#define FLOAT_OPS(T) \
    INLINE T sum_##T(T a, T b) { return a + b; } \
    INLINE T product_##T(T a, T b) { return a * b; } \
    INLINE T min_##T(T a, T b) { \
        if (a == b) return from_bits_##T(bits_##T(a) | bits_##T(b)); \
        return a < b || is_nan_##T(a) ? a : b; \
    } \
    INLINE T max_##T(T a, T b) { \
        if (a == b) return from_bits_##T(bits_##T(a) & bits_##T(b)); \
        return a > b || is_nan_##T(a) ? a : b; \
    }
FLOAT_OPS(f32) FLOAT_OPS(f64)

// The kernels. Each thread begins at its own place and goes on by the number of all threads.

#define FIRST ((u64)blockIdx.x * blockDim.x + threadIdx.x)
#define STRIDE ((u64)gridDim.x * blockDim.x)

// into[i] = op(into[i], from[i]). As long as both are aligned, 16 bytes move at a time.
#define IN_PLACE(kernel, op, T, W) \
    KERNEL kernel(T *into, const T *from, u64 count) { \
        const u64 lanes = 16 / sizeof(T); \
        u64 packed = ((u64)into | (u64)from) % 16 == 0 ? count / lanes : 0; \
        for (u64 i = FIRST; i < packed; i += STRIDE) { \
            union { uint4 pack; T lane[16 / sizeof(T)]; } a, b; \
            a.pack = ((const uint4 *)into)[i]; \
            b.pack = ((const uint4 *)from)[i]; \
            UNROLL \
            for (u32 j = 0; j < 16 / sizeof(T); ++j) \
                a.lane[j] = narrow_##T(op##_##W(widen_##T(a.lane[j]), widen_##T(b.lane[j]))); \
            ((uint4 *)into)[i] = a.pack; \
        } \
        for (u64 i = packed * lanes + FIRST; i < count; i += STRIDE) \
            into[i] = narrow_##T(op##_##W(widen_##T(into[i]), widen_##T(from[i]))); \
    }
#define REDUCE(op, name, T, W) IN_PLACE(mw_reduce_##op##_##name, op, T, W)

#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
typedef struct { u32 x, y, z, w; } uint4;
#endif

#define PLACES 32
#define LEVELS 6

struct places {
    u32 count;
    u64 address[PLACES];
};

// targets[_][i] = op of all sources[_][i], as a balanced tree over the places of the sources, like
// the digits of a binary counter: partial[level] is the op of 2^level sources that waits for its
// other half. Rounded once, at the end, by what makes an element of the total.
#define FOLD_TO(kernel, op, T, W, narrowed) \
    KERNEL kernel(struct places targets, struct places sources, u64 count) { \
        for (u64 i = FIRST; i < count; i += STRIDE) { \
            W partial[LEVELS]; \
            for (u32 place = 0; place < sources.count; ++place) { \
                W value = widen_##T(((const T *)sources.address[place])[i]); \
                int waits = 0; \
                UNROLL \
                for (u32 level = 0; level < LEVELS; ++level) { \
                    if (!waits && (place >> level & 1u)) { \
                        value = op##_##W(partial[level], value); \
                    } else if (!waits) { \
                        partial[level] = value; \
                        waits = 1; \
                    } \
                } \
            } \
            W total = partial[0]; \
            int begun = 0; \
            UNROLL \
            for (u32 level = 0; level < LEVELS; ++level) { \
                if (sources.count >> level & 1u) { \
                    total = begun ? op##_##W(partial[level], total) : partial[level]; \
                    begun = 1; \
                } \
            } \
            T result = narrowed; \
            for (u32 place = 0; place < targets.count; ++place) \
                ((T *)targets.address[place])[i] = result; \
        } \
    }

#define FOLD(op, name, T, W) FOLD_TO(mw_fold_##op##_##name, op, T, W, narrow_##T(total))
// A mean of all that there are is divided before it is rounded; integers towards zero, in the type D.
#define MEAN(T, W) FOLD_TO(mw_fold_mean_##T, sum, T, W, narrow_##T(total / (W)sources.count))
#define MEAN_INTEGER(T, D) FOLD_TO(mw_fold_mean_##T, sum, T, T, (T)((D)total / (D)sources.count))

#define BOTH(op, name, T, W) REDUCE(op, name, T, W) FOLD(op, name, T, W)

#define BITWISE(name, T) BOTH(and, name, T, T) BOTH(or, name, T, T) BOTH(xor, name, T, T)
#define EXTREMES(name, T, W) BOTH(min, name, T, W) BOTH(max, name, T, W)
#define ARITHMETIC(name, T, W) BOTH(sum, name, T, W) BOTH(product, name, T, W) EXTREMES(name, T, W)
#define INTEGER(T) ARITHMETIC(T, T, T) BITWISE(T, T)

EXTREMES(bool, boolean, boolean) BITWISE(bool, boolean)
INTEGER(i8) INTEGER(i16) INTEGER(i32) INTEGER(i64)
INTEGER(u8) INTEGER(u16) INTEGER(u32) INTEGER(u64)
ARITHMETIC(f16, f16, f32) ARITHMETIC(bf16, bf16, f32)
ARITHMETIC(f32, f32, f32) ARITHMETIC(f64, f64, f64)
MEAN_INTEGER(i8, i64) MEAN_INTEGER(i16, i64) MEAN_INTEGER(i32, i64) MEAN_INTEGER(i64, i64)
MEAN_INTEGER(u8, u64) MEAN_INTEGER(u16, u64) MEAN_INTEGER(u32, u64) MEAN_INTEGER(u64, u64)
MEAN(f16, f32) MEAN(bf16, f32) MEAN(f32, f32) MEAN(f64, f64)

// values[i] /= by, in the type W; integers towards zero.
#define DIVIDE(T, W) \
    KERNEL mw_divide_##T(T *values, u32 by, u64 count) { \
        for (u64 i = FIRST; i < count; i += STRIDE) \
            values[i] = narrow_##T(widen_##T(values[i]) / (W)by); \
    }
#define DIVIDE_INTEGER(T, W) \
    KERNEL mw_divide_##T(T *values, u32 by, u64 count) { \
        for (u64 i = FIRST; i < count; i += STRIDE) values[i] = (T)((W)values[i] / (W)by); \
    }
DIVIDE_INTEGER(i8, i64) DIVIDE_INTEGER(i16, i64) DIVIDE_INTEGER(i32, i64) DIVIDE_INTEGER(i64, i64)
DIVIDE_INTEGER(u8, u64) DIVIDE_INTEGER(u16, u64) DIVIDE_INTEGER(u32, u64) DIVIDE_INTEGER(u64, u64)
DIVIDE(f16, f32) DIVIDE(bf16, f32) DIVIDE(f32, f32) DIVIDE(f64, f64)

// values[i] *= by, in the type W.
#define SCALE(T, W) \
    KERNEL mw_scale_##T(T *values, f32 by, u64 count) { \
        for (u64 i = FIRST; i < count; i += STRIDE) \
            values[i] = narrow_##T(widen_##T(values[i]) * (W)by); \
    }
SCALE(f16, f32) SCALE(bf16, f32) SCALE(f32, f32) SCALE(f64, f64)

// values[i] = the lowest bytes of bits.
#define FILL(bytes, T) \
    KERNEL mw_fill_##bytes(T *values, u64 bits, u64 count) { \
        for (u64 i = FIRST; i < count; i += STRIDE) values[i] = (T)bits; \
    }
FILL(1, u8) FILL(2, u16) FILL(4, u32) FILL(8, u64)
