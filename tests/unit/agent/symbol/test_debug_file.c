// SPDX-License-Identifier: Apache-2.0
/* debug_file.h and root_file.h: debug files as objcopy makes them, in all places, right and wrong.
 */
#include "support.h"

#include <sys/stat.h>

#include "agent/symbol/debug_file.h"
#include "agent/symbol/elf_symbols.h"
#include "agent/symbol/foreign.h"
#include "agent/symbol/root_file.h"

static const char source[] =
    "static __attribute__((noinline)) int hidden(int x) { return x * 3 + 1; }\n"
    "__attribute__((noinline)) int shown(int x) { return hidden(x) ^ 5; }\n";

/*
 * scratch/root/app/prog (stripped), with its debug file in scratch/prog.debug, and the address of
 * its local function, which only the debug file names.
 */
static uint64_t make_program(const char *options)
{
	unsigned long long address;
	char *text;

	write_file(in_scratch("d.c"), source);
	assert_int_equal(sh("cd '%s' && rm -rf root && mkdir -p root/app root/usr/lib/debug && "
			    "gcc -g -O1 -shared -fPIC %s -o full.so d.c && "
			    "objcopy --only-keep-debug full.so prog.debug && "
			    "objcopy -S --add-gnu-debuglink=prog.debug full.so root/app/prog",
			    scratch, options),
			 0);
	text = sh_output("nm '%s' | awk '$3 == \"hidden\" {print $1}'", in_scratch("full.so"));
	assert_int_equal(sscanf(text, "%llx", &address), 1);
	free(text);
	return address;
}

static struct image *open_program(void)
{
	struct image *image = open_image(in_scratch("root/app/prog"));

	/* As the process sees it. */
	free(image->path);
	image->path = strdup("/app/prog");
	return image;
}

static void expect_hidden(struct image *image, struct image *debug, uint64_t address)
{
	_cleanup_(elf_symbols_freep) struct elf_symbols *t = NULL;
	struct elf_symbols_input input = {.image = debug};
	struct elf_symbol s;
	char name[64];

	assert_int_equal(elf_symbols_build(image, &input, 1, &t, NULL), 0);
	assert_true(elf_symbols_find(t, address, &s));
	elf_symbols_name(t, &s, name, sizeof(name));
	assert_string_equal(name, "hidden");
}

static int find(struct image *image, struct image **ret)
{
	_cleanup_(foreign_freep) struct foreign *foreign = NULL;

	assert_int_equal(foreign_new(&foreign), 0);
	return debug_file_find(foreign, image, in_scratch("root"), "/usr/lib/debug", ret);
}

static void found_at(const char *place, uint64_t address)
{
	_cleanup_(image_unrefp) struct image *image = open_program(), *debug = NULL;

	assert_int_equal(find(image, &debug), -ENOENT);
	assert_int_equal(sh("cd '%s/root' && mkdir -p \"$(dirname %s)\" && cp ../prog.debug %s",
			    scratch, place, place),
			 0);
	assert_int_equal(find(image, &debug), 0);
	expect_hidden(image, debug, address);
	assert_int_equal(sh("rm '%s/root/%s'", scratch, place), 0);
}

static void a_debug_file_is_found_in_each_place(void **state)
{
	uint64_t address = make_program("-Wl,--build-id=sha1");
	_cleanup_(image_unrefp) struct image *image = open_program();
	char hex[IMAGE_BUILD_ID_MAX * 2 + 1], path[256];

	image_build_id_hex(image, hex, sizeof(hex));
	assert_int_equal(strlen(hex), 40);
	snprintf(path, sizeof(path), "usr/lib/debug/.build-id/%.2s/%s.debug", hex, hex + 2);
	found_at(path, address);
	found_at("app/prog.debug", address);
	found_at("app/.debug/prog.debug", address);
	found_at("usr/lib/debug/app/prog.debug", address);
}

