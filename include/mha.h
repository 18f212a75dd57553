/* libmha: multi-head attention on any OpenCL device. The whole public interface.
 *
 * Three moments: what the device decides is fixed in a context, what the shape decides in an
 * attention, layer or part, what the data decides in an enqueue. Each object is made from one made
 * before and never changes it.
 *
 * Shapes. Every attention tensor is seen as [batch][heads][len][dim], in elements, whatever its
 * layout in memory; strides say the layout. Structs are zero-initialised: 0 is the default of every
 * field and each comment says what it means. Add fields by name (designated initialisers), since
 * later versions may append some.
 *
 * Ownership. A create call writes a new object to *out, or NULL there and a status. A destroy call
 * takes the address of the pointer, sets it to NULL and accepts NULL. An object keeps what it was
 * made from alive only through OpenCL's own reference counts: destroy attentions, layers and parts
 * before their context. An object may be destroyed while its enqueued work still runs.
 *
 * Threads. A context may be used by all threads at once. Any other object is used by one thread at
 * a time; two objects are independent, also when they share a context. Some drivers are not ready
 * for several threads in their very first call: the library guards its own, a program that calls
 * OpenCL itself makes one call before it starts threads.
 *
 * Errors. Every function that can fail returns an mha_status and logs one sentence that says what
 * to change. A failed create or load leaves nothing behind. A failed enqueue may have queued
 * earlier stages: the workspace is then undefined, an output or a cache is untouched unless the
 * sentence says that its kernel was queued, the object stays usable, and once the queue has
 * finished everything may be released.
 *
 * The library reads no environment variable (but those that name the user's cache folder, see
 * mha_context_options.cache_dir) and prints nothing.
 *
 * C99 and C++. Copyright 2026 the libmha authors, Apache-2.0. */
#ifndef MHA_H
#define MHA_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(MHA_STATIC) || !defined(_WIN32)
#if defined(__GNUC__)
#define MHA_API __attribute__((visibility("default")))
#else
#define MHA_API
#endif
#elif defined(MHA_BUILDING)
#define MHA_API __declspec(dllexport)
#else
#define MHA_API __declspec(dllimport)
#endif

#define MHA_VERSION_MAJOR 0
#define MHA_VERSION_MINOR 1
#define MHA_VERSION_PATCH 0

/* The version of the library that is running, as MAJOR << 16 | MINOR << 8 | PATCH. While MAJOR is 0
 * a new MINOR may change the interface, and the shared library's soversion with it. */
MHA_API unsigned mha_version(void);

/* ------------------------------------------------------------------------------------ status -- */

/* 0 is success, a positive status is the library's own, a negative one is the code that OpenCL or
 * CLBlast returned, unchanged. X(name, value, text). */
#define MHA_STATUS_MAP(X)                                                                 \
    X(MHA_OK, 0, "success")                                                               \
    X(MHA_INVALID_ARGUMENT, 1, "an argument breaks a rule of the call")                   \
    X(MHA_UNSUPPORTED, 2, "a valid request that this version or this device does not do") \
    X(MHA_OUT_OF_HOST_MEMORY, 3, "the host is out of memory")                             \
    X(MHA_TOO_LARGE, 4, "a size overflows or passes what the device can hold")            \
    X(MHA_NO_PLATFORM, 5, "no OpenCL platform is installed")                              \
    X(MHA_NO_DEVICE, 6, "no OpenCL device fits the request")                              \
    X(MHA_BUILD_FAILED, 7, "a kernel did not compile on the device")                      \
    X(MHA_BUFFER_TOO_SMALL, 8, "a buffer ends before the tensor in it does")              \
    X(MHA_WRONG_CONTEXT, 9,                                                               \
      "a buffer, queue or event belongs to another OpenCL context or device")             \
    X(MHA_WRONG_QUEUE, 10, "the queue is not in-order")                                   \
    X(MHA_OVERLAP, 11, "an output shares memory with another argument")                   \
    X(MHA_NOT_LOADED, 12, "the object has no weights yet")                                \
    X(MHA_DEVICE_LOST, 13, "the device was lost; make a new context")

typedef int mha_status;
enum {
#define MHA_STATUS_ENUM(name, value, text) name = value,
    MHA_STATUS_MAP(MHA_STATUS_ENUM)
#undef MHA_STATUS_ENUM
};

/* The name ("MHA_OVERLAP", "CL_OUT_OF_RESOURCES") and a short text of any status. Static strings,
 * never NULL: an unknown code gives "unknown status". Thread-safe. */
MHA_API const char *mha_status_name(mha_status status);
MHA_API const char *mha_status_text(mha_status status);

/* --------------------------------------------------------------------------------------- log -- */

typedef enum mha_log_level {
    MHA_LOG_DEFAULT = 0, /* in mha_log.level: MHA_LOG_WARNING */
    MHA_LOG_ERROR = 1,   /* the sentence that goes with a failing status; a build log */
    MHA_LOG_WARNING = 2, /* the call succeeded, but not as well as it could */
    MHA_LOG_INFO = 3,    /* which device, which path and why */
    MHA_LOG_DEBUG = 4    /* programs built, cache hits */
} mha_log_level;

/* Receives messages of `level` and more severe ones. `text` is one UTF-8 message without a line end
 * (a build log has inner ones), valid during the call. fn == NULL: no messages. fn may be called
 * from any thread that is inside a call of the library, also from two at once; it must not call the
 * library on the same object. Outlives the context that it is given to. */
typedef struct mha_log {
    void (*fn)(void *data, mha_log_level level, const char *text);
    void *data;
    mha_log_level level;
} mha_log;

/* ----------------------------------------------------------------------------------- devices -- */

typedef struct mha_device_info {
    unsigned platform_index; /* together "0:1", the word that chooses this device; UINT_MAX for a
                              * sub-device or one that the loader does not list */
    unsigned device_index;
    cl_platform_id platform;
    cl_device_id device;
    cl_device_type type;
    char name[256];
    char platform_name[256];
    char vendor[128];
    char device_version[128]; /* CL_DEVICE_VERSION, such as "OpenCL 1.2 ..." */
    char driver_version[128];
    uint64_t global_memory_bytes;
    uint64_t max_allocation_bytes;
    uint64_t local_memory_bytes;
    uint32_t compute_units;       /* at least 1 */
    uint32_t max_work_group_size; /* at least 1 */
    uint32_t is_default; /* 1 for the one device that mha_context_create(&context, NULL) takes */
} mha_device_info;

/* Lists the devices of all platforms, in the loader's order; platforms without a device are passed
 * over. Thread-safe. Writes at most `capacity` of them to `infos` (may be NULL with capacity 0) and
 * their whole number to *count. `log` may be NULL. MHA_NO_PLATFORM where the loader finds no
 * platform. */
MHA_API mha_status mha_devices(const mha_log *log, mha_device_info *infos, size_t capacity,
                               size_t *count);

/* ----------------------------------------------------------------------------------- context -- */

typedef struct mha_context mha_context;

typedef struct mha_context_options {
    /* The caller's OpenCL context and a device of it, both retained; give both or neither. */
    cl_context cl;
    cl_device_id device;
    /* Otherwise the library makes a context of its own on one device. device_name:
     * "platform:device" as listed by mha_devices ("0:1"), or a part of the device's, platform's or
     * vendor's name, letter case ignored ("radeon"). device_type: only devices of these types.
     * Both: both must fit. Neither (NULL, 0): the first GPU or accelerator, else the first device
     * of any type. */
    const char *device_name;
    cl_device_type device_type;
    /* The folder for compiled kernels, created on need. NULL: "libmha" in the user's cache folder
     * ($XDG_CACHE_HOME, else $HOME/.cache). "": no files at all. A
     * folder that cannot be written is a warning, never an error. The string is copied. */
    const char *cache_dir;
    mha_log log;
} mha_context_options;

