/* A wall clock that can be set for one process: the file $CLOCK_STEP holds the seconds by which it is wrong.
   Waits that are due at a time of the wall clock last as long as they would under a real step: until that clock says so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define SLICE_NS 20000000L
#define WALL 1000000000L /* a time beyond this many seconds is one of the wall clock: no host has been up for 30 years */

static long step(void) {
    char text[32] = "";
    int fd = open(getenv("CLOCK_STEP") ?: CLOCK_STEP_FILE, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    return got > 0 ? atol(text) : 0;
}
int clock_gettime(clockid_t clock, struct timespec *time) {
    int code = syscall(SYS_clock_gettime, clock, time);
    if (!code && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += step();
    return code;
}
int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
int timespec_get(struct timespec *time, int base) {
    return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, time) ? base : 0;
}
/* The end of the next slice by the true clock; 0 when the deadline is over by the wrong one. */
static int slice(const struct timespec *deadline, struct timespec *until) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec > deadline->tv_sec || (now.tv_sec == deadline->tv_sec && now.tv_nsec >= deadline->tv_nsec)) return 0;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, until);
    long left = (deadline->tv_sec - now.tv_sec > 1) ? SLICE_NS : (deadline->tv_sec - now.tv_sec) * 1000000000L + deadline->tv_nsec - now.tv_nsec;
    until->tv_nsec += left < SLICE_NS ? left : SLICE_NS;
    if (until->tv_nsec >= 1000000000L) { until->tv_nsec -= 1000000000L; until->tv_sec++; }
    return 1;
}
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *deadline) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2") ?: dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    if (deadline->tv_sec < WALL) return real(cond, mutex, deadline);
    struct timespec until;
    int code = ETIMEDOUT;
    while (code == ETIMEDOUT && slice(deadline, &until)) code = real(cond, mutex, &until);
    return code;
}
int cnd_timedwait(cnd_t *restrict cond, mtx_t *restrict mutex, const struct timespec *restrict deadline) {
    static int (*real)(cnd_t *, mtx_t *, const struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "cnd_timedwait");
    struct timespec until;
    int code = thrd_timedout;
    while (code == thrd_timedout && slice(deadline, &until)) code = real(cond, mutex, &until);
    return code;
}
