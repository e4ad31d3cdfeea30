/* Loaded before libc: nobody is killed by the kernel because its parent is dead. What then protects the lanes is fencing alone. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int prctl(int option, ...) {
    va_list more;
    va_start(more, option);
    long a = va_arg(more, long), b = va_arg(more, long), c = va_arg(more, long), d = va_arg(more, long);
    va_end(more);
    if (option != PR_SET_PDEATHSIG) return (int)syscall(SYS_prctl, option, a, b, c, d);
    setsid(); /* else the kernel wakes up and hangs up those that were stopped when their group loses its last parent */
    return 0;
}
