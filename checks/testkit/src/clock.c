/* Loaded before a server's own libraries: its time of day is that of the machine and as many seconds as the file OFFSET says, or if `=` is in
   front, stands at as many microseconds. Its clocks that only run stay as they are, as they do if somebody sets a machine's clock.
   The file is read at each call, by the kernel's own calls: a server asks for the time before it can allocate. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Changes the time of day. */
static void set(struct timespec *time) {
    char text[24];
    long file = syscall(SYS_openat, AT_FDCWD, OFFSET, O_RDONLY | O_CLOEXEC, 0);
    long length = file < 0 ? -1 : syscall(SYS_read, file, text, sizeof text);
    if (file >= 0)
        syscall(SYS_close, file);
    long number = 0;
    for (long i = 0; i < length; i++)
        if (text[i] != '-' && text[i] != '=')
            number = number * 10 + text[i] - '0';
    if (length > 0 && text[0] == '=') {
        time->tv_sec = number / 1000000;
        time->tv_nsec = number % 1000000 * 1000;
    } else {
        time->tv_sec += length > 0 && text[0] == '-' ? -number : number;
    }
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    long result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME)
        set(time);
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
