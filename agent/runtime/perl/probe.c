// SPDX-License-Identifier: Apache-2.0
/*
 * Recognizes Perl's file and its version, and finds the data for the walk, by the symbols that the
 * file exports. Distributions cannot strip these, because extension modules link against them. Any
 * thread; nothing is shared.
 */
#include "agent/runtime/perl/perl.h"

#include <elf.h>

enum {
	RUNOPS_BYTES = 64, /* bytes of the loop of ops that are searched */
	RUNOPS_MAX = 4096,
};

struct probe {
	struct perl_image *p;
	uint64_t runops_size, revision, version, subversion, key;
};

static uint64_t *place_of(struct probe *b, const char *name)
{
	struct perl_image *p = b->p;
	const struct {
		const char *name;
		uint64_t *place;
	} wanted[] = {
	    {"Perl_runops_standard", &p->runops},
	    {"PL_revision", &b->revision},
	    {"PL_version", &b->version},
	    {"PL_subversion", &b->subversion},
	    {"PL_thr_key", &b->key},
	    {"PL_op", &p->at.op},
	    {"PL_curcop", &p->at.curcop},
	    {"PL_curstackinfo", &p->at.curstackinfo},
	    {"PL_top_env", &p->at.top_env},
	    {"PL_compiling", &p->at.compiling},
	    {"PL_markstack", &p->at.markstack},
	    {"PL_markstack_ptr", &p->at.markstack_ptr},
	    {"PL_sortcop", &p->at.sortcop},
	};

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		if (streq(name, wanted[i].name))
			return wanted[i].place;
	}
	return NULL;
}

static void take_symbol(struct probe *b, const char *name, const Elf64_Sym *s)
{
	unsigned int type = ELF64_ST_TYPE(s->st_info);
	uint64_t *place;

	if (s->st_shndx == SHN_UNDEF || !s->st_value || (type != STT_FUNC && type != STT_OBJECT))
		return;
	place = place_of(b, name);
	if (!place || *place)
		return;
	*place = s->st_value;
	if (place == &b->p->runops)
		b->runops_size = s->st_size;
}

static void read_symbols(struct probe *b, const struct image *image, const char *name)
{
	const struct image_section *section = image_section(image, name);
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
		if (!has_prefix(text, "PL_") && !has_prefix(text, "Per"))
			continue;
		cursor_seek(&strings, s.st_name);
		text = cursor_str(&strings);
		if (!text)
			break;
		take_symbol(b, text, &s);
	}
}

/* .symtab is read only when the path suggests Perl. */
static bool may_be_perl(const struct image *image)
{
	return image->path && strstr(image->path, "perl");
}

static bool read_version(struct probe *b, const struct image *image)
{
	struct cursor revision = image_at_vaddr(image, b->revision),
		      version = image_at_vaddr(image, b->version),
		      subversion = image_at_vaddr(image, b->subversion);

	if (!b->revision || !b->version || !b->subversion || cursor_u8(&revision) != 5)
		return false;
	b->p->minor = cursor_u8(&version);
	snprintf(b->p->base.version, sizeof(b->p->base.version), "5.%u.%u", b->p->minor,
		 cursor_u8(&subversion));
	return !version.bad && !subversion.bad;
}

/*
 * Perl_runops_standard() gets the interpreter's state in rdi. Returns the bytes of its code before
 * the state is in rbx, where it stays; 0: the state is not kept in rbx.
 */
static uint32_t find_state(const struct image *image, uint64_t runops)
{
	static const uint8_t move[] = {0x48, 0x89, 0xfb};      /* mov %rdi,%rbx */
	static const uint8_t put[] = {0x48, 0x89, 0x43, 0x08}; /* mov %rax,8(%rbx): PL_op */
	struct cursor c = image_at_vaddr(image, runops);
	size_t n = MIN(cursor_left(&c), RUNOPS_BYTES);
	const uint8_t *code = cursor_bytes(&c, n), *at, *loop;

	at = code ? memmem(code, n, move, sizeof(move)) : NULL;
	loop = at ? memmem(at, n - (size_t)(at - code), put, sizeof(put)) : NULL;
	return loop ? (uint32_t)(at - code) + (uint32_t)sizeof(move) : 0;
}

static bool has_variables(const struct kiln_perl_variables *at)
{
	return at->op && at->curcop && at->curstackinfo && at->top_env && at->compiling &&
	       at->markstack && at->markstack_ptr && at->sortcop;
}

static int fill(struct probe *b, const struct image *image, struct error *err)
{
	struct perl_image *p = b->p;

	read_symbols(b, image, ".dynsym");
	if (!p->runops && may_be_perl(image))
		read_symbols(b, image, ".symtab");
	if (!p->runops || !b->version || !image_is_code(image, p->runops))
		return -ENOENT;
	if (!read_version(b, image))
		return error_set(
		    err, -ENOTSUP,
		    "Perl whose version cannot be read (PL_revision, PL_version, PL_subversion)");
	if (!perl_layout_of(p->minor))
		return error_set(err, -ENOTSUP,
				 "Perl %s: want 5.%d to 5.%d, no release in development",
				 p->base.version, PERL_MINOR_MIN, PERL_MINOR_MAX);
	p->threaded = !p->at.curcop;
	if (p->threaded)
		p->state_from = find_state(image, p->runops);
	if (p->threaded && !p->state_from)
		return error_set(
		    err, -ENOTSUP,
		    "Perl %s: Perl_runops_standard does not keep the interpreter in rbx",
		    p->base.version);
	if (!p->threaded && !has_variables(&p->at))
		return error_set(err, -ENOTSUP,
				 "Perl %s without the symbol PL_curstackinfo or others",
				 p->base.version);
	if (!b->runops_size || b->runops_size > RUNOPS_MAX)
		return error_set(err, -ENOTSUP, "Perl %s: Perl_runops_standard has %zu bytes",
				 p->base.version, (size_t)b->runops_size);
	p->base.ranges[0] =
	    (struct runtime_range){.start = p->runops, .end = p->runops + b->runops_size};
	p->base.n_ranges = 1;
	return 0;
}

int perl_probe(const struct image *image, struct runtime_image **ret, struct error *err)
{
	_cleanup_free_ struct perl_image *p = calloc(1, sizeof(*p));
	struct probe b = {.p = p};
	int r;

	if (!p)
		return -ENOMEM;
	p->base.ops = &perl_ops;
	r = fill(&b, image, err);
	if (r < 0)
		return r;
	*ret = &p->base;
	p = NULL;
	return 0;
}

void perl_forget(struct runtime_image *ri)
{
	if (ri)
		free(container_of(ri, struct perl_image, base));
}
