/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. While a look is under way, `found`, `n` and `result` belong to the worker
 * thread. */
#include "agent/window/sleepers.h"

#include <sys/uio.h>
#include <utlist.h>

#include "agent/process/resident.h"
#include "bpf/arch.h"
#include "lib/log.h"
#include "lib/work.h"

enum {
	PAGE = 4096,
	STACK_BYTES = KILN_DUMP_SMALL, /* of each thread */
	READ_BYTES = 64 * KILN_SLEEPER_BYTES,
	RECORD_BYTES = sizeof(struct kiln_sample) + (KILN_SLEEPER_FRAMES + 1) * sizeof(uint64_t) +
		       sizeof(struct kiln_resume) + STACK_BYTES,
};

struct found {
	struct found *next;
	struct kiln_sample record;
};

struct sleepers {
	struct work work;
	uv_loop_t *loop;
	struct sampler *sampler;
	int proc_dirfd;
	void (*take)(const struct kiln_sample *record, void *arg);
	void *arg;
	int fd;	       /* of the list; -1: no look is under way */
	bool complete; /* the list was read to its end */
	int result;
	/* The process whose threads are being read; fd -1: none. */
	struct {
		uint32_t tgid;
		int fd;
	} pagemap;
	struct found *found;
	size_t n;
};

int sleepers_new(uv_loop_t *loop, struct sampler *sampler, int proc_dirfd,
		 void (*take)(const struct kiln_sample *record, void *arg), void *arg,
		 struct sleepers **ret)
{
	struct sleepers *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->loop = loop;
	s->sampler = sampler;
	s->proc_dirfd = proc_dirfd;
	s->take = take;
	s->arg = arg;
	s->fd = s->pagemap.fd = -1;
	*ret = s;
	return 0;
}

struct sleepers *sleepers_free(struct sleepers *s)
{
	free(s);
	return NULL;
}

bool sleepers_busy(const struct sleepers *s)
{
	return s && s->fd >= 0;
}

/* ---- the worker ------------------------------------------------------------------------------ */

static void close_pagemap(struct sleepers *s)
{
	if (s->pagemap.fd >= 0)
		close(s->pagemap.fd);
	s->pagemap.fd = -1;
}

/* The list has the threads of a process side by side, so its pagemap is opened once. */
static void use_pagemap(struct sleepers *s, uint32_t tgid)
{
	if (s->pagemap.fd >= 0 && s->pagemap.tgid == tgid)
		return;
	close_pagemap(s);
	s->pagemap.tgid = tgid;
	s->pagemap.fd = pagemap_open(s->proc_dirfd, tgid);
}

/* Copies LEN bytes at ADDRESS, which end within its page, to AT. */
static bool copy_page(const struct sleepers *s, uint64_t address, size_t len, uint8_t *at)
{
	struct iovec to = {at, len}, from = {(void *)address, len};

	return s->pagemap.fd >= 0 && pagemap_is_resident(s->pagemap.fd, address, len) &&
	       process_vm_readv((pid_t)s->pagemap.tgid, &to, 1, &from, 1, 0) == (ssize_t)len;
}

/* Copies the stack of TGID's thread from ADDRESS on, in the form of a record's dump. Returns the
 * bytes. */
static uint32_t copy_stack(struct sleepers *s, uint32_t tgid, uint64_t address,
			   struct kiln_resume *resume, uint8_t *at)
{
	uint32_t done = 0;

	use_pagemap(s, tgid);

	for (uint32_t i = 0; i < KILN_DUMP_PAGES; i++) {
		uint64_t page = i ? (address & ~(PAGE - 1ULL)) + (uint64_t)i * PAGE : address;
		uint32_t len = PAGE - (uint32_t)(page & (PAGE - 1));

		if (done + len > STACK_BYTES || !copy_page(s, page, len, at + done))
			break;
		resume->pages[i / 64] |= 1ULL << (i % 64);
		done += len;
	}
	return done;
}

