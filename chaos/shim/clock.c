// Preloaded into redis-server: its clock is off by the microseconds in the file that
// CLOCK_OFFSET names, an int64 that may change at any time.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

static volatile int64_t *offset;
static int (*real)(struct timeval *, void *);

__attribute__((constructor)) static void begin(void) {
	const char *path = getenv("CLOCK_OFFSET");
	real = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
	if (path == NULL || real == NULL) _exit(97);
	int fd = open(path, O_RDONLY);
	if (fd < 0) _exit(98);
	void *at = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (at == MAP_FAILED) _exit(99);
	offset = at;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	if (real == NULL) begin();
	int failed = real(tv, zone);
	if (failed == 0 && offset != NULL) {
		int64_t us = (int64_t)tv->tv_sec * 1000000 + tv->tv_usec + *offset;
		tv->tv_sec = us / 1000000;
		tv->tv_usec = us % 1000000;
	}
	return failed;
}