/* `options` NULL is the same as all zero. Thread-safe. */
MHA_API mha_status mha_context_create(mha_context **out, const mha_context_options *options);
/* If the library made the OpenCL context, this also empties CLBlast's process-wide program cache,
 * which otherwise keeps it alive (see mha_clblast_clear). */
MHA_API void mha_context_destroy(mha_context **context);

/* The OpenCL context and device, for making queues and buffers. Owned by `context`. */
MHA_API cl_context mha_context_cl(const mha_context *context);
MHA_API cl_device_id mha_context_device(const mha_context *context);
MHA_API mha_status mha_context_info(const mha_context *context, mha_device_info *info);

/* CLBlast keeps its compiled programs, and with them a reference to each cl_context it has seen, in
 * a cache of the process. A caller who is done with a cl_context of his own calls this to let it
 * go; later calls compile again. The library guards its own calls of CLBlast by one lock; an
 * application that calls CLBlast itself must not do so at the same time as it is inside this
 * library. */
MHA_API mha_status mha_clblast_clear(void);

/* ----------------------------------------------------------------------- tensors, the call -- */

typedef enum mha_type {
    MHA_TYPE_DEFAULT = 0, /* float32 for `type`; "the same as type" for the others */
    MHA_FLOAT32 = 1,
    MHA_FLOAT16 = 2,
    MHA_BFLOAT16 = 3
} mha_type;

/* A tensor in device memory. `offset` and `strides` count elements of its type. All strides 0:
 * packed, in the order of its shape. Otherwise every axis longer than 1 has its stride (that of
 * another may be 0), the last one's being 1; an input may repeat itself through a stride of 0 on
 * another axis, an output may not. An axis that is declared as broadcast (see mha_attention_desc)
 * has length 1 and its stride is not read. buffer NULL: not given. */
typedef struct mha_tensor {
    cl_mem buffer;
    size_t offset;
    size_t strides[4];
} mha_tensor;

/* int32 lengths: from host memory, or from a buffer (offset in elements), not both. A host array is
 * checked by the enqueue and must stay unchanged until the call's event completes. In device memory
 * a value below 0 counts as 0 and one above the length of the tensor as that length. Packed. */
typedef struct mha_lengths {
    const int32_t *host;
    cl_mem buffer;
    size_t offset;
} mha_lengths;

/* Called for each command that an enqueue queued, in order, from inside the enqueue; a large
 * product of several batches is one command a batch. `stage` is the step ("project query",
 * "scores"), `what` the kernel or CLBlast routine that does it; both static strings. `event` is
 * valid during the call: retain it to keep it. */
typedef void mha_stage_fn(void *data, const char *stage, const char *what, cl_event event);

/* How and where an enqueue runs. `queue` is in-order and of the context's device; two calls that
 * share a workspace must be in the same queue, or one wait for the other. Nothing here blocks. */
typedef struct mha_call {
    cl_command_queue queue;
    cl_mem workspace;  /* used from its start; NULL where the workspace query says 0 bytes */
    cl_uint num_waits; /* events to wait for before the first stage */
    const cl_event *waits;
    /* NULL, or receives an event of the whole call; the caller releases it. Set to NULL when the
     * call fails. It is no element of waits. */
    cl_event *event;
    mha_stage_fn *stage; /* NULL: none. With a callback every stage makes an event, which costs */
    void *stage_data;
} mha_call;

/* A read-write buffer of the caller's that one call in flight uses for itself. No argument may lie
 * in it, not even behind `bytes`. A sub-buffer will do. */
typedef struct mha_workspace {
    size_t bytes;     /* 0: none is needed */
    size_t alignment; /* of a sub-buffer's origin, in bytes: what the device asks of any */
} mha_workspace;

/* --------------------------------------------------------------------------------- attention -- */

/* softmax(scale * query key^T) value, per batch and head: Vaswani et al., "Attention is all you
 * need", 2017, equation 1. Order: scale, softcap, bias, ALiBi, exclusion, softmax, dropout. A
 * query that may see no key gives a zero output, zero probs and lse = -inf. What stands at a key
 * that a query may not see (also NaN or inf) never reaches its output. Tensors are stored as
 * float32, float16 or bfloat16, also on devices that compute in none of the last two: all sums are
 * float32, and a result is rounded once, to nearest even. */

/* Bits of mha_attention_desc.uses: what takes part. An argument without its bit, or a bit without
 * its argument, is refused; so are a window's limit, broadcast axes, new_len, fields of rotary
 * positions and dropout_p without their bit. */
#define MHA_USES_KEY_LENGTHS (1ull << 0) /* args.key_lengths, [batch] */
#define MHA_USES_KEY_LENGTHS_PER_QUERY \
    (1ull << 1)                             /* args.key_lengths_per_query, [batch][query_len] */
#define MHA_USES_BIAS (1ull << 2)           /* args.bias; -inf excludes, a finite value never */
#define MHA_USES_MASK (1ull << 3)           /* args.mask, one byte each: 0 excludes */
#define MHA_USES_CAUSAL (1ull << 4)         /* key j is seen by query i only if j <= diagonal(i) */
#define MHA_USES_WINDOW_LEFT (1ull << 5)    /* ... only if j >= diagonal(i) - window_left */
#define MHA_USES_WINDOW_RIGHT (1ull << 6)   /* ... only if j <= diagonal(i) + window_right */
#define MHA_USES_PROBS (1ull << 7)          /* args.probs is written */
#define MHA_USES_LSE (1ull << 8)            /* args.lse is written */
#define MHA_USES_KEY_STARTS (1ull << 9)     /* args.key_starts, [batch] */
#define MHA_USES_ALIBI (1ull << 10)         /* args.alibi_slopes: score - slope |diagonal(i) - j| */
#define MHA_USES_SINKS (1ull << 11)         /* args.sinks: a logit per head joins the denominator */
#define MHA_USES_SCORES (1ull << 12)        /* args.scores is written, as of desc.scores_stage */
#define MHA_USES_APPEND (1ull << 13)        /* key and value are a cache that new ones join first */
#define MHA_USES_RING (1ull << 14)          /* ... and that goes round */
#define MHA_USES_ROTARY (1ull << 15)        /* query and new_key are rotated by their positions */
#define MHA_USES_QUERY_OFFSETS (1ull << 16) /* the queries of all batches lie end to end */
#define MHA_USES_KEY_OFFSETS (1ull << 17)   /* the keys and values do */
#define MHA_USES_DROPOUT (1ull << 18)       /* probs are dropped with desc.dropout_p */

/* Where the diagonal of causal, windows and ALiBi lies. Never implied, since libraries differ as
 * soon as query_len and key_len do: PyTorch's is_causal is top-left; ONNX's too, but after the past
 * where there is one, and bottom-right with nonpad_kv_seqlen; FlashAttention's is bottom-right
 * since 2.1; cuDNN takes either. */
typedef enum mha_diagonal {
    MHA_DIAGONAL_NONE = 0, /* neither causal nor a window nor ALiBi is used */
    MHA_TOP_LEFT = 1,      /* diagonal(i) = i */
    MHA_BOTTOM_RIGHT = 2,  /* diagonal(i) = i + L - query_len, L the keys that the batch has; with
                            * query_offsets, query_len is that of the batch */
    MHA_AFTER_PAST = 3     /* diagonal(i) = i + append_positions[batch]: with MHA_USES_APPEND and
                            * without key_lengths. Bottom-right if as many queries as keys are new */
} mha_diagonal;

