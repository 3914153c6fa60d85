// SPDX-License-Identifier: Apache-2.0
/*
 * Ties the sources together: an address of an image is looked for among the frames that are known,
 * then in the Go table, then in the symbol table; what was found, or that nothing was, becomes a
 * frame. Kernel and just-in-time compiled code are looked up directly, their tables are quick.
 *
 * Strings in results point into the frame cache, the kernel's table or a perf map; all three keep
 * them until symbolizer_trim().
 */
#include "agent/symbol/symbolizer.h"

#include "agent/process/procfs.h"
#include "agent/symbol/demangle.h"
#include "agent/symbol/frame_cache.h"
#include "agent/symbol/kernel.h"
#include "agent/symbol/foreign.h"
#include "agent/symbol/perf_map.h"
#include "agent/symbol/table_cache.h"
#include "lib/clock.h"
#include "lib/metrics.h"
#include "lib/uthash.h"

enum { JIT_IDLE_WINDOWS = 32 /* windows, then an unused map is freed */ };

struct jit {
	struct jit_key { /* no padding: it is compared as bytes */
		uint64_t pid, start_time;
	} key;
	uint32_t used;	  /* window */
	uint32_t checked; /* window in which the file was looked at, plus 1 */
	struct perf_map *map;
	UT_hash_handle hh;
};

struct symbolizer {
	struct frame_cache *frames;
	struct table_cache *tables;
	struct kernel_symbols *kernel;
	struct jit *jit; /* by key */
	size_t max_table_bytes;
	char *proc;
	struct foreign *foreign;
	uint32_t window;
};

int symbolizer_new(const struct symbolizer_options *options, struct symbolizer **ret,
		   struct error *err)
{
	struct symbolizer *s = calloc(1, sizeof(*s));
	int r = s ? 0 : -ENOMEM;

	if (r == 0 && !(s->proc = strdup(options->proc)))
		r = -ENOMEM;
	if (r == 0)
		r = foreign_new(&s->foreign);
	if (r == 0)
		r = frame_cache_new(options->max_cached_frames, &s->frames);
	if (r == 0)
		r = table_cache_new(options->max_table_bytes, options->debug_root, s->foreign,
				    &s->tables);
	if (r == 0)
		r = kernel_symbols_new(options->kallsyms, &s->kernel);
	if (r < 0) {
		symbolizer_free(s);
		return error_set(err, r, "no memory for the symbolizer");
	}
	s->max_table_bytes = options->max_table_bytes;
	*ret = s;
	return 0;
}

static void drop_jit(struct symbolizer *s, struct jit *j)
{
	HASH_DEL(s->jit, j);
	perf_map_free(j->map);
	free(j);
}

struct symbolizer *symbolizer_free(struct symbolizer *s)
{
	struct jit *j, *next;

	if (!s)
		return NULL;
	HASH_ITER (hh, s->jit, j, next)
		drop_jit(s, j);
	frame_cache_free(s->frames);
	table_cache_free(s->tables);
	foreign_free(s->foreign);
	kernel_symbols_free(s->kernel);
	free(s->proc);
	free(s);
	return NULL;
}

/* ---- images -----------------------------------------------------------------------------------
 */

static void fill_result(const struct frame *frame, struct symbol_result *ret)
{
	ret->n = MIN(frame->n, (uint32_t)SYMBOL_INLINE_MAX);
	ret->type = frame->n ? frame->lines[0].function->type : FRAME_NATIVE;
	for (uint32_t i = 0; i < ret->n; i++) {
		const struct frame_function *f = frame->lines[i].function;

		ret->symbols[i] = (struct symbol){
		    .name = f->name,
		    .system_name = f->system_name,
		    .file = f->file,
		    .line = frame->lines[i].line,
		    .start_line = f->start_line,
		};
	}
}

static int intern_go(struct symbolizer *s, const struct gopclntab_frame *in, size_t n,
		     struct frame_line *lines, size_t *ret_n)
{
	for (size_t i = 0; i < n; i++) {
		struct frame_function *f = frame_cache_function(s->frames, FRAME_GO, in[i].name,
								in[i].file, in[i].start_line);
		int r = 0;

		if (!f)
			r = frame_cache_add_function(s->frames, FRAME_GO, NULL, in[i].name,
						     in[i].file, in[i].start_line, &f);
		if (r < 0)
			return r;
		lines[i] = (struct frame_line){.function = f, .line = in[i].line};
	}
	*ret_n = n;
	return 0;
}

