/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the runtimes' frames and threads, read by the attachments that runtimes.c keeps. */
#include "agent/process/procfs.h"
#include "agent/runtime/runtimes_internal.h"
#include "lib/clock.h"
#include "lib/metrics.h"

const struct interpreter_ops *runtimes_ops(const struct runtimes *rt, uint64_t word)
{
	uint32_t id = kiln_frame_runtime(word);

	return id < RUNTIME_MAX ? rt->by_id[id] : NULL;
}

uint32_t runtimes_space(const struct mapset *m, uint32_t id)
{
	return m && id < RUNTIME_MAX ? atomic_load(&((struct mapset *)m)->name_space[id]) : 0;
}

/* The attachment that reads names of the runtime ID in processes of M; NULL: there is none. */
static const struct attachment *find_namer(const struct runtimes *rt, const struct mapset *m,
					   uint32_t id)
{
	const struct attachment *a = runtimes_find_attachment(rt, m->id, id);

	/* If M could not be attached, it is newer than the walk: the state of the process's last
	 * attachment holds. */
	return a && !a->attached ? a->space->last : a;
}

/* Keeps the name in rt->result, or that the frame has none. */
static void keep_name(struct runtimes *rt, uint32_t space, const uint64_t words[2], uint32_t window)
{
	if (runtime_names_put(rt->names, space, words, &rt->result, window) < 0)
		metric_add(M_RUNTIME_NAMES_FULL, 1);
}

/* Reads the name of one frame and keeps it. False: it has none, which is kept, too. Takes from
 * BUDGET 1, and 1 more for every USUAL_READS reads of the process. */
static bool read_name(struct runtimes *rt, const struct interpreter_ops *ops,
		      const struct mapset *m, uint32_t space, uint32_t tgid,
		      const uint64_t words[2], uint32_t window, uint32_t *budget)
{
	enum { USUAL_READS = 64 };
	const struct attachment *a = find_namer(rt, m, ops->id);
	struct target t = {.source = &rt->options.source, .mapset = m, .tgid = tgid};
	struct target_memory memory = target_memory_ahead(&t, &rt->pieces);
	bool found = false;
	int r = -ESRCH;

	memory.functions = rt->functions;
	memory.space = space;
	memory.found = &found;
	rt->result.n = 0;
	rt->result.type = ops->type;
	if (a)
		r = ops->symbolize(a->state, &memory, words, rt->scratch, sizeof(rt->scratch),
				   &rt->result);
	if (r < 0)
		rt->result.n = 0;
	*budget -= MIN(*budget, 1 + t.n_reads / USUAL_READS);
	rt->news += !found;
	metric_add(rt->result.n ? M_RUNTIME_NAMES_READ : M_RUNTIME_NAMES_FAILED, 1);
	keep_name(rt, space, words, window);
	return rt->result.n > 0;
}

void runtimes_take_text(struct runtimes *rt, const struct mapset *m, const struct kiln_text *text,
			uint32_t window)
{
	const struct interpreter_ops *ops = runtimes_ops(rt, text->words[0]);
	const struct attachment *a = m && ops && ops->read_text ? find_namer(rt, m, ops->id) : NULL;
	uint32_t space = a ? runtimes_space(m, ops->id) : 0;

	if (!space ||
	    runtime_names_touch(rt->names, space, text->words, window) == RUNTIME_NAME_KNOWN)
		return;
	rt->result.n = 0;
	rt->result.type = ops->type;
	if (ops->read_text(a->state, text, rt->scratch, sizeof(rt->scratch), &rt->result) < 0)
		return;
	metric_add(M_RUNTIME_NAMES_SENT, 1);
	keep_name(rt, space, text->words, window);
}

bool runtimes_see(struct runtimes *rt, const struct mapset *m, uint32_t tgid, const uint64_t *words,
		  uint32_t n, uint32_t window, uint32_t *budget, bool *ret_failed)
{
	bool failed = false;

	for (uint32_t i = 0; i + 1 < n; i += kiln_frame_words(words[i])) {
		const struct interpreter_ops *ops;
		enum runtime_name_state state;
		uint32_t space;

		if (!kiln_frame_runtime(words[i]))
			continue;
		ops = runtimes_ops(rt, words[i]);
		space = ops ? runtimes_space(m, ops->id) : 0;
		if (!space)
			continue;
		state = runtime_names_touch(rt->names, space, &words[i], window);
		failed |= state == RUNTIME_NAME_FAILED_NOW;
		if (state == RUNTIME_NAME_KNOWN || state == RUNTIME_NAME_FAILED_NOW)
			continue;
		if (!*budget)
			return false;
		failed |= !read_name(rt, ops, m, space, tgid, &words[i], window, budget);
	}
	if (ret_failed)
		*ret_failed = failed;
	return true;
}

/* ---- threads ----------------------------------------------------------------------------------
 */

static int read_thread_name(struct runtimes *rt, const struct attachment *a,
			    const struct runtime_thread *thread, const char *comm, bool inherited,
			    char *ret)
{
	struct target t = {
	    .source = &rt->options.source, .mapset = a->mapset, .tgid = thread->tgid};
	struct target_memory memory = target_memory_of(&t);
	uint32_t tid = thread->tid;
	int r = 0;

	if (thread->nested)
		r = process_thread_ns_tid(rt->options.source.proc_dirfd, thread->tgid, thread->tid,
					  &tid);
	return r < 0 ? r
		     : a->known->ops->thread_name(a->state, &memory, tid, comm, inherited, ret,
						  THREAD_NAME_MAX);
}

const char *runtimes_thread_name(struct runtimes *rt, const struct mapset *m,
				 const struct runtime_thread *thread, uint32_t window)
{
	struct thread_name_key key = {.tid = thread->tid};
	char name[THREAD_NAME_MAX];
	uint64_t now_ms = 0;
	bool inherited;

	memcpy(key.comm, thread->comm, strnlen(thread->comm, sizeof(key.comm) - 1));
	inherited = streq(key.comm, thread->process_comm);
	/* A shorter name was not cut: the kernel has all of it. */
	if (!inherited && strlen(key.comm) < sizeof(key.comm) - 1)
		return NULL;
	for (uint32_t left = rt->namers; left; left &= left - 1) {
		uint32_t id = (uint32_t)__builtin_ctz(left);
		const struct attachment *a;
		struct thread_name *e;
		int r;

		key.space = rt->attached[id] ? runtimes_space(m, id) : 0;
		e = key.space ? thread_names_get(rt->threads, &key, window) : NULL;
		if (!e)
			continue;
		if (!now_ms)
			now_ms = monotonic_ms();
		a = now_ms >= e->due_ms ? runtimes_find_attachment(rt, m->id, id) : NULL;
		if (a && a->attached) {
			r = read_thread_name(rt, a, thread, key.comm, inherited, name);
			thread_names_set(e, r < 0 ? NULL : name, r, now_ms);
		}
		if (e->name)
			return e->name;
	}
	return NULL;
}

void runtimes_sweep(struct runtimes *rt, uint32_t before_window)
{
	runtime_names_sweep(rt->names, before_window);
	thread_names_sweep(rt->threads, before_window);
}

uint64_t runtimes_news(const struct runtimes *rt)
{
	return rt->news;
}

size_t runtimes_name_bytes(struct runtimes *rt)
{
	return runtime_names_bytes(rt->names) + runtime_functions_bytes(rt->functions);
}

struct runtime_names *runtimes_names(struct runtimes *rt)
{
	return rt->names;
}