/* Axes of bias or mask that have length 1 and count for every index. */
#define MHA_AXIS_BATCH 1u
#define MHA_AXIS_HEADS 2u
#define MHA_AXIS_QUERY 4u
#define MHA_AXIS_KEY 8u

/* A path that is asked for and cannot do what the desc says is MHA_UNSUPPORTED, with the reason. */
typedef enum mha_path {
    /* Decode for few queries and at least 64 keys, else streaming; composed where probs or scores
     * are returned or there are no keys. */
    MHA_PATH_DEFAULT = 0,
    MHA_PATH_COMPOSED = 1, /* scores, softmax, probs value: stores the scores; on every device */
    MHA_PATH_STREAMING =
        2,              /* one pass over the keys with a running maximum and sum (FlashAttention,
                         * 2022): never stores the scores, reads any strides in place */
    MHA_PATH_DECODE = 3 /* the same with the keys split over work-groups and merged, for few queries
                         * and many keys; query heads that share a key head go over it together */
} mha_path;

/* How the library's own kernels lay out their work: the streaming and decode paths, the two
 * products on the composed one, the rows of a norm or activation. */
typedef enum mha_tiling {
    MHA_TILING_DEFAULT = 0, /* by the kind of device */
    MHA_TILING_CPU = 1,     /* a work-item by itself, its vector lanes the queries, or elements of
                             * a row, a key or a value */
    MHA_TILING_GPU = 2      /* a work-group together, through local memory where that is needed */
} mha_tiling;

/* What args.scores holds: ONNX's qk_matmul_output_mode 0, 1 and 2, as numbered since opset 24's
 * correction of 2026; its 3 is args.probs. In the first two, NaN at an excluded key shows. */
typedef enum mha_scores_stage {
    MHA_SCORES_SCALED = 0, /* scale * query key^T, of all keys, excluded ones too */
    MHA_SCORES_CAPPED = 1, /* after the softcap, likewise */
    MHA_SCORES_BIASED = 2  /* after bias and ALiBi; -inf at excluded keys */
} mha_scores_stage;

/* Who multiplies matrices. The library has a kernel for CPUs, which makes blocks of registers and
 * packs the second factor, and one for all devices, which makes 32 x 32 tiles in local memory. */
typedef enum mha_gemm_by {
    MHA_GEMM_DEFAULT = 0, /* on a CPU the library's kernel for it, elsewhere CLBlast; a tiling that
                           * is asked for takes the place of the device's kind */
    MHA_GEMM_CLBLAST = 1,
    MHA_GEMM_KERNEL = 2 /* the library's own kernels: no memory besides the workspace */
} mha_gemm_by;

/* Which two elements of a row are rotated together, d from 0 to rotary_dim / 2 - 1. */
typedef enum mha_rotary_pairs {
    MHA_ROTARY_HALVES = 0,     /* d and d + rotary_dim / 2 */
    MHA_ROTARY_INTERLEAVED = 1 /* 2 d and 2 d + 1 */
} mha_rotary_pairs;

/* Generation with a cache (MHA_USES_APPEND). key and value are [batch][kv_heads][key_len][dim] with
 * room for key_len keys, of which batch b holds some; a call first writes new_len new ones to
 * positions append_positions[b] and on, converted to key_value_type, and then attends. A batch has
 * as many keys as the last new one's position says, or key_lengths[b] where that is used. What lies
 * elsewhere in the cache is not written, and counts for nothing. Positions change from call to
 * call; in host memory they must leave room for the new keys, in device memory new keys that would
 * lie before the cache or past its end are dropped. key and value are outputs of such a call:
 * neither may overlap the other, nor anything else, from first to last byte (so the two are not
 * interleaved). args.key_len may stay 0; a smaller one than the desc's says that the call looks at
 * the first rows of the cache only, which is packed at the desc's all the same. Not with offsets,
 * of queries or of keys.
 *
 * A prompt and the tokens after it are calls on one cache: the prompt with as many queries as new
 * keys, MHA_USES_CAUSAL and MHA_AFTER_PAST; each token with query_len and new_len 1, and the next
 * position. One attention does both: it holds the decode path for the tokens beside the streaming
 * one. In one queue the calls need no waits between them; each has a host array of
 * positions of its own, or positions in device memory.
 *
 * A ring (MHA_USES_RING) keeps the newest key_len keys for ever longer sequences: position p lies
 * in row p % key_len, the desc's. It needs a left window, MHA_BOTTOM_RIGHT and key_len of at least
 * window_left + query_len, so that nothing is overwritten that a query may see: a longer prompt
 * joins in several calls. It takes no bias, mask, starts, lengths, dropout, probs or scores, whose
 * axis of keys would have to go round as well.
 *
 * Rotary positions (MHA_USES_ROTARY, with MHA_USES_APPEND; Su et al., "RoFormer", 2021): new key i
 * of batch b and query i, of which there are as many, are rotated for position append_positions[b]
 * + i, before the key is stored. Neither new_key nor query changes in the caller's memory.
 * Positions outside of the tables are refused in host memory and take the nearest row in device
 * memory. The tables are those of mha_rotary_desc.
 *
 * Sequences of unequal lengths end to end (MHA_USES_QUERY_OFFSETS and MHA_USES_KEY_OFFSETS, each
 * with or without the other): query and output are [1][heads][query_total][dim], lse
 * [1][heads][query_total][1]; batch b has rows query_offsets[b] to before query_offsets[b + 1].
 * Likewise key and value with key_offsets. query_len and key_len are the longest sequence's. The
 * diagonal, lengths and starts count within a batch, bias and mask are as without offsets, [batch]
 * [heads][query_len][key_len]. Rows that belong to no batch are not written.
 *
 * Dropout (MHA_USES_DROPOUT, for training): each prob becomes 0 with probability dropout_p, else it
 * is divided by 1 - dropout_p; lse is that of before. The choice depends on seed, offset, batch b,
 * head h, query i and key j only, not on path, tiling or device: word j % 4 of Philox4x32-10
 * (Salmon et al., 2011; Random123) with the counter { j / 4, i, b * heads + h, dropout_offset } and
 * the key { low 32 bits of dropout_seed, high 32 bits }, dropped where it is below dropout_p *
 * 2^32, rounded to nearest. A gradient pass makes the same choice from the same numbers; a training
 * step takes a new offset. */

typedef struct mha_attention_desc {
    size_t batch;     /* 0: every call does nothing */
    size_t heads;     /* of query; at least 1 */
    size_t kv_heads;  /* 0: heads. Divides heads; query head h reads head h / (heads / kv_heads) */
    size_t query_len; /* the largest of any call; may be 0 */
    size_t key_len;   /* the largest of any call; may be 0. Of a cache, its room */
    size_t head_dim;  /* of query and key; at least 1 */
    size_t value_dim; /* of value and output, per head; 0: head_dim */
    mha_type type;    /* of query and output */
    mha_type key_value_type;
    mha_type bias_type;
    mha_type output_type;
    uint64_t uses; /* MHA_USES_* */
    mha_diagonal diagonal;
    size_t window_left;      /* keys seen before the diagonal; 0: none. Only with its bit */
    size_t window_right;     /* keys seen after it, likewise */
    unsigned bias_broadcast; /* MHA_AXIS_* */
    unsigned mask_broadcast;
    float scale;   /* 0: 1 / sqrt(head_dim) */
    float softcap; /* 0: none; c: score becomes c tanh(score / c), after the scale */
    mha_scores_stage scores_stage;
    mha_type scores_type; /* of scores and probs; 0: float32 */
    mha_path path;
    mha_tiling tiling;
    mha_gemm_by gemm; /* of the composed path's two products */
    /* With MHA_USES_APPEND: */
    size_t new_len;    /* keys that join in a call, the largest of any; at most key_len */
    mha_type new_type; /* of new_key and new_value; 0: as type */
    /* With MHA_USES_ROTARY: */
    size_t rotary_dim;       /* of each row, the first ones; even; 0: head_dim */
    size_t rotary_positions; /* rows of the tables, at least 1 */
    mha_rotary_pairs rotary_pairs;
    float dropout_p; /* with MHA_USES_DROPOUT: the share that is dropped, 0 <= p < 1 */
} mha_attention_desc;

