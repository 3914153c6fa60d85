// SPDX-License-Identifier: Apache-2.0
/*
 * The name, file and line of a Perl frame: from the text that the walker sent, else from memory. If
 * from memory, the COP is read before and after the names, because it may be freed and its memory
 * reused in between. Both times it must have the cookie that the walk saw. Loop thread.
 */
#include "agent/runtime/perl/perl.h"

/* The parts of a frame's name. */
struct parts {
	const char *file, *package, *name; /* "" when there is none */
	uint32_t line, start;		   /* 0: not known */
};

/* The place of a frame, from its words or its COP. */
struct place {
	uint64_t file; /* a C string or, not threaded, a GV; 0: none */
	uint32_t line, start;
};

static uint32_t kind_of(const uint64_t words[2])
{
	return KILN_FRAME_FLAGS(words[0]);
}

/* ---- the name ----------------------------------------------------------------------------------
 */

static const char *base_name(const char *file)
{
	const char *slash = strrchr(file, '/');

	return slash ? slash + 1 : file;
}

static void add_code(uint64_t code, const char *file, struct perl_text *t)
{
	switch (code & 3) {
	case KILN_PERL_MAIN:
		perl_text_add(t, "(main)");
		break;
	case KILN_PERL_REQUIRE:
		perl_text_add(t, "(require ");
		perl_text_add(t, base_name(file));
		perl_text_add(t, ")");
		break;
	default:
		perl_text_add(t, "(eval)");
		break;
	}
}

/* Appends the place where a sub without a name begins, which tells such subs apart. */
static void add_start(const struct parts *parts, struct perl_text *t)
{
	char line[16];

	if (!parts->start || !parts->file[0])
		return;
	snprintf(line, sizeof(line), ":%u]", parts->start);
	perl_text_add(t, "[");
	perl_text_add(t, base_name(parts->file));
	perl_text_add(t, line);
}

static int finish(const uint64_t words[2], const struct parts *parts, struct perl_text *t,
		  struct symbol_result *ret)
{
	char *start = t->at;
	const char *name;

	if (kind_of(words) == KILN_PERL_CODE) {
		add_code(KILN_PERL_FUNCTION(words[0]) >> 3, parts->file, t);
	} else {
		if (kind_of(words) == KILN_PERL_FORMAT)
			perl_text_add(t, "format ");
		if (parts->package[0]) {
			perl_text_add(t, parts->package);
			perl_text_add(t, "::");
		}
		perl_text_add(t, parts->name);
		/* Modules give names to subs that have none. */
		if (kind_of(words) == KILN_PERL_ANON && streq(parts->name, "__ANON__"))
			add_start(parts, t);
	}
	name = perl_text_end(t, start);
	ret->type = FRAME_PERL;
	ret->n = 1;
	ret->symbols[0] = (struct symbol){.name = name,
					  .system_name = name,
					  .file = parts->file,
					  .line = parts->line,
					  .start_line = parts->start};
	return 0;
}

/* ---- from a text -------------------------------------------------------------------------------
 */

static const char *copy_text(const char *from, size_t size, bool utf8, struct perl_text *t)
{
	char *start = t->at;

	perl_text_bytes(t, (const uint8_t *)from, strnlen(from, size), utf8);
	return perl_text_end(t, start);
}

static const char *eval_file(const uint64_t words[2], const char *file)
{
	return KILN_PERL_PLACE(words[0]) == KILN_PERL_PLACE_EVAL ? "(eval)" : file;
}

int perl_read_text(void *state, const struct kiln_text *text, char *scratch, size_t scratch_size,
		   struct symbol_result *ret)
{
	const struct kiln_perl_text *from = (const struct kiln_perl_text *)text->bytes;
	struct perl_text t = {scratch, scratch_size};
	struct parts parts = {.line = from->line, .start = from->start};

	(void)state;
	parts.file = eval_file(text->words, copy_text(from->file, sizeof(from->file), true, &t));
	parts.package = copy_text(from->package, sizeof(from->package),
				  from->utf8 & KILN_PERL_UTF8_PACKAGE, &t);
	parts.name =
	    copy_text(from->name, sizeof(from->name), from->utf8 & KILN_PERL_UTF8_NAME, &t);
	return finish(text->words, &parts, &t, ret);
}

/* ---- from memory -------------------------------------------------------------------------------
 */

/* Does the COP's COOKIE match the part of it that the frame's WORDS hold? */
static bool is_same(const uint64_t words[2], uint32_t cookie)
{
	uint32_t mask = kind_of(words) == KILN_PERL_ANON ? 0xff : KILN_PERL_LINE_MAX;

	return ((KILN_PERL_LOW(words[1]) ^ cookie) & mask) == 0 &&
	       (words[0] >> KILN_PERL_COOKIE_SHIFT & 0xff) == cookie >> 24;
}

