/* SPDX-License-Identifier: Apache-2.0 */
/* A file is the structs' own bytes, so recordings are made anew when these change. */
#include "tests/unit/agent/runtime/recorded_walk.h"

#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

int recorded_walk_init(struct recorded_walk *w)
{
	w->bytes = malloc(RECORDED_BYTES_MAX);
	return w->bytes ? 0 : -ENOMEM;
}

void recorded_walk_done(struct recorded_walk *w)
{
	free(w->bytes);
	w->bytes = NULL;
}

void recorded_walk_registers(struct recorded_walk *w, pid_t tid)
{
#ifdef __x86_64__
	struct user_regs_struct r;

	if (ptrace(PTRACE_GETREGS, tid, 0, &r) < 0)
		return;
	/* System V psABI for x86-64, figure 3.36. */
	const uint64_t by_number[] = {r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8,
				      r.r9,  r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rip};

	memcpy(w->leaf, by_number, sizeof(by_number));
#else
	(void)w;
	(void)tid;
#endif
}

/* ---- memory ----------------------------------------------------------------------------------
 */

static struct recorded_read *record_read(struct recorded_walk *w, uint64_t address, size_t len)
{
	struct iovec to, from = {(void *)(uintptr_t)address, len};
	struct recorded_read *r;

	if (w->n_reads == RECORDED_READS_MAX || len > RECORDED_BYTES_MAX - w->n_bytes)
		return NULL;
	to = (struct iovec){w->bytes + w->n_bytes, len};
	r = &w->reads[w->n_reads++];
	*r = (struct recorded_read){.address = address, .len = (uint32_t)len, .at = UINT32_MAX};
	if (process_vm_readv(w->pid, &to, 1, &from, 1, 0) == (ssize_t)len) {
		r->at = w->n_bytes;
		w->n_bytes += (uint32_t)len;
	}
	return r;
}

int recorded_walk_memory(void *arg, uint64_t address, void *dst, size_t len)
{
	struct recorded_walk *w = arg;
	struct recorded_read *r = NULL;

	for (uint32_t i = 0; i < w->n_reads && !r; i++)
		if (w->reads[i].address == address && w->reads[i].len == len)
			r = &w->reads[i];
	if (!r && w->pid)
		r = record_read(w, address, len);
	/* A part of what was read at once. */
	for (uint32_t i = 0; !r && i < w->n_reads; i++) {
		const struct recorded_read *whole = &w->reads[i];

		if (whole->at != UINT32_MAX && address >= whole->address &&
		    address - whole->address <= whole->len &&
		    len <= whole->len - (address - whole->address)) {
			memcpy(dst, w->bytes + whole->at + (address - whole->address), len);
			return 0;
		}
	}
	/* Two words that were read one by one. */
	if (!r && len == 16 && recorded_walk_memory(w, address, dst, 8) == 0)
		return recorded_walk_memory(w, address + 8, (uint8_t *)dst + 8, 8);
	if (!r || r->at == UINT32_MAX)
		return -EFAULT;
	memcpy(dst, w->bytes + r->at, len);
	return 0;
}

void recorded_walk_put(struct recorded_walk *w, uint64_t address, const void *src, size_t len)
{
	const uint8_t *from = src;
	struct recorded_read *r;

	for (uint32_t i = 0; i < w->n_reads; i++)
		for (size_t k = 0; k < len && w->reads[i].at != UINT32_MAX; k++)
			if (address + k - w->reads[i].address < w->reads[i].len)
				w->bytes[w->reads[i].at + (address + k - w->reads[i].address)] =
				    from[k];
	if (w->n_reads == RECORDED_READS_MAX || len > RECORDED_BYTES_MAX - w->n_bytes)
		return;
	r = &w->reads[w->n_reads++];
	*r = (struct recorded_read){.address = address, .len = (uint32_t)len, .at = w->n_bytes};
	memcpy(w->bytes + w->n_bytes, src, len);
	w->n_bytes += (uint32_t)len;
}

