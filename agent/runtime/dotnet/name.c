// SPDX-License-Identifier: Apache-2.0
/*
 * Names of frames. A method is named by its token in its module's metadata. Methods that the C#
 * compiler generates (for async, iterators, lambdas, local functions) are named after the method in
 * the source that they were made from. Loop thread.
 */
#include "agent/runtime/dotnet/dotnet.h"

enum {
	NESTED_MAX = 6,
	PART_MAX = 160, /* bytes of a type's name or a method's */
	NAME_MAX_BYTES = 1024,
	PARAMETERS_MAX = 8,
	ARGUMENTS_DEPTH = 3,
	CHUNK_HEAD = 24, /* MethodDescChunk, in front of its MethodDescs; v8.0.4, method.hpp */
	CHUNK_RANGE = 0x12,
};

struct text {
	char *at;
	size_t left; /* at least 1 */
};

static void put(struct text *t, const char *s, size_t n)
{
	if (n >= t->left)
		n = t->left - 1;
	memcpy(t->at, s, n);
	t->at += n;
	t->left -= n;
	*t->at = '\0';
}

static void put_string(struct text *t, const char *s)
{
	put(t, s, strlen(s));
}

/* ---- modules ----------------------------------------------------------------------------------
 */

/* Returns the metadata of the Module MODULE; NULL: it has none (modules of Reflection.Emit). */
static const struct dotnet_metadata *find_metadata(struct dotnet_process *p,
						   const struct target_memory *m, uint64_t module)
{
	struct dotnet_module *oldest = &p->modules[0];
	uint64_t place;

	if (dotnet_read(m, module + (p->module_base ? p->module_base : p->simple_name), &place, 8) <
	    0)
		return NULL;
	for (size_t i = 0; i < DOTNET_MODULES; i++) {
		struct dotnet_module *k = &p->modules[i];

		if (k->used < oldest->used)
			oldest = k;
		if (!k->used || k->module != module || k->place != place)
			continue;
		k->used = ++p->clock;
		return k->has_metadata ? &k->metadata : NULL;
	}
	oldest->module = module;
	oldest->place = place;
	oldest->used = ++p->clock;
	oldest->has_metadata =
	    (p->module_base ? dotnet_metadata_of_image(m, place, &oldest->metadata)
			    : dotnet_metadata_find(m, place, &oldest->metadata)) == 0;
	return oldest->has_metadata ? &oldest->metadata : NULL;
}

/* ---- names that the C# compiler makes ---------------------------------------------------------
 */

/* If the compiler has made NAME, as "<Main>b__0", returns the length of the method's name between
 * the brackets ("Main", may be empty), and *RET is what follows them. Else returns 0, and *RET is
 * untouched. */
static size_t written_in(const char *name, const char **ret)
{
	const char *end;
	int depth = 0;

	if (name[0] != '<')
		return 0;
	for (end = name; *end; end++) {
		depth += *end == '<' ? 1 : *end == '>' ? -1 : 0;
		if (!depth)
			break;
	}
	if (!*end)
		return 0;
	*ret = end + 1;
	return (size_t)(end - name - 1);
}

static void put_method(struct text *t, const char *name, const char *within, size_t n);

/*
 * Puts the method in the source whose name, NAME of N bytes, stands between the brackets of a name
 * that the compiler made. It may be one that the compiler made as well: an async lambda expression
 * in Main is the method <Main>b__0, and its state machine the class <<Main>b__0>d.
 */
static void put_written(struct text *t, const char *name, size_t n)
{
	char made[PART_MAX];

	if (name[0] != '<' || n >= sizeof(made)) {
		put(t, name, n);
		return;
	}
	memcpy(made, name, n);
	made[n] = '\0';
	put_method(t, made, NULL, 0);
}

/*
 * Puts the method NAME. WITHIN, of N bytes: the method that the compiler has made the type of NAME
 * for; N 0: there is no such method.
 */
static void put_method(struct text *t, const char *name, const char *within, size_t n)
{
	const char *behind = NULL;
	size_t own = written_in(name, &behind);

	if (behind && behind[0] == 'g' && behind[1] == '_' && behind[2] == '_') {
		/* <Main>g__Add|0_0: the local function Add */
		const char *local = behind + 3;

		put_written(t, name + 1, own);
		put_string(t, ".");
		put(t, local, strcspn(local, "|"));
	} else if (behind && (own || n)) {
		/* <Main>b__0_0, <Main>m__0, <>m__0: a lambda expression */
		put_written(t, own ? name + 1 : within, own ? own : n);
		put_string(t, ".<lambda>");
	} else if (n && streq(name, "MoveNext")) {
		put_written(t, within, n); /* async, yield */
	} else if (n) {
		put_written(t, within, n);
		put_string(t, ".");
		put_string(t, name);
	} else {
		put_string(t, name);
	}
}

