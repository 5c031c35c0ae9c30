/* Loaded before a server's own libraries: its time of day is that of the machine and as many seconds as the file OFFSET says. Its clocks that
   only run stay as they are, as they do if somebody sets a machine's clock.
   The file is read at each call, by the kernel's own calls: a server asks for the time before it can allocate. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    char text[24];
    long file = syscall(SYS_openat, AT_FDCWD, OFFSET, O_RDONLY | O_CLOEXEC, 0);
    long length = file < 0 ? -1 : syscall(SYS_read, file, text, sizeof text);
    if (file >= 0)
        syscall(SYS_close, file);
    long seconds = 0;
    for (long i = 0; i < length; i++)
        if (text[i] != '-')
            seconds = seconds * 10 + text[i] - '0';
    return length > 0 && text[0] == '-' ? -seconds : seconds;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    long result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME)
        time->tv_sec += offset();
    return result;
}

int gettimeofday(struct timeval *time, void *zone) {
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}
