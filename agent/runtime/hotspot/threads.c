/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of Java threads. The JVM gives the kernel 15 bytes of each
 * (os::set_native_thread_name(), src/hotspot/os/linux/os_linux.cpp: the first 15, from 26 on the
 * first 7, two dots and the last 6), and none of the thread that runs main(). The whole name is a
 * String in the heap: JavaThread::_threadObj leads to the java.lang.Thread, and that has it.
 *
 * No table of the JVM tells where Java objects have their fields. That is learned once for each
 * process, from a thread whose name was cut: some word of its Thread leads to an object (the
 * String), some word of which leads to an array with the bytes that the kernel has. Later names are
 * compared with what the kernel has. While a garbage collector moves objects, a name may not be
 * found, and is tried again.
 *
 * A reference is a pointer, or 32 bits of one (UseCompressedOops), or a pointer that was shifted to
 * make room for colours in the low 16 bits (ZGC with generations,
 * src/hotspot/share/gc/z/zAddress.hpp: of the bits 12 to 15 the one that is set says how far).
 * JavaThread::_threadObj is a reference before JDK 17, and leads to one from 17 on.
 *
 * Everything is foreign: lists have bounds, lengths too. Loop thread.
 */

#include "agent/runtime/hotspot/hotspot.h"
#include "lib/clock.h"

enum {
	THREADS_MAX = 8192,
	LIST_MIN_MS = 1000, /* between two readings of the list; doubled if a thread is missing */
	LIST_MAX_MS = 30000,
	LEARN_MAX = 16,	    /* searches for the layout that may fail */
	OBJECT_BYTES = 160, /* bytes of a Thread that are searched */
	STRING_BYTES = 32,
	HEADER = 8, /* bytes of an object's header, at least */
	CHARS_MAX = HOTSPOT_THREAD_NAME_MAX,
	CUT = 15, /* bytes that the kernel keeps */
	CUT_HEAD = 7,
	CUT_TAIL = 6,
	COLOR_BIT = 12,
	COLORS = 15,
};
#define ADDRESS_END (1ULL << 47) /* a reference beyond this has colours */

/* Where arrays have their length and their bytes: with the class as 4 or 8 bytes, or in the first
 * word (25 on). */
static const struct hotspot_array_layout arrays[] = {
    {12, 16, 0}, {16, 24, 0}, {16, 20, 0}, {8, 12, 0}, {8, 16, 0}};

static uint64_t word_at(const struct target_memory *m, uint64_t address, int64_t offset)
{
	uint64_t v = 0;

	return hotspot_read(m, address, offset, &v, sizeof(v)) < 0 ? 0 : v;
}

/* ---- the JVM's list of threads ----------------------------------------------------------------
 */

