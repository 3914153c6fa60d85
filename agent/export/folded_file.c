/* SPDX-License-Identifier: Apache-2.0 */
/* Files of folded stacks, for flamegraph.pl, inferno and speedscope. */
#include "agent/export/profile_file.h"
#include "agent/profile/folded.h"

static int new_of(enum profile_kind kind, void **ret)
{
	struct folded *f;
	int r = folded_new(PROFILE_FILE_MAX, kind, &f);

	if (!r)
		*ret = f;
	return r;
}

static int new_cpu(void **ret)
{
	return new_of(PROFILE_CPU, ret);
}

static int new_off_cpu(void **ret)
{
	return new_of(PROFILE_OFF_CPU, ret);
}

static int new_wall(void **ret)
{
	return new_of(FOLDED_WALL, ret);
}

static int new_probe(void **ret)
{
	return new_of(PROFILE_PROBE, ret);
}

static int folded_file_add(void *profile, const struct batch *batch)
{
	return folded_add(profile, batch);
}

static int folded_file_encode(void *profile, struct buf *out, struct error *err)
{
	int r = folded_write(profile, out);

	return r < 0 ? error_set(err, r, "writing folded stacks: %s", strerror(-r)) : 0;
}

static void folded_file_reset(void *profile)
{
	folded_reset(profile);
}

static void folded_file_free(void *profile)
{
	folded_free(profile);
}

#define FORMAT(what)                                                                               \
	{                                                                                          \
		.ops = &folded_file_exporter_ops, .drops = M_FOLDED_FILE_DROPPED, .new = (what),   \
		.add = folded_file_add, .encode = folded_file_encode, .reset = folded_file_reset,  \
		.free = folded_file_free,                                                          \
	}

static const struct profile_format cpu = FORMAT(new_cpu), off_cpu = FORMAT(new_off_cpu),
				   wall = FORMAT(new_wall), probe = FORMAT(new_probe);

static int folded_file_create(const struct exporter_config *config, uv_loop_t *loop,
			      struct exporter **ret, struct error *err)
{
	const char *profile = config->profile ? config->profile : "cpu";
	const struct profile_format *format = streq(profile, "wall")	  ? &wall
					      : streq(profile, "probe")	  ? &probe
					      : streq(profile, "off_cpu") ? &off_cpu
									  : &cpu;

	return profile_file_create(format, config, loop, ret, err);
}

const struct exporter_ops folded_file_exporter_ops = {
    .type = "folded_file",
    .create = folded_file_create,
    .consume = local_consume,
    .flush = local_flush,
    .destroy = local_destroy,
};
