/* What the tools need of POSIX and standard C lacks. */
#define _POSIX_C_SOURCE 200809L
#include "os.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double os_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

bool os_is_terminal(FILE *stream)
{
    return isatty(fileno(stream));
}

bool os_has_program(const char *name)
{
    char command[128];
    const int length =
        snprintf(command, sizeof command, "command -v %s >/dev/null 2>/dev/null", name);
    return length > 0 && (size_t)length < sizeof command && !system(command);
}

FILE *os_start_program(const char *name)
{
    signal(SIGPIPE, SIG_IGN);
    return popen(name, "w");
}

int os_end_program(FILE *stream)
{
    const int ended = pclose(stream);
    return ended >= 0 && WIFEXITED(ended) ? WEXITSTATUS(ended) : 255;
}
