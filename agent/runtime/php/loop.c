// SPDX-License-Identifier: Apache-2.0
/*
 * Reads data from the code of a stripped PHP: where execute_ex() has its PHP frame in registers,
 * where a fiber's stack ends, and an offset in executor_globals that the code uses. Only known
 * instructions are accepted; data that is not found is not used. Any thread; nothing is shared.
 */
#include "agent/elf/code_state.h"
#include "agent/runtime/php/php.h"

enum {
	EDGES_MAX = 1024, /* bytes at the start of execute_ex() that have its entry and return */
	FRAME_MAX = 4096,
	GETTER_MAX = 48,
	GLOBALS_MAX = 16384,  /* bytes of executor_globals, which has about 2,000 */
	FIBER_CODE_MAX = 256, /* bytes of make_fcontext() */
	/* DWARF numbers */
	RDI = 5,
	RBP = 6,
	RSP = 7,
	R14 = 14,
};

static int32_t distance(const uint8_t *p)
{
	int32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* The offset d from rsp of the stack protector's word: searches the SIZE bytes at CODE for mov
 * %fs:0x28, %rax and then mov %rax, d(%rsp). 0: none, or it is addressed by rbp. */
static uint32_t find_canary(const uint8_t *code, size_t size)
{
	static const uint8_t guard[] = {0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0};

	for (size_t i = 0; i + sizeof(guard) + 8 <= size; i++) {
		const uint8_t *store = code + i + sizeof(guard);

		if (memcmp(code + i, guard, sizeof(guard)) != 0)
			continue;
		if (memcmp(store, "\x48\x89\x44\x24", 4) == 0 && store[4] < 0x80)
			return store[4];
		if (memcmp(store, "\x48\x89\x84\x24", 4) == 0 && distance(store + 4) > 0)
			return (uint32_t)distance(store + 4);
		return 0; /* addressed by rbp: there is a frame pointer, and no search is needed */
	}
	return 0;
}

/* Adds the effect of INSN, in the prologue of execute_ex(), to the size of its native frame.
 * *HAS_POINTER is set if INSN sets up a frame pointer. */
static void follow_frame(const struct code_insn *insn, bool *has_pointer, uint32_t *frame)
{
	if (insn->op == CODE_OP_PUSH)
		*frame += (uint32_t)insn->value;
	else if (insn->op == CODE_OP_ADD && insn->to == RSP)
		*frame -= (uint32_t)insn->value;
	else if (insn->op == CODE_OP_COPY && insn->from == RSP && insn->to == RBP)
		*has_pointer = true;
}

struct php_loop php_read_loop(const struct image *image, const struct php_function *loop)
{
	struct cursor c = image_at_vaddr(image, loop->start);
	size_t size = MIN(MIN(loop->size, (uint64_t)EDGES_MAX), cursor_left(&c));
	struct php_loop ret = {.frame = 8};
	struct code_insn insn;
	bool has_pointer = false;

	if (c.bad)
		return (struct php_loop){0};
	for (uint32_t at = 0; at < size; at += insn.size, cursor_skip(&c, insn.size)) {
		if (!code_decode(c, loop->start + at, false, &insn) || !insn.size)
			break;
		if (!ret.entered)
			follow_frame(&insn, &has_pointer, &ret.frame);
		if (!ret.entered && insn.op == CODE_OP_COPY && insn.from == RDI && insn.to == R14)
			ret.entered = at + insn.size;
		else if (ret.entered && !ret.left_from && insn.op == CODE_OP_LOAD && insn.to == R14)
			ret.left_from = at;
		else if (ret.left_from && insn.flow == CODE_RETURN) {
			ret.left_to = at + insn.size;
			ret.has_registers = true;
			break;
		}
	}
	if (has_pointer || ret.frame > FRAME_MAX)
		ret.frame = 0;
	c = image_at_vaddr(image, loop->start);
	ret.canary = find_canary(c.data + c.pos, MIN(size, (size_t)ret.entered));
	return ret;
}

int64_t php_read_getter(const struct image *image, const struct php_function *getter,
			uint64_t globals)
{
	struct cursor c = image_at_vaddr(image, getter->start);
	uint8_t code[GETTER_MAX + 16] = {0};
	uint64_t at, target;

	if (!getter->start || c.bad)
		return -1;
	memcpy(code, c.data + c.pos, MIN(cursor_left(&c), (size_t)GETTER_MAX));
	for (size_t i = 0; i < GETTER_MAX; i++) {
		const uint8_t *p = code + i;

		/* lea or mov d(%rip), %rax .. %rdi */
		if (p[0] != 0x48 || (p[1] != 0x8d && p[1] != 0x8b) || (p[2] & 0xc7) != 0x05)
			continue;
		at = getter->start + i + 7;
		target = at + (uint64_t)(int64_t)distance(p + 3);
		if (p[1] == 0x8b)
			return target - globals < GLOBALS_MAX ? (int64_t)(target - globals) : -1;
		/* mov d(%rax), %rax */
		if (target == globals && p[7] == 0x48 && p[8] == 0x8b &&
		    (p[9] & 7) == (p[2] >> 3 & 7) && p[9] >> 6 == 2)
			return distance(p + 10);
		return -1;
	}
	return -1;
}

/* Finds BYTES in [AT, END); NULL: not found. */
static const uint8_t *find_bytes(const uint8_t *at, const uint8_t *end, const void *bytes, size_t n)
{
	return at && at < end ? memmem(at, (size_t)(end - at), bytes, n) : NULL;
}

/*
 * make_fcontext() of Boost, Zend/asm/make_x86_64_sysv_elf_gas.S in PHP 8.1 to 8.6, stores the
 * registers with which a fiber begins where jump_fcontext() will read them. The pc among them is
 * the address of make_fcontext()'s second part, which pushes a return address that lies behind it
 * and jumps to the function in rbx.
 */
struct php_function php_find_fiber(const struct image *image, uint32_t *ret_saved_bx)
{
	/* mov %rdx, d(%rax); stmxcsr (%rax); fnstcw 4(%rax); lea d(%rip), %rcx */
	static const uint8_t stores[] = {0x48, 0x89, 0x50},
			     saves[] = {0x0f, 0xae, 0x18, 0xd9, 0x78, 0x04, 0x48, 0x8d, 0x0d},
			     /* push %rbp; jmp *%rbx */
	    starts[] = {0x55, 0xff, 0xe3},
			     /* xor %rdi, %rdi; call d */
	    ends[] = {0x48, 0x31, 0xff, 0xe8};
	const struct image_section *text = image_section(image, ".text");
	struct cursor c = {.bad = true};
	const uint8_t *p, *end, *second, *last;

	if (text)
		c = image_section_data(image, text);
	if (c.bad)
		return (struct php_function){0};
	end = c.data + c.size;
	for (p = c.data; (p = find_bytes(p, end, saves, sizeof(saves))); p += sizeof(saves)) {
		const uint8_t *limit = p + MIN((size_t)(end - p), (size_t)FIBER_CODE_MAX);

		if (p - c.data < 4 || memcmp(p - 4, stores, sizeof(stores)) != 0)
			continue;
		second = find_bytes(p, limit, starts, sizeof(starts));
		last = find_bytes(second, limit, ends, sizeof(ends));
		if (!last)
			continue;
		*ret_saved_bx = p[-1];
		return (struct php_function){
		    .start = text->vaddr + (uint64_t)(second - c.data),
		    .size = (uint64_t)(last - second),
		};
	}
	return (struct php_function){0};
}
