/* What a CPU needs between two matrix products, one function each: the same steps that vLLM's csrc/cpu/ has.

   Owns nothing: every function reads and writes arrays that its caller owns, and returns.
   Must not know: Python, torch. cpu_kernels.py compiles this file, once for each number type, and hands over pointers.

   All arrays are row-major. A `num` is a float, or with -DBFLOAT16 a bfloat16, which is the upper half of a float.
   Everything is computed in float and rounded once when it is stored. Three loops deep is the most there is: over rows
   (shared out among threads by OpenMP, where the compiler has it), over heads or keys, and over 16 numbers at a time,
   which the compiler turns into whatever vector instructions the processor has. */

#include <stdint.h>
#include <string.h>
#include <math.h>

#define INLINE static inline __attribute__((always_inline))
#define WIDTH 16                   /* numbers in a vec */
#define MAX_HEAD_SIZE 256
#define MAX_QUERIES 64             /* query vectors that one task of attention works on */
#define KEYS 64                    /* keys that it looks at in one go, at most */
#define KEYS_FEW 32                /* and when it has the queries of a single token */
#define CACHE_LINE 64              /* bytes */
#define SMALL_WORK 8192            /* numbers; below this, waking a second thread costs more than it saves */

typedef float vec __attribute__((vector_size(4 * WIDTH), aligned(4)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH), aligned(4)));

/* ---------------------------------------------------------------- numbers */

#ifdef BFLOAT16
typedef uint16_t num;
typedef uint16_t halves __attribute__((vector_size(2 * WIDTH), aligned(2)));
typedef uint32_t words __attribute__((vector_size(4 * WIDTH)));

INLINE float load(num x) { uint32_t bits = (uint32_t)x << 16; float f; memcpy(&f, &bits, 4); return f; }

INLINE num store(float f)  /* to the nearest, ties to even: 0x7fff and the last bit that stays, then cut */
{
    uint32_t bits; memcpy(&bits, &f, 4);
    return (num)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

INLINE vec load_vec(const num *p) { return (vec)(__builtin_convertvector(*(const halves *)p, words) << 16); }

INLINE void store_vec(num *p, vec x)
{
    words bits = (words)x;
    *(halves *)p = __builtin_convertvector((bits + 0x7fff + ((bits >> 16) & 1)) >> 16, halves);
}
#else
typedef float num;
INLINE float load(num x) { return x; }
INLINE num store(float f) { return f; }
INLINE vec load_vec(const num *p) { return *(const vec *)p; }
INLINE void store_vec(num *p, vec x) { *(vec *)p = x; }
#endif

INLINE float sum_vec(vec x)  /* in halves: 16 numbers, 8, 4 */
{
    typedef float eight __attribute__((vector_size(32)));
    typedef float four __attribute__((vector_size(16)));
    union { vec all; eight half[2]; } a = {x};
    union { eight all; four half[2]; } b = {a.half[0] + a.half[1]};
    four c = b.half[0] + b.half[1];
    return (c[0] + c[2]) + (c[1] + c[3]);
}

INLINE vec either(ivec condition, vec yes, vec no) { return (vec)((condition & (ivec)yes) | (~condition & (ivec)no)); }

/* e^x, from e^-87 to e^88: 2^n * 2^r with n whole and |r| <= 1/2, the second by its Taylor series; relative error 2e-7 */
INLINE vec exp_vec(vec x)
{
    vec zero = {0}, y = x * 1.44269504f;
    y = either(y < -125.5f, zero - 125.5f, y);
    y = either(y > 127.0f, zero + 127.0f, y);
    ivec n = __builtin_convertvector(y + either(y < 0, zero - 0.5f, zero + 0.5f), ivec);
    vec r = (y - __builtin_convertvector(n, vec)) * 0.693147181f;
    vec p = r * 1.98412698e-4f + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = (p * r + 0.5f) * r + 1;
    p = p * r + 1;
    return (vec)((ivec)p + (n << 23));
}

/* ---------------------------------------------------------------- norm, RoPE, activation */

/* out = x / rms(x) * weight, for each row. With a residual: first residual += x, and it is the residual that is normed.
   x, residual, out: num[rows][size]; residual may be NULL. */
void rms_norm(num *out, num *residual, const num *x, const num *weight, int64_t rows, int64_t size, float eps)
{
    #pragma omp parallel for if (rows * size > SMALL_WORK)
    for (int64_t row = 0; row < rows; row++) {
        const num *in = x + row * size;
        if (residual) {
            num *sum = residual + row * size;
            for (int64_t i = 0; i < size; i++) sum[i] = store(load(sum[i]) + load(in[i]));
            in = sum;
        }
        float squares = 0;
        for (int64_t i = 0; i < size; i++) squares += load(in[i]) * load(in[i]);
        float factor = 1.0f / sqrtf(squares / size + eps);
        for (int64_t i = 0; i < size; i++)
            out[row * size + i] = store(load(store(load(in[i]) * factor)) * load(weight[i]));
    }
}

/* Turn the heads of each token in place: dimension i with dimension i + size / 2, by the angle of the token's position.
   x: num[tokens][stride], `heads` heads of `size` at the start of each; cos, sin: num[max_positions][size / 2]. */
void rotary_embedding(num *x, int64_t stride, const int64_t *positions, const num *cos, const num *sin,
                      int64_t tokens, int64_t heads, int64_t size)
{
    int64_t half = size / 2;
    #pragma omp parallel for if (tokens * heads * size > SMALL_WORK)
    for (int64_t t = 0; t < tokens; t++) {
        const num *c = cos + positions[t] * half, *s = sin + positions[t] * half;
        for (int64_t h = 0; h < heads; h++) {
            num *first = x + t * stride + h * size, *second = first + half;
            for (int64_t i = 0; i < half; i++) {
                float a = load(first[i]), b = load(second[i]);
                first[i] = store(a * load(c[i]) - b * load(s[i]));
                second[i] = store(b * load(c[i]) + a * load(s[i]));
            }
        }
    }
}

/* out = silu(gate) * up. x: num[rows][2 * size], gate before up; out: num[rows][size]; size is a multiple of 16. */
void silu_and_mul(num *out, const num *x, int64_t rows, int64_t size)
{
    #pragma omp parallel for if (rows * size > SMALL_WORK)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < size; i += WIDTH) {
            vec gate = load_vec(x + row * 2 * size + i), up = load_vec(x + row * 2 * size + size + i);
            store_vec(out + row * size + i, gate / (1 + exp_vec(-gate)) * up);
        }
}