/* Adds the user part: the frame of the leaf, all registers, the stack. */
static void add_user_part(struct sleepers *s, const struct kiln_sleeper *from,
			  struct kiln_sample *record)
{
	uint64_t *words = record->words + record->n_kernel, pc = from->leaf[ARCH_REG_PC],
		 sp = from->leaf[ARCH_REG_SP];
	struct kiln_resume *resume = (struct kiln_resume *)(words + 1);

	record->n_user = 1;
	/* In a system call, the pc is after the instruction: mark it as a return address, so that
	 * the instruction before it is named. */
	*words = (uint64_t)KILN_FRAME_NATIVE << KILN_FRAME_KIND_SHIFT |
		 (record->detail == KILN_WAIT_FAULT ? 0 : KILN_FRAME_RETURN) |
		 (pc & KILN_FRAME_PC_MASK);
	*resume = (struct kiln_resume){
	    .regs = {.pc = pc,
		     .sp = sp,
		     .fp = from->leaf[ARCH_REG_FP],
		     .extra = from->leaf[ARCH_REG_EXTRA]},
	    .code_mask = from->code_mask,
	};
	memcpy(resume->leaf, from->leaf, sizeof(resume->leaf));
	record->dump_len = copy_stack(s, record->tgid, (sp & ~7ULL) - KILN_RED_ZONE, resume,
				      (uint8_t *)(resume + 1));
	record->size = (uint32_t)((const uint8_t *)(words + 1) - (const uint8_t *)record);
	if (record->dump_len)
		record->size += (uint32_t)sizeof(*resume) + record->dump_len;
}

/* Makes a record of FROM at ROOM and keeps a copy. */
static int add_found(struct sleepers *s, const struct kiln_sleeper *from, struct kiln_sample *room)
{
	size_t kernel = MIN(from->sample.n_kernel, KILN_SLEEPER_FRAMES) * sizeof(uint64_t);
	struct found *f;

	memcpy(room, &from->sample, sizeof(*room) + kernel);
	room->n_kernel = (uint16_t)(kernel / sizeof(uint64_t));
	add_user_part(s, from, room);
	f = malloc(offsetof(struct found, record) + room->size);
	if (!f)
		return -ENOMEM;
	memcpy(&f->record, room, room->size);
	LL_PREPEND(s->found, f);
	s->n++;
	return 0;
}

static void run(struct work *w)
{
	struct sleepers *s = container_of(w, struct sleepers, work);
	uint8_t *bytes = malloc(READ_BYTES);
	struct kiln_sample *room = malloc(RECORD_BYTES);
	ssize_t got = 1;

	s->result = bytes && room ? 0 : -ENOMEM;
	while (!s->result && s->n < SLEEPERS_AT_ONCE) {
		got = read(s->fd, bytes, READ_BYTES);
		if (got <= 0)
			break;
		for (ssize_t i = 0; i + (ssize_t)KILN_SLEEPER_BYTES <= got && !s->result;
		     i += (ssize_t)KILN_SLEEPER_BYTES)
			s->result = add_found(s, (const struct kiln_sleeper *)(bytes + i), room);
	}
	if (got < 0)
		s->result = -errno;
	s->complete = !got;
	close_pagemap(s);
	free(room);
	free(bytes);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void done(struct work *w)
{
	struct sleepers *s = container_of(w, struct sleepers, work);
	struct found *f, *next;

	if (s->result)
		log_debug("off-cpu", "cannot list the threads that wait: %s", strerror(-s->result));
	LL_FOREACH_SAFE (s->found, f, next) {
		if (sampler_sleeper_shown(s->sampler, f->record.tid, f->record.time))
			s->take(&f->record, s->arg);
		free(f);
	}
	if (s->complete)
		sampler_sleepers_listed(s->sampler);
	s->found = NULL;
	s->n = 0;
	close(s->fd);
	s->fd = -1;
}

void sleepers_look(struct sleepers *s)
{
	if (s->fd >= 0 || !sampler_may_have_sleepers(s->sampler))
		return;
	s->fd = sampler_open_sleepers(s->sampler);
	if (s->fd >= 0 && work_submit(s->loop, &s->work, run, done) < 0) {
		close(s->fd);
		s->fd = -1;
	}
}
