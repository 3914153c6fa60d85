/* SPDX-License-Identifier: Apache-2.0 */
/* Names of threads in a forged heap, with the layouts of JDK 8, 11, 17 and 26 and each kind of
 * reference. */
#include "agent/runtime/hotspot/hotspot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum {
	BYTES = 16384,
	LIST = 0x100, /* ThreadsSMRSupport::_java_thread_list, Threads::_thread_list */
	LIST_OBJECT = 0x140,
	LIST_ARRAY = 0x180,
	JAVA_THREAD = 0x400, /* the first thread; the others follow */
	OS_THREAD = 0x800,
	HANDLE = 0xa00,
	OOP_BASE = 0xb00,
	OOP_SHIFT = 0xb08,
	HEAP = 0x1000,
	STEP = 0x200,
	/* Fields. */
	NEXT = 8,
	OBJECT = 16,
	OS = 24,
	ID = 4,
	LENGTH = 0,
	THREADS = 8,
	NAME = 40,
	VALUE = 16,
};
#define AT 0x7f0000000000ULL /* address of BYTES in the process */

static uint8_t bytes[BYTES];
static struct hotspot_process process;
static unsigned int n_reads;

static int read_bytes(void *arg, uint64_t address, void *dst, size_t len)
{
	n_reads++;
	if (address < AT || address - AT > BYTES || len > BYTES - (address - AT))
		return -EFAULT;
	memcpy(dst, bytes + (address - AT), len);
	return 0;
}

static const struct target_memory memory = {.read = read_bytes};

static void put(uint64_t at, uint64_t value, size_t size)
{
	memcpy(bytes + at, &value, size);
}

/* Encodings of references: narrow with base and shift, whole addresses, or with ZGC's colours. */
enum references { NARROW, WHOLE, COLORED } references;

static void put_reference(uint64_t at, uint64_t to)
{
	if (references == NARROW)
		put(at, (AT + to - (AT - 8)) >> 3, 4);
	else if (references == WHOLE)
		put(at, AT + to, 8);
	else /* the third of the four colours */
		put(at, (AT + to) << 15 | 1 << 14 | 0x50, 8);
}

/* References outside of the heap are never narrow. */
static void put_root(uint64_t at, uint64_t to)
{
	enum references kept = references;

	references = kept == NARROW ? WHOLE : kept;
	put_reference(at, to);
	references = kept;
}

/* Adds thread I to the list, with the id 100 + I and a name in the array at HEAP + I * STEP +
 * 0x80, which the test fills. */
static void put_thread(unsigned int i, bool handles)
{
	uint64_t thread = JAVA_THREAD + i * 64, object = HEAP + i * STEP;

	put(LIST_ARRAY + i * 8, AT + thread, 8);
	put(thread + OS, AT + OS_THREAD + i * 16, 8);
	put(OS_THREAD + i * 16 + ID, 100 + i, 4);
	if (handles) {
		put(thread + OBJECT, AT + HANDLE + i * 8, 8);
		put_root(HANDLE + i * 8, object);
	} else {
		put_root(thread + OBJECT, object);
	}
	put_reference(object + NAME, object + 0x40);
	put_reference(object + 0x40 + VALUE, object + 0x80);
}

static void put_latin(unsigned int i, const char *text)
{
	uint64_t array = HEAP + i * STEP + 0x80;
	bool narrow = references == NARROW;

	put(array + (narrow ? 12 : 16), strlen(text), 4);
	memcpy(bytes + array + (narrow ? 16 : 24), text, strlen(text));
}

/* Makes a JVM with N threads. TO_16: the layout up to JDK 16, a linked list of threads. */
static void start(enum references how, unsigned int n, bool to_16)
{
	references = how;
	hotspot_threads_done(&process.threads);
	memset(&process, 0, sizeof(process));
	memset(bytes, 0, sizeof(bytes));
	n_reads = 0;
	process.layout.thread_next = to_16 ? NEXT : HOTSPOT_NO_FIELD;
	process.layout.list_length = to_16 ? HOTSPOT_NO_FIELD : LENGTH;
	process.layout.list_threads = to_16 ? HOTSPOT_NO_FIELD : THREADS;
	process.layout.thread_object = OBJECT;
	process.layout.thread_os = OS;
	process.layout.os_thread_id = ID;
	process.layout.narrow_oops = how == NARROW;
	process.layout.oop_base = AT + OOP_BASE;
	process.layout.oop_shift = AT + OOP_SHIFT;
	put(OOP_BASE, AT - 8, 8);
	put(OOP_SHIFT, 3, 4);
	for (unsigned int i = 0; i < n; i++)
		put_thread(i, !to_16);
	if (to_16) {
		process.layout.threads_first = AT + LIST;
		put(LIST, AT + JAVA_THREAD, 8);
		for (unsigned int i = 0; i + 1 < n; i++)
			put(JAVA_THREAD + i * 64 + NEXT, AT + JAVA_THREAD + (i + 1) * 64, 8);
	} else {
		process.layout.threads_list = AT + LIST;
		put(LIST, AT + LIST_OBJECT, 8);
		put(LIST_OBJECT + LENGTH, n, 4);
		put(LIST_OBJECT + THREADS, AT + LIST_ARRAY, 8);
	}
}

static const char *name_of(uint32_t tid, const char *comm, bool inherited)
{
	static char name[256];
	int r = hotspot_thread_name(&process, &memory, tid, comm, inherited, name, sizeof(name));

	return r == 0 ? name : r == -EAGAIN ? "again" : r == -ENOENT ? "none" : "?";
}

