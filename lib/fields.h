/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Table-driven decoding: a map of a document -> a struct, one table row a key.
 *
 *   static const struct field rows[] = {
 *           {"timeout", FIELD_DURATION_MS, offsetof(struct x, timeout_ms), .min = 1, .max = 60000},
 *           {"tls", FIELD_MAP, offsetof(struct x, tls), .rows = tls_rows},
 *           {},
 *   };
 *
 * Keys match without regard to case and '_' (samples_per_second, SamplesPerSecond). A key that no
 * row names is an error with the nearest known name. A key without value (null) keeps what the
 * struct has. Every message is one line: "FILE:LINE: a.b.c: cause"; values in it are cut and made
 * printable, and left out for rows that are SECRET.
 */
#pragma once

#include "lib/base.h"
#include "lib/error.h"
#include "lib/yaml.h"

enum field_type {
	FIELD_END, /* the row after the last */
	FIELD_BOOL,
	FIELD_U32,
	FIELD_U64,
	FIELD_DOUBLE,
	FIELD_STRING,	   /* char *, freed and replaced */
	FIELD_DURATION_MS, /* uint64_t; a part of a ms is rounded up */
	FIELD_SIZE,	   /* uint64_t bytes: "64MiB" */
	FIELD_CHOICE,	   /* char *, one of `choices` */
	FIELD_MAP,	   /* `rows` into the struct at `offset` */
	FIELD_CUSTOM,	   /* `decode` */
	FIELD_IGNORED,	   /* has no effect here: logs a warning, `note` if there is one */
	FIELD_QUIET,	   /* ignored without a warning */
};

struct fields;
struct field {
	const char *name;
	enum field_type type;
	size_t offset;
	double min, max; /* U32, U64, DOUBLE, DURATION_MS, SIZE: checked unless both are 0 */
	const struct field *rows;
	const char *const *choices; /* ends with NULL */
	/* OUT is the struct's address plus `offset`. */
	int (*decode)(struct fields *f, const struct yaml_node *node, void *out);
	const char *note;
	bool secret;
};

struct fields {
	const char *file; /* as the user gave it */
	void (*warn)(void *arg, const char *line);
	void *arg;
	struct error *err;
	/* Path of the value being decoded: "exporters.otlp/a.tls"; cut when longer. */
	char path[256];
	size_t path_len; /* length of the path without the cut */
};

/* Appends ".KEY" to the path; returns the MARK with which fields_leave() removes it again. */
size_t fields_enter(struct fields *f, const char *key);
void fields_leave(struct fields *f, size_t mark);

/* "FILE:LINE: PATH: message"; returns -EINVAL. */
int fields_error(struct fields *f, const struct yaml_node *node, const char *format, ...)
    _printf_(3, 4);
void fields_warn(struct fields *f, const struct yaml_node *node, const char *format, ...)
    _printf_(3, 4);
int fields_no_memory(struct fields *f);

/* NODE must be a map, or null (nothing to do). OUT is the struct that the rows' offsets point into.
 */
int fields_decode(struct fields *f, const struct yaml_node *node, const struct field *rows,
		  void *out) _must_check_;
/* Decodes NODE as ROW says. The caller has entered the path already. */
int fields_decode_value(struct fields *f, const struct yaml_node *node, const struct field *row,
			void *out) _must_check_;

/* The value in the map NODE whose key is NAME in any spelling; NULL when there is none. */
const struct yaml_node *fields_find(const struct yaml_node *node, const char *name);
/* Copies a scalar's text; anything else is an error. */
int fields_string(struct fields *f, const struct yaml_node *node, char **ret) _must_check_;
int fields_want_map(struct fields *f, const struct yaml_node *node) _must_check_;
int fields_want_list(struct fields *f, const struct yaml_node *node) _must_check_;

/*
 * The name nearest to TEXT among the N names that NAME_OF returns; NULL when none is similar enough
 * to be a misspelling.
 */
const char *nearest_name(const char *text, size_t n,
			 const char *(*name_of)(const void *arg, size_t i), const void *arg);
/* The same for an array that ends with NULL. */
const char *nearest_choice(const char *text, const char *const *choices);

/* TEXT in quotes, at most 64 characters of it, control characters as '?'. */
struct quoted {
	char text[80];
};
struct quoted quote_text(const char *text);