typedef struct mha_attention_args {
    /* The lengths of this call, at most the desc's; 0: the desc's. Packed means packed at these. */
    size_t query_len;
    size_t key_len;
    mha_tensor query; /* [batch][heads][query_len][head_dim] */
    mha_tensor key;   /* [batch][kv_heads][key_len][head_dim] */
    mha_tensor value; /* [batch][kv_heads][key_len][value_dim] */
    /* [batch][heads][query_len][value_dim]. It overlaps no other argument, except that an attention
     * (not a layer) may write exactly over the query: the same buffer, offset, strides and type,
     * value_dim = head_dim. The GPU tiling refuses that where it makes the values in several parts:
     * value_dim above 128, or less on devices with small work-groups. */
    mha_tensor output;
    mha_tensor bias;   /* [batch][heads][query_len][key_len], broadcast axes 1 */
    mha_tensor mask;   /* the same shape, one byte each: not 0 = may attend */
    mha_tensor probs;  /* [batch][heads][query_len][key_len], after the softmax */
    mha_tensor scores; /* the same shape, before it */
    mha_tensor lse;    /* [batch][heads][query_len][1] float32: ln(sum of exp(score) + exp(sink)) */
    mha_lengths key_lengths;           /* [batch]: keys j >= key_lengths[b] do not exist */
    mha_lengths key_lengths_per_query; /* [batch][query_len]: the same for one query; the diagonal
                                        * does not follow these */
    mha_lengths key_starts; /* [batch]: keys j < key_starts[b] do not exist (left padding); the
                             * diagonal does not follow these */
    /* [heads] float32, contiguous (Press et al., "Train short, test long", 2022). strides[0] not 0:
     * [batch][heads] with that distance between batches. */
    mha_tensor alibi_slopes;
    mha_tensor sinks; /* [heads] float32, contiguous. A query with no key then has lse = its sink */
    size_t new_len;   /* of this call, at most the desc's; 0: the desc's */
    mha_tensor new_key;           /* [batch][kv_heads][new_len][head_dim] */
    mha_tensor new_value;         /* [batch][kv_heads][new_len][value_dim] */
    mha_lengths append_positions; /* [batch]: of the first new key */
    mha_tensor rotary_cos;        /* [1][1][rotary_positions][rotary_dim / 2] float32 */
    mha_tensor rotary_sin;
    /* [batch + 1], ascending; no sequence is longer than query_len or key_len. In device memory an
     * offset out of order or range is clamped, and a sequence cut to that length; where sequences
     * then share rows of output, either may be what stands there. */
    mha_lengths query_offsets;
    mha_lengths key_offsets;
    size_t query_total; /* rows of query; 0: query_offsets' last, which must be in host memory */
    size_t key_total;
    uint64_t dropout_seed;
    uint32_t dropout_offset;
} mha_attention_args;

typedef struct mha_attention mha_attention;

MHA_API mha_status mha_attention_create(mha_attention **out, mha_context *context,
                                        const mha_attention_desc *desc);
MHA_API void mha_attention_destroy(mha_attention **attention);
MHA_API mha_workspace mha_attention_workspace(const mha_attention *attention);
/* Says in sentences, one a line, which path and kernels were chosen and why the others were not.
 * Writes at most `capacity` bytes with the closing 0 (text may be NULL with capacity 0) and returns
 * the length without it, as snprintf does. */
MHA_API size_t mha_attention_explain(const mha_attention *attention, char *text, size_t capacity);
MHA_API mha_status mha_attention_enqueue(mha_attention *attention, const mha_attention_args *args,
                                         const mha_call *call);

/* ------------------------------------------------------------------------------------- layer -- */

/* The article's MultiHeadAttention: project queries, keys and values, split the heads, attend,
 * merge the heads, project the output ("Attention is all you need", section 3.2.2).
 *
 * Self-attention: a call whose query, key and value (with a cache: new_key, new_value) are the same
 * memory, strides and lengths projects all three in one product, where their widths agree, all or
 * none of the three adds a bias and, with the kernel for CPUs, heads * head_dim and kv_heads *
 * head_dim are multiples of 32. Other calls of the same layer project them one by one.
 * mha_layer_explain says whether a layer can. */

/* Bits of mha_layer_desc.flags. */
#define MHA_LAYER_BIAS_QUERY (1u << 0)
#define MHA_LAYER_BIAS_KEY (1u << 1)
#define MHA_LAYER_BIAS_VALUE (1u << 2)
#define MHA_LAYER_BIAS_OUTPUT (1u << 3)
#define MHA_LAYER_BIAS_ALL 15u
/* Weights are stored out x in, y = x W^T, as in PyTorch; without it in x out, y = x W (article). */
#define MHA_LAYER_OUT_IN (1u << 4)
/* There is no W_o: the merged heads, heads * value_dim wide, are the output. */
#define MHA_LAYER_MERGED_OUTPUT (1u << 5)

typedef struct mha_layer_desc {
    /* batch, heads, kv_heads, lengths and options as for an attention; head_dim 0: model_width /
     * heads. Types are those of the tokens that come in and go out, or with MHA_USES_APPEND
     * key_value_type is the cache's and new_type that of the tokens; between the projections all is
     * float32. A layer takes no offsets in this version. */
    mha_attention_desc attention;
    size_t model_width;  /* heads * head_dim, the width of projected queries; 0: heads * head_dim if
                          * head_dim is given, else query_width. heads divides it */
    size_t query_width;  /* of the queries that come in; 0: model_width */
    size_t key_width;    /* 0: query_width */
    size_t value_width;  /* 0: key_width */
    size_t output_width; /* 0: query_width, or heads * value_dim with MHA_LAYER_MERGED_OUTPUT */
    unsigned flags;
    mha_gemm_by projection; /* who does the projections; on a CPU the kernel for it, from weights
                             * that mha_layer_load has packed, whatever attention.tiling says */
    mha_type weight_type;   /* of the caller's weights and biases, which the layer keeps in float32;
                             * 0: float32 */
} mha_layer_desc;

/* Matrices are [1][1][rows][columns] tensors: strides[2] is the row stride, all 0 is packed. The
 * shapes are in x out; with MHA_LAYER_OUT_IN rows and columns change places. Biases are contiguous,
 * each given if and only if its flag is set. */
typedef struct mha_layer_weights {
    mha_tensor query;       /* [query_width][heads * head_dim] */
    mha_tensor key;         /* [key_width][kv_heads * head_dim] */
    mha_tensor value;       /* [value_width][kv_heads * value_dim] */
    mha_tensor output;      /* [heads * value_dim][output_width]; none with MERGED_OUTPUT */
    mha_tensor bias_query;  /* [heads * head_dim] */
    mha_tensor bias_key;    /* [kv_heads * head_dim] */
    mha_tensor bias_value;  /* [kv_heads * value_dim] */
    mha_tensor bias_output; /* [output_width] */
} mha_layer_weights;

