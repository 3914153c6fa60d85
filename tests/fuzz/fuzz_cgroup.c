/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as /proc/PID/cgroup and as one path: what is found has the shape that it must have. */
#include "agent/process/container.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct container_identity *identity)
{
	size_t uid = strnlen(identity->pod_uid, sizeof(identity->pod_uid));

	if (strnlen(identity->container_id, sizeof(identity->container_id)) ==
		sizeof(identity->container_id) ||
	    strnlen(identity->runtime, sizeof(identity->runtime)) == sizeof(identity->runtime))
		abort();
	if (uid != 0 && uid != 32 && uid != 36)
		abort();
	if (identity->static_pod != (uid == 32) || strchr(identity->pod_uid, '_'))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct container_identity identity;
	char *path = strndup((const char *)data, size);

	container_parse_cgroup((const char *)data, size, &identity);
	check(&identity);
	if (path) {
		container_parse_path(path, &identity);
		check(&identity);
	}
	free(path);
	return 0;
}