/* ---- names ------------------------------------------------------------------------------------
 */

struct naming {
	struct dotnet_process *p;
	const struct target_memory *memory;
	const struct dotnet_metadata *d;
	struct text *text;
	uint64_t arguments[PARAMETERS_MAX], of_method[PARAMETERS_MAX]; /* TypeHandles */
	size_t n_arguments, n_of_method;
};

/* Types that C# has keywords for. */
static const char *const keywords[][2] = {
    {"Boolean", "bool"},  {"Byte", "byte"},	{"SByte", "sbyte"},	{"Char", "char"},
    {"Int16", "short"},	  {"UInt16", "ushort"}, {"Int32", "int"},	{"UInt32", "uint"},
    {"Int64", "long"},	  {"UInt64", "ulong"},	{"IntPtr", "nint"},	{"UIntPtr", "nuint"},
    {"Single", "float"},  {"Double", "double"}, {"Decimal", "decimal"}, {"String", "string"},
    {"Object", "object"},
};

static const char *keyword(const char *space, const char *name)
{
	for (size_t i = 0; streq(space, "System") && i < ARRAY_SIZE(keywords); i++)
		if (streq(name, keywords[i][0]))
			return keywords[i][1];
	return name;
}

static void put_parameters(const struct naming *g, bool of_method, uint32_t owner, size_t n,
			   int depth);

/*
 * Puts the type HANDLE, without its namespace. False: the type has no name, or System.__Canon,
 * which says nothing.
 */
static bool put_argument(const struct naming *g, uint64_t handle, int depth)
{
	char name[PART_MAX], space[PART_MAX];
	struct naming of = {.p = g->p, .memory = g->memory, .text = g->text};
	struct dotnet_type_row row = {0};
	const char *behind = NULL;
	struct dotnet_type type;
	size_t n;

	if (g->text->left <= 1)
		return true; /* there is no room for it */
	if (depth > ARGUMENTS_DEPTH || dotnet_type_of(g->p, g->memory, handle, &type) < 0)
		return false;
	if (type.element) {
		if (!put_argument(g, type.element, depth + 1))
			return false;
		put_string(g->text, "[]");
		return true;
	}
	of.d = find_metadata(g->p, g->memory, type.module);
	if (!of.d || dotnet_metadata_type(of.d, g->memory, type.row, &row) < 0 ||
	    dotnet_metadata_string(of.d, g->memory, row.name, name, sizeof(name)) < 0 ||
	    dotnet_metadata_string(of.d, g->memory, row.space, space, sizeof(space)) < 0 ||
	    !name[0] || streq(name, "__Canon"))
		return false;
	n = written_in(name, &behind);
	if (n) { /* of an async method or an iterator */
		put_written(g->text, name + 1, n);
		return true;
	}
	n = strcspn(name, "`");
	if (!name[n]) {
		put_string(g->text, keyword(space, name));
		return true;
	}
	put(g->text, name, n);
	of.n_arguments =
	    dotnet_type_arguments(g->memory, handle, of.arguments, ARRAY_SIZE(of.arguments));
	put_parameters(&of, false, type.row, PARAMETERS_MAX, depth + 1);
	return true;
}

/*
 * Puts the last N generic parameters of OWNER, as "<int, U>": the type argument if it is known,
 * else the parameter's name. DEPTH: how deep these are within the arguments of other types.
 */
static void put_parameters(const struct naming *g, bool of_method, uint32_t owner, size_t n,
			   int depth)
{
	const uint64_t *arguments = of_method ? g->of_method : g->arguments;
	size_t n_arguments = of_method ? g->n_of_method : g->n_arguments;
	uint32_t names[PARAMETERS_MAX];
	char part[PART_MAX];
	int all =
	    dotnet_metadata_parameters(g->d, g->memory, of_method, owner, names, PARAMETERS_MAX);

	if (all <= 0 || !n)
		return;
	n = MIN(n, (size_t)all);
	for (size_t i = (size_t)all - n; i < (size_t)all; i++) {
		put_string(g->text, i == (size_t)all - n ? "<" : ", ");
		if (i < n_arguments && put_argument(g, arguments[i], depth))
			continue;
		if (dotnet_metadata_string(g->d, g->memory, names[i], part, sizeof(part)) < 0)
			snprintf(part, sizeof(part), "?");
		put_string(g->text, part);
	}
	put_string(g->text, ">");
}

