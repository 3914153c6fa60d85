// SPDX-License-Identifier: Apache-2.0
/*
 * The file has no sizes: a function ends where the next symbol starts. Non-text symbols after a
 * text symbol (_etext is followed by read-only data) leave a gap entry, so that code that is loaded
 * after the table was read is not taken for the last function before it.
 *
 * The file is read through one buffer of 64 KiB; what stays is 12 bytes a function and one blob of
 * names, in which a module's functions have a flag in the offset and the module's number before the
 * name. Any thread.
 */
#include "agent/symbol/kallsyms.h"

#include "lib/buf.h"
#include "lib/metrics.h"
#include "lib/pace.h"

enum {
	READ_BUFFER = 64 << 10,
	NAME_MASK = (1 << 26) - 1,
	IN_MODULE = 1 << 26,
	RANK_SHIFT = 27, /* 2 bits: 0 local, 1 weak, 2 global */
	GAP = 1 << 29,
};

struct entry { /* the address in halves, so that 12 bytes need no packing */
	uint32_t low, high;
	uint32_t name;
};

struct kallsyms {
	struct entry *entries;
	size_t n, cap;
	struct buf names;
	char **modules;
	size_t n_modules, cap_modules;
	bool restricted;
};

struct reader {
	struct kallsyms *k;
	bool after_text; /* the last line was a function */
	bool any_address;
	size_t lines, dropped;
};

static uint64_t address_of(const struct entry *e)
{
	return (uint64_t)e->high << 32 | e->low;
}

static const char *name_of(const struct kallsyms *k, const struct entry *e)
{
	return k->names.data + (e->name & NAME_MASK);
}

/* ---- reading ----------------------------------------------------------------------------------
 */

/* -E2BIG beyond the cap. */
static int module_index(struct kallsyms *k, const char *name, uint16_t *ret)
{
	char *copy;
	int r;

	/* Modules come one after the other. */
	for (size_t i = k->n_modules; i-- > 0;) {
		if (streq(k->modules[i], name)) {
			*ret = (uint16_t)i;
			return 0;
		}
	}
	r = grow_array((void **)&k->modules, &k->cap_modules, k->n_modules + 1, sizeof(*k->modules),
		       KALLSYMS_MODULES_MAX);
	if (r < 0)
		return r;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	k->modules[k->n_modules++] = copy;
	*ret = (uint16_t)(k->n_modules - 1);
	return 0;
}

static int add_entry(struct kallsyms *k, uint64_t address, uint32_t name)
{
	int r =
	    grow_array((void **)&k->entries, &k->cap, k->n + 1, sizeof(*k->entries), KALLSYMS_MAX);

	if (r == 0)
		k->entries[k->n++] =
		    (struct entry){(uint32_t)address, (uint32_t)(address >> 32), name};
	return r;
}

static int add_function(struct kallsyms *k, uint64_t address, char type, const char *name,
			const char *module)
{
	uint32_t at, rank = type == 'T' ? 2 : type == 'W' || type == 'w' ? 1 : 0;
	uint16_t index;
	int r;

	if (module) {
		r = module_index(k, module, &index);
		if (r == 0)
			r = buf_append(&k->names, &index, sizeof(index));
		if (r < 0)
			return r;
	}
	at = (uint32_t)k->names.len;
	r = buf_append(&k->names, name, strlen(name) + 1);
	if (r < 0)
		return r;
	return add_entry(k, address, at | (module ? IN_MODULE : 0) | rank << RANK_SHIFT);
}

/* LINE is NUL-terminated and may be written to. Lines that do not parse are skipped. */
static int read_line(struct reader *in, char *line)
{
	char *end, *name, *module = NULL, type;
	uint64_t address;
	int r;

	errno = 0;
	address = strtoull(line, &end, 16);
	if (errno || end == line || end[0] != ' ' || !end[1] || end[2] != ' ' || !end[3])
		return 0;
	type = end[1];
	name = end + 3;
	in->lines++;
	in->any_address |= address != 0;
	end = strchr(name, '\t');
	if (end) {
		*end = 0;
		if (end[1] == '[') {
			module = end + 2;
			module[strcspn(module, "]")] = 0;
		}
	}
	if (address == 0)
		return 0;
	if (!strchr("tTwW", type)) {
		r = in->after_text ? add_entry(in->k, address, GAP) : 0;
		in->after_text = false;
	} else if (has_prefix(name, "__pfx_") || has_prefix(name, "__cfi_")) {
		return 0;
	} else {
		r = add_function(in->k, address, type, name, module);
		in->after_text = true;
	}
	if (r == -E2BIG)
		in->dropped++;
	return r == -E2BIG ? 0 : r;
}

