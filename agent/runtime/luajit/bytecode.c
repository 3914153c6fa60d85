// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the name that a caller has for a function. A Lua function has no name of its own, but the
 * instruction that calls it takes it from a slot, and the instruction that set the slot tells where
 * the function comes from: a global or a local variable, a field, a method, an upvalue. Loop
 * thread; keeps no state.
 *
 * Sources: LuaJIT src/lj_bc.h (BCDEF), src/lj_debug.c (lj_debug_slotname(), debug_varname()),
 * src/lj_lex.h and lj_bcdump.h (VARNAMEDEF: variables that the compiler makes).
 */
#include "agent/runtime/luajit/luajit.h"

#include "lib/cursor.h"

/* Instructions by their number (lj_bc.h): the same in all of 2.1. */
enum {
	ISTC = 12,
	ISFC = 13,
	MOV = 18,
	CAT = 38,
	KSTR = 39,
	KPRI = 43,
	KNIL = 44,
	UGET = 45,
	FNEW = 51,
	TNEW = 52,
	GGET = 54,
	TGETV = 56,
	TGETS = 57,
	TGETR = 59,
	TSETM = 63,
	CALLM = 65,
	CALLT = 68,
	ITERC = 69,
	ITERN = 70,
	RETM = 73,
	FORI = 77,
	JITERL = 84,
	BNOT = 89, /* without bit operations, the numbers from here on are function headers */
	BSAR = 95,
};

enum {
	STEPS_MAX = 4096, /* instructions looked at backwards */
	VARIABLES_MAX = 4096,
	NAME_INTERNAL = 7, /* VARNAME__MAX: bytes below it stand for the compiler's variables */
};

struct function {
	const struct target_memory *m;
	const struct luajit_proto *p;
	uint32_t *code; /* n instructions of the function, from number `first` on */
	uint32_t first, n;
};

static uint32_t op(uint32_t instruction)
{
	return instruction & 0xff;
}

static uint32_t a(uint32_t instruction)
{
	return instruction >> 8 & 0xff;
}

static uint32_t c(uint32_t instruction)
{
	return instruction >> 16 & 0xff;
}

static uint32_t d(uint32_t instruction)
{
	return instruction >> 16;
}

/* Does OP set slot A, and no other? */
static bool sets_slot(uint32_t o)
{
	return o == ISTC || o == ISFC || (o >= MOV && o <= KPRI) || o == UGET || o == FNEW ||
	       (o >= TNEW && o <= GGET) || (o >= TGETV && o <= TGETR) || (o >= BNOT && o <= BSAR);
}

/* Does OP set slots from A on? */
static bool sets_slots(uint32_t o)
{
	return o == KNIL || o == TSETM || (o >= CALLM && o <= RETM) || (o >= FORI && o <= JITERL);
}

/* Reads the function's string constant number N into NAME. */
static int constant(const struct function *f, uint32_t n, char *name, size_t size)
{
	uint64_t at;

	if (n >= f->p->sizekgc || target_read(f->m, f->p->k - (n + 1ULL) * 8, &at, sizeof(at)) < 0)
		return -EFAULT;
	return luajit_string(f->m, at, name, size);
}

/* Reads the rest of the prototype from address AT on, at most LUAJIT_INFO_MAX bytes, into *RET,
 * which the caller frees. CURSOR reads from it. */
static int read_info(const struct function *f, uint64_t at, uint8_t **ret, struct cursor *cursor)
{
	uint64_t offset = at - f->p->address;
	size_t n;

	if (!at || offset >= f->p->sizept)
		return -ENOENT;
	n = MIN((size_t)(f->p->sizept - offset), (size_t)LUAJIT_INFO_MAX);
	*ret = malloc(n);
	if (!*ret)
		return -ENOMEM;
	if (target_read(f->m, at, *ret, n) < 0)
		return -EFAULT;
	*cursor = cursor_of(*ret, n);
	return 0;
}

static int upvalue(const struct function *f, uint32_t n, char *name, size_t size)
{
	_cleanup_free_ uint8_t *info = NULL;
	const char *text = NULL;
	struct cursor at;
	int r;

	if (n >= f->p->sizeuv)
		return -ENOENT;
	r = read_info(f, f->p->uvinfo, &info, &at);
	for (uint32_t i = 0; r == 0 && i <= n; i++)
		text = cursor_str(&at);
	if (r < 0 || !text || !*text)
		return -ENOENT;
	snprintf(name, size, "%s", text);
	return 0;
}

