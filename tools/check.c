/* One case on its way through the library. */
#include "check.h"

#include "compare.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void decide(check *self, check_verdict verdict, const char *format, va_list list)
{
    if (self->verdict != CHECK_UNDECIDED)
        return;
    self->verdict = verdict;
    vsnprintf(self->text, sizeof self->text, format, list);
}

void check_fail(check *self, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    decide(self, CHECK_FAILED, format, list);
    va_end(list);
}

void check_skip(check *self, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    decide(self, CHECK_SKIPPED, format, list);
    va_end(list);
}

bool check_stopped(const check *self)
{
    return self->verdict != CHECK_UNDECIDED || self->status;
}

const case_tensor *check_need(check *self, const char *name)
{
    const case_tensor *const tensor = case_input(self->file, name);
    if (!tensor)
        check_fail(self, "the case has no input \"%s\"", name);
    return tensor;
}

bool check_wants(const check *self, const char *name)
{
    return self->expects_error || case_output(self->file, name);
}

static check_buffer *find_buffer(check *self, const char *name)
{
    for (size_t i = 0; i < self->num_buffers; i++)
        if (!strcmp(self->buffers[i].name, name))
            return &self->buffers[i];
    return NULL;
}

static check_buffer *add_buffer(check *self, check_buffer buffer, const void *data, size_t before,
                                size_t count, size_t item_bytes)
{
    if (self->num_buffers == CHECK_MAX_BUFFERS) {
        check_fail(self, "the case has too many tensors");
        return NULL;
    }
    check_buffer *const added = &self->buffers[self->num_buffers];
    *added = buffer;
    const cl_int error = guarded_create(&added->guarded, self->setup->queue, data, item_bytes,
                                        before, count, GUARDED_EDGE);
    if (error) {
        check_fail(self, "no buffer for %s: %s (%d)", buffer.name, mha_status_name(error), error);
        return NULL;
    }
    self->num_buffers++;
    return added;
}

static mha_tensor tensor_in(const check_buffer *buffer)
{
    if (!buffer)
        return (mha_tensor){ 0 };
    return (mha_tensor){ .buffer = buffer->guarded.memory, .offset = buffer->guarded.before };
}

/* Is `name` one of the names between commas? */
static bool is_listed(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, length) && (!at[length] || at[length] == ','))
            return true;
    return false;
}

/* The buffer of another input that same_buffer says is one with `tensor`. */
static check_buffer *find_twin(check *self, const case_tensor *tensor)
{
    const char *const list = case_string(self->file, "same_buffer", NULL);
    if (!list || !is_listed(list, tensor->name))
        return NULL;
    for (size_t i = 0; i < self->num_buffers; i++) {
        check_buffer *const twin = &self->buffers[i];
        if (!is_listed(list, twin->name))
            continue;
        const guarded *const held = &twin->guarded;
        const size_t bytes = held->count * held->item_bytes;
        if (twin->type != tensor->type || held->count != tensor->storage ||
            memcmp(held->sent + held->before * held->item_bytes, tensor->data, bytes))
            check_fail(self, "same_buffer: %s and %s do not hold the same", twin->name,
                       tensor->name);
        return twin;
    }
    return NULL;
}

mha_tensor check_input(check *self, const case_tensor *tensor)
{
    if (!tensor || check_stopped(self))
        return (mha_tensor){ 0 };
    check_buffer *buffer = find_buffer(self, tensor->name);
    if (!buffer)
        buffer = find_twin(self, tensor);
    if (!buffer)
        buffer = add_buffer(
            self, (check_buffer){ .name = tensor->name, .type = tensor->type, .heads = 1 },
            tensor->data, GUARDED_EDGE, tensor->storage, case_type_bytes(tensor->type));
    mha_tensor result = tensor_in(buffer);
    result.offset += tensor->offset;
    if (tensor->strided && tensor->rank > 4)
        check_skip(self, "%s has strides and more than 4 axes", tensor->name);
    else if (tensor->strided)
        memcpy(&result.strides[4 - tensor->rank], tensor->strides,
               tensor->rank * sizeof tensor->strides[0]);
    return result;
}