static void without_build_ids_the_checksum_decides(void **state)
{
	uint64_t address = make_program("-Wl,--build-id=none");
	_cleanup_(image_unrefp) struct image *image = open_program(), *debug = NULL;
	_cleanup_close_ int fd = -1;

	found_at("app/prog.debug", address);
	assert_int_equal(sh("cd '%s' && cp prog.debug root/app/prog.debug", scratch), 0);
	fd = open(in_scratch("root/app/prog.debug"), O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_int_equal(write(fd, "x", 1), 1);
	assert_int_equal(find(image, &debug), -ENOENT);
}

static void a_debug_file_of_another_build_is_refused(void **state)
{
	_cleanup_(image_unrefp) struct image *image = NULL, *debug = NULL;

	(void)make_program("-Wl,--build-id=0x1122334455");
	image = open_program();
	assert_int_equal(
	    sh("cd '%s' && gcc -g -O0 -shared -fPIC -Wl,--build-id=0x1122334466 -o o.so d.c "
	       "&& cp o.so root/app/prog.debug && mkdir -p "
	       "root/usr/lib/debug/.build-id/11 && "
	       "cp o.so root/usr/lib/debug/.build-id/11/22334455.debug",
	       scratch),
	    0);
	assert_int_equal(find(image, &debug), -ENOENT);
}

static void links_in_a_container_stay_in_it(void **state)
{
	uint64_t address = make_program("-Wl,--build-id=sha1");
	_cleanup_(image_unrefp) struct image *image = open_program(), *debug = NULL;

	/* Out of the root: to a good debug file of the host, which must not be reached. */
	assert_int_equal(
	    sh("cd '%s' && ln -s '%s/prog.debug' root/app/prog.debug", scratch, scratch), 0);
	assert_int_equal(find(image, &debug), -ENOENT);
	assert_int_equal(
	    sh("cd '%s/root/app' && rm prog.debug && ln -s ../../prog.debug prog.debug", scratch),
	    0);
	assert_int_equal(find(image, &debug), -ENOENT);
	/* Inside, absolute as the container sees it. */
	assert_int_equal(sh("cd '%s' && mkdir root/store && cp prog.debug root/store/d && "
			    "rm root/app/prog.debug && ln -s /store/d root/app/prog.debug",
			    scratch),
			 0);
	assert_int_equal(find(image, &debug), 0);
	expect_hidden(image, debug, address);
}

static void odd_files_do_not_stop_the_search(void **state)
{
	uint64_t address = make_program("-Wl,--build-id=sha1");
	_cleanup_(image_unrefp) struct image *image = open_program(), *debug = NULL;

	assert_int_equal(sh("cd '%s/root/app' && mkfifo prog.debug && mkdir .debug && "
			    "echo text > .debug/prog.debug",
			    scratch),
			 0);
	assert_int_equal(find(image, &debug), -ENOENT);
	assert_int_equal(sh("cd '%s' && mkdir -p root/usr/lib/debug/app && "
			    "cp prog.debug root/usr/lib/debug/app/",
			    scratch),
			 0);
	assert_int_equal(find(image, &debug), 0);
	expect_hidden(image, debug, address);
}

/* ---- .gnu_debugdata ---------------------------------------------------------------------------
 */

static void mini_debug_info_names_local_functions(void **state)
{
	_cleanup_(image_unrefp) struct image *image = NULL, *data = NULL, *bare = NULL;
	uint64_t address = make_program("-Wl,--build-id=sha1");

	assert_int_equal(
	    sh("cd '%s' && objcopy -S --remove-section .gdb_index prog.debug mini && "
	       "objcopy --keep-symbol=hidden --strip-debug prog.debug mini && xz -kf mini "
	       "&& objcopy --add-section .gnu_debugdata=mini.xz root/app/prog with",
	       scratch),
	    0);
	bare = open_program();
	assert_int_equal(debug_data_unpack(bare, &data, NULL), -ENOENT);
	image = open_image(in_scratch("with"));
	assert_int_equal(debug_data_unpack(image, &data, NULL), 0);
	expect_hidden(image, data, address);
}

static void damaged_or_huge_mini_debug_info_is_refused(void **state)
{
	_cleanup_(image_unrefp) struct image *cut = NULL, *huge = NULL, *greedy = NULL,
					     *data = NULL;

	(void)make_program("-Wl,--build-id=sha1");
	assert_int_equal(
	    sh("cd '%s' && xz -kf prog.debug && head -c 300 prog.debug.xz > cut.xz && "
	       "head -c 100000000 /dev/zero | xz -1 > huge.xz && "
	       "echo x | xz --lzma2=dict=512MiB > greedy.xz && "
	       "for n in cut huge greedy; do "
	       "objcopy --add-section .gnu_debugdata=$n.xz root/app/prog $n || exit 1; done",
	       scratch),
	    0);
	cut = open_image(in_scratch("cut"));
	huge = open_image(in_scratch("huge"));
	greedy = open_image(in_scratch("greedy"));
	assert_int_equal(debug_data_unpack(cut, &data, NULL), -EBADMSG);
	assert_int_equal(debug_data_unpack(huge, &data, NULL), -EFBIG);
	assert_int_equal(debug_data_unpack(greedy, &data, NULL), -EFBIG);
	assert_null(data);
}

/* ---- root_file --------------------------------------------------------------------------------
 */

static void the_walk_follows_no_link_and_finds_files(void **state)
{
	_cleanup_close_ int root = -1, fd = -1;

	assert_int_equal(sh("cd '%s' && rm -rf w && mkdir -p w/a/b && echo x > w/a/b/f && "
			    "ln -s b w/a/l && ln -s f w/a/b/g && mkfifo w/a/p",
			    scratch),
			 0);
	root = root_open(in_scratch("w"));
	assert_true(root >= 0);
	fd = root_open_file_walk(root, "/a//b/f");
	assert_true(fd >= 0);
	assert_int_equal(root_open_file_walk(root, "a/l/f"), -ENOTDIR);
	assert_int_equal(root_open_file_walk(root, "a/b/g"), -ELOOP);
	assert_int_equal(root_open_file_walk(root, "a/../a/b/f"), -ELOOP);
	assert_int_equal(root_open_file_walk(root, "a/p"), -EINVAL);
	assert_int_equal(root_open_file_walk(root, "a/b"), -EINVAL);
	assert_int_equal(root_open_file_walk(root, "/"), -EISDIR);
	assert_int_equal(root_open_file_walk(root, "none"), -ENOENT);
	assert_true(root_open(in_scratch("nothing")) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_debug_file_is_found_in_each_place),
	    cmocka_unit_test(without_build_ids_the_checksum_decides),
	    cmocka_unit_test(a_debug_file_of_another_build_is_refused),
	    cmocka_unit_test(links_in_a_container_stay_in_it),
	    cmocka_unit_test(odd_files_do_not_stop_the_search),
	    cmocka_unit_test(mini_debug_info_names_local_functions),
	    cmocka_unit_test(damaged_or_huge_mini_debug_info_is_refused),
	    cmocka_unit_test(the_walk_follows_no_link_and_finds_files),
	};

	return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
