/* What the tools need of POSIX and standard C lacks. */
#ifndef MHA_TOOLS_OS_H
#define MHA_TOOLS_OS_H

#include <stdbool.h>
#include <stdio.h>

/* Milliseconds since some moment, never going back. */
double os_now_ms(void);

/* Whether a person looks at the stream. */
bool os_is_terminal(FILE *stream);

/* Whether a program of this plain name is on PATH. */
bool os_has_program(const char *name);

/* Starts a program of a plain name that reads what is written to the stream. NULL: errno says why.
 * From then on writing to a program that has ended fails, and does not end the caller. */
FILE *os_start_program(const char *name);

/* Ends its input and waits for it. Returns its exit code, or 255 where it has none. */
int os_end_program(FILE *stream);

#endif
