/* An OpenCL layer for tests: it stands between this process and every driver, CLBlast's calls
 * included, counts calls and living objects, and makes a chosen call fail. A test program links it
 * and calls layer_start() before its first OpenCL call. All functions may be called from any
 * thread. */
#ifndef MHA_TESTS_LAYER_H
#define MHA_TESTS_LAYER_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>

/* Asks the OpenCL loader for this layer. Too late once the process has called OpenCL: test
 * layer_active() after the first call, or all counts may be 0 for no reason. */
void layer_start(void);
bool layer_active(void);

/* Counts start again at 0; no call is to fail; no answer is changed. Living objects stay. */
void layer_reset(void);

/* The calls of one OpenCL function, by its name ("clCreateBuffer"), since the last reset. A name
 * that the layer does not watch ends the program, here and below. */
long layer_count(const char *function);

/* The nth call from now (1: the next) returns `code` and does nothing; later ones work again.
 * layer_pending(): failures that were asked for and have not happened yet. */
void layer_fail(const char *function, long nth, cl_int code);
long layer_pending(void);

/* References made or retained through OpenCL's interface and not released yet, of one type
 * ("cl_context", "cl_command_queue", "cl_mem", "cl_program", "cl_kernel", "cl_event") or, with
 * NULL, of all. What a driver retains for itself is not seen. */
long layer_live(const char *type);

/* Every device answers clGetDeviceInfo(name) with this number, so that a large device can play a
 * small one. For infos that are one cl_uint, size_t or cl_ulong. At most 8 at a time. */
void layer_answer(cl_device_info name, size_t value);

/* The name of the index-th watched function, NULL after the last. */
const char *layer_function(size_t index);

#endif