/* ---------------------------------------------------------------- the paged cache */

/* The cache is num[blocks][2][block_size][heads][size]: a block's K stand at [0], its V at [1].
   K and V of each token go to its slot; slot -1 is skipped. key, value: num[tokens][stride], heads * size of them used. */
void reshape_and_cache(num *cache, const num *key, int64_t key_stride, const num *value, int64_t value_stride,
                       const int64_t *slots, int64_t tokens, int64_t block_size, int64_t heads, int64_t size)
{
    int64_t token = heads * size, v = block_size * token;  /* v: from a K to its V */
    for (int64_t t = 0; t < tokens; t++) {
        if (slots[t] < 0) continue;
        num *k = cache + (slots[t] / block_size * 2 * block_size + slots[t] % block_size) * token;
        memcpy(k, key + t * key_stride, token * sizeof(num));
        memcpy(k + v, value + t * value_stride, token * sizeof(num));
    }
}

/* ---------------------------------------------------------------- attention */

/* One task: some query vectors that read the same KV head of one row. Everything is float. */
typedef struct {
    float query[MAX_QUERIES][MAX_HEAD_SIZE];   /* times scale */
    float out[MAX_QUERIES][MAX_HEAD_SIZE];     /* sum of e^(score - max) * V so far */
    float max[MAX_QUERIES], sum[MAX_QUERIES];  /* of the keys so far */
    float score[MAX_QUERIES][KEYS];
    float keys[MAX_HEAD_SIZE][KEYS];           /* transposed: all keys of one dimension side by side */
    float values[KEYS][MAX_HEAD_SIZE];
} Task;

/* Keys and values come from all over the cache, so the processor can't guess the next one, and waiting for memory would
   take most of the time. So each is asked for early. Asking for all at once would fill the queue to memory. */
INLINE void fetch(const num *p, int size)
{
    for (int64_t byte = 0; byte < size * (int64_t)sizeof(num); byte += CACHE_LINE)
        __builtin_prefetch((const char *)p + byte);
}

/* Scores of one token's query heads: each key is read once, and multiplied with each query. For every key looked at,
   one of the `more` next ones is asked for. */
INLINE void score_few(Task *task, const num *const *k, int count, const num *const *next, int more, int queries,
                      int size)
{
    for (int t = 0; t < count; t++) {
        if (t < more) fetch(next[t], size);
        vec dot[MAX_QUERIES];
        for (int q = 0; q < queries; q++) dot[q] = load_vec(k[t]) * *(vec *)task->query[q];
        for (int c = WIDTH; c < size; c += WIDTH) {
            vec key = load_vec(k[t] + c);
            for (int q = 0; q < queries; q++) dot[q] += key * *(vec *)(task->query[q] + c);
        }
        for (int q = 0; q < queries; q++) task->score[q][t] = sum_vec(dot[q]);
    }
}