/*
 * The name of the local variable that is in SLOT at the instruction POS. The prototype lists the
 * variables in the order in which they begin. Each has a name, or a number if the compiler made it;
 * the number of instructions from the previous variable's begin to its own; and the number of
 * instructions for which it exists.
 */
static int local(const struct function *f, uint32_t pos, uint32_t slot, char *name, size_t size)
{
	_cleanup_free_ uint8_t *info = NULL;
	uint64_t start = 0, end;
	struct cursor at;
	int r = read_info(f, f->p->varinfo, &info, &at);

	for (int i = 0; r == 0 && i < VARIABLES_MAX; i++) {
		const char *text = NULL;
		uint8_t first = cursor_u8(&at);

		if (at.bad || first == 0)
			break;
		if (first >= NAME_INTERNAL) {
			cursor_seek(&at, at.pos - 1);
			text = cursor_str(&at);
		}
		start += cursor_uleb(&at);
		if (at.bad || start > pos)
			break;
		end = start + cursor_uleb(&at);
		if (pos >= end || slot--)
			continue;
		if (!text)
			return -ENOENT;
		snprintf(name, size, "%s", text);
		return 0;
	}
	return -ENOENT;
}

/* The name of the value that is in SLOT at the instruction POS. */
static int slot_name(const struct function *f, uint32_t pos, uint32_t slot, char *name, size_t size)
{
	for (uint32_t at = pos; at > f->first + 1;) {
		uint32_t i, o;

		if (at == pos && local(f, pos, slot, name, size) == 0)
			return 0;
		i = f->code[--at - f->first];
		o = op(i);
		if (sets_slots(o) && slot >= a(i) && (o != KNIL || slot <= d(i)))
			return -ENOENT;
		if (!sets_slot(o) || a(i) != slot)
			continue;
		switch (o) {
		case MOV:
			slot = d(i);
			pos = at;
			continue;
		case GGET:
			return constant(f, d(i), name, size);
		case TGETS:
			return constant(f, c(i), name, size);
		case UGET:
			return upvalue(f, d(i), name, size);
		default:
			return -ENOENT;
		}
	}
	return -ENOENT;
}

/* The metamethod that an instruction other than a call may call; NULL: none. */
static const char *metamethod(uint32_t o)
{
	/* By number, from ISLT on; "": none. */
	static const char *const names[] = {
	    "__lt",  "__lt",  "__le",  "__le",	"__eq",	 "__eq",  "__eq",    "__eq",
	    "__eq",  "__eq",  "__eq",  "__eq",	"",	 "",	  "",	     "",
	    "",	     "",      "",      "",	"__unm", "__len", "__add",   "__sub",
	    "__mul", "__div", "__mod", "__add", "__sub", "__mul", "__div",   "__mod",
	    "__add", "__sub", "__mul", "__div", "__mod", "__pow", "__concat"};

	if (o < ARRAY_SIZE(names))
		return *names[o] ? names[o] : NULL;
	/* GGET, GSET, TGET*, TSET* */
	if (o == GGET || (o >= TGETV && o <= TGETR))
		return "__index";
	if (o == GGET + 1 || (o > TGETR && o < CALLM))
		return "__newindex";
	return NULL;
}

int luajit_callee(const struct target_memory *m, const struct luajit_proto *p, uint32_t pos,
		  char *name, size_t size)
{
	struct function f = {.m = m, .p = p};
	_cleanup_free_ uint32_t *code = NULL;
	const char *mm;
	uint32_t i;

	if (pos >= p->sizebc)
		return -EFAULT;
	f.first = pos > STEPS_MAX ? pos - STEPS_MAX : 0;
	f.n = pos - f.first + 1;
	code = calloc(f.n, sizeof(*code));
	if (!code)
		return -ENOMEM;
	if (target_read(m, luajit_bytecode(p) + f.first * 4ULL, code, f.n * sizeof(*code)) < 0)
		return -EFAULT;
	f.code = code;
	i = code[pos - f.first];
	if (op(i) >= CALLM && op(i) <= CALLT)
		return slot_name(&f, pos, a(i), name, size);
	if (op(i) == ITERC || op(i) == ITERN) {
		if (a(i) >= 3 && slot_name(&f, pos, a(i) - 3, name, size) == 0)
			return 0;
		snprintf(name, size, "for iterator");
		return 0;
	}
	mm = metamethod(op(i));
	if (!mm)
		return -ENOENT;
	snprintf(name, size, "%s", mm);
	return 0;
}
