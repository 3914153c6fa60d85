// SPDX-License-Identifier: Apache-2.0
/*
 * Recognizes CPython in a file, its version, and the addresses that a walk needs. They come from
 * the symbols that the file exports: distributions cannot strip these, because extension modules
 * link against them. The file's .symtab only adds to them (3.6's static variables, the pieces of a
 * function that gcc has split). Any thread; nothing is shared.
 */
#include "agent/runtime/python/python.h"

#include <elf.h>

#include "agent/runtime/pieces.h"

enum {
	VERSION_TEXT_MAX = 16,
	/* At most 1 / TAIL_SHARE of the bytes between tail-calling functions is other code. */
	TAIL_SHARE = 10,
};

struct probe {
	struct python_image *p;
	uint64_t eval_size, version, getter, bound_getter;
	/* 3.14's tail-calling functions: their range, and the sum of their sizes */
	uint64_t tail_start, tail_end, tail_bytes;
	bool has_symtab;
};

#define EVAL "_PyEval_EvalFrameDefault"

static uint64_t *place_of(struct probe *b, const char *name)
{
	struct python_image *p = b->p;
	const struct {
		const char *name;
		uint64_t *place;
	} wanted[] = {
	    {EVAL, &p->eval},
	    {"_PyRuntime", &p->runtime},
	    {"PyCode_Type", &p->code_type},
	    {"Py_Version", &b->version},
	    {"_PyThreadState_Current", &p->current},
	    {"interp_head", &p->interps},
	    {"autoTLSkey", &p->key},
	    {"_PyThreadState_GetCurrent", &b->getter},
	    {"PyThreadState_GetUnchecked", &b->getter},
	    {"_PyThreadState_UncheckedGet", &b->getter},
	    {"PyGILState_GetThisThreadState", &b->bound_getter},
	};

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		if (streq(name, wanted[i].name))
			return wanted[i].place;
	}
	return NULL;
}

static void add_range(struct probe *b, uint64_t start, uint64_t size)
{
	struct runtime_image *ri = &b->p->base;

	if (size && ri->n_ranges < RUNTIME_RANGES_MAX)
		ri->ranges[ri->n_ranges++] =
		    (struct runtime_range){.start = start, .end = start + size};
}

static void take_symbol(struct probe *b, const char *name, const Elf64_Sym *s)
{
	unsigned int type = ELF64_ST_TYPE(s->st_info);
	uint64_t *place;

	if (s->st_shndx == SHN_UNDEF || !s->st_value || (type != STT_FUNC && type != STT_OBJECT))
		return;
	if (has_prefix(name, EVAL ".")) { /* .cold, .part.0: gcc splits functions */
		add_range(b, s->st_value, s->st_size);
	} else if (has_prefix(name, "_TAIL_CALL_")) {
		b->tail_start = b->tail_end ? MIN(b->tail_start, s->st_value) : s->st_value;
		b->tail_end = MAX(b->tail_end, s->st_value + s->st_size);
		b->tail_bytes += s->st_size;
	} else {
		place = place_of(b, name);
		if (!place || *place)
			return;
		*place = s->st_value;
		if (streq(name, EVAL))
			b->eval_size = s->st_size;
	}
}

/* Reads the symbols of the section NAME; false: the file has no such section. */
static bool read_symbols(struct probe *b, const struct image *image, const char *name)
{
	const struct image_section *section = image_section(image, name);
	struct cursor c, strings;

	if (!section || section->link >= image->n_sections)
		return false;
	c = image_section_data(image, section);
	strings = image_section_data(image, &image->sections[section->link]);
	while (cursor_left(&c) >= sizeof(Elf64_Sym)) {
		Elf64_Sym s;
		const char *text;

		memcpy(&s, cursor_bytes(&c, sizeof(s)), sizeof(s));
		/* The first two letters rule out most symbols. */
		if (strings.bad || strings.size < 4 || s.st_name > strings.size - 4)
			continue;
		text = (const char *)strings.data + s.st_name;
		if (!has_prefix(text, "_P") && !has_prefix(text, "Py") && !has_prefix(text, "_T") &&
		    !has_prefix(text, "in") && !has_prefix(text, "au"))
			continue;
		cursor_seek(&strings, s.st_name);
		text = cursor_str(&strings);
		if (!text)
			break;
		take_symbol(b, text, &s);
	}
	return true;
}

/* ---- the version ------------------------------------------------------------------------------
 */

/* Parses "3.N" at TEXT; *RET is N. */
static bool parse_minor(const char *text, unsigned int *ret)
{
	char *end;
	unsigned long v;

	if (!has_prefix(text, "3.") || text[2] < '0' || text[2] > '9')
		return false;
	v = strtoul(text + 2, &end, 10);
	if (v > 99)
		return false;
	*ret = (unsigned int)v;
	return true;
}

static bool version_by_soname(const struct image *image, unsigned int *ret)
{
	const struct image_section *section = image_section(image, ".dynamic");
	struct cursor c, strings;

	if (!section || section->link >= image->n_sections)
		return false;
	c = image_section_data(image, section);
	strings = image_section_data(image, &image->sections[section->link]);
	while (cursor_left(&c) >= sizeof(Elf64_Dyn)) {
		int64_t tag = cursor_i64(&c);
		uint64_t value = cursor_u64(&c);
		const char *name;

		if (tag != DT_SONAME)
			continue;
		cursor_seek(&strings, value);
		name = cursor_str(&strings);
		return name && has_prefix(name, "libpython") &&
		       parse_minor(name + strlen("libpython"), ret);
	}
	return false;
}

