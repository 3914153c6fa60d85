/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects share maps by name. They share all maps of the sampler but `scratch`,
 * `label_scratch`, `cpus` and `walkers`. The sets of probes also share these with each other, and
 * what bpf/probe.h defines, since a CPU takes one hit at a time, of whichever type. Only `walkers`
 * and `probe_sample` are separate, because they belong to one type of program. The first set that
 * is loaded makes the shared maps.
 *
 * Uprobes and kprobes use the kernel's perf events and tracepoints are raw ones, so that none of
 * them needs tracefs.
 */
#include "agent/probes/kernel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/stat.h>

#include "agent/sampler/sampler.h"
#include "agent/sampler/walkers.h"
#include "probe_hit.skel.h"
#include "probe_sample.skel.h"

enum { TRACE_FUNCTION_BYTES = 256 }; /* where its end is not known */

enum set { SET_KPROBE, SET_TRACEPOINT, SET_COUNT };

static const enum bpf_prog_type set_types[SET_COUNT] = {
    [SET_KPROBE] = BPF_PROG_TYPE_KPROBE,
    [SET_TRACEPOINT] = BPF_PROG_TYPE_RAW_TRACEPOINT,
};

struct probe_kernel {
	struct sampler *sampler;
	struct probe_sample *sets[SET_COUNT];
	struct walkers *walkers[SET_COUNT];
	struct probe_sample *first; /* the set that made the maps which all sets share */
};

struct probe_link {
	struct probe_hit *hit;
	struct bpf_link *link;
};

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && streq(s + n - m, end);
}

/* The maps of variables are called "NAME.bss" and "NAME.rodata" by libbpf: bpf/knobs.h. */
static const struct bpf_map *find_map(const struct bpf_object *object, const char *name)
{
	struct bpf_map *map;

	if (!ends_with(name, ".bss") && !ends_with(name, ".rodata"))
		return bpf_object__find_map_by_name(object, name);
	bpf_object__for_each_map(
	    map, object) if (ends_with(bpf_map__name(map), strrchr(name, '.'))) return map;
	return NULL;
}

/* Each object has its own constants from the compiler, and probe_hit.bpf.c its own rodata. */
static bool is_own(const char *name, const char *const *names)
{
	if (has_prefix(name, ".rodata."))
		return true;
	for (; *names; names++)
		if (streq(name, *names))
			return true;
	return false;
}

static int share_maps(const struct bpf_object *from, const char *const *own,
		      struct bpf_object *object)
{
	struct bpf_map *map;
	int r = 0;

	bpf_object__for_each_map(map, object)
	{
		const struct bpf_map *same =
		    is_own(bpf_map__name(map), own) ? NULL : find_map(from, bpf_map__name(map));

		if (!r && same)
			r = bpf_map__reuse_fd(map, bpf_map__fd(same));
	}
	return r;
}

static int share_with_sampler(const struct probe_kernel *k, struct bpf_object *object)
{
	static const char *const own[] = {"scratch", "cpus", "walkers", "label_scratch", NULL};

	return share_maps(sampler_object(k->sampler), own, object);
}

static int share_with_sets(const struct probe_sample *set, struct bpf_object *object)
{
	static const char *const own[] = {"walkers", "probe_sample", NULL};

	return set ? share_maps(set->obj, own, object) : 0;
}

int probe_kernel_new(struct sampler *s, struct probe_kernel **ret)
{
	struct probe_kernel *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	k->sampler = s;
	*ret = k;
	return 0;
}

struct probe_kernel *probe_kernel_free(struct probe_kernel *k)
{
	for (int i = 0; k && i < SET_COUNT; i++) {
		if (k->walkers[i])
			sampler_unfollow(k->sampler, k->walkers[i]);
		walkers_free(k->walkers[i]);
		probe_sample__destroy(k->sets[i]);
	}
	free(k);
	return NULL;
}

static int load_error(struct error *err, int r)
{
	if (r == -EPERM)
		return error_set(err, r,
				 "the kernel refused to load a probe's programs: CAP_BPF "
				 "and CAP_PERFMON are needed");
	if (r == -ENOMEM)
		return error_set(err, r, "not enough memory for the programs of probes");
	return error_set(err, r,
			 "the kernel does not accept the programs of probes (%s): Linux 5.12 or "
			 "newer is needed; --verbose shows the verifier's reason",
			 strerror(-r));
}

static int set_types_of(struct bpf_object *object, enum set set)
{
	struct bpf_program *program;
	int r = 0;

	bpf_object__for_each_program(program, object)
	{
		if (!r)
			r = bpf_program__set_type(program, set_types[set]);
		if (!r)
			r = bpf_program__set_expected_attach_type(program, 0);
	}
	return r;
}

