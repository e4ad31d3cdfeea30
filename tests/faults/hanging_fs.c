/* A file system that shows, read-only, what lies in another directory: `hanging_fs -f -s MOUNT BEHIND`. Stopped (SIGSTOP), it is a
   mount whose server has gone: whoever looks at it hangs, until it goes on or is killed. After SIGUSR1 it stops by itself, once 4 MiB
   have been read since. */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

static int top;
static volatile sig_atomic_t is_to_stop;
static size_t total;
static void stop_later(int number) { (void)number, is_to_stop = 1; }
static const char *below(const char *path) { return path[1] ? path + 1 : "."; }
static int get(const char *path, struct stat *into, struct fuse_file_info *file) {
    (void)file;
    return fstatat(top, below(path), into, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}
static int list(const char *path, void *into, fuse_fill_dir_t fill, off_t at, struct fuse_file_info *file, enum fuse_readdir_flags flags) {
    (void)at, (void)file, (void)flags;
    DIR *directory = fdopendir(openat(top, below(path), O_RDONLY | O_DIRECTORY));
    if (!directory) return -errno;
    for (struct dirent *entry; (entry = readdir(directory));) fill(into, entry->d_name, NULL, 0, 0);
    closedir(directory);
    return 0;
}
static int get_bytes(const char *path, char *into, size_t size, off_t at, struct fuse_file_info *file) {
    (void)file;
    if (is_to_stop && (total += size) > 4 << 20) is_to_stop = 0, raise(SIGSTOP);
    int fd = openat(top, below(path), O_RDONLY);
    if (fd < 0) return -errno;
    ssize_t count = pread(fd, into, size, at);
    int problem = errno;
    close(fd);
    return count < 0 ? -problem : (int)count;
}
static const struct fuse_operations operations = {.getattr = get, .readdir = list, .read = get_bytes};
int main(int count, char **arguments) {
    top = open(arguments[count - 1], O_PATH | O_DIRECTORY);
    signal(SIGUSR1, stop_later);
    return top < 0 || fuse_main(count - 1, arguments, &operations, NULL);
}
