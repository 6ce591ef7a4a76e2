// Elements chosen by indices and conditions, as those of another type, and scanned.
//
// This text follows that of tensors.cu and keeps to the same part of both languages.

// A number that holds any element as it is: a whole one in as many bits with a sign or without, or any
// other.
struct number { u32 kind; u64 whole; f64 real; };
#define SIGNED 0
#define UNSIGNED 1
#define REAL 2

// The types of elements, by the numbers that meshwork_accel gives them.
#define IS_U8 1
#define IS_U32 2
#define IS_U64 3
#define IS_I32 4
#define IS_I64 5
#define IS_F32 6
#define IS_F64 7
#define IS_BOOL 8
#define IS_I8 9
#define IS_I16 10
#define IS_U16 11
#define IS_F16 12
#define IS_BF16 13

INLINE struct number whole_number(u32 kind, u64 whole) {
    struct number made;
    made.kind = kind;
    made.whole = whole;
    made.real = 0;
    return made;
}

INLINE struct number real_number(f64 real) {
    struct number made = whole_number(REAL, 0);
    made.real = real;
    return made;
}

INLINE struct number number_at(const void *from, u64 i, u32 type) {
    switch (type) {
    case IS_U8: return whole_number(UNSIGNED, ((const u8 *)from)[i]);
    case IS_U16: return whole_number(UNSIGNED, ((const u16 *)from)[i]);
    case IS_U32: return whole_number(UNSIGNED, ((const u32 *)from)[i]);
    case IS_U64: return whole_number(UNSIGNED, ((const u64 *)from)[i]);
    case IS_BOOL: return whole_number(UNSIGNED, ((const boolean *)from)[i]);
    case IS_I8: return whole_number(SIGNED, (u64)(i64)((const i8 *)from)[i]);
    case IS_I16: return whole_number(SIGNED, (u64)(i64)((const i16 *)from)[i]);
    case IS_I32: return whole_number(SIGNED, (u64)(i64)((const i32 *)from)[i]);
    case IS_I64: return whole_number(SIGNED, (u64)((const i64 *)from)[i]);
    case IS_F32: return real_number((f64)((const f32 *)from)[i]);
    case IS_F16: return real_number((f64)widen_f16(((const f16 *)from)[i]));
    case IS_BF16: return real_number((f64)widen_bf16(((const bf16 *)from)[i]));
    default: return real_number(((const f64 *)from)[i]);
    }
}

// Whole numbers of so many bits: towards zero, up to the ends, and 0 for NaN.
INLINE u64 unsigned_of(struct number n, u64 most) {
    if (n.kind == REAL) return n.real >= (f64)most ? most : n.real > 0 ? (u64)n.real : 0;
    if (n.kind == SIGNED && (i64)n.whole < 0) return 0;
    return n.whole < most ? n.whole : most;
}

INLINE i64 signed_of(struct number n, i64 most) {
    const i64 least = -most - 1;
    if (n.kind == REAL) {
        if (is_nan_f64(n.real)) return 0;
        return n.real >= (f64)most ? most : n.real <= (f64)least ? least : (i64)n.real;
    }
    if (n.kind == UNSIGNED) return n.whole < (u64)most ? (i64)n.whole : most;
    i64 whole = (i64)n.whole;
    return whole < least ? least : whole > most ? most : whole;
}

INLINE f64 real_of(struct number n) {
    return n.kind == REAL ? n.real : n.kind == SIGNED ? (f64)(i64)n.whole : (f64)n.whole;
}

// The same, but of whole numbers that need not be floats of 64 bits the lowest 11 bits are dropped, and the
// last one that stays is set if any of these was: a shorter float is rounded as from the number itself.
INLINE f64 odd_of(struct number n) {
    if (n.kind == REAL) return n.real;
    int below = n.kind == SIGNED && (i64)n.whole < 0;
    u64 size = below ? 0ull - n.whole : n.whole;
    if (size >> 53) size = (size & ~0x7FFull) | (size & 0x7FFull ? 0x800ull : 0ull);
    return below ? -(f64)size : (f64)size;
}

// What is between two floats of 32 bits becomes the one whose last bit is set, from which any shorter
// one is rounded as from the number itself.
INLINE f32 to_odd(f64 real) {
    f32 near = (f32)real;
    u32 bits = bits_f32(near);
    if (is_nan_f64(real) || (f64)near == real) return near;
    f64 size = real < 0 ? -real : real, other = near < 0 ? -(f64)near : (f64)near;
    return from_bits_f32((other > size ? bits - 1 : bits) | 1u);
}

INLINE f32 f32_of(struct number n) {
    return n.kind == REAL ? (f32)n.real : n.kind == SIGNED ? (f32)(i64)n.whole : (f32)n.whole;
}

INLINE boolean boolean_of(struct number n) { return n.kind == REAL ? n.real != 0 : n.whole != 0; }

