/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Table-driven decoding of a JSON object into a struct, one table row a field. Names are exact, as
 * the API server takes them; null counts as absent. A field that is given twice is an error. An
 * unknown field is left alone and noted with the nearest known name: a newer schema may have it.
 * Every message is one line, "PATH: cause", in the words of the schema's CEL rules; values in it
 * are cut and made printable, and left out for rows that are `secret`. Pure functions.
 */
#pragma once

#include <cjson/cJSON.h>

#include "lib/base.h"
#include "lib/error.h"
#include "operator/policy/config.h"

enum json_type {
	JSON_END,    /* the row after the last */
	JSON_STRING, /* char *, min..max bytes long */
	JSON_INT,    /* int, min..max */
	JSON_CHOICE, /* an enum (or, with `flag`, a bool), one of `choices` */
	JSON_TEXT,   /* char *, the `text` of one of `choices` */
	JSON_OBJECT, /* `rows` into the struct at `offset` */
	/* struct string_list: at most `max` strings of 1..`min` bytes, no duplicates */
	JSON_STRINGS,
	JSON_CUSTOM, /* `decode` */
	JSON_IGNORED,
};

struct json_choice {
	const char *name;
	int value;
	const char *text; /* what JSON_TEXT stores; NULL: the name */
};
/* The syntax of a string, and its description in messages. */
struct json_syntax {
	const char *want;
	bool (*ok)(const char *s);
};

struct json_fields;
struct json_row {
	const char *name;
	enum json_type type;
	size_t offset;
	int min, max;
	const struct json_syntax *syntax;  /* STRING, STRINGS */
	const struct json_choice *choices; /* ends with a row without name */
	const struct json_row *rows;
	int (*decode)(struct json_fields *f, const cJSON *node, void *out);
	bool required, secret, flag;
};

struct json_fields {
	struct error *err;
	char path[256];	 /* of what is being decoded; cut when longer */
	size_t path_len; /* what it would be uncut */
	size_t n_unknown;
	char unknown[320]; /* the first unknown field: "PATH: unknown field; did you mean NAME?" */
};

/* Appends ".NAME" to the path; returns what json_path_leave() takes to go back. */
size_t json_path_enter(struct json_fields *f, const char *name);
size_t json_enter_index(struct json_fields *f, size_t i);
void json_path_leave(struct json_fields *f, size_t mark);
/* "PATH: message"; returns -EINVAL. */
int json_error(struct json_fields *f, const char *format, ...) _printf_(2, 3);
int json_no_memory(struct json_fields *f);
/* "PATH: want WANT, got VALUE"; a NULL node is "nothing". */
int json_want(struct json_fields *f, const cJSON *node, const char *want);

int json_decode(struct json_fields *f, const cJSON *node, const struct json_row *rows,
		void *out) _must_check_;
int json_decode_value(struct json_fields *f, const cJSON *node, const struct json_row *row,
		      void *out) _must_check_;
/*
 * Decodes a list of objects: *RET gets an array of SIZE bytes an item, *RET_N the number of items
 * that ONE was called for, also on failure, so that the owner of the struct can free them. In ONE
 * the path includes the item.
 */
int json_list(struct json_fields *f, const cJSON *node, size_t max, size_t size,
	      int (*one)(struct json_fields *f, const cJSON *item, void *out), void **ret,
	      size_t *ret_n) _must_check_;
/* Checks a map of MIN..MAX strings: values of the form of VALUE, keys of the form of a label's. */
int json_check_map(struct json_fields *f, const cJSON *node, size_t min, size_t max,
		   const struct json_row *value) _must_check_;
/* A member that is there and not null; NULL else. */
const cJSON *json_get(const cJSON *object, const char *name);

extern const struct json_syntax syntax_dns_label, syntax_dns_subdomain, syntax_label_key,
    syntax_label_value, syntax_sample_label, syntax_cluster_name, syntax_endpoint_pattern;
bool is_alnum(char c);
