/* The machine's clock three hours ahead, for every process that has this preloaded and what it executes, with whatever
   environment. Other clocks are as they are. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define AHEAD_S (3 * 3600)
#define NAME "LD_PRELOAD="

static char *preloaded;

__attribute__((constructor)) static void remember(void) {
    for (char **one = environ; *one; one++)
        if (!strncmp(*one, NAME, strlen(NAME))) preloaded = strdup(*one);
}

int execve(const char *path, char *const arguments[], char *const environment[]) {
    size_t count = 0;
    while (environment[count]) count++;
    char *more[count + 2];
    memcpy(more, environment, count * sizeof(char *));
    more[count] = preloaded;
    more[count + 1] = NULL;
    return (int)syscall(SYS_execve, path, arguments, more);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = (int)syscall(SYS_clock_gettime, clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += AHEAD_S;
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
