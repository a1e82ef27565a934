/*
 * Loaded into FRR's daemons before their libraries.
 */

/*
 * No header is included: those of one architecture do not serve the others. What is declared here is the same on each.
 */
#define RTLD_NEXT ((void *)-1L)
extern void *dlsym(void *handle, const char *symbol);

/*
 * They each want CAP_SYS_ADMIN, and end where it is refused. They use it for one thing: to enter the network namespace
 * of a VRF, where zebra runs with --vrfwnetns, which elements do not have. Root of a user namespace with it may mount
 * and make namespaces of every kind, which no element shall. So that one capability is left out of what they ask for.
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