static int fill_set(struct probe_kernel *k, enum set i, struct probe_sample *set)
{
	const struct walker_kind kind = {.type = set_types[i]};
	int fd = bpf_program__fd(set->progs.begin), r;
	uint32_t first = 0;

	if (bpf_map_update_elem(bpf_map__fd(set->maps.probe_sample), &first, &fd, BPF_ANY) < 0)
		return -errno;
	r = walkers_new(set->obj, &kind, &k->walkers[i]);
	if (!r)
		sampler_follow(k->sampler, k->walkers[i]);
	return r;
}

static int need_set(struct probe_kernel *k, enum set i, struct error *err)
{
	struct probe_sample *set;
	uint32_t cpus = (uint32_t)sampler_cpus(k->sampler);
	int r;

	if (k->sets[i])
		return 0;
	set = probe_sample__open();
	if (!set)
		return load_error(err, -errno);
	r = bpf_map__set_max_entries(set->maps.scratch, cpus);
	if (!r)
		r = bpf_map__set_max_entries(set->maps.cpus, cpus);
	if (!r)
		r = bpf_map__set_max_entries(set->maps.probe_hits, cpus);
	if (!r)
		r = share_with_sampler(k, set->obj);
	if (!r)
		r = share_with_sets(k->first, set->obj);
	if (!r)
		r = set_types_of(set->obj, i);
	if (!r)
		r = probe_sample__load(set);
	if (!r)
		r = fill_set(k, i, set);
	if (r < 0) {
		probe_sample__destroy(set);
		return load_error(err, r);
	}
	k->sets[i] = set;
	if (!k->first)
		k->first = set;
	return 0;
}

/* Whether the kernel is built with this type of events. */
static int check_events(const struct probe_spec *spec, struct error *err)
{
	bool user = spec->kind != PROBE_KPROBE;
	const char *name = user ? "uprobe" : "kprobe";
	char path[64];

	if (spec->kind == PROBE_TRACEPOINT)
		return 0;
	snprintf(path, sizeof(path), "/sys/bus/event_source/devices/%s/type", name);
	if (access(path, F_OK) == 0)
		return 0;
	return error_set(
	    err, -ENOTSUP, "this kernel has no %ss: it was built without %s (%s is not there)",
	    name, user ? "CONFIG_UPROBE_EVENTS" : "CONFIG_KPROBES and CONFIG_KPROBE_EVENTS", path);
}

/* Raw tracepoints have no subsystem: if tracefs is mounted, it tells whether the given one is
 * right. */
static int check_tracepoint(const struct probe_spec *spec, struct error *err)
{
	static const char *const roots[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};
	char path[PROBE_TEXT_MAX + PROBE_NAME_MAX + 64];
	struct stat st;

	if (streq(spec->target, "syscalls"))
		return error_set(err, -ENOTSUP,
				 "single system calls are no probes: use "
				 "tracepoint:raw_syscalls:sys_enter or sys_exit");
	for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
		snprintf(path, sizeof(path), "%s/events", roots[i]);
		if (stat(path, &st) < 0)
			continue;
		snprintf(path, sizeof(path), "%s/events/%s/%s", roots[i], spec->target, spec->name);
		if (stat(path, &st) == 0)
			return 0;
		return error_set(err, -ENOENT,
				 "the kernel has no tracepoint %s in %s (%s/events "
				 "lists them)",
				 spec->name, spec->target, roots[i]);
	}
	return 0;
}

static int attach_error(const struct probe_spec *spec, int r, struct error *err)
{
	if (r == -EPERM || r == -EACCES)
		return error_set(err, -EPERM,
				 "the kernel does not allow it: CAP_PERFMON is needed");
	if (r == -ENOENT && spec->kind == PROBE_TRACEPOINT)
		return error_set(err, r,
				 "the kernel has no tracepoint %s (mount tracefs at "
				 "/sys/kernel/tracing to see them)",
				 spec->name);
	if (r == -ENOENT && spec->kind == PROBE_KPROBE)
		return error_set(err, r,
				 "the kernel has no function %s, or none that can be probed "
				 "(/proc/kallsyms lists them)",
				 spec->name);
	return error_set(err, r, "the kernel does not attach it: %s", strerror(-r));
}

static struct bpf_link *attach(const struct bpf_program *program, const struct probe_spec *spec,
			       int fd, uint64_t offset)
{
	LIBBPF_OPTS(bpf_uprobe_opts, user, .retprobe = spec->kind == PROBE_URETPROBE);
	char path[32];

	switch (spec->kind) {
	case PROBE_UPROBE:
	case PROBE_URETPROBE:
		/* The file that was examined, whatever its path leads to in this mount
		 * namespace. */
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		return bpf_program__attach_uprobe_opts(program, -1, path, offset, &user);
	case PROBE_KPROBE:
		return bpf_program__attach_kprobe(program, false, spec->name);
	default:
		return bpf_program__attach_raw_tracepoint(program, spec->name);
	}
}