static int read_lines(struct reader *in, int fd)
{
	_cleanup_free_ char *buffer = malloc(READ_BUFFER);
	size_t len = 0;
	ssize_t n;
	int r;

	if (!buffer)
		return -ENOMEM;
	for (;;) {
		char *line = buffer, *newline;

		n = read(fd, buffer + len, READ_BUFFER - len - 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0; /* a last line without its end was cut short */
		len += (size_t)n;
		while ((newline = memchr(line, '\n', len - (size_t)(line - buffer)))) {
			*newline = 0;
			pace_point();
			r = read_line(in, line);
			if (r < 0)
				return r;
			line = newline + 1;
		}
		len -= (size_t)(line - buffer);
		memmove(buffer, line, len);
		if (len == READ_BUFFER - 1)
			len = 0; /* no line is that long */
	}
}

/* ---- sorting ----------------------------------------------------------------------------------
 */

static int compare_names(const char *x, const char *y)
{
	size_t a = strspn(x, "_"), b = strspn(y, "_");

	if (a == b) {
		a = strlen(x);
		b = strlen(y);
	}
	return a != b ? (a < b ? -1 : 1) : strcmp(x, y);
}

static int compare_entries(const void *a, const void *b, void *arg)
{
	const struct kallsyms *k = arg;
	const struct entry *x = a, *y = b;
	uint32_t x_rank = x->name >> RANK_SHIFT & 3, y_rank = y->name >> RANK_SHIFT & 3;

	pace_point();
	if (address_of(x) != address_of(y))
		return address_of(x) < address_of(y) ? -1 : 1;
	if ((x->name & GAP) != (y->name & GAP)) /* functions before gaps */
		return x->name & GAP ? 1 : -1;
	if (x->name & GAP)
		return 0;
	if (x_rank != y_rank)
		return x_rank > y_rank ? -1 : 1;
	return compare_names(name_of(k, x), name_of(k, y));
}

/* Sorts and keeps the best name of each address. Returns 0 or -ENOMEM. */
static int settle(struct kallsyms *k)
{
	size_t kept = 0;
	void *p;

	if (!k->n)
		return 0;
	qsort_r(k->entries, k->n, sizeof(*k->entries), compare_entries, k);
	for (size_t i = 0; i < k->n; i++) {
		if (kept && address_of(&k->entries[i]) == address_of(&k->entries[kept - 1]))
			continue;
		k->entries[kept++] = k->entries[i];
	}
	k->n = kept;
	p = realloc(k->entries, kept * sizeof(*k->entries));
	if (p) {
		k->entries = p;
		k->cap = kept;
	}
	if (k->names.data && (p = realloc(k->names.data, k->names.len + 1))) {
		k->names.data = p;
		k->names.cap = k->names.len + 1;
	}
	return 0;
}

int kallsyms_read(int fd, struct kallsyms **ret, struct error *err)
{
	_cleanup_(kallsyms_freep) struct kallsyms *k = calloc(1, sizeof(*k));
	struct reader in = {.k = k};
	int r;

	if (!k)
		return error_set(err, -ENOMEM, "no memory for kernel symbols");
	buf_init(&k->names, MIN((size_t)KALLSYMS_BLOB_MAX, (size_t)NAME_MASK));
	r = read_lines(&in, fd);
	if (r == 0)
		r = settle(k);
	if (r < 0)
		return error_set(err, r, "cannot read kernel symbols: %s", strerror(-r));
	if (in.dropped)
		metric_add(M_SYMBOLS_CAPPED_KERNEL, (int64_t)in.dropped);
	k->restricted = in.lines && !in.any_address;
	*ret = TAKE_PTR(k);
	return 0;
}

struct kallsyms *kallsyms_free(struct kallsyms *k)
{
	if (!k)
		return NULL;
	for (size_t i = 0; i < k->n_modules; i++)
		free(k->modules[i]);
	free(k->modules);
	free(k->entries);
	buf_done(&k->names);
	free(k);
	return NULL;
}

/* ---- look-up ----------------------------------------------------------------------------------
 */

bool kallsyms_find(const struct kallsyms *k, uint64_t address, struct kallsyms_symbol *ret)
{
	size_t lo = 0, hi = k->n;
	const struct entry *e;
	uint64_t end;
	uint16_t index;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (address_of(&k->entries[mid]) <= address)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || k->entries[lo - 1].name & GAP)
		return false;
	e = &k->entries[lo - 1];
	end = address_of(e) + MIN((uint64_t)KALLSYMS_SPAN_MAX, UINT64_MAX - address_of(e));
	if (lo < k->n)
		end = MIN(end, address_of(e + 1));
	if (address >= end)
		return false;
	*ret = (struct kallsyms_symbol){
	    .start = address_of(e), .end = end, .name = name_of(k, e), .module = ""};
	if (e->name & IN_MODULE) {
		memcpy(&index, ret->name - sizeof(index), sizeof(index));
		ret->module = k->modules[index];
	}
	return true;
}

bool kallsyms_restricted(const struct kallsyms *k)
{
	return k->restricted;
}

size_t kallsyms_count(const struct kallsyms *k)
{
	return k->n;
}

size_t kallsyms_bytes(const struct kallsyms *k)
{
	return sizeof(*k) + k->cap * sizeof(*k->entries) + k->names.cap +
	       k->cap_modules * sizeof(*k->modules);
}