static void test_names_of_each_layout(void **state)
{
	for (int to_16 = 0; to_16 < 2; to_16++) {
		for (int how = NARROW; how <= COLORED; how++) {
			start((enum references)how, 4, to_16);
			put_latin(0, "main");
			put_latin(1, "ForkJoinPool-1-worker-12");
			put_latin(2, "G\xfc"
				     "ltig und lang genug");
			put_latin(3, "exactly fifteen");
			/* The place of the name is not known yet. */
			assert_string_equal(name_of(100, "java", true), "again");
			/* The JVM cuts names in two ways: up to JDK 25, and from 26 on. */
			assert_string_equal(name_of(101, "ForkJoinPool-1-", false),
					    "ForkJoinPool-1-worker-12");
			assert_string_equal(name_of(101, "ForkJoi..ker-12", false),
					    "ForkJoinPool-1-worker-12");
			assert_string_equal(name_of(102, "G\xc3\xbcltig und lan", false),
					    "G\xc3\xbcltig und lang genug");
			assert_string_equal(name_of(103, "exactly fifteen", false),
					    "exactly fifteen");
			assert_string_equal(name_of(100, "java", true),
					    how == NARROW ? "main" : "none");
		}
	}
}

/* JDK 8 has an array of 2-byte characters with its length in characters; 9 and later, in bytes. */
static void test_wide_characters(void **state)
{
	static const uint16_t text[] = {0x4e2d, 0x6587, 'w', 'o', 'r', 'k',    'e',    'r',
					'-',	'1',	'2', '3', '4', 0xd83d, 0xde00, 'x'};
	static const char *const want = "\xe4\xb8\xad\xe6\x96\x87worker-1234\xf0\x9f\x98\x80x";

	for (unsigned int factor = 1; factor <= 2; factor++) {
		start(NARROW, 1, factor == 1);
		put(HEAP + 0x80 + 12, ARRAY_SIZE(text) * factor, 4);
		memcpy(bytes + HEAP + 0x80 + 16, text, sizeof(text));
		assert_string_equal(name_of(100, "\xe4\xb8\xad\xe6\x96\x87worker-12", false), want);
	}
}

static void test_long_names(void **state)
{
	char text[201] = "", want[256];

	start(WHOLE, 1, false);
	for (int i = 0; i < 200; i++)
		text[i] = '\xe9';
	put_latin(0, text);
	/* Each character has two bytes in UTF-8: 127 of them fit into 255. */
	for (int i = 0; i < 254; i += 2)
		memcpy(want + i, "\xc3\xa9", 2);
	want[254] = 0;
	assert_string_equal(
	    name_of(100, "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3", false),
	    want);
}

/*
 * The name of another thread, a string that is being moved, and no object: the kernel's name stays.
 */
static void test_what_does_not_fit_is_no_name(void **state)
{
	start(NARROW, 2, false);
	put_latin(0, "ForkJoinPool-1-worker-12");
	put_latin(1, "another name that is long");
	assert_string_equal(name_of(100, "another name th", false), "again");
	assert_int_equal(process.threads.name_at, 0);
	assert_string_equal(name_of(100, "ForkJoinPool-1-", false), "ForkJoinPool-1-worker-12");
	assert_string_equal(name_of(101, "ForkJoinPool-1-", false), "again");
	put(HEAP + NAME, 0, 4);
	assert_string_equal(name_of(100, "ForkJoinPool-1-", false), "again");
	put(HEAP + NAME, 0xffffffff, 4);
	assert_string_equal(name_of(100, "ForkJoinPool-1-", false), "again");
	/* A name with control characters is not taken. */
	put_latin(1, "evil\nname");
	assert_string_equal(name_of(101, "java", true), "again");
	/* A thread that is not in the JVM's list. */
	assert_string_equal(name_of(7, "ForkJoinPool-1-", false), "again");
}

/* The number of reads is bounded, whatever the process's memory says. */
static void test_lies_are_bounded(void **state)
{
	start(WHOLE, 2, true);
	put(JAVA_THREAD + 64 + NEXT, AT + JAVA_THREAD, 8); /* a list without an end */
	put_latin(0, "ForkJoinPool-1-worker-12");
	assert_string_equal(name_of(100, "ForkJoinPool-1-", false), "ForkJoinPool-1-worker-12");
	assert_true(n_reads < 100000);
	/* Within a second the list is not read again. */
	n_reads = 0;
	assert_string_equal(name_of(7, "ForkJoinPool-1-", false), "again");
	assert_int_equal(n_reads, 0);
	start(NARROW, 1, false);
	put(LIST_OBJECT + LENGTH, UINT32_MAX, 4);
	for (int32_t length = -1; length <= 1; length++) {
		put(HEAP + 0x80 + 12, length > 0 ? INT32_MAX : (uint32_t)length, 4);
		assert_string_equal(name_of(100, "ForkJoinPool-1-", false), "again");
	}
	/* After enough searches in vain there are no more. */
	for (int i = 0; i < 20; i++)
		(void)name_of(100, "ForkJoinPool-1-", false);
	n_reads = 0;
	assert_string_equal(name_of(100, "ForkJoinPool-1-", false), "none");
	assert_int_equal(n_reads, 0);
	/* A version without the field is not supported. */
	process.layout.thread_os = HOTSPOT_NO_FIELD;
	assert_string_equal(name_of(100, "ForkJoinPool-1-", false), "none");
}

static int teardown(void **state)
{
	hotspot_threads_done(&process.threads);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_names_of_each_layout),
	    cmocka_unit_test(test_wide_characters),
	    cmocka_unit_test(test_long_names),
	    cmocka_unit_test(test_what_does_not_fit_is_no_name),
	    cmocka_unit_test(test_lies_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
