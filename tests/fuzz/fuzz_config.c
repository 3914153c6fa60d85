/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes as a configuration file. Whatever they are: a configuration, or -EINVAL with one line; no
 * crash, no leak. The variables are fixed, and so is what the process sees of the outside.
 */
#include "agent/config/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void drop_warning(void *arg, const char *line)
{
	if (strchr(line, '\n'))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct tracer tracers[] = {
	    {"go", "go", 0, true}, {"python", "python", 1, true}, {"ruby", "ruby", 3, false}, {}};
	static const char *const env[] = {"A=one", "EMPTY=", "LIST=[a, b]", NULL};
	_cleanup_(config_freep) struct config *config = config_new(tracers);
	struct loading l = {.config = config, .envp = env, .warn = drop_warning, .file = "f"};
	struct error err = {0};
	int r;

	if (!config || size > CONFIG_FILE_MAX)
		return 0;
	r = config_read_bytes(&l, data, size, &err);
	if (r < 0 && (r != -EINVAL || !err.message[0] || strchr(err.message, '\n')))
		abort();
	if (r == 0 && (!config->n_exporters || !config->receiver.samples_per_second ||
		       config->receiver.samples_per_second > SAMPLES_PER_SECOND_MAX))
		abort();
	return 0;
}
