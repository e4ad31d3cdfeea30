/* Files that ail, for one process that asks for it: reads that fail (EIO) and openings that are refused (EACCES), by path, and
   descriptors that a file server forgot (ESTALE). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST 4096
static char stale[MOST];
static char bad_path[4096], closed_path[4096];

void make_stale(int fd) { stale[fd] = 1; }
void make_bad(const char *path) { strncpy(bad_path, path, sizeof bad_path - 1); }
void make_closed(const char *path) { strncpy(closed_path, path, sizeof closed_path - 1); }

static int is_stale(int fd) { return fd >= 0 && fd < MOST && stale[fd]; }
static int leads_to(int fd, const char *path) {
    char link[64], target[4096];
    if (!path[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, target, sizeof target - 1);
    return size > 0 && (target[size] = 0, !strcmp(target, path));
}
ssize_t pread64(int fd, void *into, size_t size, off64_t at) {
    if (is_stale(fd)) return errno = ESTALE, -1;
    if (leads_to(fd, bad_path)) return errno = EIO, -1;
    return syscall(SYS_pread64, fd, into, size, at);
}
int fstat64(int fd, struct stat64 *into) {
    static int (*real)(int, struct stat64 *);
    if (is_stale(fd)) return errno = ESTALE, -1;
    if (!real) real = dlsym(RTLD_NEXT, "fstat64");
    return real(fd, into);
}
int open64(const char *path, int flags, ...) {
    int fd;
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    if (sscanf(path, "/proc/%*[^/]/fd/%d", &fd) == 1) { /* how product code opens what it has found */
        if (is_stale(fd)) return errno = ESTALE, -1;
        if (leads_to(fd, closed_path)) return errno = EACCES, -1;
    }
    return syscall(SYS_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode);
}
int close(int fd) { /* the next file with this number is well */
    if (is_stale(fd)) stale[fd] = 0;
    return syscall(SYS_close, fd);
}
/* What Python may be built to call instead. */
ssize_t pread(int fd, void *into, size_t size, off_t at) { return pread64(fd, into, size, at); }
int fstat(int fd, struct stat *into) { return fstat64(fd, (struct stat64 *)into); }