mha_tensor check_made_input(check *self, const char *name, case_type type, const void *data,
                            size_t count)
{
    if (check_stopped(self))
        return (mha_tensor){ 0 };
    return tensor_in(add_buffer(self, (check_buffer){ .name = name, .type = type, .heads = 1 },
                                data, GUARDED_EDGE, count, case_type_bytes(type)));
}

mha_tensor check_output(check *self, const char *name, case_type type, size_t count, size_t heads)
{
    if (check_stopped(self))
        return (mha_tensor){ 0 };
    case_tensor *const want = case_output(self->file, name);
    if (want && want->count != count / heads)
        check_fail(self, "the case's %s has %zu elements, but its inputs make %zu", name,
                   want->count, count / heads);
    check_buffer *const input = find_buffer(self, name);
    if (input) {
        input->role = CHECK_OUTPUT;
        return tensor_in(input);
    }
    const check_buffer buffer = {
        .name = name, .role = CHECK_OUTPUT, .type = type, .heads = heads
    };
    return tensor_in(add_buffer(self, buffer, NULL, GUARDED_EDGE, count, case_type_bytes(type)));
}

mha_tensor check_made_output(check *self, const char *name, case_type type, const void *data,
                             size_t count)
{
    if (check_stopped(self))
        return (mha_tensor){ 0 };
    const check_buffer buffer = { .name = name, .role = CHECK_OUTPUT, .type = type, .heads = 1 };
    return tensor_in(add_buffer(self, buffer, data, GUARDED_EDGE, count, case_type_bytes(type)));
}

case_type check_output_type(const check *self, const char *name, case_type other)
{
    const case_tensor *const want = case_output(self->file, name);
    return want ? want->type : other;
}

/* Room for lengths in host memory, which lives as long as the check. */
static int32_t *new_lengths(check *self, size_t count)
{
    int32_t *const numbers = calloc(count + 1, sizeof *numbers);
    if (!numbers || self->num_lengths == CHECK_MAX_LENGTHS) {
        check_fail(self, numbers ? "the case has too many lengths" : "the host is out of memory");
        free(numbers);
        return NULL;
    }
    self->lengths[self->num_lengths++] = numbers;
    return numbers;
}

/* Where this pass wants them. */
static mha_lengths place_lengths(check *self, const char *name, const int32_t *numbers,
                                 size_t count)
{
    self->uses_lengths = true;
    if (!self->lengths_on_device)
        return (mha_lengths){ .host = numbers };
    const mha_tensor device = check_made_input(self, name, CASE_INT32, numbers, count);
    return (mha_lengths){ .buffer = device.buffer, .offset = device.offset };
}

mha_lengths check_lengths(check *self, const case_tensor *tensor, size_t first, size_t count)
{
    if (check_stopped(self))
        return (mha_lengths){ 0 };
    if (tensor->type != CASE_INT32 && tensor->type != CASE_INT64) {
        check_fail(self, "%s holds no whole numbers", tensor->name);
        return (mha_lengths){ 0 };
    }
    int32_t *const host = new_lengths(self, count);
    if (!host)
        return (mha_lengths){ 0 };
    for (size_t i = 0; i < count; i++) {
        const double value =
            case_type_value(tensor->type, tensor->data, tensor->offset + first + i);
        if (value < INT32_MIN || value > INT32_MAX)
            check_fail(self, "%s holds a length beyond int32", tensor->name);
        else
            host[i] = (int32_t)value;
    }
    return place_lengths(self, tensor->name, host, count);
}

