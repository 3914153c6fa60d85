/* SPDX-License-Identifier: Apache-2.0 */
/* Gzipped pprof files, for `go tool pprof` and everything that reads its format. */
#include "agent/export/profile_file.h"
#include "agent/profile/pprof.h"

static int pprof_file_new(void **ret)
{
	struct pprof_builder *p;
	int r = pprof_builder_new(PROFILE_FILE_MAX, &p);

	if (!r)
		*ret = p;
	return r;
}

static int pprof_file_add(void *profile, const struct batch *batch)
{
	return pprof_builder_add(profile, batch, NULL);
}

static int pprof_file_encode(void *profile, struct buf *out, struct error *err)
{
	return pprof_builder_encode(profile, out, err);
}

static void pprof_file_reset(void *profile)
{
	pprof_builder_reset(profile);
}

static void pprof_file_free(void *profile)
{
	pprof_builder_free(profile);
}

static const struct profile_format format = {
    .ops = &pprof_file_exporter_ops,
    .drops = M_PPROF_FILE_DROPPED,
    .new = pprof_file_new,
    .add = pprof_file_add,
    .encode = pprof_file_encode,
    .reset = pprof_file_reset,
    .free = pprof_file_free,
};

static int pprof_file_create(const struct exporter_config *config, uv_loop_t *loop,
			     struct exporter **ret, struct error *err)
{
	return profile_file_create(&format, config, loop, ret, err);
}

const struct exporter_ops pprof_file_exporter_ops = {
    .type = "pprof_file",
    .create = pprof_file_create,
    .consume = local_consume,
    .flush = local_flush,
    .destroy = local_destroy,
};
