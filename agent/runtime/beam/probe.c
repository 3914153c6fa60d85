// SPDX-License-Identifier: Apache-2.0
/*
 * Recognizes BEAM's file and its release. All builds export the functions for NIFs, because the
 * libraries of NIFs link against the emulator. The release is in the text with which `erl` greets.
 * Any thread; nothing is shared.
 */
#include "agent/runtime/beam/beam.h"

#include <elf.h>

enum {
	BANNER_MAX = 256, /* bytes of the greeting */
	DIRTY_MAX = 1 << 16,
};

struct probe {
	struct beam_image *b;
	uint64_t nif, dirty_size;
};

static void take_symbol(struct probe *p, const char *name, const Elf64_Sym *s)
{
	if (s->st_shndx == SHN_UNDEF || !s->st_value)
		return;
	if (streq(name, "enif_schedule_nif"))
		p->nif = s->st_value;
	else if (streq(name, "__jit_debug_descriptor"))
		p->b->descriptor = s->st_value;
	else if (streq(name, "erts_get_scheduler_data"))
		p->b->getter = s->st_value;
	if (!streq(name, "erts_dirty_process_main"))
		return;
	p->b->dirty_main = s->st_value;
	p->dirty_size = s->st_size;
}

static void read_symbols(struct probe *p, const struct image *image)
{
	const struct image_section *section = image_section(image, ".dynsym");
	struct cursor c, strings;

	if (!section || section->link >= image->n_sections)
		return;
	c = image_section_data(image, section);
	strings = image_section_data(image, &image->sections[section->link]);
	while (cursor_left(&c) >= sizeof(Elf64_Sym)) {
		Elf64_Sym s;
		const char *text;

		memcpy(&s, cursor_bytes(&c, sizeof(s)), sizeof(s));
		/* Most names are told apart by three letters. */
		if (strings.bad || strings.size < 4 || s.st_name > strings.size - 4)
			continue;
		text = (const char *)strings.data + s.st_name;
		if (!has_prefix(text, "eni") && !has_prefix(text, "ert") &&
		    !has_prefix(text, "__j"))
			continue;
		cursor_seek(&strings, s.st_name);
		text = cursor_str(&strings);
		if (!text)
			break;
		take_symbol(p, text, &s);
	}
}

/* erts/emulator/beam/erl_bif_info.c, erts_system_version: "Erlang/OTP 27%s [erts-15.2.7] ...". */
static const char *find_banner_in(const struct image *image, const char *section, size_t *ret_size)
{
	static const char head[] = "Erlang/OTP ", middle[] = "%s [erts-";
	const size_t skip = sizeof(head) - 1 + 2;
	struct cursor c = image_section_data(image, image_section(image, section));
	const char *at = (const char *)c.data, *end = c.bad ? at : at + c.size, *text;

	while (at < end) {
		text = memmem(at, (size_t)(end - at), head, sizeof(head) - 1);
		if (!text || (size_t)(end - text) < BANNER_MAX)
			return NULL;
		if (same_bytes(text + skip, middle, sizeof(middle) - 1)) {
			*ret_size = strnlen(text, BANNER_MAX);
			return text;
		}
		at = text + 1;
	}
	return NULL;
}

static const char *find_banner(const struct image *image, size_t *ret_size)
{
	const char *found = find_banner_in(image, ".data", ret_size);

	return found ? found : find_banner_in(image, ".rodata", ret_size);
}

static int read_release(struct probe *p, const struct image *image, struct error *err)
{
	static const char jit[] = "[jit:ns";
	size_t size = 0;
	const char *banner = find_banner(image, &size);
	unsigned int release = 0;

	if (!banner)
		return error_set(err, -ENOTSUP, "Erlang whose release is not said");
	for (size_t i = strlen("Erlang/OTP "); i < strlen("Erlang/OTP ") + 2; i++)
		release = release * 10 + (unsigned int)(banner[i] - '0') % 10;
	snprintf(p->b->base.version, sizeof(p->b->base.version), "%u", release);
	if (release < BEAM_RELEASE_MIN || release > BEAM_RELEASE_MAX)
		return error_set(err, -ENOTSUP, "Erlang/OTP %u: want %d to %d", release,
				 BEAM_RELEASE_MIN, BEAM_RELEASE_MAX);
	if (image->machine != EM_X86_64 || !memmem(banner, size, jit, sizeof(jit) - 1))
		return error_set(err, -ENOTSUP,
				 "Erlang/OTP %u without the JIT for x86-64 (flavor emu)", release);
	return 0;
}

int beam_probe(const struct image *image, struct runtime_image **ret, struct error *err)
{
	_cleanup_free_ struct beam_image *b = calloc(1, sizeof(*b));
	struct probe p = {.b = b};
	int r;

	if (!b)
		return -ENOMEM;
	b->base.ops = &beam_ops;
	read_symbols(&p, image);
	if (!p.nif || !image_is_code(image, p.nif))
		return -ENOENT;
	r = read_release(&p, image, err);
	if (r < 0)
		return r;
	if (p.dirty_size && p.dirty_size <= DIRTY_MAX) {
		b->base.ranges[0] = (struct runtime_range){.start = b->dirty_main,
							   .end = b->dirty_main + p.dirty_size};
		b->base.n_ranges = 1;
	} else {
		b->dirty_main = 0;
	}
	*ret = &b->base;
	b = NULL;
	return 0;
}

void beam_forget(struct runtime_image *ri)
{
	if (ri)
		free(container_of(ri, struct beam_image, base));
}