static int load_hit(struct probe_kernel *k, enum set set, uint32_t number,
		    const struct probe_spec *spec, struct probe_hit *hit)
{
	static const char *const none[] = {NULL};
	static const uint8_t leaf[PROBE_KIND_COUNT] = {
	    [PROBE_UPROBE] = KILN_LEAF_EXACT, [PROBE_URETPROBE] = KILN_LEAF_RETURN};
	int r;

	hit->rodata_probe->probe_number = number;
	hit->rodata_probe->probe_period = 1000000000ULL / spec->rate;
	hit->rodata_probe->probe_leaf = leaf[spec->kind];
	hit->rodata_probe->agent_tgid = (uint32_t)getpid();
	r = share_with_sampler(k, hit->obj);
	if (!r)
		r = share_maps(k->sets[set]->obj, none, hit->obj);
	if (!r)
		r = set_types_of(hit->obj, set);
	return r ? r : probe_hit__load(hit);
}

/*
 * The address range of __traceiter_NAME, the function through which the kernel calls the programs
 * attached to a tracepoint (from Linux 5.10 on: include/linux/tracepoint.h, __DECLARE_TRACE). Where
 * /proc/kallsyms shows no addresses (kernel.kptr_restrict) the range stays empty, and stacks begin
 * with the frames of the BPF program itself.
 */
static void find_trace_function(const char *name, uint64_t *ret_start, uint64_t *ret_end)
{
	char want[PROBE_NAME_MAX + 16], line[1024], symbol[512];
	unsigned long long address;
	FILE *f = fopen("/proc/kallsyms", "re");
	uint64_t start = 0;

	snprintf(want, sizeof(want), "__traceiter_%s", name);
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%llx %*c %511s", &address, symbol) != 2)
			continue;
		if (start) {
			*ret_start = start;
			*ret_end = address > start ? address : start + TRACE_FUNCTION_BYTES;
			break;
		}
		if (streq(symbol, want))
			start = address;
	}
	if (f)
		fclose(f);
}

/* NUMBER may have belonged to another probe before. */
static int reset_counts(const struct probe_kernel *k, uint32_t number,
			const struct probe_spec *spec)
{
	uint64_t start = 0, end = 0;
	/* `probes` is a per-CPU array: the kernel copies a value for each possible CPU. */
	int cpus = libbpf_num_possible_cpus();
	_cleanup_free_ struct kiln_probe *zeros =
	    cpus < 1 ? NULL : calloc((size_t)cpus, sizeof(*zeros));

	if (!zeros)
		return -ENOMEM;
	if (spec->kind == PROBE_TRACEPOINT)
		find_trace_function(spec->name, &start, &end);
	for (int i = 0; i < cpus; i++) {
		zeros[i].trace_start = start;
		zeros[i].trace_end = end;
	}
	return bpf_map_update_elem(bpf_map__fd(k->first->maps.probes), &number, zeros, BPF_ANY) < 0
		   ? -errno
		   : 0;
}

int probe_kernel_attach(struct probe_kernel *k, uint32_t number, const struct probe_spec *spec,
			int fd, uint64_t offset, struct probe_link **ret, struct error *err)
{
	enum set set = spec->kind == PROBE_TRACEPOINT ? SET_TRACEPOINT : SET_KPROBE;
	_cleanup_(probe_link_freep) struct probe_link *link = calloc(1, sizeof(*link));
	int r;

	if (!link)
		return error_set(err, -ENOMEM, "out of memory");
	r = spec->kind == PROBE_TRACEPOINT ? check_tracepoint(spec, err) : check_events(spec, err);
	if (!r)
		r = need_set(k, set, err);
	if (r < 0)
		return r;
	link->hit = probe_hit__open();
	if (!link->hit)
		return load_error(err, -errno);
	r = load_hit(k, set, number, spec, link->hit);
	if (!r)
		r = reset_counts(k, number, spec);
	if (r < 0)
		return load_error(err, r);
	link->link = attach(link->hit->progs.on_hit, spec, fd, offset);
	if (!link->link)
		return attach_error(spec, -errno, err);
	*ret = TAKE_PTR(link);
	return 0;
}

struct probe_link *probe_link_free(struct probe_link *link)
{
	if (!link)
		return NULL;
	bpf_link__destroy(link->link);
	probe_hit__destroy(link->hit);
	free(link);
	return NULL;
}

void probe_kernel_read(const struct probe_kernel *k, uint32_t number, struct kiln_probe *ret)
{
	int cpus = libbpf_num_possible_cpus(); /* as in reset_counts() */
	_cleanup_free_ struct kiln_probe *each =
	    cpus < 1 ? NULL : calloc((size_t)cpus, sizeof(*each));

	*ret = (struct kiln_probe){0};
	if (!each || !k->first ||
	    bpf_map_lookup_elem(bpf_map__fd(k->first->maps.probes), &number, each) < 0)
		return;
	for (int i = 0; i < cpus; i++) {
		ret->hits += each[i].hits;
		ret->samples += each[i].samples;
		ret->skipped += each[i].skipped;
		ret->busy += each[i].busy;
		ret->lost += each[i].lost;
		ret->lost_hits += each[i].lost_hits;
	}
}