static int intern_native(struct symbolizer *s, const char *system_name, struct frame_line *lines,
			 size_t *ret_n)
{
	struct frame_function *f =
	    frame_cache_function(s->frames, FRAME_NATIVE, system_name, "", 0);
	_cleanup_free_ char *name = NULL;
	bool rust;
	int r;

	if (!f) {
		r = demangle(system_name, &name, &rust);
		if (r < 0)
			return r;
		r = frame_cache_add_function(s->frames, rust ? FRAME_RUST : FRAME_NATIVE, name,
					     system_name, "", 0, &f);
		if (r < 0)
			return r;
	}
	lines[0] = (struct frame_line){.function = f};
	*ret_n = 1;
	return 0;
}

/*
 * Reads the name of a function from the file once: a frame at the function's start, whose owner is
 * table_functions_id(), keeps it for other addresses.
 */
static int resolve_elf(struct symbolizer *s, const struct table *table,
		       const struct elf_symbols *elf, uint64_t vaddr, struct frame_line *lines,
		       size_t *ret_n, bool *ret_read)
{
	char system_name[DEMANGLE_MAX];
	const struct frame *known;
	struct elf_symbol symbol;
	int r;

	*ret_n = 0;
	*ret_read = false;
	if (!elf_symbols_find(elf, vaddr, &symbol))
		return 0;
	known = frame_cache_get(s->frames, table_functions_id(table), symbol.start);
	if (known) {
		lines[0] = known->lines[0];
		*ret_n = known->n;
		return 0;
	}
	*ret_read = true;
	if (!elf_symbols_name(elf, &symbol, system_name, sizeof(system_name)))
		return 0;
	r = intern_native(s, system_name, lines, ret_n);
	if (r < 0)
		return r;
	return frame_cache_put(s->frames, table_functions_id(table), symbol.start, lines, *ret_n,
			       &known);
}

/*
 * *RET_N: 0 when no function is there. *RET_READ: the table's files were read, not only what is
 * cached of them.
 */
static int resolve(struct symbolizer *s, struct table *table, uint64_t vaddr,
		   struct frame_line *lines, size_t *ret_n, bool *ret_read)
{
	struct gopclntab_frame go_frames[SYMBOL_INLINE_MAX];
	bool is_new = !table->go_tried || !table->elf_tried, name_read;
	const struct elf_symbols *elf;
	const struct gopclntab *go;
	size_t n;
	int r;

	*ret_n = 0;
	*ret_read = true;
	r = table_go(s->tables, table, &go);
	if (r < 0)
		return r;
	n = go ? gopclntab_symbolize(go, vaddr, go_frames, SYMBOL_INLINE_MAX) : 0;
	if (n)
		return intern_go(s, go_frames, n, lines, ret_n);
	r = table_elf(s->tables, table, &elf);
	if (r < 0 || !elf)
		return r;
	r = resolve_elf(s, table, elf, vaddr, lines, ret_n, &name_read);
	*ret_read = is_new || go || name_read;
	return r;
}

/* -ESTALE: a file that the table was made from has changed; the table was dropped. */
static int find_frame(struct symbolizer *s, struct image *image, const struct process_root *root,
		      uint64_t vaddr, const struct frame **ret)
{
	struct frame_line lines[SYMBOL_INLINE_MAX];
	struct table *table;
	bool read;
	size_t n;
	int r = table_cache_get(s->tables, image, root, &table);

	if (r < 0)
		return r;
	*ret = frame_cache_get(s->frames, table->id, vaddr);
	if (*ret)
		return 0;
	r = resolve(s, table, vaddr, lines, &n, &read);
	if (r == 0 && read)
		r = table_check(table);
	if (r == -ESTALE)
		table_cache_drop(s->tables, table);
	return r < 0 ? r : frame_cache_put(s->frames, table->id, vaddr, lines, n, ret);
}

int symbolize_image(struct symbolizer *s, struct image *image, const struct process_root *root,
		    uint64_t vaddr, struct symbol_result *ret)
{
	const struct frame *frame;
	int r = -ESTALE;

	/* After -ESTALE, the next try uses a table made from another file of this content, or from
	 * this file alone. */
	for (int tries = 0; r == -ESTALE && tries < 3; tries++)
		r = find_frame(s, image, root, vaddr, &frame);
	if (r == -E2BIG || r == -ESTALE) { /* keep the frame, without a name */
		metric_add(r == -E2BIG ? M_SYMBOLS_CAPPED_FRAMES : M_IMAGES_CHANGED, 1);
		ret->n = 0;
		ret->type = FRAME_NATIVE;
		return 0;
	}
	if (r < 0)
		return r;
	fill_result(frame, ret);
	return 0;
}

