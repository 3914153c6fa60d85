// SPDX-License-Identifier: Apache-2.0
/*
 * Recognizes PHP's file and its version, and finds the data for the walk, by the symbols that the
 * file exports. Distributions cannot strip these, because extensions link against them. Any thread;
 * nothing is shared.
 */
#include <elf.h>

#include "agent/runtime/php/php.h"
#include "agent/runtime/pieces.h"

enum { HYBRID_VM = 4 }; /* Zend/zend_vm_opcodes.h, ZEND_VM_KIND_HYBRID */

struct probe {
	struct php_image *p;
	const struct image *image;
	struct php_function globals, scope, kind, threads;
	uint32_t version; /* major * 100 + minor */
};

static struct php_function *place_of(struct probe *b, const char *name)
{
	const struct {
		const char *name;
		struct php_function *place;
	} wanted[] = {
	    {"execute_ex", &b->p->loop},
	    {"executor_globals", &b->globals},
	    {"executor_globals_offset", &b->threads},
	    {"zend_execute", &b->p->root},
	    {"zend_generator_resume", &b->p->resume},
	    {"zend_get_executed_scope", &b->scope},
	    {"zend_vm_kind", &b->kind},
	};

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		if (streq(name, wanted[i].name))
			return wanted[i].place;
	return NULL;
}

static void read_symbols(struct probe *b)
{
	const struct image_section *section = image_section(b->image, ".dynsym");
	struct cursor c, strings;

	if (!section || section->link >= b->image->n_sections)
		return;
	c = image_section_data(b->image, section);
	strings = image_section_data(b->image, &b->image->sections[section->link]);
	while (cursor_left(&c) >= sizeof(Elf64_Sym)) {
		struct php_function *place;
		const char *name;
		Elf64_Sym s;

		memcpy(&s, cursor_bytes(&c, sizeof(s)), sizeof(s));
		/* Nearly all names begin with other letters. */
		if (strings.bad || strings.size < 4 || s.st_name > strings.size - 4 ||
		    s.st_shndx == SHN_UNDEF || !s.st_value)
			continue;
		name = (const char *)strings.data + s.st_name;
		if (!has_prefix(name, "exec") && !has_prefix(name, "zend"))
			continue;
		cursor_seek(&strings, s.st_name);
		name = cursor_str(&strings);
		place = name ? place_of(b, name) : NULL;
		if (place && !place->start)
			*place = (struct php_function){s.st_value, s.st_size};
	}
}

/* Reads the version, such as "8.2.32", from the header that PHP adds to its responses (main/SAPI.h,
 * SAPI_PHP_VERSION_HEADER). */
static bool find_version(struct probe *b)
{
	static const char header[] = "X-Powered-By: PHP/";
	const struct image_section *section = image_section(b->image, ".rodata");
	struct runtime_image *ri = &b->p->base;
	char text[RUNTIME_VERSION_MAX] = {0};
	unsigned int major, minor;
	struct cursor c;
	const uint8_t *p;

	if (!section)
		return false;
	c = image_section_data(b->image, section);
	p = c.bad ? NULL : memmem(c.data, c.size, header, strlen(header));
	if (!p)
		return false;
	p += strlen(header);
	memcpy(text, p, MIN(sizeof(text) - 1, (size_t)(c.data + c.size - p)));
	if (sscanf(text, "%2u.%2u", &major, &minor) != 2)
		return false;
	text[strspn(text, "0123456789.RCalphbetdv-")] = '\0';
	snprintf(ri->version, sizeof(ri->version), "%s", text);
	b->version = major * 100 + minor;
	return true;
}

/* The number that zend_vm_kind() returns, which is all that the function does; 0: not known. */
static uint32_t vm_kind(const struct probe *b)
{
	static const uint8_t entry[] = {0xf3, 0x0f, 0x1e, 0xfa}; /* endbr64 */
	struct cursor c = image_at_vaddr(b->image, b->kind.start);
	uint8_t code[16] = {0}, *p = code;
	uint32_t v;

	if (!b->kind.start || c.bad)
		return 0;
	memcpy(code, c.data + c.pos, MIN(cursor_left(&c), (size_t)10));
	if (memcmp(p, entry, sizeof(entry)) == 0)
		p += sizeof(entry);
	if (*p != 0xb8) /* mov $n, %eax */
		return 0;
	memcpy(&v, p + 1, sizeof(v));
	return v;
}

static void add_range(struct probe *b, const struct php_function *f)
{
	struct runtime_image *ri = &b->p->base;

	if (f->start && f->size && image_is_code(b->image, f->start) &&
	    ri->n_ranges < RUNTIME_RANGES_MAX)
		ri->ranges[ri->n_ranges++] =
		    (struct runtime_range){.start = f->start, .end = f->start + f->size};
}

static void find_code(struct probe *b)
{
	struct php_image *p = b->p;
	struct runtime_range cold;

	p->edges = php_read_loop(b->image, &p->loop);
	if (vm_kind(b) != HYBRID_VM)
		p->edges.has_registers = false;
	if (runtime_find_pieces(b->image, p->loop.start, p->loop.start + p->loop.size, &cold, 1))
		p->cold = (struct php_function){cold.start, cold.end - cold.start};
	if (p->layout->main_context)
		p->fiber = php_find_fiber(b->image, &p->saved_bx);
	add_range(b, &p->loop);
	add_range(b, &p->cold);
	add_range(b, &p->root);
	add_range(b, &p->resume);
	add_range(b, &p->fiber);
}

static int fill(struct probe *b, struct error *err)
{
	int64_t current;

	read_symbols(b);
	if (!b->p->loop.start || !image_is_code(b->image, b->p->loop.start))
		return -ENOENT;
	if (!find_version(b))
		return error_set(err, -ENOTSUP, "PHP of a version that it does not tell");
	b->p->layout = php_layout_of(b->version);
	if (!b->p->layout)
		return error_set(err, -ENOTSUP, "PHP %s: want 7.4, 8.2, 8.4, 8.5 or 8.6",
				 b->p->base.version);
	if (!b->globals.start)
		return error_set(err, -ENOTSUP, "PHP %s %s", b->p->base.version,
				 b->threads.start ? "for threads (ZTS)"
						  : "without the symbol executor_globals");
	b->p->globals = b->globals.start;
	current = php_read_getter(b->image, &b->scope, b->p->globals);
	if (current >= 0 && current != (int64_t)b->p->layout->current)
		return error_set(
		    err, -ENOTSUP,
		    "PHP %s: its current frame is at %lld in executor_globals, want %u",
		    b->p->base.version, (long long)current, b->p->layout->current);
	find_code(b);
	return 0;
}

int php_probe(const struct image *image, struct runtime_image **ret, struct error *err)
{
	_cleanup_free_ struct php_image *p = calloc(1, sizeof(*p));
	struct probe b = {.p = p, .image = image};
	int r;

	if (!p)
		return -ENOMEM;
	p->base.ops = &php_ops;
	r = fill(&b, err);
	if (r < 0)
		return r;
	*ret = &p->base;
	p = NULL;
	return 0;
}

void php_forget(struct runtime_image *ri)
{
	if (ri)
		free(container_of(ri, struct php_image, base));
}