mha_lengths check_made_lengths(check *self, const char *name, const int32_t *numbers, size_t count)
{
    if (check_stopped(self))
        return (mha_lengths){ 0 };
    int32_t *const host = new_lengths(self, count);
    if (!host)
        return (mha_lengths){ 0 };
    memcpy(host, numbers, count * sizeof *host);
    return place_lengths(self, name, host, count);
}

mha_type check_type(check *self, case_type type)
{
    switch (type) {
    case CASE_FLOAT32:
        return MHA_FLOAT32;
    case CASE_FLOAT16:
        return MHA_FLOAT16;
    case CASE_BFLOAT16:
        return MHA_BFLOAT16;
    default:
        check_skip(self, "%s is not a type of the interface", case_type_name(type));
        return MHA_TYPE_DEFAULT;
    }
}

bool check_ready(check *self)
{
    if (self->file->error[0])
        check_fail(self, "%s", self->file->error);
    const char *const key = case_unused_key(self->file);
    if (key)
        check_skip(self, "this program does not know the key \"%s\"", key);
    const char *const input = case_unused_input(self->file);
    if (input)
        check_skip(self, "no call takes the input \"%s\"", input);
    return !check_stopped(self);
}

mha_call check_call(check *self, mha_workspace workspace)
{
    mha_call call = { .queue = self->setup->queue };
    if (!workspace.bytes || check_stopped(self))
        return call;
    const check_buffer buffer = { .name = "the workspace", .role = CHECK_WORKSPACE };
    const check_buffer *const added = add_buffer(self, buffer, NULL, 0, workspace.bytes, 1);
    if (added)
        call.workspace = added->guarded.memory;
    return call;
}

void check_status(check *self, mha_status status, const char *call)
{
    if (!status || check_stopped(self))
        return;
    self->status = status;
    self->call = call;
}

static void fetch_all(check *self)
{
    cl_int error = clFinish(self->setup->queue);
    if (error)
        check_fail(self, "clFinish: %s (%d)", mha_status_name(error), error);
    for (size_t i = 0; i < self->num_buffers && !error; i++) {
        error = guarded_fetch(&self->buffers[i].guarded, self->setup->queue);
        if (error)
            check_fail(self, "%s cannot be read back: %s (%d)", self->buffers[i].name,
                       mha_status_name(error), error);
    }
}

/* Nothing was written where nothing may be written. */
static void check_untouched(check *self, bool outputs_too)
{
    for (size_t i = 0; i < self->num_buffers; i++) {
        const check_buffer *const buffer = &self->buffers[i];
        if (!guarded_edges_hold(&buffer->guarded))
            check_fail(self, "something was written outside %s", buffer->name);
        if (buffer->role == CHECK_INPUT && !guarded_unchanged(&buffer->guarded))
            check_fail(self, "the input %s was changed", buffer->name);
        if (buffer->role == CHECK_OUTPUT && outputs_too && !guarded_unchanged(&buffer->guarded))
            check_fail(self, "the refused call changed %s", buffer->name);
    }
}

static void describe(const case_tensor *want, const comparison *result, char *text, size_t size)
{
    char index[64], amount[96] = "";
    compare_print_index(want, result->index, index, sizeof index);
    if (isfinite(result->got) && isfinite(result->want))
        snprintf(amount, sizeof amount, " (off by %.3g, %.3g times the tolerance)",
                 fabs(result->got - result->want), result->ratio);
    if (isnan(result->got))
        snprintf(text, size, "%s%s is NaN, not %.9g", want->name, index, result->want);
    else
        snprintf(text, size, "%s%s is %.9g, not %.9g%s", want->name, index, result->got,
                 result->want, amount);
    const size_t used = strlen(text);
    snprintf(text + used, size - used, ", %zu of %zu wrong", result->wrong, result->compared);
}

