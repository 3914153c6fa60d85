/* SPDX-License-Identifier: Apache-2.0 */
/* A store, a directory and one process (victim.h), for the tests of the store of images. */
#pragma once

#include "agent/process/image_store.h"
#include "cm.h"
#include "victim.h"

struct fixture {
	int procfd;
	char *dir;
	struct image_store *store;
	struct maps maps;
	struct victim victim;
	struct image *cat, *ls; /* expected contents of the copies */
	unsigned int drops;
	struct stored_image *last_drop;
};

int store_setup(void **state);
int store_teardown(void **state);
#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, store_setup, store_teardown)

struct image *open_image(const char *path);
/* The path of NAME in the fixture's directory; one of the last four is overwritten. */
char *path_in(const struct fixture *f, const char *name);
/* The victim's executable mapping whose path ends with SUFFIX, until the next call. */
const struct map_entry *mapping(struct fixture *f, const char *suffix);
struct stored_image *get(struct fixture *f, const struct map_entry *e, uint64_t now);
void assert_same_build(const struct image *a, const struct image *b);
/* Copies FROM into the directory as NAME, and runs the copy. */
void start_copy(struct fixture *f, const char *from, const char *name);
/* For victim_start(): a copy of cat, `hidden`, in a tmpfs that only the child sees. */
int hide_in_namespace(char *path, size_t size, void *fixture);
