/* Names and texts of all statuses: ours, OpenCL's and CLBlast's. */
#include "mha.h"

typedef struct status_entry {
    mha_status value;
    const char *name;
    const char *text;
} status_entry;

/* OpenCL's codes that a program may meet at run time, and CLBlast's own. */
#define FOREIGN_STATUS_MAP(X)                                                          \
    X(CL_DEVICE_NOT_FOUND, -1, "no device of that type")                               \
    X(CL_DEVICE_NOT_AVAILABLE, -2, "the device is not available, perhaps lost")        \
    X(CL_COMPILER_NOT_AVAILABLE, -3, "the driver has no compiler")                     \
    X(CL_MEM_OBJECT_ALLOCATION_FAILURE, -4, "the device has no memory left")           \
    X(CL_OUT_OF_RESOURCES, -5, "the device is out of resources")                       \
    X(CL_OUT_OF_HOST_MEMORY, -6, "the driver is out of host memory")                   \
    X(CL_PROFILING_INFO_NOT_AVAILABLE, -7, "no profiling information")                 \
    X(CL_MEM_COPY_OVERLAP, -8, "source and destination of a copy overlap")             \
    X(CL_BUILD_PROGRAM_FAILURE, -11, "a kernel did not compile")                       \
    X(CL_MAP_FAILURE, -12, "a buffer could not be mapped")                             \
    X(CL_MISALIGNED_SUB_BUFFER_OFFSET, -13, "a sub-buffer starts at an odd address")   \
    X(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, -14, "an event waited for failed") \
    X(CL_COMPILE_PROGRAM_FAILURE, -15, "a kernel did not compile")                     \
    X(CL_LINKER_NOT_AVAILABLE, -16, "the driver has no linker")                        \
    X(CL_LINK_PROGRAM_FAILURE, -17, "a program did not link")                          \
    X(CL_INVALID_VALUE, -30, "an invalid value")                                       \
    X(CL_INVALID_DEVICE_TYPE, -31, "an invalid device type")                           \
    X(CL_INVALID_PLATFORM, -32, "an invalid platform")                                 \
    X(CL_INVALID_DEVICE, -33, "an invalid device")                                     \
    X(CL_INVALID_CONTEXT, -34, "an invalid context, or objects of two contexts")       \
    X(CL_INVALID_QUEUE_PROPERTIES, -35, "invalid queue properties")                    \
    X(CL_INVALID_COMMAND_QUEUE, -36, "an invalid command queue")                       \
    X(CL_INVALID_HOST_PTR, -37, "an invalid host pointer")                             \
    X(CL_INVALID_MEM_OBJECT, -38, "an invalid buffer")                                 \
    X(CL_INVALID_BINARY, -42, "an invalid program binary")                             \
    X(CL_INVALID_BUILD_OPTIONS, -43, "invalid build options")                          \
    X(CL_INVALID_PROGRAM, -44, "an invalid program")                                   \
    X(CL_INVALID_PROGRAM_EXECUTABLE, -45, "a program that is not built")               \
    X(CL_INVALID_KERNEL_NAME, -46, "a program without that kernel")                    \
    X(CL_INVALID_KERNEL_DEFINITION, -47, "a kernel that differs between devices")      \
    X(CL_INVALID_KERNEL, -48, "an invalid kernel")                                     \
    X(CL_INVALID_ARG_INDEX, -49, "an invalid argument index")                          \
    X(CL_INVALID_ARG_VALUE, -50, "an invalid argument value")                          \
    X(CL_INVALID_ARG_SIZE, -51, "an argument of the wrong size")                       \
    X(CL_INVALID_KERNEL_ARGS, -52, "a kernel argument is not set")                     \
    X(CL_INVALID_WORK_DIMENSION, -53, "an invalid work dimension")                     \
    X(CL_INVALID_WORK_GROUP_SIZE, -54, "a work-group size the device cannot run")      \
    X(CL_INVALID_WORK_ITEM_SIZE, -55, "a work-item size the device cannot run")        \
    X(CL_INVALID_GLOBAL_OFFSET, -56, "an invalid global offset")                       \
    X(CL_INVALID_EVENT_WAIT_LIST, -57, "an invalid event wait list")                   \
    X(CL_INVALID_EVENT, -58, "an invalid event")                                       \
    X(CL_INVALID_OPERATION, -59, "an operation that is not allowed here")              \
    X(CL_INVALID_BUFFER_SIZE, -61, "a buffer size the device cannot give")             \
    X(CL_INVALID_GLOBAL_WORK_SIZE, -63, "an invalid global work size")                 \
    X(CL_INVALID_PROPERTY, -64, "an invalid property")                                 \
    X(CL_PLATFORM_NOT_FOUND_KHR, -1001, "the loader found no OpenCL platform")         \
    X(CLBlastNotImplemented, -1024, "a routine that CLBlast lacks")                    \
    X(CLBlastInvalidMatrixA, -1022, "CLBlast: matrix A is no valid buffer")            \
    X(CLBlastInvalidMatrixB, -1021, "CLBlast: matrix B is no valid buffer")            \
    X(CLBlastInvalidMatrixC, -1020, "CLBlast: matrix C is no valid buffer")            \
    X(CLBlastInvalidDimension, -1017, "CLBlast: m, n and k must be larger than 0")     \
    X(CLBlastInvalidLeadDimA, -1016, "CLBlast: row stride of A below its columns")     \
    X(CLBlastInvalidLeadDimB, -1015, "CLBlast: row stride of B below its columns")     \
    X(CLBlastInvalidLeadDimC, -1014, "CLBlast: row stride of C below its columns")     \
    X(CLBlastInsufficientMemoryA, -1011, "CLBlast: the buffer of A is too small")      \
    X(CLBlastInsufficientMemoryB, -1010, "CLBlast: the buffer of B is too small")      \
    X(CLBlastInsufficientMemoryC, -1009, "CLBlast: the buffer of C is too small")      \
    X(CLBlastInsufficientMemoryTemp, -2050, "CLBlast: its workspace is too small")     \
    X(CLBlastInvalidBatchCount, -2049, "CLBlast: the batch count must be positive")    \
    X(CLBlastInvalidLocalMemUsage, -2046, "CLBlast: too little local memory")          \
    X(CLBlastNoHalfPrecision, -2045, "CLBlast: the device has no half precision")      \
    X(CLBlastNoDoublePrecision, -2044, "CLBlast: the device has no double precision")  \
    X(CLBlastDatabaseError, -2041, "CLBlast: no tuning entry for the device")          \
    X(CLBlastUnknownError, -2040, "CLBlast: an unknown error")                         \
    X(CLBlastUnexpectedError, -2039, "CLBlast: an unexpected exception")

#define ENTRY(name, value, text) { value, #name, text },
static const status_entry entries[] = { MHA_STATUS_MAP(ENTRY) FOREIGN_STATUS_MAP(ENTRY) };

static const status_entry *find(mha_status status)
{
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        if (entries[i].value == status)
            return &entries[i];
    return NULL;
}

const char *mha_status_name(mha_status status)
{
    const status_entry *entry = find(status);
    return entry ? entry->name : "unknown status";
}

const char *mha_status_text(mha_status status)
{
    const status_entry *entry = find(status);
    return entry ? entry->text : "unknown status";
}

unsigned mha_version(void)
{
    return MHA_VERSION_MAJOR << 16 | MHA_VERSION_MINOR << 8 | MHA_VERSION_PATCH;
}