static int by_id(const void *a, const void *b)
{
	const struct hotspot_thread *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

static int add_thread(struct hotspot_threads *t, const struct hotspot_layout *l,
		      const struct target_memory *m, uint64_t thread)
{
	uint64_t os = thread ? word_at(m, thread, l->thread_os) : 0;
	uint32_t id = 0;

	if (!os || hotspot_read(m, os, l->os_thread_id, &id, sizeof(id)) < 0 || !id)
		return 0;
	if (grow_array((void **)&t->v, &t->cap, t->n + 1, sizeof(*t->v), THREADS_MAX) < 0)
		return -ENOMEM;
	t->v[t->n++] = (struct hotspot_thread){thread, id};
	return 0;
}

/* Reads the JVM's list of threads. The JVM may replace the list meanwhile, and free it: the threads
 * that were read are kept, the others are read the next time. */
static int list_threads(struct hotspot_threads *t, const struct hotspot_layout *l,
			const struct target_memory *m)
{
	uint64_t list, at;
	uint32_t n = 0;
	int r = 0;

	t->n = 0;
	if (l->threads_list && l->list_length >= 0 && l->list_threads >= 0) {
		list = word_at(m, l->threads_list, 0);
		at = list ? word_at(m, list, l->list_threads) : 0;
		if (!at || hotspot_read(m, list, l->list_length, &n, sizeof(n)) < 0)
			return -EAGAIN;
		for (uint32_t i = 0; i < MIN(n, (uint32_t)THREADS_MAX) && r == 0; i++)
			r = add_thread(t, l, m, word_at(m, at, (int64_t)i * 8));
	} else if (l->threads_first && l->thread_next >= 0) {
		at = word_at(m, l->threads_first, 0);
		for (uint32_t i = 0; at && i < THREADS_MAX && r == 0; i++) {
			r = add_thread(t, l, m, at);
			at = word_at(m, at, l->thread_next);
		}
	} else {
		return -ENOENT;
	}
	if (t->n)
		qsort(t->v, t->n, sizeof(*t->v), by_id);
	return r;
}

/* Finds the JavaThread of the thread ID. -EAGAIN: it is not in the list. */
static int find_thread(struct hotspot_process *p, const struct target_memory *m, uint32_t id,
		       uint64_t *ret)
{
	const struct hotspot_thread key = {.id = id}, *found;
	struct hotspot_threads *t = &p->threads;
	uint64_t now = monotonic_ms();
	int r;

	found = t->n ? bsearch(&key, t->v, t->n, sizeof(*t->v), by_id) : NULL;
	if (!found && now >= t->list_ms) {
		r = list_threads(t, &p->layout, m);
		found = t->n ? bsearch(&key, t->v, t->n, sizeof(*t->v), by_id) : NULL;
		t->list_wait_ms = found ? LIST_MIN_MS
					: MIN(MAX(t->list_wait_ms * 2, (uint64_t)LIST_MIN_MS),
					      (uint64_t)LIST_MAX_MS);
		t->list_ms = now + t->list_wait_ms;
		if (r < 0)
			return r;
	}
	if (!found)
		return -EAGAIN;
	*ret = found->thread;
	return 0;
}

/* ---- references -------------------------------------------------------------------------------
 */

/* The address that the reference V of 8 bytes leads to; 0: none. */
static uint64_t whole_reference(uint64_t v)
{
	uint64_t color = v >> COLOR_BIT & COLORS;

	if (v < ADDRESS_END)
		return v & 7 ? 0 : v;
	return color && !(color & (color - 1)) ? v >> (COLOR_BIT + 1 + __builtin_ctzll(color)) : 0;
}

static uint64_t reference_in(const struct hotspot_threads *t, const uint8_t *bytes, size_t at)
{
	uint64_t v = 0;

	if (!t->narrow) {
		memcpy(&v, bytes + at, 8);
		return whole_reference(v);
	}
	memcpy(&v, bytes + at, 4);
	return v ? t->oop_base + (v << t->oop_shift) : 0;
}

static void read_coding(struct hotspot_process *p, const struct target_memory *m)
{
	const struct hotspot_layout *l = &p->layout;
	struct hotspot_threads *t = &p->threads;
	int32_t shift = 0;

	t->narrow = l->narrow_oops;
	t->oop_base = l->oop_base ? word_at(m, l->oop_base, 0) : 0;
	if (l->oop_shift && hotspot_read(m, l->oop_shift, 0, &shift, sizeof(shift)) == 0)
		t->oop_shift = (uint32_t)shift & 7;
}

/* The java.lang.Thread of the JavaThread THREAD. */
static uint64_t object_of(const struct hotspot_process *p, const struct target_memory *m,
			  uint64_t thread)
{
	uint64_t v = word_at(m, thread, p->layout.thread_object);

	/* From 17 on the field is an OopHandle: the address of the reference. */
	return v && p->layout.threads_list ? whole_reference(word_at(m, v, 0)) : whole_reference(v);
}

/* ---- names ------------------------------------------------------------------------------------
 */

static void put_utf8(char *ret, size_t *n, uint32_t c)
{
	if (c < 0x80) {
		ret[(*n)++] = (char)c;
	} else if (c < 0x800) {
		ret[(*n)++] = (char)(0xc0 | c >> 6);
		ret[(*n)++] = (char)(0x80 | (c & 63));
	} else if (c < 0x10000) {
		ret[(*n)++] = (char)(0xe0 | c >> 12);
		ret[(*n)++] = (char)(0x80 | (c >> 6 & 63));
		ret[(*n)++] = (char)(0x80 | (c & 63));
	} else {
		ret[(*n)++] = (char)(0xf0 | c >> 18);
		ret[(*n)++] = (char)(0x80 | (c >> 12 & 63));
		ret[(*n)++] = (char)(0x80 | (c >> 6 & 63));
		ret[(*n)++] = (char)(0x80 | (c & 63));
	}
}

static uint32_t unit_at(const uint8_t *s, size_t i)
{
	return (uint32_t)s[2 * i] | (uint32_t)s[2 * i + 1] << 8;
}

/* Converts N characters of one byte (WIDE: two) to UTF-8 in RET, which has 4 * CHARS_MAX + 1 bytes.
 * False: there are control characters, or none at all. */
static bool decode(const uint8_t *s, size_t n, bool wide, char *ret)
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++) {
		uint32_t c = wide ? unit_at(s, i) : s[i];

		if (c < 0x20 || c == 0x7f)
			return false;
		if (wide && (c & 0xfc00) == 0xd800 && i + 1 < n &&
		    (unit_at(s, i + 1) & 0xfc00) == 0xdc00)
			c = 0x10000 + ((c & 0x3ff) << 10) + (unit_at(s, ++i) & 0x3ff);
		else if (wide && (c & 0xf800) == 0xd800)
			c = 0xfffd;
		put_utf8(ret, &len, c);
	}
	ret[len] = '\0';
	return len > 0;
}