/* Scores of many queries: 4 queries with 64 keys at a time, as a matrix product. */
INLINE void score_many(Task *task, const num *const *k, int count, int queries, int size)
{
    for (int t = 0; t < count; t++)
        for (int d = 0; d < size; d++) task->keys[d][t] = load(k[t][d]);
    for (int q = 0; q < queries; q += 4) {
        vec sums[4][KEYS / WIDTH] = {0};
        for (int d = 0; d < size; d++)
            #pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                #pragma GCC unroll 4
                for (int c = 0; c < KEYS / WIDTH; c++)
                    sums[i][c] += task->query[q + i][d] * *(vec *)(task->keys[d] + c * WIDTH);
        for (int i = 0; i < 4; i++)
            for (int c = 0; c < KEYS / WIDTH; c++) *(vec *)(task->score[q + i] + c * WIDTH) = sums[i][c];
    }
}

/* Online softmax: scores become e^(score - max), and what was summed under a smaller max is scaled down to the new one.
   seen[q]: how many of the `count` keys query q may see. */
INLINE void softmax_step(Task *task, const int *seen, int count, int queries, int size)
{
    int padded = (count + WIDTH - 1) / WIDTH * WIDTH;
    for (int q = 0; q < queries; q++) {
        float *score = task->score[q], max = task->max[q];
        for (int t = seen[q]; t < padded; t++) score[t] = -1e30f;
        for (int t = 0; t < padded; t++) max = score[t] > max ? score[t] : max;
        vec total = {0};
        for (int t = 0; t < padded; t += WIDTH) {
            vec p = exp_vec(*(vec *)(score + t) - max);
            *(vec *)(score + t) = p;
            total += p;
        }
        for (int t = seen[q]; t < padded; t++) score[t] = 0;
        float down = expf(task->max[q] - max);
        task->max[q] = max;
        task->sum[q] = task->sum[q] * down + sum_vec(total);
        if (down != 1)
            for (int d = 0; d < size; d++) task->out[q][d] *= down;
    }
}

INLINE void add_values_few(Task *task, const num *const *k, int64_t v, int count, const num *const *next, int more,
                           int queries, int size)
{
    for (int c = 0; c < size; c += 4 * WIDTH) {  /* 64 dimensions at a time, or what is left: sums stay in registers */
        int chunks = size - c < 4 * WIDTH ? (size - c) / WIDTH : 4;
        vec sum[MAX_QUERIES][4];
        for (int q = 0; q < queries; q++)
            for (int i = 0; i < chunks; i++) sum[q][i] = *(vec *)(task->out[q] + c + i * WIDTH);
        for (int t = 0; t < count; t++) {
            if (t < more) fetch(next[t] + v + c, chunks * WIDTH);
            for (int i = 0; i < chunks; i++) {
                vec value = load_vec(k[t] + v + c + i * WIDTH);
                for (int q = 0; q < queries; q++) sum[q][i] += task->score[q][t] * value;
            }
        }
        for (int q = 0; q < queries; q++)
            for (int i = 0; i < chunks; i++) *(vec *)(task->out[q] + c + i * WIDTH) = sum[q][i];
    }
}

INLINE void add_values_many(Task *task, const num *const *k, int64_t v, int count, int queries, int size)
{
    for (int t = 0; t < count; t++)
        for (int c = 0; c < size; c += WIDTH) *(vec *)(task->values[t] + c) = load_vec(k[t] + v + c);
    for (int q = 0; q < queries; q += 4)
        for (int c = 0; c < size; c += WIDTH) {
            vec sums[4];
            #pragma GCC unroll 4
            for (int i = 0; i < 4; i++) sums[i] = *(vec *)(task->out[q + i] + c);
            for (int t = 0; t < count; t++)
                #pragma GCC unroll 4
                for (int i = 0; i < 4; i++) sums[i] += task->score[q + i][t] * *(vec *)(task->values[t] + c);
            #pragma GCC unroll 4
            for (int i = 0; i < 4; i++) *(vec *)(task->out[q + i] + c) = sums[i];
        }
}

/* What every task of a launch has in common. */
typedef struct {
    num *out; const num *query; int64_t out_stride, query_stride;          /* from token to token */
    const num *cache; const int32_t *block_table; int64_t table_width;     /* [rows][table_width] */
    int64_t block_size, query_heads, kv_heads, head_size;
    float scale;
} Launch;

/* Where `count` keys of a row lie, from token `start` on. */
INLINE void find_keys(const num **k, const Launch *launch, const int32_t *blocks, int64_t head, int start, int count,
                      int size)
{
    int64_t block_size = launch->block_size, token = launch->kv_heads * size;
    int64_t block = start / block_size, offset = start % block_size;
    for (int t = 0; t < count; t++) {
        k[t] = launch->cache + (blocks[block] * 2 * block_size + offset) * token + head * size;
        if (++offset == block_size) offset = 0, block++;
    }
}