/* ---- rules and names -------------------------------------------------------------------------
 */

struct recorded_rule *recorded_walk_rule(struct recorded_walk *w, uint64_t pc)
{
	struct recorded_rule *r;

	for (uint32_t i = 0; i < w->n_rules; i++)
		if (w->rules[i].pc == pc)
			return &w->rules[i];
	if (!w->find_rule || w->n_rules == RECORDED_RULES_MAX)
		return NULL;
	r = &w->rules[w->n_rules++];
	*r = (struct recorded_rule){.pc = pc};
	r->known = w->find_rule(pc, &r->rule) == 0;
	return r;
}

void recorded_walk_put_symbols(const struct symbol_result *sym, char **out, size_t *left)
{
	for (uint32_t i = 0; i < sym->n && *left; i++) {
		const struct symbol *s = &sym->symbols[i];
		const char *base = strrchr(s->file, '/');
		int n = snprintf(*out, *left, "%s %s:%u\n", s->name, base ? base + 1 : s->file,
				 s->line);

		n = (int)MIN((size_t)MAX(n, 0), *left - 1);
		*out += n;
		*left -= (size_t)n;
	}
}

/* ---- files -----------------------------------------------------------------------------------
 */

int recorded_walk_save(const struct recorded_walk *w, uint32_t magic, const void *facts,
		       size_t facts_size, const char *path)
{
	_cleanup_fclose_ FILE *f = fopen(path, "we");
	const uint32_t head[] = {magic,	    (uint32_t)facts_size, w->n_reads, w->n_rules, w->n_maps,
				 w->n_bytes};

	if (!f)
		return -errno;
	if (fwrite(head, sizeof(head), 1, f) != 1 || fwrite(facts, facts_size, 1, f) != 1 ||
	    fwrite(w->leaf, sizeof(w->leaf), 1, f) != 1 ||
	    fwrite(w->reads, sizeof(*w->reads), w->n_reads, f) != w->n_reads ||
	    fwrite(w->rules, sizeof(*w->rules), w->n_rules, f) != w->n_rules ||
	    fwrite(w->maps, sizeof(*w->maps), w->n_maps, f) != w->n_maps ||
	    fwrite(w->bytes, 1, w->n_bytes, f) != w->n_bytes)
		return -EIO;
	return 0;
}

int recorded_walk_read(struct recorded_walk *w, uint32_t magic, void *facts, size_t facts_size,
		       FILE *f)
{
	uint32_t head[6];

	if (fread(head, sizeof(head), 1, f) != 1 || head[0] != magic || head[1] > facts_size ||
	    head[2] > RECORDED_READS_MAX || head[3] > RECORDED_RULES_MAX ||
	    head[4] > RECORDED_MAPS_MAX || head[5] > RECORDED_BYTES_MAX)
		return -EBADMSG;
	w->n_reads = head[2];
	w->n_rules = head[3];
	w->n_maps = head[4];
	w->n_bytes = head[5];
	if (fread(facts, head[1], 1, f) != 1 || fread(w->leaf, sizeof(w->leaf), 1, f) != 1 ||
	    fread(w->reads, sizeof(*w->reads), w->n_reads, f) != w->n_reads ||
	    fread(w->rules, sizeof(*w->rules), w->n_rules, f) != w->n_rules ||
	    fread(w->maps, sizeof(*w->maps), w->n_maps, f) != w->n_maps ||
	    fread(w->bytes, 1, w->n_bytes, f) != w->n_bytes)
		return -EBADMSG;
	for (uint32_t i = 0; i < w->n_reads; i++) {
		const struct recorded_read *r = &w->reads[i];

		if (r->at != UINT32_MAX && (r->at > w->n_bytes || r->len > w->n_bytes - r->at))
			return -EBADMSG;
	}
	return 0;
}

int recorded_walk_load(struct recorded_walk *w, uint32_t magic, void *facts, size_t facts_size,
		       const char *path)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");

	return f ? recorded_walk_read(w, magic, facts, facts_size, f) : -errno;
}