/* PY_VERSION is a string of its own, such as "3.9.18": a NUL comes before it. */
static bool version_by_text(const struct image *image, unsigned int *ret)
{
	const struct image_section *section = image_section(image, ".rodata");
	struct cursor c;
	const uint8_t *p, *end;

	if (!section)
		return false;
	c = image_section_data(image, section);
	if (c.bad || !c.size)
		return false;
	p = c.data;
	end = c.data + c.size;
	while ((p = memmem(p, (size_t)(end - p), "\0003.", 3)) && end - p > VERSION_TEXT_MAX) {
		char text[VERSION_TEXT_MAX + 1] = {0};
		unsigned int micro, minor;
		int n = 0;

		p++;
		memcpy(text, p, VERSION_TEXT_MAX);
		if (sscanf(text, "3.%2u.%2u%n", &minor, &micro, &n) == 2 && strlen(text) < 12 &&
		    (text[n] == '\0' || strchr("abrc+", text[n]))) {
			*ret = minor;
			return true;
		}
	}
	return false;
}

static bool version_by_path(const struct image *image, unsigned int *ret)
{
	const char *p = image->path ? image->path : "";

	while ((p = strstr(p, "python"))) {
		p += strlen("python");
		if (parse_minor(p, ret))
			return true;
	}
	return false;
}

static bool find_version(struct probe *b, const struct image *image)
{
	struct runtime_image *ri = &b->p->base;
	struct cursor c = image_at_vaddr(image, b->version);
	uint64_t v = b->version ? cursor_u64(&c) : 0; /* 0x030b02f0: 3.11.2 */

	if (v >> 24 == 3) {
		b->p->minor = v >> 16 & 255;
		snprintf(ri->version, sizeof(ri->version), "3.%u.%u", b->p->minor,
			 (unsigned int)(v >> 8 & 255));
		return true;
	}
	if (!version_by_soname(image, &b->p->minor) && !version_by_text(image, &b->p->minor) &&
	    !version_by_path(image, &b->p->minor))
		return false;
	snprintf(ri->version, sizeof(ri->version), "3.%u", b->p->minor);
	return true;
}

/* ---- all together -----------------------------------------------------------------------------
 */

static void find_ranges(struct probe *b, const struct image *image)
{
	struct runtime_image *ri = &b->p->base;

	add_range(b, b->p->eval, b->eval_size);
	if (b->tail_end > b->tail_start &&
	    b->tail_bytes * TAIL_SHARE > (b->tail_end - b->tail_start) * (TAIL_SHARE - 1))
		add_range(b, b->tail_start, b->tail_end - b->tail_start);
	if (!b->has_symtab)
		ri->n_ranges += runtime_find_pieces(image, b->p->eval, b->p->eval + b->eval_size,
						    ri->ranges + ri->n_ranges,
						    RUNTIME_RANGES_MAX - ri->n_ranges);
}

/* May a file be Python that does not export _PyEval_EvalFrameDefault? Only then is .symtab read. */
static bool may_be_python(const struct image *image)
{
	return image_section(image, ".PyRuntime") || (image->path && strstr(image->path, "python"));
}

static int fill(struct probe *b, const struct image *image, struct error *err)
{
	(void)read_symbols(b, image, ".dynsym");
	if (!b->p->eval && !may_be_python(image))
		return -ENOENT;
	b->has_symtab = read_symbols(b, image, ".symtab");
	if (!b->p->eval || !image_is_code(image, b->p->eval))
		return -ENOENT;
	if (!find_version(b, image))
		return error_set(err, -ENOTSUP, "CPython of a version that it does not tell");
	if (b->p->minor < PYTHON_MINOR_MIN || b->p->minor > PYTHON_MINOR_MAX)
		return error_set(err, -ENOTSUP, "CPython 3.%u: want 3.%d to 3.%d", b->p->minor,
				 PYTHON_MINOR_MIN, PYTHON_MINOR_MAX);
	if (!b->p->runtime && !b->p->current)
		return error_set(err, -ENOTSUP, "CPython 3.%u without the symbol _PyRuntime",
				 b->p->minor);
	if (b->p->minor >= 12)
		thread_variable_find(image, b->getter, &b->p->running);
	if (b->p->minor >= 15)
		thread_variable_find(image, b->bound_getter, &b->p->bound);
	find_ranges(b, image);
	return 0;
}

int python_probe(const struct image *image, struct runtime_image **ret, struct error *err)
{
	_cleanup_free_ struct python_image *p = calloc(1, sizeof(*p));
	struct probe b = {.p = p};
	int r;

	if (!p)
		return -ENOMEM;
	p->base.ops = &python_ops;
	r = fill(&b, image, err);
	if (r < 0)
		return r;
	*ret = &p->base;
	p = NULL;
	return 0;
}

void python_forget(struct runtime_image *ri)
{
	if (ri)
		free(container_of(ri, struct python_image, base));
}
