// SPDX-License-Identifier: Apache-2.0
/* The reader over plain memory in place of BPF maps, an image with far too much code, and a real
 * loop. */
#include "agent/window/code_reader.h"

#include <elf.h>

#include "agent/elf/code_starts.h"
#include "tests/fuzz/elf_image.h"
#include "tests/support/test.h"

enum { SLOTS = 8192, TEXT = 0x1000, BIAS = 0x40000000, SECOND = CODE_BYTES_MAX };

/* push %rbp; mov %rsp,%rbp; call; xor %eax,%eax; pop %rbp; ret */
static const char function[] = "\x55\x48\x89\xe5\xe8\x00\x01\x00\x00\x31\xc0\x5d\xc3";
enum { BEHIND_CALL = 9 };

struct world {
	_Alignas(64) uint32_t slab[SLOTS * 16];
	struct kiln_table tables[KILN_MAX_IMAGES];
	uint32_t epoch;
	struct kernel_memory memory;
	struct unwind_store *store;
	struct code_reader *reader;
	uv_loop_t loop;
	struct stored_image image;
	struct mapset_range range;
	struct mapset mapset;
	struct {
		struct kiln_sample head;
		struct kiln_resume resume;
		uint64_t stack[4];
	} record;
	int done;
};

static void on_done(const struct stored_image *image, uint32_t slot, void *arg)
{
	((struct world *)arg)->done++;
}

static struct image *large_image(void)
{
	size_t size = SECOND + sizeof(function), file_size;
	_cleanup_free_ uint8_t *code = malloc(size), *file = NULL;
	struct image *image = NULL;
	const struct elf_image_section sections[] = {
	    {".text", code, size, TEXT, SHF_ALLOC | SHF_EXECINSTR, 0},
	};

	if (!code)
		return NULL;
	memset(code, 0xcc, size);
	memcpy(code, function, sizeof(function) - 1);
	memcpy(code + SECOND, function, sizeof(function) - 1);
	file = elf_image_make(sections, ARRAY_SIZE(sections), 0, &file_size);
	return file && image_from_memory(file, file_size, "test", &image, NULL) == 0 ? image : NULL;
}

static int setup(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	struct world *w = aligned_alloc(64, ALIGN_UP(sizeof(*w), 64));

	if (!w)
		return -1;
	memset(w, 0, sizeof(*w));
	w->memory = (struct kernel_memory){
	    .slab = w->slab, .slab_slots = SLOTS, .tables = w->tables, .cache_epoch = &w->epoch};
	w->image.image = large_image();
	w->image.refs = 1;
	if (!w->image.image || uv_loop_init(&w->loop) < 0 ||
	    unwind_store_new(&w->memory, &w->store) < 0 ||
	    unwind_store_add(w->store, &w->image) < 0 ||
	    unwind_compile(w->image.image, &t, NULL) < 0 ||
	    unwind_store_load(w->store, &w->image, t, 0) < 0 ||
	    code_reader_new(&w->loop, &w->memory, NULL, w->store, on_done, w, &w->reader) < 0)
		return -1;
	w->range = (struct mapset_range){.start = BIAS + TEXT,
					 .end = BIAS + TEXT + SECOND + 0x1000,
					 .bias = BIAS,
					 .image = &w->image};
	w->mapset = (struct mapset){.id = 1, .ranges = &w->range, .n = 1};
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	code_reader_free(w->reader);
	unwind_store_free(w->store);
	uv_loop_close(&w->loop);
	image_unref(w->image.image);
	free(w);
	return 0;
}

static bool want(struct world *w, uint64_t at)
{
	return code_reader_want(w->reader, &w->image, TEXT + at, BIAS + TEXT + at, &w->mapset,
				&w->record.head);
}

static void run(struct world *w)
{
	code_reader_start(w->reader);
	uv_run(&w->loop, UV_RUN_DEFAULT);
}

static enum kiln_rule_kind kind_at(struct world *w, uint64_t at)
{
	struct unwind_table view;