/* Puts a type's NAME, which has the number of its generic parameters behind it: List`1. */
static void put_type(const struct naming *g, uint32_t type, const char *name)
{
	size_t n = strcspn(name, "`");

	put(g->text, name, n);
	if (name[n])
		put_parameters(g, false, type, strtoul(name + n + 1, NULL, 10), 0);
	put_string(g->text, ".");
}

static int put_member(const struct naming *g, uint32_t method)
{
	char names[NESTED_MAX][PART_MAX], part[PART_MAX];
	uint32_t types[NESTED_MAX], type, name;
	struct dotnet_type_row row = {0};
	const char *within = NULL, *behind;
	size_t n = 0, within_size = 0;

	if (dotnet_metadata_owner(g->d, g->memory, method, &type) < 0)
		return -EFAULT;
	for (; type && n < NESTED_MAX; n++) {
		types[n] = type;
		if (dotnet_metadata_type(g->d, g->memory, type, &row) < 0 ||
		    dotnet_metadata_string(g->d, g->memory, row.name, names[n], PART_MAX) < 0 ||
		    dotnet_metadata_outer(g->d, g->memory, type, &type) < 0)
			return -EFAULT;
	}
	if (dotnet_metadata_method(g->d, g->memory, method, &name) < 0 ||
	    dotnet_metadata_string(g->d, g->memory, row.space, part, sizeof(part)) < 0)
		return -EFAULT;
	if (part[0]) {
		put_string(g->text, part);
		put_string(g->text, ".");
	}
	/* Outer types come first; types that the compiler has made are left out. */
	for (size_t i = n; i-- > 0;) {
		size_t size;

		behind = NULL;
		size = written_in(names[i], &behind);
		if (!behind || (i == n - 1 && !size)) {
			put_type(g, types[i], names[i]);
		} else if (size) {
			within = names[i] + 1;
			within_size = size;
		}
	}
	if (dotnet_metadata_string(g->d, g->memory, name, part, sizeof(part)) < 0)
		return -EFAULT;
	put_method(g->text, part, within, within_size);
	put_parameters(g, true, method, PARAMETERS_MAX, 0);
	return 0;
}

/* Puts the name of a dynamic method: its MethodDesc has the name itself. */
static int put_dynamic(const struct naming *g, uint64_t method)
{
	uint64_t at;
	char c;

	if (dotnet_read(g->memory, method + g->p->kernel.dynamic_name, &at, 8) < 0 || !at)
		return -EFAULT;
	for (size_t i = 0; i < PART_MAX; i++) {
		if (dotnet_read(g->memory, at + i, &c, 1) < 0)
			return -EFAULT;
		if (!c)
			return i ? 0 : -EFAULT;
		if ((uint8_t)c < ' ' || c == 0x7f)
			c = '?';
		put(g->text, &c, 1);
	}
	return 0;
}

static int put_name(struct dotnet_process *p, const struct target_memory *memory, uint64_t method,
		    struct text *text)
{
	struct naming g = {.p = p, .memory = memory, .text = text};
	struct {
		uint16_t token;
		uint8_t index, flags;
		uint16_t slot, kind;
	} desc;
	uint64_t chunk, table, module;
	uint32_t token;
	uint16_t range;

	if (dotnet_read(memory, method, &desc, sizeof(desc)) < 0)
		return -EFAULT;
	if ((desc.kind & KILN_DOTNET_METHOD_CLASS) == KILN_DOTNET_METHOD_DYNAMIC)
		return put_dynamic(&g, method);
	chunk = method - desc.index * 8ULL - CHUNK_HEAD;
	if (dotnet_read(memory, chunk, &table, 8) < 0 ||
	    dotnet_read(memory, chunk + CHUNK_RANGE, &range, 2) < 0 ||
	    dotnet_read(memory, table + p->method_module, &module, 8) < 0)
		return -EFAULT;
	token = (uint32_t)(range & ((1U << (24 - p->token_bits)) - 1)) << p->token_bits |
		(desc.token & ((1U << p->token_bits) - 1));
	g.n_arguments = dotnet_type_arguments(memory, table, g.arguments, ARRAY_SIZE(g.arguments));
	g.n_of_method =
	    dotnet_method_arguments(p, memory, method, g.of_method, ARRAY_SIZE(g.of_method));
	g.d = find_metadata(p, memory, module);
	return g.d ? put_member(&g, token) : -EFAULT;
}

/* ---- frames -----------------------------------------------------------------------------------
 */

static void add_symbol(struct symbol_result *ret, const char *name)
{
	ret->symbols[ret->n++] = (struct symbol){.name = name, .system_name = name, .file = ""};
}

