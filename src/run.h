/* One enqueue: the rules of the caller's mha_call, the launches in order, the event at the end. */
#ifndef MHA_RUN_H
#define MHA_RUN_H

#include "context.h"

typedef struct mha_run {
    mha_context *context;
    const mha_call *call;
    cl_command_queue queue;
    cl_mem workspace;
    /* For a failure's sentence: outputs that the next launch writes, and that queued ones have. */
    const char *pending[4];
    const char *wrote[6];
    bool aside; /* the next launches write the workspace only: what is pending stays so */
} mha_run;

/* The first thing in every enqueue, whatever is wrong with it: no event yet. */
void mha_run_clear_event(const mha_call *call);
/* Checks queue, events and workspace; queues nothing. `who` is the public function, for sentences.
 */
mha_status mha_run_begin(mha_run *run, mha_context *context, const mha_call *call, const char *who,
                         size_t workspace_bytes);
/* Makes the queue wait for the caller's events: after all checks, before the first stage. */
mha_status mha_run_wait(mha_run *run);
/* Gives the caller his event. Takes the status of the stages and returns that of the call. */
mha_status mha_run_end(mha_run *run, mha_status status);

/* What an object is after copies to its weights: loaded if they went well, or if it was before and
 * none was queued, which spoils what was there. */
void mha_run_note_load(const mha_run *run, mha_status status, bool *loaded);

/* The next launch writes this output of the caller's; NULL (it writes the workspace) is passed
 * over. */
void mha_run_will_write(mha_run *run, const char *output);

/* A stage's kernel. `stage` is what the caller's callback is told. */
mha_status mha_run_launch(mha_run *run, const char *stage, const mha_kernel *kernel,
                          const mha_arg *args, size_t num_args, const mha_grid *grid);
/* A copy from host memory that lives until the call's event. */
mha_status mha_run_write(mha_run *run, const char *stage, cl_mem to, size_t offset_bytes,
                         const void *from, size_t bytes);

/* For a stage that queues its commands itself (CLBlast): whether to ask for an event, and telling
 * the run that it is queued, and the callback. The event is released. */
bool mha_run_wants_events(const mha_run *run);
void mha_run_queued(mha_run *run, const char *stage, const char *what, cl_event event);

#endif
