// SPDX-License-Identifier: Apache-2.0
/*
 * The code of a short function that reads the variable tells where it is: relative to the thread
 * pointer, by a word that has the distance, or by a pair {module, offset} (Drepper, "ELF Handling
 * For Thread-Local Storage", x86-64). Stateless.
 */
#include "agent/runtime/thread_variable.h"

#include "lib/cursor.h"

enum {
	GETTER_BYTES = 48,
	LOOK_AHEAD = 16, /* bytes of the longest pattern */
};

static int32_t distance(const uint8_t *p)
{
	int32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

void thread_variable_find(const struct image *image, uint64_t getter, struct thread_variable *ret)
{
	static const uint8_t from_fs[] = {0x64, 0x48, 0x8b, 0x04, 0x25}; /* mov %fs:d, %rax */
	struct cursor c = image_at_vaddr(image, getter);
	uint8_t code[GETTER_BYTES + LOOK_AHEAD] = {0};

	if (!getter || c.bad)
		return;
	memcpy(code, c.data + c.pos, MIN(cursor_left(&c), GETTER_BYTES));
	for (size_t i = 0; i < GETTER_BYTES - LOOK_AHEAD; i++) {
		const uint8_t *at = code + i;

		if (memcmp(at, from_fs, sizeof(from_fs)) == 0) {
			ret->kind = THREAD_VARIABLE_STATIC;
			ret->offset = distance(at + 5);
			/* mov %fs:0, %rax and then lea or mov d(%rax), %rax */
			if (!ret->offset && at[9] == 0x48 && (at[10] == 0x8d || at[10] == 0x8b) &&
			    at[11] == 0x80)
				ret->offset = distance(at + 12);
			return;
		}
		/* mov d(%rip), %rax; mov %fs:(%rax), %rax */
		if (at[0] == 0x48 && at[1] == 0x8b && at[2] == 0x05 && at[7] == 0x64 &&
		    at[8] == 0x48 && at[9] == 0x8b && at[10] == 0x00) {
			ret->kind = THREAD_VARIABLE_INDIRECT;
			ret->slot = getter + i + 7 + (uint64_t)(int64_t)distance(at + 3);
			return;
		}
		/* data16 lea d(%rip), %rdi, for __tls_get_addr */
		if (at[0] == 0x66 && at[1] == 0x48 && at[2] == 0x8d && at[3] == 0x3d) {
			ret->kind = THREAD_VARIABLE_MODULE;
			ret->slot = getter + i + 8 + (uint64_t)(int64_t)distance(at + 4);
			return;
		}
	}
}

/*
 * Returns log2 of the size of an entry in the vector of TLS blocks. An entry is {block, to free} in
 * glibc (sysdeps/generic/dl-dtv.h), a block's address in musl (src/internal/pthread_impl.h).
 */
static uint32_t vector_shift(const struct runtime_target *target)
{
	uint64_t bias;

	return target->find_image && target->find_image(target->arg, "ld-musl", &bias) ? 3 : 4;
}

/*
 * A descriptor's argument is the distance itself if the variable is in the static block, else the
 * address of {module, offset} (glibc 2.36, sysdeps/x86_64/dl-tlsdesc.h, struct tlsdesc_dynamic_arg;
 * musl, ldso/dynlink.c, REL_TLSDESC). A distance is less than NEAR; no address is.
 */
static bool place_by_descriptor(const struct runtime_target *target, uint64_t slot,
				struct thread_variable_place *ret)
{
	enum { NEAR = 1 << 30 };
	uint64_t words[2] = {0}, at;

	if (target_read(&target->memory, slot, words, sizeof(words)) < 0 || !words[0])
		return false;
	at = words[1];
	if ((int64_t)at > -NEAR && (int64_t)at < NEAR) {
		ret->offset = (int64_t)at;
		return at != 0;
	}
	if (target_read(&target->memory, at, words, sizeof(words)) < 0 || words[0] > UINT16_MAX)
		return false;
	ret->module = (uint32_t)words[0];
	ret->offset = (int64_t)words[1];
	ret->shift = vector_shift(target);
	return ret->module != 0;
}

bool thread_variable_place(const struct thread_variable *v, const struct runtime_target *target,
			   struct thread_variable_place *ret)
{
	uint64_t words[2] = {0}, slot = v->slot + target->bias;

	*ret = (struct thread_variable_place){.offset = v->offset};
	switch (v->kind) {
	case THREAD_VARIABLE_STATIC:
		return v->offset != 0;
	case THREAD_VARIABLE_INDIRECT:
		if (target_read(&target->memory, slot, words, sizeof(words[0])) < 0)
			return false;
		ret->offset = (int64_t)words[0];
		return ret->offset != 0;
	case THREAD_VARIABLE_MODULE:
		if (target_read(&target->memory, slot, words, sizeof(words)) < 0)
			return false;
		ret->module = (uint32_t)words[0];
		ret->offset = (int64_t)words[1];
		ret->shift = vector_shift(target);
		return ret->module != 0;
	case THREAD_VARIABLE_DESCRIPTOR:
		return place_by_descriptor(target, slot, ret);
	default:
		return false;
	}
}