typedef struct mha_layer mha_layer;

MHA_API mha_status mha_layer_create(mha_layer **out, mha_context *context,
                                    const mha_layer_desc *desc);
MHA_API void mha_layer_destroy(mha_layer **layer);
MHA_API mha_workspace mha_layer_workspace(const mha_layer *layer);
MHA_API size_t mha_layer_explain(const mha_layer *layer, char *text, size_t capacity);
/* Copies the weights into memory of the layer; the caller may change or release his own once the
 * call's event has completed. Calling it again replaces them for later enqueues in the same queue
 * (in another queue, wait for the event). If it fails, the layer keeps what it had, unless the
 * sentence says that copies were queued: then load again. No workspace. */
MHA_API mha_status mha_layer_load(mha_layer *layer, const mha_layer_weights *weights,
                                  const mha_call *call);
/* args: as for an attention, but query is [batch][1][query_len][query_width], key
 * [batch][1][key_len][key_width], value [batch][1][key_len][value_width] (all three may be the same
 * memory), and output [batch][1][query_len][output_width], which overlaps nothing. With
 * MHA_USES_APPEND key and value are the cache as of an attention, [batch][kv_heads][key_len][dim],
 * and what is projected and joins it are new_key [batch][1][new_len][key_width] and new_value
 * [batch][1][new_len][value_width]. */
MHA_API mha_status mha_layer_enqueue(mha_layer *layer, const mha_attention_args *args,
                                     const mha_call *call);

/* ------------------------------------------------------------------------------------- parts -- */

/* The steps that attention is made of, for callers who arrange them themselves. */

/* Activation functions. Far from 0 they tend to 0 or to x, without a NaN on the way, also at an
 * infinity; a NaN stays one. */
typedef enum mha_activation_kind {
    MHA_ACTIVATION_NONE = 0,      /* x: a copy, or the product with the gate */
    MHA_ACTIVATION_RELU = 1,      /* the larger of x and 0 */
    MHA_ACTIVATION_GELU = 2,      /* x / 2 (1 + erf(x / sqrt(2))): Hendrycks and Gimpel, "Gaussian
                                   * error linear units", 2016 */
    MHA_ACTIVATION_GELU_TANH = 3, /* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): the same, by
                                   * their approximation */
    MHA_ACTIVATION_SILU = 4       /* x / (1 + exp(-alpha x)), also called Swish */
} mha_activation_kind;

/* C = activation(alpha op(A) op(B) + beta C + bias), for each batch. Row-major. In float32 and
 * rounded once; by CLBlast, which knows no such sums of half types, through float32 copies in the
 * workspace. */
#define MHA_GEMM_TRANSPOSE_A 1u /* A is stored [k][m] */
#define MHA_GEMM_TRANSPOSE_B 2u /* B is stored [n][k] */
#define MHA_GEMM_BIAS 4u        /* args.bias, [n], is added to every row of C; beta must be 0 */
/* B is weights that mha_gemm_load has taken, one for all batches and calls, and args.b is empty. A
 * CPU's kernel reads it faster so, and CLBlast needs no float32 copy of it in each call. */
#define MHA_GEMM_LOADED_B 8u

typedef struct mha_gemm_desc {
    size_t m, n, k; /* the largest m, and the n and k, of any call; k 0: C is beta C + bias */
    size_t batch;   /* 0: 1 */
    unsigned flags; /* MHA_GEMM_* */
    float alpha;    /* 0: 1 */
    float beta;     /* 0: C is not read and may hold anything */
    mha_gemm_by by;
    mha_type type;                  /* of A */
    mha_type b_type;                /* of B; 0: type */
    mha_type c_type;                /* of C; 0: type */
    mha_type bias_type;             /* 0: type */
    mha_activation_kind activation; /* 0: none */
    float activation_alpha;         /* of MHA_ACTIVATION_SILU; 0: 1 */
} mha_gemm_desc;

/* A matrix per batch, in device memory; all in elements. row_stride is that of the stored matrix,
 * at least its columns; 0: packed. batch_stride 0: all batches of A or B share one matrix; for C it
 * is refused with several batches, since they would write one matrix at once. */
typedef struct mha_matrix {
    cl_mem buffer;
    size_t offset;
    size_t row_stride;
    size_t batch_stride;
} mha_matrix;

typedef struct mha_gemm_args {
    size_t m; /* of this call, at most the desc's; 0: the desc's */
    mha_matrix a, b, c;
    mha_tensor bias; /* [n], contiguous */
} mha_gemm_args;

typedef struct mha_gemm mha_gemm;
MHA_API mha_status mha_gemm_create(mha_gemm **out, mha_context *context, const mha_gemm_desc *desc);
MHA_API void mha_gemm_destroy(mha_gemm **gemm);
MHA_API mha_workspace mha_gemm_workspace(const mha_gemm *gemm);
/* With MHA_GEMM_LOADED_B, else it is refused: copies B, of b_type and stored as the flags say, into
 * memory of the gemm, at least 4 n k bytes of the device that create has taken, as float32 and
 * packed as the gemm's kernel reads it. b->batch_stride must be 0. Before the first load an enqueue
 * is MHA_NOT_LOADED. Ownership, later loads and failures are as with mha_layer_load. No workspace.
 */
MHA_API mha_status mha_gemm_load(mha_gemm *gemm, const mha_matrix *b, const mha_call *call);
MHA_API mha_status mha_gemm_enqueue(mha_gemm *gemm, const mha_gemm_args *args,
                                    const mha_call *call);

/* The article's head transposes. Split: [batch][len][heads * dim] -> [batch][heads][len][dim];
 * merge: the other way. float32; no workspace. */
typedef struct mha_heads_desc {
    size_t batch, heads, len, dim;
} mha_heads_desc;

typedef struct mha_heads mha_heads;
MHA_API mha_status mha_heads_create(mha_heads **out, mha_context *context,
                                    const mha_heads_desc *desc);
MHA_API void mha_heads_destroy(mha_heads **heads);
/* `merged` and `split` are packed where their strides are 0: merged as [batch][1][len][heads *
 * dim], split as [batch][heads][len][dim]. */
MHA_API mha_status mha_heads_split_enqueue(mha_heads *heads, const mha_tensor *merged,
                                           const mha_tensor *split, const mha_call *call);
MHA_API mha_status mha_heads_merge_enqueue(mha_heads *heads, const mha_tensor *split,
                                           const mha_tensor *merged, const mha_call *call);

/* Masked softmax over the last axis of scores [batch][heads][query_len][key_len], packed, float32.
 * Reads of the desc: batch, heads, the lengths, uses, diagonal, windows, broadcasts, bias_type,
 * scores_stage, scale (0 or 1: the scores come scaled), softcap and dropout_p; the rest is ignored.
 * Caches, rotary positions and offsets are no part of it.
 * Reads of the args: all but query, key, value and output. probs, strides 0, is always written,
 * with or without its bit; it may be the same memory as scores. bias_type 0 is float32 here. */
typedef struct mha_softmax mha_softmax;
MHA_API mha_status mha_softmax_create(mha_softmax **out, mha_context *context,
                                      const mha_attention_desc *desc);