	assert_true(unwind_store_view(w->store, &w->image, &view));
	return unwind_lookup(&view, TEXT + at)->kind;
}

static void what_is_asked_for_is_read(void **state)
{
	struct world *w = *state;

	assert_int_equal(kind_at(w, SECOND), KILN_RULE_UNREAD);
	assert_true(want(w, SECOND + 4));
	assert_true(want(w, SECOND + 4));
	assert_true(code_reader_busy(w->reader));
	run(w);
	assert_false(code_reader_busy(w->reader));
	assert_int_equal(w->done, 1);
	assert_int_equal(w->image.refs, 1);
	assert_int_equal(kind_at(w, SECOND), KILN_RULE_CFA);
	assert_int_equal(kind_at(w, SECOND + 12), KILN_RULE_CFA);
	assert_int_equal(kind_at(w, 0), KILN_RULE_UNREAD);
	assert_true(*unwind_store_code_bytes(w->store, &w->image) > 0);
}

static void return_addresses_in_the_stack_are_read_along(void **state)
{
	struct world *w = *state;

	w->record.stack[0] = 17;
	w->record.stack[1] = BIAS + TEXT + SECOND + 3; /* not behind a call */
	w->record.stack[3] = BIAS + TEXT + BEHIND_CALL;
	w->record.head.dump_len = sizeof(w->record.stack);
	assert_true(want(w, SECOND + 100));
	run(w);
	assert_int_equal(kind_at(w, BEHIND_CALL - 1), KILN_RULE_CFA);
	assert_int_equal(kind_at(w, SECOND), KILN_RULE_UNREAD);
}

static void a_place_that_cannot_be_told_is_not_asked_for_again(void **state)
{
	struct world *w = *state;

	assert_true(want(w, 4000)); /* nothing but int3 */
	run(w);
	assert_int_equal(kind_at(w, 4000), KILN_RULE_INVALID);
	assert_int_equal(w->done, 1);
}

static void at_the_limit_what_is_left_has_no_rule(void **state)
{
	struct world *w = *state;

	*unwind_store_code_bytes(w->store, &w->image) = CODE_PLACES_BYTES_MAX - 1;
	assert_true(want(w, SECOND));
	run(w);
	assert_int_equal(kind_at(w, SECOND), KILN_RULE_CFA);
	assert_int_equal(kind_at(w, 0), KILN_RULE_INVALID);
	assert_false(want(w, 0));
}

static void without_room_for_the_new_table_it_is_tried_again(void **state)
{
	struct world *w = *state;
	struct unwind_table view;

	/* A new table needs room of its own while the old ones rest. */
	assert_true(unwind_store_view(w->store, &w->image, &view));
	assert_true(unwind_table_bytes(&view) * 2 < SLOTS * KILN_SLOT_BYTES);
	for (int i = 0; i < 40; i++) {
		assert_true(want(w, (uint64_t)i * 4096 + 64));
		for (int tries = 0; code_reader_busy(w->reader) && tries < 100; tries++) {
			run(w);
			if (code_reader_busy(w->reader))
				usleep(10000);
		}
		assert_false(code_reader_busy(w->reader));
		assert_int_equal(kind_at(w, (uint64_t)i * 4096 + 64), KILN_RULE_INVALID);
	}
}

static void once_stopped_nothing_is_read(void **state)
{
	struct world *w = *state;

	assert_true(want(w, SECOND));
	code_reader_stop(w->reader);
	assert_false(code_reader_busy(w->reader));
	assert_int_equal(w->image.refs, 1);
	assert_false(want(w, SECOND));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(what_is_asked_for_is_read),
	    TEST(return_addresses_in_the_stack_are_read_along),
	    TEST(a_place_that_cannot_be_told_is_not_asked_for_again),
	    TEST(at_the_limit_what_is_left_has_no_rule),
	    TEST(without_room_for_the_new_table_it_is_tried_again),
	    TEST(once_stopped_nothing_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