/* ---- one name ---------------------------------------------------------------------------------
 */

static void one_symbol(enum frame_type type, const char *name, struct symbol_result *ret)
{
	ret->type = type;
	ret->n = 1;
	ret->symbols[0] = (struct symbol){.name = name, .system_name = name, .file = ""};
}

int symbolize_kernel(struct symbolizer *s, uint64_t address, struct symbol_result *ret,
		     const char **ret_module)
{
	struct kallsyms_symbol symbol;

	if (!kernel_symbols_find(s->kernel, address, monotonic_ms(), &symbol)) {
		ret->type = FRAME_KERNEL;
		ret->n = 0;
		*ret_module = "";
		return 0;
	}
	one_symbol(FRAME_KERNEL, symbol.name, ret);
	*ret_module = symbol.module;
	return 0;
}

/* ---- just-in-time compiled code ---------------------------------------------------------------
 */

static int get_jit(struct symbolizer *s, uint32_t pid, uint64_t start_time, struct jit **ret)
{
	const struct jit_key key = {.pid = pid, .start_time = start_time};
	struct jit *j;
	int r;

	HASH_FIND(hh, s->jit, &key, sizeof(key), j);
	if (j) {
		*ret = j;
		return 0;
	}
	j = calloc(1, sizeof(*j));
	if (!j)
		return -ENOMEM;
	r = perf_map_new(&j->map);
	if (r < 0) {
		free(j);
		return r;
	}
	j->key = key;
	HASH_ADD(hh, s->jit, key, sizeof(j->key), j);
	*ret = j;
	return 0;
}

int symbolize_jit(struct symbolizer *s, uint32_t pid, uint64_t start_time, uint64_t address,
		  struct symbol_result *ret)
{
	struct perf_map_symbol symbol;
	struct jit *j;
	int r = get_jit(s, pid, start_time, &j);

	if (r < 0)
		return r;
	j->used = s->window;
	if (j->checked != s->window + 1) {
		_cleanup_close_ int fd = perf_map_open(s->foreign, s->proc, (pid_t)pid);

		j->checked = s->window + 1;
		/* If PID is another process by now, the map is that one's. */
		r = fd < 0 || !process_is_still(s->proc, pid, start_time)
			? 0
			: perf_map_update(j->map, fd);
		if (r == -ENOMEM)
			return r;
	}
	ret->type = FRAME_NATIVE;
	ret->n = 0;
	if (perf_map_find(j->map, address, &symbol))
		one_symbol(FRAME_NATIVE, symbol.name, ret);
	return 0;
}

static size_t jit_bytes(const struct symbolizer *s)
{
	size_t bytes = 0;

	for (const struct jit *j = s->jit; j; j = j->hh.next)
		bytes += sizeof(*j) + perf_map_bytes(j->map);
	return bytes;
}

/* Drops the maps that were idle for at least IDLE windows. */
static void drop_idle_jit(struct symbolizer *s, uint32_t idle)
{
	struct jit *j, *next;

	HASH_ITER (hh, s->jit, j, next)
		if (s->window - j->used >= idle)
			drop_jit(s, j);
}

void symbolizer_trim(struct symbolizer *s)
{
	uint32_t idle = JIT_IDLE_WINDOWS;

	frame_cache_trim(s->frames);
	table_cache_trim(s->tables);
	kernel_symbols_trim(s->kernel);
	drop_idle_jit(s, idle);
	/* Perf maps may take max_table_bytes too, in addition to symbol tables. Beyond that, the
	 * maps that were idle longest are dropped first. */
	while (idle > 0 && jit_bytes(s) > s->max_table_bytes) {
		idle /= 2;
		drop_idle_jit(s, idle);
	}
	s->window++;
	metric_set(M_SYMBOL_BYTES, (int64_t)symbolizer_bytes(s));
}

size_t symbolizer_bytes(const struct symbolizer *s)
{
	return frame_cache_bytes(s->frames) + table_cache_bytes(s->tables) +
	       kernel_symbols_bytes(s->kernel) + jit_bytes(s);
}