// into[i] = from[i], as an element of another type. Which types these are is the same for all threads.
KERNEL mw_convert(void *into, const void *from, u32 result, u32 source, u64 count) {
    for (u64 i = FIRST; i < count; i += STRIDE) {
        struct number n = number_at(from, i, source);
        switch (result) {
        case IS_U8: ((u8 *)into)[i] = (u8)unsigned_of(n, 0xFFu); break;
        case IS_U16: ((u16 *)into)[i] = (u16)unsigned_of(n, 0xFFFFu); break;
        case IS_U32: ((u32 *)into)[i] = (u32)unsigned_of(n, 0xFFFFFFFFu); break;
        case IS_U64: ((u64 *)into)[i] = unsigned_of(n, ~0ull); break;
        case IS_I8: ((i8 *)into)[i] = (i8)signed_of(n, 0x7F); break;
        case IS_I16: ((i16 *)into)[i] = (i16)signed_of(n, 0x7FFF); break;
        case IS_I32: ((i32 *)into)[i] = (i32)signed_of(n, 0x7FFFFFFF); break;
        case IS_I64: ((i64 *)into)[i] = signed_of(n, 0x7FFFFFFFFFFFFFFFll); break;
        case IS_BOOL: ((boolean *)into)[i] = boolean_of(n); break;
        case IS_F16: ((f16 *)into)[i] = narrow_f16(to_odd(odd_of(n))); break;
        case IS_BF16: ((bf16 *)into)[i] = narrow_bf16(to_odd(odd_of(n))); break;
        case IS_F32: ((f32 *)into)[i] = narrow_f32(f32_of(n)); break;
        default: ((f64 *)into)[i] = narrow_f64(real_of(n)); break;
        }
    }
}

// A block of sizes [outer, len, inner], of whose middle axis so many elements are chosen.
struct take {
    u64 len, inner, chosen;
};

// into[outer][choice][inner] = from[outer][indices[choice]][inner], and 0 for what is not on the axis.
#define TAKE(bytes, T) \
    KERNEL mw_take_##bytes(T *into, const T *from, const i64 *indices, struct take s, u64 count) { \
        for (u64 i = FIRST; i < count; i += STRIDE) { \
            u64 row = i / s.inner, index = (u64)indices[row % s.chosen]; \
            into[i] = index < s.len ? from[(row / s.chosen * s.len + index) * s.inner + i % s.inner] : 0; \
        } \
    }

// into[i][class] = one where indices[i] is the class, of which there are so many from the first on; else 0.
#define ONE_HOT(bytes, T) \
    KERNEL mw_one_hot_##bytes(T *into, const i64 *indices, u64 first, u64 classes, u64 one, u64 count) { \
        for (u64 i = FIRST; i < count; i += STRIDE) \
            into[i] = (u64)indices[i / classes] == first + i % classes ? (T)one : 0; \
    }

// into[i] = yes[i] where it holds, else no[i].
#define SELECT(bytes, T) \
    KERNEL mw_select_##bytes(T *into, const boolean *holds, const T *yes, const T *no, u64 count) { \
        for (u64 i = FIRST; i < count; i += STRIDE) into[i] = holds[i] ? yes[i] : no[i]; \
    }

#define CHOICES(bytes, T) TAKE(bytes, T) ONE_HOT(bytes, T) SELECT(bytes, T)
CHOICES(1, u8) CHOICES(2, u16) CHOICES(4, u32) CHOICES(8, u64)

// A block of sizes [outer, len, inner], with as many lines along its middle axis as the others have
// elements. So many lanes share each, a power of two, and have per elements of it, the last ones less.
struct scan {
    u64 len, inner, lines, per;
    u32 lanes;
};

// into[term] = op of from[0] to from[term] along each line, in the type W. Each lane combines its own
// elements, and then begins with what those before it have. Neighbouring threads have neighbouring lines.
#define SCAN(op, name, T, W) \
    KERNEL mw_scan_##op##_##name(T *into, const T *from, struct scan s) { \
        SHARED W partial[THREADS]; \
        const u32 columns = blockDim.x / s.lanes; \
        const u32 own = threadIdx.x, lane = own / columns; \
        const u64 start = lane * s.per; \
        for (u64 first = (u64)blockIdx.x * columns; first < s.lines; first += (u64)gridDim.x * columns) { \
            u64 line = first + own % columns; \
            u64 terms = line < s.lines && start < s.len ? s.len - start : 0; \
            terms = terms < s.per ? terms : s.per; \
            u64 at = (line / s.inner * s.len + start) * s.inner + line % s.inner; \
            W total = 0; \
            for (u64 term = 0; term < terms; ++term) { \
                W value = widen_##T(from[at + term * s.inner]); \
                total = term == 0 ? value : op##_##W(total, value); \
            } \
            partial[own] = total; \
            BARRIER(); \
            for (u32 before = 0; before < lane && terms > 0; ++before) { \
                W value = partial[own % columns + before * columns]; \
                total = before == 0 ? value : op##_##W(total, value); \
            } \
            for (u64 term = 0; term < terms; ++term) { \
                u64 place = at + term * s.inner; \
                W value = widen_##T(from[place]); \
                total = term == 0 && lane == 0 ? value : op##_##W(total, value); \
                into[place] = narrow_##T(total); \
            } \
            BARRIER(); \
        } \
    }