/* All outputs that a buffer was bound to; the others are named in a skip. */
static void compare_all(check *self)
{
    char wrong[512] = "", missing[512] = "", right[256] = "";
    for (size_t i = 0; i < self->file->num_outputs; i++) {
        const case_tensor *const want = &self->file->outputs[i];
        const check_buffer *const buffer = find_buffer(self, want->name);
        char *const list = buffer && buffer->role == CHECK_OUTPUT ? right : missing;
        const size_t size = list == right ? sizeof right : sizeof missing;
        const size_t used = strlen(list);
        snprintf(list + used, size - used, "%s%s", used ? ", " : "", want->name);
        if (list == missing)
            continue;
        const comparison result =
            compare_output(want, buffer->type, guarded_content(&buffer->guarded), buffer->heads);
        if (result.compared && !(result.ratio <= self->worst))
            self->worst = result.ratio;
        if (!result.wrong)
            continue;
        const size_t before = strlen(wrong);
        if (before)
            snprintf(wrong + before, sizeof wrong - before, "; ");
        describe(want, &result, wrong + strlen(wrong), sizeof wrong - strlen(wrong));
    }
    if (wrong[0])
        check_fail(self, "%s", wrong);
    else if (missing[0])
        check_skip(self, "%s%sno call gives %s", right, right[0] ? " passed; " : "", missing);
}

/* The path that this run insists on cannot do the case, whatever the case wants: skipped. */
static bool skip_by_path(check *self)
{
    if (self->setup->path == MHA_PATH_DEFAULT || self->status != MHA_UNSUPPORTED ||
        !strstr(self->setup->sentence, "the path asked for"))
        return false;
    check_skip(self, "%s", self->setup->sentence);
    return true;
}

/* A status that is not MHA_OK in a case that wants a result. */
static void judge_failure(check *self)
{
    const bool may_refuse = case_flag(self->file, "refusal_allowed", false);
    if (self->status != MHA_UNSUPPORTED)
        check_fail(self, "%s: %s: %s", self->call, mha_status_name(self->status),
                   self->setup->sentence);
    else if (!may_refuse)
        check_skip(self, "%s", self->setup->sentence);
}

/* The status of a case that wants an error, which may name the one it wants. */
static void judge_refusal(check *self)
{
    static const struct {
        const char *word;
        mha_status status;
    } errors[] = {
        { "invalid_argument", MHA_INVALID_ARGUMENT },
        { "unsupported", MHA_UNSUPPORTED },
    };
    if (!self->status) {
        check_fail(self, "the call succeeded, but it must be refused");
        return;
    }
    const char *const wanted = case_string(self->file, "error", "");
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (strncmp(wanted, errors[i].word, strlen(errors[i].word)) ||
            self->status == errors[i].status)
            continue;
        if (self->status == MHA_UNSUPPORTED)
            check_skip(self, "%s", self->setup->sentence);
        check_fail(self, "%s: %s (%s), not %s", self->call, mha_status_name(self->status),
                   self->setup->sentence, mha_status_name(errors[i].status));
    }
}

void check_finish(check *self)
{
    /* The queue is drained in any case: the buffers are about to go. */
    if (self->verdict != CHECK_UNDECIDED) {
        clFinish(self->setup->queue);
        return;
    }
    fetch_all(self);
    if (self->verdict == CHECK_UNDECIDED)
        check_untouched(self, self->status != MHA_OK);
    if (self->verdict == CHECK_UNDECIDED && skip_by_path(self))
        return;
    if (self->expects_error)
        judge_refusal(self);
    else if (self->status)
        judge_failure(self);
    else if (self->verdict == CHECK_UNDECIDED)
        compare_all(self);
    if (self->verdict == CHECK_UNDECIDED)
        self->verdict = CHECK_PASSED;
}

void check_release(check *self)
{
    for (size_t i = 0; i < self->num_buffers; i++)
        guarded_release(&self->buffers[i].guarded);
    for (size_t i = 0; i < self->num_lengths; i++)
        free(self->lengths[i]);
    self->num_buffers = self->num_lengths = 0;
}
