/* Devices: what they are, and which one a word means. */
#ifndef MHA_DEVICE_H
#define MHA_DEVICE_H

#include "mha.h"

/* The facts of one device. The indexes are found by looking it up among all platforms. */
mha_status mha_device_facts(const mha_log *log, cl_device_id device, mha_device_info *info);

/* The device that a name and a type mean (see mha_context_options); both may be empty. */
mha_status mha_device_choose(const mha_log *log, const char *name, cl_device_type type,
                             mha_device_info *info);

#endif