/* Is COMM the part of NAME that the JVM gives the kernel? */
static bool is_cut(const char *name, const char *comm)
{
	size_t len = strlen(name);
	char cut[CUT + 1];

	if (!strncmp(name, comm, CUT) && strlen(comm) == MIN(len, (size_t)CUT))
		return true;
	if (len <= CUT)
		return false;
	snprintf(cut, sizeof(cut), "%.*s..%s", CUT_HEAD, name, name + len - CUT_TAIL);
	return streq(cut, comm);
}

/*
 * Reads the characters of the array at ARRAY into RET. From 9 on it is an array of bytes, one or
 * two of which are a character; in 8 its elements are characters of two bytes. COMM: what the
 * kernel has of the name; only a name that begins so is accepted. COMM NULL: no comparison, and in
 * an array of bytes each byte is a character, because any bytes could be read as wide ones. Returns
 * the bytes of an element; 0: it is no such array.
 */
static uint8_t read_characters(const struct target_memory *m, uint64_t array,
			       const struct hotspot_array_layout *layout, const char *comm,
			       char *ret)
{
	uint8_t bytes[2 * CHARS_MAX];
	int32_t length = 0;
	size_t n;

	if (!array || hotspot_read(m, array, layout->length, &length, sizeof(length)) < 0 ||
	    length <= 0 || length > (int32_t)sizeof(bytes))
		return 0;
	n = (size_t)length;
	if (layout->unit != 2 && hotspot_read(m, array, layout->data, bytes, n) == 0) {
		if (n <= CHARS_MAX && decode(bytes, n, false, ret) && (!comm || is_cut(ret, comm)))
			return 1;
		if (comm && n % 2 == 0 && decode(bytes, n / 2, true, ret) && is_cut(ret, comm))
			return 1;
	}
	if (layout->unit != 1 && n <= CHARS_MAX &&
	    hotspot_read(m, array, layout->data, bytes, 2 * n) == 0 &&
	    decode(bytes, n, true, ret) && (!comm || is_cut(ret, comm)))
		return 2;
	return 0;
}