INLINE int at_most(int value, int limit) { return value < limit ? value : limit; }

/* Tokens first .. first + count - 1 of the flat batch, all of one row, with the heads that share KV head `head`.
   seq_len: keys that the last of these tokens may see; the one before it sees one less, and so on.
   size and group are head_size and query_heads / kv_heads: constants where the caller knows them. */
INLINE void attend(Task *task, const Launch *launch, const int32_t *blocks, int64_t head, int64_t first, int count,
                   int seq_len, int size, int group)
{
    int queries = count * group, seen[MAX_QUERIES];
    int64_t v = launch->block_size * launch->kv_heads * size;
    const num *k[2][KEYS];  /* of these keys, and of the next */
    int tile = count == 1 ? KEYS_FEW : KEYS, keys = at_most(seq_len, tile);
    find_keys(k[0], launch, blocks, head, 0, keys, size);
    for (int t = 0; t < keys; t++) fetch(k[0][t], size), fetch(k[0][t] + v, size);
    for (int q = 0; q < queries; q++) {
        const num *query = launch->query + (first + q / group) * launch->query_stride + (head * group + q % group) * size;
        for (int d = 0; d < size; d++) task->query[q][d] = load(query[d]) * launch->scale, task->out[q][d] = 0;
        task->max[q] = -1e30f, task->sum[q] = 0;
    }
    for (int start = 0, turn = 0; start < seq_len; start += keys, turn ^= 1) {
        keys = at_most(seq_len - start, tile);
        int more = at_most(seq_len - start - keys, tile);  /* keys of the next turn */
        const num *const *now = k[turn], *const *next = k[turn ^ 1];
        find_keys(k[turn ^ 1], launch, blocks, head, start + keys, more, size);
        for (int q = 0; q < queries; q++) {
            int allowed = seq_len - (count - 1 - q / group) - start;
            seen[q] = allowed < 0 ? 0 : at_most(allowed, keys);
        }
        if (count == 1) {
            score_few(task, now, keys, next, more, group, size);
            softmax_step(task, seen, keys, group, size);
            add_values_few(task, now, v, keys, next, more, group, size);
        } else {
            for (int t = 0; t < more; t++) fetch(next[t], size), fetch(next[t] + v, size);
            score_many(task, now, keys, queries, size);
            softmax_step(task, seen, keys, queries, size);
            add_values_many(task, now, v, keys, queries, size);
        }
    }
    for (int q = 0; q < queries; q++) {
        num *out = launch->out + (first + q / group) * launch->out_stride + (head * group + q % group) * size;
        for (int d = 0; d < size; d++) out[d] = store(task->out[q][d] / task->sum[q]);
    }
}

/* Causal attention of a flat batch, each row through its block table. out, query: num[tokens][query_heads][head_size]
   with these strides from token to token; seq_lens: int32[rows]; starts: int32[rows + 1], where each row's tokens are.
   Rows of length 0 are left alone. */
void paged_attention(num *out, int64_t out_stride, const num *query, int64_t query_stride, const num *cache,
                     const int32_t *block_table, int64_t table_width, const int32_t *seq_lens, const int32_t *starts,
                     int64_t rows, int64_t block_size, int64_t query_heads, int64_t kv_heads, int64_t head_size,
                     float scale)
{
    Launch launch = {out, query, out_stride, query_stride, cache, block_table, table_width,
                     block_size, query_heads, kv_heads, head_size, scale};
    int group = query_heads / kv_heads, most = MAX_QUERIES / group;  /* tokens of a task, at most */
    int64_t work = 0;
    for (int64_t row = 0; row < rows; row++) work += (int64_t)seq_lens[row] * (starts[row + 1] - starts[row]);
    #pragma omp parallel for collapse(2) schedule(dynamic) if (work * query_heads * head_size > 4 * SMALL_WORK)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t head = 0; head < kv_heads; head++) {
            Task task;
            const int32_t *blocks = block_table + row * table_width;
            int tokens = starts[row + 1] - starts[row];
            if (seq_lens[row] == 0) continue;
            for (int done = 0; done < tokens; done += most) {
                int count = tokens - done < most ? tokens - done : most;
                int seq_len = seq_lens[row] - (tokens - done - count);
                int64_t first = starts[row] + done;
                /* the shapes of SmolLM2 and Llama 3.2 1B as constants: loops over heads and dimensions unroll */
                if (head_size == 64 && group == 3)
                    attend(&task, &launch, blocks, head, first, count, seq_len, 64, 3);
                else if (head_size == 64 && group == 4)
                    attend(&task, &launch, blocks, head, first, count, seq_len, 64, 4);
                else
                    attend(&task, &launch, blocks, head, first, count, seq_len, head_size, group);
            }
        }
}
