/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the limits of the agent's CPU time and memory. Flags and files have the same form. */
#include "agent/config/internal.h"
#include "lib/parse.h"

#define MIB (1ULL << 20)
enum { CPU_MIN = 100, CPU_MAX = 1000000, MEMORY_MIN_MIB = 16, MEMORY_MAX_MIB = 65536 };

int parse_budget_cpu(const char *text, uint32_t *ret, struct error *err)
{
	size_t n = strlen(text);
	char number[32];
	double v;

	if (n < 2 || n > sizeof(number) || text[n - 1] != '%')
		return error_set(err, -EINVAL, "want a share of all CPUs such as 0.5%%, got %s",
				 quote_text(text).text);
	memcpy(number, text, n - 1);
	number[n - 1] = 0;
	if (parse_double(number, &v) < 0)
		return error_set(err, -EINVAL, "want a share of all CPUs such as 0.5%%, got %s",
				 quote_text(text).text);
	v = v * CPU_MAX / 100 + 0.5;
	if (v < CPU_MIN || v >= CPU_MAX + 1)
		return error_set(err, -EINVAL, "want 0.01%%..100%%, got %s", quote_text(text).text);
	*ret = (uint32_t)v;
	return 0;
}

int parse_budget_memory(const char *text, uint64_t *ret, struct error *err)
{
	uint64_t bytes;

	if (parse_size(text, &bytes) < 0)
		return error_set(err, -EINVAL, "want a size such as 128MiB, got %s",
				 quote_text(text).text);
	if (bytes < MEMORY_MIN_MIB * MIB || bytes > MEMORY_MAX_MIB * MIB)
		return error_set(err, -EINVAL, "want 16MiB..64GiB, got %s", quote_text(text).text);
	*ret = bytes;
	return 0;
}

int parse_budget(const char *text, struct budget *ret, struct error *err)
{
	_cleanup_free_ char *copy = strdup(text);
	char *rest = copy, *item, *value;
	int r = 0;

	if (!copy)
		return error_set(err, -ENOMEM, "out of memory");
	while (r == 0 && (item = strsep(&rest, ","))) {
		value = strchr(item, '=');
		if (value)
			*value++ = 0;
		if (value && streq(item, "cpu"))
			r = parse_budget_cpu(value, &ret->cpu, err);
		else if (value && streq(item, "memory"))
			r = parse_budget_memory(value, &ret->memory_bytes, err);
		else
			return error_set(err, -EINVAL,
					 "want cpu=PERCENT%%,memory=SIZE, or one of them, got %s",
					 quote_text(text).text);
		if (r < 0)
			return error_wrap(err, r, "%s", item);
	}
	return r;
}
