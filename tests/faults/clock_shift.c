/* Shifts the wall clock of one process, and of what it starts.
 *
 * Loaded before the C library (LD_PRELOAD). The shift is a signed number of microseconds, 8 bytes in
 * the byte order of the machine, at the beginning of a file that is mapped: whoever writes there lets
 * the clock jump. Which file, the environment variable CLOCK_SHIFT_FILE says, or clock_shift_by().
 * Only CLOCK_REALTIME, gettimeofday and time are shifted: whoever waits, waits by a monotonic clock.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static volatile const int64_t *shift_us;

int clock_shift_by(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    int failed = mapped == MAP_FAILED ? errno : 0;
    close(file);
    if (!failed)
        shift_us = mapped;
    return failed;
}

__attribute__((constructor)) static void begin(void)
{
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CLOCK_SHIFT_FILE");
    if (path && *path && clock_shift_by(path))
        _exit(126);
}

static int is_wall(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!real_clock_gettime)
        begin();
    int failed = real_clock_gettime(clock, now);
    if (failed || !shift_us || !is_wall(clock))
        return failed;
    int64_t by_us = *shift_us; /* once: it may change at any time */
    int64_t ns = now->tv_nsec + by_us % 1000000 * 1000;
    now->tv_sec += by_us / 1000000 + ns / 1000000000 - (ns < 0 && ns % 1000000000);
    now->tv_nsec = (ns % 1000000000 + 1000000000) % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact))
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now)
        *now = exact.tv_sec;
    return exact.tv_sec;
}