#define SCAN_BITS(name, T) SCAN(and, name, T, T) SCAN(or, name, T, T) SCAN(xor, name, T, T)
#define SCAN_EXTREMES(name, T, W) SCAN(min, name, T, W) SCAN(max, name, T, W)
#define SCAN_NUMBERS(name, T, W) SCAN(sum, name, T, W) SCAN(product, name, T, W) SCAN_EXTREMES(name, T, W)
#define SCAN_INTEGERS(T) SCAN_NUMBERS(T, T, T) SCAN_BITS(T, T)

SCAN_EXTREMES(bool, boolean, boolean) SCAN_BITS(bool, boolean)
SCAN_INTEGERS(i8) SCAN_INTEGERS(i16) SCAN_INTEGERS(i32) SCAN_INTEGERS(i64)
SCAN_INTEGERS(u8) SCAN_INTEGERS(u16) SCAN_INTEGERS(u32) SCAN_INTEGERS(u64)
SCAN_NUMBERS(f16, f16, f32) SCAN_NUMBERS(bf16, bf16, f32)
SCAN_NUMBERS(f32, f32, f32) SCAN_NUMBERS(f64, f64, f64)

#define NO_NAN(T) INLINE int is_nan_##T(T value) { (void)value; return 0; }
NO_NAN(i8) NO_NAN(i16) NO_NAN(i32) NO_NAN(i64)
NO_NAN(u8) NO_NAN(u16) NO_NAN(u32) NO_NAN(u64)

// Whether a at index i goes before b at index j: it is the extreme of both, or equal and earlier. Any
// number goes before NaN.
#define GOES_BEFORE(op, is, T) \
    INLINE int op##_goes_before_##T(T a, u64 i, T b, u64 j) { \
        return a is b || (a == b && i < j) || (is_nan_##T(b) && !is_nan_##T(a)); \
    }

// into[result] = the index of the first of the smallest or largest elements of a line, of which it has
// axis, or of a chunk of it; of candidates, which are indices, the best. NaN is that only at index 0. Lines,
// chunks and lanes are those of mw_along.
#define ARG(op, T, W) \
    KERNEL mw_arg_##op##_##T(i64 *into, const T *from, const i64 *candidates, u64 axis, struct along s) { \
        SHARED W best[THREADS]; \
        SHARED u64 place[THREADS]; \
        const u32 columns = blockDim.x / s.lanes; \
        const u32 own = threadIdx.x, lane = own / columns; \
        for (u64 first = (u64)blockIdx.x * columns; first < s.count; first += (u64)gridDim.x * columns) { \
            u64 result = first + own % columns, terms = 0; \
            u64 row = result / s.inner, start = row % s.chunks * s.per; \
            u64 line = row / s.chunks * axis * s.inner + result % s.inner; \
            if (result < s.count) { \
                u64 at = (row / s.chunks * s.len + start) * s.inner + result % s.inner; \
                terms = s.len - start < s.per ? s.len - start : s.per; \
                for (u64 term = lane; term < terms; term += s.lanes) { \
                    u64 index = candidates ? (u64)candidates[at + term * s.inner] : start + term; \
                    W value = widen_##T(from[line + index * s.inner]); \
                    if (term == lane || op##_goes_before_##W(value, index, best[own], place[own])) { \
                        best[own] = value; \
                        place[own] = index; \
                    } \
                } \
            } \
            for (u32 half = s.lanes / 2; half > 0; half /= 2) { \
                BARRIER(); \
                u32 other = own + half * columns; \
                if (lane < half && lane + half < terms \
                    && op##_goes_before_##W(best[other], place[other], best[own], place[own])) { \
                    best[own] = best[other]; \
                    place[own] = place[other]; \
                } \
            } \
            if (lane == 0 && terms > 0) into[result] = is_nan_##W(widen_##T(from[line])) ? 0 : (i64)place[own]; \
            BARRIER(); \
        } \
    }

#define COMPARED(W) GOES_BEFORE(min, <, W) GOES_BEFORE(max, >, W)
#define ARGS(T, W) ARG(min, T, W) ARG(max, T, W)
COMPARED(i8) COMPARED(i16) COMPARED(i32) COMPARED(i64)
COMPARED(u8) COMPARED(u16) COMPARED(u32) COMPARED(u64)
COMPARED(f32) COMPARED(f64)
ARGS(i8, i8) ARGS(i16, i16) ARGS(i32, i32) ARGS(i64, i64)
ARGS(u8, u8) ARGS(u16, u16) ARGS(u32, u32) ARGS(u64, u64)
ARGS(f16, f32) ARGS(bf16, f32) ARGS(f32, f32) ARGS(f64, f64)