/*
 * Reads the name of the Thread at OBJECT by the offsets that were learned. COMM: see
 * read_characters().
 */
static bool read_name(const struct hotspot_threads *t, const struct target_memory *m,
		      uint64_t object, const char *comm, char *ret)
{
	uint8_t field[8];
	size_t size = t->narrow ? 4 : 8;
	uint64_t string;

	if (hotspot_read(m, object, t->name_at, field, size) < 0)
		return false;
	string = reference_in(t, field, 0);
	if (!string || hotspot_read(m, string, t->value_at, field, size) < 0)
		return false;
	return read_characters(m, reference_in(t, field, 0), &t->array, comm, ret) != 0;
}

/* Finds where the Thread at OBJECT keeps its name: a text that the JVM truncates to COMM. */
static bool learn(struct hotspot_threads *t, const struct target_memory *m, uint64_t object,
		  const char *comm, char *ret)
{
	size_t size = t->narrow ? 4 : 8;
	uint8_t thread[OBJECT_BYTES], string[STRING_BYTES];

	if (hotspot_read(m, object, 0, thread, sizeof(thread)) < 0)
		return false;
	for (size_t at = HEADER; at + size <= sizeof(thread); at += size) {
		uint64_t text = reference_in(t, thread, at);

		if (!text || hotspot_read(m, text, 0, string, sizeof(string)) < 0)
			continue;
		for (size_t value = HEADER; value + size <= sizeof(string); value += size) {
			uint64_t array = reference_in(t, string, value);

			for (size_t i = 0; array && i < ARRAY_SIZE(arrays); i++) {
				uint8_t unit = read_characters(m, array, &arrays[i], comm, ret);

				if (!unit)
					continue;
				t->name_at = (uint16_t)at;
				t->value_at = (uint16_t)value;
				t->array = arrays[i];
				t->array.unit = unit;
				return true;
			}
		}
	}
	return false;
}

/* Copies NAME to RET of SIZE bytes. A name that does not fit is cut between two characters. */
static void put_cut(const char *name, char *ret, size_t size)
{
	size_t len = strlen(name);

	if (len >= size) {
		len = size - 1;
		while (len && (name[len] & 0xc0) == 0x80)
			len--;
	}
	memcpy(ret, name, len);
	ret[len] = '\0';
}

int hotspot_thread_name(void *state, const struct target_memory *memory, uint32_t tid,
			const char *comm, bool inherited, char *ret, size_t size)
{
	struct hotspot_process *p = state;
	struct hotspot_threads *t = &p->threads;
	const struct hotspot_layout *l = &p->layout;
	char name[4 * CHARS_MAX + 1];
	uint64_t thread, object;
	bool known;
	int r;

	if (l->thread_os < 0 || l->os_thread_id < 0 || l->thread_object < 0)
		return -ENOENT;
	if (!t->name_at && (t->tries >= LEARN_MAX || inherited))
		return inherited ? -EAGAIN : -ENOENT;
	r = find_thread(p, memory, tid, &thread);
	if (r < 0)
		return r;
	read_coding(p, memory);
	/* With ZGC a reference may lead to an object that is gone: only the kernel's part of the
	 * name could tell. */
	if (inherited && !t->narrow)
		return -ENOENT;
	object = object_of(p, memory, thread);
	if (!object)
		return -EAGAIN;
	if (t->name_at) {
		known = read_name(t, memory, object, inherited ? NULL : comm, name);
	} else {
		known = learn(t, memory, object, comm, name);
		t->tries++;
	}
	/* A collector may have moved the object: what was read may be another object's. */
	if (!known || object_of(p, memory, thread) != object)
		return -EAGAIN;
	put_cut(name, ret, size);
	return 0;
}

void hotspot_threads_done(struct hotspot_threads *t)
{
	free(t->v);
	*t = (struct hotspot_threads){};
}
