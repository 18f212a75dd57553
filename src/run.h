/* One enqueue: the rules of the caller's mha_call, the launches in order, the event at the end. */
#ifndef MHA_RUN_H
#define MHA_RUN_H

#include "context.h"

typedef struct mha_run {
    mha_context *context;
    const mha_call *call;
    cl_command_queue queue;
    cl_mem workspace;
    const char *wrote; /* the output whose kernel was queued last: for a failure's sentence */
} mha_run;

/* Checks queue, events and workspace; queues nothing. `who` is the public function, for sentences.
 */
mha_status mha_run_begin(mha_run *run, mha_context *context, const mha_call *call, const char *who,
                         size_t workspace_bytes);
/* Makes the queue wait for the caller's events: after all checks, before the first stage. */
mha_status mha_run_wait(mha_run *run);
/* Gives the caller his event. Takes the status of the stages and returns that of the call. */
mha_status mha_run_end(mha_run *run, mha_status status);

/* A stage's kernel. `stage` is what the caller's callback is told. */
mha_status mha_run_launch(mha_run *run, const char *stage, const mha_kernel *kernel,
                          const mha_arg *args, size_t num_args, const mha_grid *grid);
/* A copy from host memory that lives until the call's event. */
mha_status mha_run_write(mha_run *run, const char *stage, cl_mem to, size_t offset_bytes,
                         const void *from, size_t bytes);

/* For a stage that queues its commands itself (CLBlast): whether to ask for an event, and telling
 * the callback. The event is released. */
bool mha_run_wants_events(const mha_run *run);
void mha_run_tell(mha_run *run, const char *stage, const char *what, cl_event event);

#endif