static int read_cop(const struct perl_process *p, const struct target_memory *m,
		    const uint64_t words[2], struct place *ret)
{
	uint64_t at[PERL_COP_WORDS];
	struct perl_cop cop;
	uint32_t before;
	int r = target_read(m, (KILN_PERL_AT(words[1]) << 3) + PERL_COP_FROM, at, sizeof(at));

	if (r < 0)
		return r;
	cop = perl_cop_of(at);
	if ((cop.type != p->layout->nextstate && cop.type != p->layout->dbstate) ||
	    !is_same(words, kiln_perl_cookie(cop.seq, cop.line, cop.file)))
		return -EFAULT;
	ret->file = cop.file;
	ret->line = cop.line;
	before = KILN_PERL_LOW(words[1]) >> KILN_PERL_BEFORE_SHIFT;
	if (kind_of(words) == KILN_PERL_ANON && before != KILN_PERL_BEFORE_UNKNOWN &&
	    before < cop.line)
		ret->start = cop.line - before;
	return 0;
}

static int read_place(const struct perl_process *p, const struct target_memory *m,
		      const uint64_t words[2], struct place *ret)
{
	*ret = (struct place){0};
	switch (KILN_PERL_PLACE(words[0])) {
	case KILN_PERL_PLACE_COP:
		return read_cop(p, m, words, ret);
	case KILN_PERL_PLACE_EVAL:
		ret->line = (uint32_t)KILN_PERL_AT(words[1]);
		ret->start = kind_of(words) == KILN_PERL_ANON ? KILN_PERL_LOW(words[1]) : 0;
		return 0;
	case KILN_PERL_PLACE_FILE:
		ret->file = KILN_PERL_AT(words[1]) << 3;
		ret->line = KILN_PERL_LOW(words[1]);
		return 0;
	default:
		return 0;
	}
}

/* Reads the name of the file FILE, which is a struct place's. */
static int read_file(const struct perl_process *p, const struct target_memory *m,
		     const uint64_t words[2], uint64_t file, struct perl_text *t, const char **ret)
{
	uint64_t cookie, want = KILN_PERL_FUNCTION(words[0]) >> (3 + KILN_PERL_FILE_SHIFT);
	char *start = t->at;
	int r = 0;

	if (file && !p->threaded)
		r = perl_gv_file(m, file, &file);
	if (r == 0 && file)
		r = perl_c_string(m, file, t, &cookie);
	if (r < 0)
		return r;
	if (file && kind_of(words) == KILN_PERL_CODE &&
	    KILN_PERL_PLACE(words[0]) == KILN_PERL_PLACE_FILE && cookie != want)
		return -EFAULT;
	*ret = eval_file(words, perl_text_end(t, start));
	return 0;
}

/* Reads the names of a sub that has no GV from its CV, which has the stash and the name. */
static int read_named(const struct perl_process *p, const struct target_memory *m, uint64_t cv,
		      struct perl_text *t, struct parts *ret)
{
	uint64_t body, stash, name;
	uint32_t flags;
	int r = perl_read_sv(m, cv, PERL_SVT_PVCV, &body, NULL);

	if (r == 0)
		r = target_read(m, body + PERL_CV_FLAGS, &flags, sizeof(flags));
	if (r == 0)
		r = perl_read_word(m, body + PERL_CV_STASH, &stash);
	if (r == 0)
		r = perl_read_word(m, body + PERL_CV_GV, &name);
	/* The sub has got a GV since. */
	if (r == 0 && !(flags & PERL_CVF_NAMED))
		return perl_gv_name(p->layout, m, name, t, &ret->package, &ret->name);
	if (r == 0)
		r = perl_stash_name(p->layout, m, stash, t, &ret->package);
	return r < 0 ? r : perl_hek(m, name, t, &ret->name);
}

static int read_function(const struct perl_process *p, const struct target_memory *m,
			 const uint64_t words[2], struct perl_text *t, struct parts *ret)
{
	uint64_t function = KILN_PERL_FUNCTION(words[0]);

	switch (kind_of(words)) {
	case KILN_PERL_CODE:
		return 0;
	case KILN_PERL_HEK:
		return perl_hek(m, function, t, &ret->name);
	case KILN_PERL_CV:
		return read_named(p, m, function, t, ret);
	default:
		return perl_gv_name(p->layout, m, function, t, &ret->package, &ret->name);
	}
}

int perl_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		   char *scratch, size_t scratch_size, struct symbol_result *ret)
{
	const struct perl_process *p = state;
	struct perl_text text = {scratch, scratch_size};
	struct parts parts = {.file = "", .package = "", .name = ""};
	struct place place;
	int r = read_place(p, memory, words, &place);

	if (r == 0)
		r = read_file(p, memory, words, place.file, &text, &parts.file);
	if (r == 0)
		r = read_function(p, memory, words, &text, &parts);
	if (r < 0)
		return r;
	target_renew(memory);
	r = read_place(p, memory, words, &place);
	if (r < 0)
		return r;
	parts.line = place.line;
	parts.start = place.start;
	return finish(words, &parts, &text, ret);
}