MHA_API void mha_softmax_destroy(mha_softmax **softmax);
MHA_API mha_workspace mha_softmax_workspace(const mha_softmax *softmax);
MHA_API mha_status mha_softmax_enqueue(mha_softmax *softmax, const mha_tensor *scores,
                                       const mha_attention_args *args, const mha_call *call);

/* Rotary position embedding (Su et al., "RoFormer", 2021; ONNX RotaryEmbedding-23): each pair of
 * elements (a, b) of a row becomes (a c - b s, b c + a s), where c and s are cos and sin of the
 * row's position and the pair. Computed in float32, rounded once. The tables are the caller's: cos
 * and sin of position * base^(-2p / rotary_dim) for pair p, mostly with base 10000. */
typedef struct mha_rotary_desc {
    size_t batch;      /* 0: every call does nothing */
    size_t heads;      /* at least 1; all heads of a row have its position */
    size_t len;        /* the largest of any call; may be 0 */
    size_t dim;        /* at least 2 */
    size_t rotary_dim; /* the first elements of each row, which are rotated; even, at most dim; 0:
                        * dim. The rest is copied */
    size_t positions;  /* rows of the tables; 0: the tables have a row for each [batch][len], and no
                        * positions are given */
    mha_rotary_pairs pairs;
    mha_type type;        /* of input */
    mha_type output_type; /* 0: type */
} mha_rotary_desc;

typedef struct mha_rotary_args {
    size_t len;       /* of this call, at most the desc's; 0: the desc's */
    mha_tensor input; /* [batch][heads][len][dim] */
    /* The same shape. It overlaps no other argument, except that it may be exactly the input: the
     * same buffer, offset, strides and type. */
    mha_tensor output;
    /* float32, [1][1][positions][rotary_dim / 2]; with positions 0 [batch][1][len][rotary_dim / 2],
     * where strides[0] = 0 shares the rows among the batches. */
    mha_tensor cos, sin;
    /* The position of each row, with positions above 0: position_ids [batch][len], or offsets
     * [batch], where row i has offsets[b] + i; not both. Neither: row i has position i. In host
     * memory a position that the tables do not have is refused; in device memory one below 0 counts
     * as 0 and one above the last as the last. Without position_ids, len is at most positions. */
    mha_lengths position_ids;
    mha_lengths offsets;
} mha_rotary_args;

/* The workspace has room for the positions of all rows, or no bytes with positions 0. */
typedef struct mha_rotary mha_rotary;
MHA_API mha_status mha_rotary_create(mha_rotary **out, mha_context *context,
                                     const mha_rotary_desc *desc);
MHA_API void mha_rotary_destroy(mha_rotary **rotary);
MHA_API mha_workspace mha_rotary_workspace(const mha_rotary *rotary);
MHA_API mha_status mha_rotary_enqueue(mha_rotary *rotary, const mha_rotary_args *args,
                                      const mha_call *call);

/* Normalisation of rows s = input + residual + input_bias, each followed by weight and bias:
 *
 *     layer norm:  (s - mean) inv_std weight + bias,  inv_std = 1 / sqrt(variance + epsilon)
 *     RMS norm:    s inv_std weight + bias,           inv_std = 1 / sqrt(mean of s^2 + epsilon)
 *
 * (Ba et al., "Layer normalization", 2016; Zhang and Sennrich, "Root mean square layer
 * normalization", 2019), where the variance is that of the row, its sum divided by width. In
 * float32 and rounded once; a mean that is large beside the deviation takes nothing from the
 * result. Squares are summed, so rows of magnitudes near 1e19 overflow. A NaN makes its whole row
 * NaN, and no other. */
typedef enum mha_norm_kind {
    MHA_NORM_LAYER = 0,
    MHA_NORM_RMS = 1
} mha_norm_kind;

/* Bits of mha_norm_desc.uses. An argument without its bit, or a bit without its argument, is
 * refused. */
#define MHA_NORM_WEIGHT (1u << 0)     /* args.weight; without it 1 */
#define MHA_NORM_BIAS (1u << 1)       /* args.bias */
#define MHA_NORM_RESIDUAL (1u << 2)   /* args.residual */
#define MHA_NORM_INPUT_BIAS (1u << 3) /* args.input_bias */
#define MHA_NORM_SUM (1u << 4)        /* args.sum is written: s, the next block's residual */
#define MHA_NORM_MEAN (1u << 5)       /* args.mean is written; of a layer norm only */
#define MHA_NORM_INV_STD (1u << 6)    /* args.inv_std is written */

typedef struct mha_norm_desc {
    size_t rows;  /* the largest of any call; 0: every call does nothing */
    size_t width; /* of a row; at least 1 */
    mha_norm_kind kind;
    unsigned uses;        /* MHA_NORM_* */
    float epsilon;        /* 0: 1e-5 */
    mha_type type;        /* of input, residual and sum */
    mha_type output_type; /* 0: type */
    mha_type weight_type; /* of weight, bias and input_bias; 0: float32 */
    mha_tiling tiling;
} mha_norm_desc;

/* Rows are [1][1][rows][width] tensors: strides[2] is the row stride, all 0 is packed. */
typedef struct mha_norm_args {
    size_t rows; /* of this call, at most the desc's; 0: the desc's */
    mha_tensor input, residual;
    mha_tensor input_bias, weight, bias; /* [width], contiguous */
    /* They overlap no other argument, except that each may be exactly the input or the residual:
     * the same buffer, offset, strides and type. So a residual stream is updated in place. */
    mha_tensor output, sum;
    mha_tensor mean, inv_std; /* [1][1][rows][1], float32 */
} mha_norm_args;

/* No workspace. */
typedef struct mha_norm mha_norm;
MHA_API mha_status mha_norm_create(mha_norm **out, mha_context *context, const mha_norm_desc *desc);
MHA_API void mha_norm_destroy(mha_norm **norm);
MHA_API mha_status mha_norm_enqueue(mha_norm *norm, const mha_norm_args *args,
                                    const mha_call *call);

/* Activation functions of rows, of each element by itself; with a gate, which is another tensor or
 * the other half of the same rows, activation(input) * gate (Shazeer, "GLU variants improve
 * transformer", 2020: SwiGLU with SILU, GEGLU with GELU, ReGLU with RELU, Bilinear with NONE). In
 * float32 and rounded once. */

/* Bits of mha_activation_desc.uses. */
#define MHA_ACTIVATION_GATE (1u << 0) /* args.gate; without it, none may be given */

typedef struct mha_activation_desc {
    size_t rows;  /* the largest of any call; 0: every call does nothing */
    size_t width; /* of a row of the output; at least 1. Packed tensors may as well be one row */
    mha_activation_kind kind;
    unsigned uses;        /* MHA_ACTIVATION_* */
    float alpha;          /* of MHA_ACTIVATION_SILU; 0: 1 */
    mha_type type;        /* of input and gate */
    mha_type output_type; /* 0: type */
    mha_tiling tiling;
} mha_activation_desc;

/* Rows are [1][1][rows][width] tensors: strides[2] is the row stride, all 0 is packed. With both
 * halves in rows of 2 width elements it is 2 width for input and gate, whose offsets differ by
 * width. */
typedef struct mha_activation_args {
    size_t rows; /* of this call, at most the desc's; 0: the desc's */
    mha_tensor input, gate;
    /* It overlaps no other argument, except that it may be exactly the input or the gate: the same
     * buffer, offset, strides and type. From first to last byte, so that the halves of one row are
     * written elsewhere. */
    mha_tensor output;
} mha_activation_args;

/* No workspace. */
typedef struct mha_activation mha_activation;
MHA_API mha_status mha_activation_create(mha_activation **out, mha_context *context,
                                         const mha_activation_desc *desc);
