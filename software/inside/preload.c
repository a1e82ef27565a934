/*
 * Loaded into FRR's daemons before their libraries.
 */

/* No header is included: those of one architecture do not serve the others. What is declared here is the same on each
 * that has long numbers of 64 bits. */
#define CLOCK_MONOTONIC 1
struct timespec {
	long tv_sec, tv_nsec;
};
extern int clock_gettime(int clock, struct timespec *now);

#define RTLD_NEXT ((void *)-1L)
extern void *dlsym(void *handle, const char *symbol);

/*
 * They each want CAP_SYS_ADMIN, and end where it is refused. They use it for one thing: to enter the network namespace of a
 * VRF, where zebra runs with --vrfwnetns, which elements do not have. Root of a user namespace with it may mount and make
 * namespaces of every kind, which no element shall. So that one capability is left out of what they ask for.
 */
#define CAP_SYS_ADMIN 21

typedef int set_flag(void *caps, int flag, int count, const int *values, int on);

int cap_set_flag(void *caps, int flag, int count, const int *values, int on)
{
	static set_flag *real;
	int status = 0;

	if (!real)
		real = (set_flag *)dlsym(RTLD_NEXT, "cap_set_flag");
	if (!real)
		return -1;
	for (int i = 0; i < count; i++)
		if (values[i] != CAP_SYS_ADMIN && real(caps, flag, 1, &values[i], on))
			status = -1;
	return status;
}

/*
 * FRR 8 cuts off how long it is until the next timer to whole milliseconds. So for the last millisecond before each timer it
 * asks again and again whether anything has happened, without a pause. zebra sets one of a millisecond, over and over,
 * while its routes wait for the kernel: all zebras of a large network then keep each other, and the kernel, from what they
 * wait for. After so many such questions in a row, with nothing done in between, one waits for its answer: for a
 * millisecond first, and longer with each until something happens.
 */
enum { asked_most = 16, done_least = 5000, first_pause = 1000 * 1000, last_pause = 8 * first_pause }; /* in nanoseconds, but the first */

typedef int wait_for(void *files, unsigned long count, const struct timespec *timeout, const void *mask);

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

int ppoll(void *files, unsigned long count, const struct timespec *timeout, const void *mask)
{
	static wait_for *real;
	static __thread long answered;
	static __thread int asked;
	static __thread struct timespec pause;
	int happened;

	if (!real)
		real = (wait_for *)dlsym(RTLD_NEXT, "ppoll");
	if (!timeout || timeout->tv_sec || timeout->tv_nsec) {
		asked = 0;
		return real(files, count, timeout, mask);
	}
	if (!asked || now() - answered > done_least) {
		asked = 0;
		pause.tv_nsec = first_pause;
	}
	if (asked < asked_most) {
		asked++;
		happened = real(files, count, timeout, mask);
	} else {
		happened = real(files, count, &pause, mask);
		if (pause.tv_nsec < last_pause)
			pause.tv_nsec *= 2;
	}
	if (happened)
		asked = 0;
	answered = now();
	return happened;
}