/* Finds the method of the frame WORDS, and where its code begins. -EFAULT: it is gone. */
static int find_compiled(const struct dotnet_process *p, const struct target_memory *m,
			 const uint64_t words[2], uint64_t *ret_start, uint64_t *ret_method)
{
	uint64_t start = (words[0] & KILN_FRAME_PC_MASK) - KILN_DOTNET_DISTANCE(words[1]);
	uint64_t header, method, name = 0;
	uint16_t flags;

	if (KILN_DOTNET_DISTANCE(words[1]) == KILN_DOTNET_DISTANCE_MAX ||
	    dotnet_read(m, start - 8, &header, 8) < 0 ||
	    dotnet_read(m, header + p->kernel.header_method, &method, 8) < 0 ||
	    dotnet_read(m, method + KILN_DOTNET_METHOD_FLAGS, &flags, 2) < 0)
		return -EFAULT;
	if ((flags & KILN_DOTNET_METHOD_CLASS) == KILN_DOTNET_METHOD_DYNAMIC &&
	    dotnet_read(m, method + p->kernel.dynamic_name, &name, 8) < 0)
		return -EFAULT;
	if (KILN_DOTNET_COOKIE(words[1]) != KILN_DOTNET_STAYS &&
	    kiln_dotnet_cookie(method, header, name) != KILN_DOTNET_COOKIE(words[1]))
		return -EFAULT;
	*ret_start = start;
	*ret_method = method;
	return 0;
}

static int name_method(struct dotnet_process *p, const struct target_memory *memory,
		       const uint64_t words[2], uint64_t *method, uint64_t *start,
		       struct text *text)
{
	bool jit = (KILN_FRAME_FLAGS(words[0]) & KILN_DOTNET_KIND_MASK) == KILN_DOTNET_JIT;
	uint64_t pc = words[0] & KILN_FRAME_PC_MASK, again, again_start;
	int r;

	if (KILN_FRAME_FLAGS(words[0]) & KILN_DOTNET_RETURN)
		pc--;
	r = jit ? find_compiled(p, memory, words, start, method)
		: dotnet_ahead_method(p, memory, pc, start, method);
	if (r == 0)
		r = put_name(p, memory, *method, text);
	if (r < 0 || !jit)
		return r;
	target_renew(memory);
	r = find_compiled(p, memory, words, &again_start, &again);
	return r == 0 && again == *method ? 0 : -EFAULT;
}

static int method_symbol(struct dotnet_process *p, const struct target_memory *memory,
			 const uint64_t words[2], struct text *text, struct symbol_result *ret)
{
	bool jit = (KILN_FRAME_FLAGS(words[0]) & KILN_DOTNET_KIND_MASK) == KILN_DOTNET_JIT;
	uint64_t start = (words[0] & KILN_FRAME_PC_MASK) - KILN_DOTNET_DISTANCE(words[1]), method;
	struct runtime_function f;
	char *name = text->at;
	int r;

	if (jit && target_find_function(memory, start, KILN_DOTNET_COOKIE(words[1]), &f)) {
		add_symbol(ret, f.name);
		return 0;
	}
	r = name_method(p, memory, words, &method, &start, text);
	if (r < 0)
		return r;
	add_symbol(ret, name);
	f = (struct runtime_function){.name = name, .file = ""};
	if (jit)
		target_keep_function(memory, start, KILN_DOTNET_COOKIE(words[1]), &f);
	return 0;
}

/* v8.0.4, src/coreclr/vm/codeman.h: StubCodeBlockKind */
static const char *const stubs[] = {
    [1] = "[stub: jump]",
    [2] = "[stub: precode]",
    [3] = "[stub: dynamic helper]",
    [4] = "[stub: precode]",
    [5] = "[stub: precode]",
    [6] = "[stub: interface dispatch]",
    [7] = "[stub: interface resolve]",
    [8] = "[stub: interface lookup]",
    [9] = "[stub: vtable]",
};

int dotnet_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		     char *scratch, size_t scratch_size, struct symbol_result *ret)
{
	struct text text = {scratch, MIN(scratch_size, (size_t)NAME_MAX_BYTES)};
	const struct dotnet_process *p = state;
	const char *stub = p->knows_stubs && words[1] < ARRAY_SIZE(stubs) ? stubs[words[1]] : NULL;

	if (!scratch_size)
		return -ENOSPC;
	ret->type = FRAME_DOTNET;
	ret->n = 0;
	if ((KILN_FRAME_FLAGS(words[0]) & KILN_DOTNET_KIND_MASK) != KILN_DOTNET_STUB)
		return method_symbol(state, memory, words, &text, ret);
	add_symbol(ret, stub ? stub : "[stub]");
	return 0;
}