MHA_API void mha_activation_destroy(mha_activation **activation);
MHA_API mha_status mha_activation_enqueue(mha_activation *activation,
                                          const mha_activation_args *args, const mha_call *call);

/* The position-wise feed-forward network of a transformer block ("Attention is all you need",
 * section 3.3), of each row x by itself, with or without a gate:
 *
 *     y = activation(x W_hidden + b_hidden) W_output + b_output
 *     y = (activation(x W_gate + b_gate) * (x W_hidden + b_hidden)) W_output + b_output
 *
 * the second being SwiGLU with SILU, GEGLU with GELU, ReGLU with RELU (Shazeer, "GLU variants
 * improve transformer", 2020). W_gate and W_hidden are one product where both add a bias or none
 * does and, with the kernel for CPUs, hidden_width is a multiple of 32. */

/* Bits of mha_ffn_desc.flags. */
#define MHA_FFN_BIAS_HIDDEN (1u << 0)
#define MHA_FFN_BIAS_GATE (1u << 1) /* with MHA_FFN_GATE */
#define MHA_FFN_BIAS_OUTPUT (1u << 2)
#define MHA_FFN_GATE (1u << 3)
/* Weights are stored out x in, as MHA_LAYER_OUT_IN; without it in x out. */
#define MHA_FFN_OUT_IN (1u << 4)

typedef struct mha_ffn_desc {
    size_t rows;                    /* the largest of any call; 0: every call does nothing */
    size_t width;                   /* of a row; at least 1 */
    size_t hidden_width;            /* at least 1 */
    size_t output_width;            /* 0: width */
    mha_activation_kind activation; /* the article's is MHA_ACTIVATION_RELU; 0 is none */
    float alpha;                    /* of MHA_ACTIVATION_SILU; 0: 1 */
    unsigned flags;                 /* MHA_FFN_* */
    mha_type type;                  /* of input; between the projections all is float32 */
    mha_gemm_by projection;         /* who multiplies, as of a layer */
    mha_tiling tiling;              /* of the activation with a gate, a pass of its own; without one
                                     * the product of the hidden rows activates them */
    mha_type output_type;           /* 0: type */
    mha_type weight_type; /* of the caller's weights and biases, which are kept in float32; 0:
                           * float32 */
} mha_ffn_desc;

/* As those of a layer: matrices [1][1][rows][columns], in x out or, with MHA_FFN_OUT_IN, the other
 * way round; biases contiguous. The gate's and the hidden weights may be parts of one matrix. */
typedef struct mha_ffn_weights {
    mha_tensor hidden;      /* [width][hidden_width] */
    mha_tensor gate;        /* the same; given if and only if MHA_FFN_GATE is set */
    mha_tensor output;      /* [hidden_width][output_width] */
    mha_tensor bias_hidden; /* [hidden_width] */
    mha_tensor bias_gate;   /* [hidden_width] */
    mha_tensor bias_output; /* [output_width] */
} mha_ffn_weights;

typedef struct mha_ffn_args {
    size_t rows;       /* of this call, at most the desc's; 0: the desc's */
    mha_tensor input;  /* [1][1][rows][width]: strides[2] is the row stride, all 0 is packed */
    mha_tensor output; /* [1][1][rows][output_width]; it overlaps nothing */
} mha_ffn_args;

/* Loading, and what a failed load leaves, is as of a layer. */
typedef struct mha_ffn mha_ffn;
MHA_API mha_status mha_ffn_create(mha_ffn **out, mha_context *context, const mha_ffn_desc *desc);
MHA_API void mha_ffn_destroy(mha_ffn **ffn);
MHA_API mha_workspace mha_ffn_workspace(const mha_ffn *ffn);
MHA_API size_t mha_ffn_explain(const mha_ffn *ffn, char *text, size_t capacity);
MHA_API mha_status mha_ffn_load(mha_ffn *ffn, const mha_ffn_weights *weights, const mha_call *call);
MHA_API mha_status mha_ffn_enqueue(mha_ffn *ffn, const mha_ffn_args *args, const mha_call *call);

/* ------------------------------------------------------------------------------------ blocks -- */

/* The encoder and decoder layers of a transformer (section 3.1 of the article), whole, in one call:
 * steps in order, each a function f of the rows that is added to them, and a norm.
 *
 *     norms after  (Vaswani et al., 2017):                       x = norm(x + f(x))
 *     norms before (Xiong et al., "On layer normalization in the transformer architecture", 2020):
 *                                                                x = x + f(norm(x))
 *
 * Each step and its norm have weights of their own. Rows are tokens: row b * len + i is token i of
 * batch b. All that lies between input and output stays in the workspace, and is float32 whatever
 * type they and the weights have. */
typedef enum mha_norm_place {
    MHA_NORM_AFTER = 0,
    MHA_NORM_BEFORE = 1 /* nothing is normed after the last step: stacks end with an mha_norm */
} mha_norm_place;

/* Where the feed-forward network stands. Around: one before and one after, each with weights of its
 * own ("macaron": Lu et al., "Understanding and improving transformer from a multi-particle dynamic
 * system point of view", 2019, who also halve what both give; the caller may halve W_output). */
typedef enum mha_ffn_place {
    MHA_FFN_AFTER = 0,  /* the attention, as in the article */
    MHA_FFN_BEFORE = 1, /* before the attention */
    MHA_FFN_AROUND = 2
} mha_ffn_place;

/* Of a norm, contiguous, [width] each; given if and only if norm.uses says so. */
typedef struct mha_norm_weights {
    mha_tensor weight, bias;
} mha_norm_weights;

typedef struct mha_encoder_desc {
    /* As of a layer, of batch sequences of query_len tokens at most. query_width is that of rows,
     * and output_width is the same. attention.key_len is 0, or the room of a cache with
     * MHA_USES_APPEND, whose new_len is 0: all rows of a call are new. attention.type is that of
     * the block's input, output_type that of its output; new_type is 0, and so is key_value_type
     * but that of a cache. */
    mha_layer_desc self_attention;
    /* Its rows, width and output_width are 0: the block's. So are type and output_type. */
    mha_ffn_desc feed_forward;
    mha_ffn_place feed_forward_place;
    mha_norm_desc norm; /* of all steps: kind, epsilon, tiling, weight_type, and in uses
                         * MHA_NORM_WEIGHT and MHA_NORM_BIAS; the rest is 0 */
    mha_norm_place norm_place;
} mha_encoder_desc;

/* What the desc says that there is not stays empty. PyTorch's in_proj_weight [3 width][width], rows
 * of query, key and value, is three tensors in one buffer with offsets. */
typedef struct mha_encoder_weights {
    mha_layer_weights self_attention;
    mha_ffn_weights feed_forward;        /* the one after the attention */
    mha_ffn_weights feed_forward_before; /* the one before it */
    mha_norm_weights norm_self_attention, norm_feed_forward, norm_feed_forward_before;
} mha_encoder_weights;

typedef struct mha_encoder_args {
    size_t len;        /* tokens of each sequence in this call, at most the desc's; 0: the desc's */
    mha_tensor input;  /* [1][1][batch * len][width]: strides[2] is the row stride, 0 is packed */
    mha_tensor output; /* the same shape; it overlaps nothing */
    /* Mask, lengths and other options and outputs that self_attention.attention.uses names. query,
     * new_key, new_value, output and the lengths stay empty, key and value too or, with
     * MHA_USES_APPEND, are the cache, and key_len may be that of the call. */
    mha_attention_args self_attention;
} mha_encoder_args;

/* Loading, and what a failed load leaves, is as of a layer. With a cache and MHA_AFTER_PAST an
 * encoder layer is that of a model that has decoders only, such as GPT. */
typedef struct mha_encoder mha_encoder;
MHA_API mha_status mha_encoder_create(mha_encoder **out, mha_context *context,
                                      const mha_encoder_desc *desc);
MHA_API void mha_encoder_destroy(mha_encoder **encoder);
MHA_API mha_workspace mha_encoder_workspace(const mha_encoder *encoder);
MHA_API size_t mha_encoder_explain(const mha_encoder *encoder, char *text, size_t capacity);
MHA_API mha_status mha_encoder_load(mha_encoder *encoder, const mha_encoder_weights *weights,
                                    const mha_call *call);
MHA_API mha_status mha_encoder_enqueue(mha_encoder *encoder, const mha_encoder_args *args,
                                       const mha_call *call);

/* Between self attention and what follows a decoder layer attends to a memory, the output of an
 * encoder. Causal is not implied: set MHA_USES_CAUSAL in self_attention.attention. */
typedef struct mha_decoder_desc {
    mha_layer_desc self_attention; /* as of an encoder */
    /* Its key_len is the memory's; batch, query_len, query_width and the types of query and output
     * are 0: the block's. key_width and key_value_type are those of the memory's rows; 0: the
     * block's. No cache. */
    mha_layer_desc cross_attention;
    mha_ffn_desc feed_forward;
    mha_ffn_place feed_forward_place; /* before: of both attentions */
    mha_norm_desc norm;
    mha_norm_place norm_place;
} mha_decoder_desc;

typedef struct mha_decoder_weights {
    mha_layer_weights self_attention, cross_attention;
    mha_ffn_weights feed_forward, feed_forward_before;
    mha_norm_weights norm_self_attention, norm_cross_attention, norm_feed_forward,
        norm_feed_forward_before;
} mha_decoder_weights;

typedef struct mha_decoder_args {
    size_t len;
    mha_tensor input, output;
    mha_tensor memory;                  /* [batch][1][key_len][key_width], of any strides */
    mha_attention_args self_attention;  /* as of an encoder */
    mha_attention_args cross_attention; /* likewise; key_len: the memory's of this call, or 0 */
} mha_decoder_args;

typedef struct mha_decoder mha_decoder;
MHA_API mha_status mha_decoder_create(mha_decoder **out, mha_context *context,
                                      const mha_decoder_desc *desc);
MHA_API void mha_decoder_destroy(mha_decoder **decoder);
MHA_API mha_workspace mha_decoder_workspace(const mha_decoder *decoder);
MHA_API size_t mha_decoder_explain(const mha_decoder *decoder, char *text, size_t capacity);
MHA_API mha_status mha_decoder_load(mha_decoder *decoder, const mha_decoder_weights *weights,
                                    const mha_call *call);
MHA_API mha_status mha_decoder_enqueue(mha_decoder *decoder, const mha_decoder_args *args,
                                       const mha_call *call);

/* --------------------------------------------------------------------------- host arrays -- */

/* The same attentions, layers, feed-forward networks, encoder and decoder layers on plain host
 * arrays: these calls copy to the device, run, copy back and return when the results are there.
 * They allocate device memory on every call: a program that minds the time uses the enqueue calls.
 * The arrays may overlap as they like: the device works on copies. On an error no output array has
 * changed, unless the sentence says that copying back failed. With MHA_USES_APPEND there is an
 * enqueue call only: a cache lives on the device. They work in a queue of their own, so what was
 * enqueued with the object before, a load as well, must have completed. A load that fails leaves
 * what the load from the device leaves. */

/* Half types are their 16 bits, as uint16_t. */
typedef struct mha_host_input {
    const void *data;  /* NULL: not given */
    size_t strides[4]; /* as in mha_tensor */
} mha_host_input;

typedef struct mha_host_output {
    void *data;
    size_t strides[4];
} mha_host_output;

typedef struct mha_host_args { /* as in mha_attention_args */
    size_t query_len, key_len;
    mha_host_input query, key, value, bias, mask, alibi_slopes, sinks;
    mha_host_output output, probs, scores, lse;
    const int32_t *key_lengths;
    const int32_t *key_lengths_per_query;
    const int32_t *key_starts;
    const int32_t *query_offsets;
    const int32_t *key_offsets;
    uint64_t dropout_seed;
    uint32_t dropout_offset;
} mha_host_args;

MHA_API mha_status mha_attention_run(mha_attention *attention, const mha_host_args *args);

typedef struct mha_layer_host_weights { /* as in mha_layer_weights */
    mha_host_input query, key, value, output;
    const void *bias_query, *bias_key, *bias_value, *bias_output;
} mha_layer_host_weights;

MHA_API mha_status mha_layer_load_host(mha_layer *layer, const mha_layer_host_weights *weights);
MHA_API mha_status mha_layer_run(mha_layer *layer, const mha_host_args *args);

typedef struct mha_ffn_host_weights { /* as in mha_ffn_weights */
    mha_host_input hidden, gate, output;
    const void *bias_hidden, *bias_gate, *bias_output;
} mha_ffn_host_weights;

typedef struct mha_ffn_host_args { /* as in mha_ffn_args */
    size_t rows;
    mha_host_input input;
    mha_host_output output;
} mha_ffn_host_args;

MHA_API mha_status mha_ffn_load_host(mha_ffn *ffn, const mha_ffn_host_weights *weights);
MHA_API mha_status mha_ffn_run(mha_ffn *ffn, const mha_ffn_host_args *args);

typedef struct mha_norm_host_weights { /* as in mha_norm_weights */
    const void *weight, *bias;
} mha_norm_host_weights;

typedef struct mha_encoder_host_weights { /* as in mha_encoder_weights */
    mha_layer_host_weights self_attention;
    mha_ffn_host_weights feed_forward, feed_forward_before;
    mha_norm_host_weights norm_self_attention, norm_feed_forward, norm_feed_forward_before;
} mha_encoder_host_weights;

typedef struct mha_encoder_host_args { /* as in mha_encoder_args */
    size_t len;
    mha_host_input input;
    mha_host_output output;
    mha_host_args self_attention; /* options; arrays of tokens and both lengths stay empty */
} mha_encoder_host_args;

MHA_API mha_status mha_encoder_load_host(mha_encoder *encoder,
                                         const mha_encoder_host_weights *weights);
MHA_API mha_status mha_encoder_run(mha_encoder *encoder, const mha_encoder_host_args *args);

typedef struct mha_decoder_host_weights { /* as in mha_decoder_weights */
    mha_layer_host_weights self_attention, cross_attention;
    mha_ffn_host_weights feed_forward, feed_forward_before;
    mha_norm_host_weights norm_self_attention, norm_cross_attention, norm_feed_forward,
        norm_feed_forward_before;
} mha_decoder_host_weights;

typedef struct mha_decoder_host_args { /* as in mha_decoder_args */
    size_t len;
    mha_host_input input, memory;
    mha_host_output output;
    mha_host_args self_attention;  /* as of an encoder */
    mha_host_args cross_attention; /* likewise, but key_len may be given */
} mha_decoder_host_args;

MHA_API mha_status mha_decoder_load_host(mha_decoder *decoder,
                                         const mha_decoder_host_weights *weights);
MHA_API mha_status mha_decoder_run(mha_decoder *decoder, const mha_decoder_host_args *args);

#ifdef __cplusplus
}
#endif

#endif
