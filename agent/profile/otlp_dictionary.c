/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dictionary of an OTLP request (ProfilesDictionary). Each function here takes an entry of the
 * batch, writes it into the request's dictionary when the request needs it for the first time, and
 * returns its index there. In a batch each function, location and stack is unique already, so these
 * are appended without looking for an equal one. The messages and their field numbers are the same
 * in the generations G4, G5 and G6 (otlp.c).
 */
#include "agent/profile/otlp_internal.h"

uint32_t otlp_add_string(struct otlp_encoder *e, const char *s)
{
	return wire_table_add_str(&e->strings, s);
}

/* A KeyValueAndUnit {1 key_strindex, 2 value {1 string_value, 3 int_value}}. */
uint32_t otlp_add_attribute(struct otlp_encoder *e, const char *key, const char *str, uint64_t num)
{
	buf_reset(&e->a);
	if (str)
		wire_bytes(&e->a, 1, str, strlen(str));
	else {
		wire_varint(&e->a, 3 << 3);
		wire_varint(&e->a, num);
	}
	buf_reset(&e->b);
	wire_uint(&e->b, 1, otlp_add_string(e, key));
	wire_bytes(&e->b, 2, e->a.data, e->a.len);
	return wire_table_add_buf(&e->attributes, &e->b);
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Is TEXT N bytes in hex, and not all zero? */
static bool read_hex(const char *text, uint8_t *ret, size_t n)
{
	uint8_t any = 0;

	if (strlen(text) != 2 * n)
		return false;
	for (size_t i = 0; i < n; i++) {
		int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		ret[i] = (uint8_t)(high << 4 | low);
		any |= ret[i];
	}
	return any;
}

/* A Link {1 trace_id, 2 span_id}. */
uint32_t otlp_add_link(struct otlp_encoder *e, const struct batch_label_set *set)
{
	uint8_t trace[16], span[8];

	if (set->n < 2 || !streq(set->labels[0].key, "trace_id") ||
	    !streq(set->labels[1].key, "span_id") ||
	    !read_hex(set->labels[0].value, trace, sizeof(trace)) ||
	    !read_hex(set->labels[1].value, span, sizeof(span)))
		return 0;
	buf_reset(&e->a);
	wire_bytes(&e->a, 1, trace, sizeof(trace));
	wire_bytes(&e->a, 2, span, sizeof(span));
	return wire_table_add_buf(&e->links, &e->a);
}

/* A Mapping {1 memory_start, 2 memory_limit, 3 file_offset, 4 filename, 5 attribute_indices}. */
static uint32_t add_mapping(struct otlp_encoder *e, uint32_t index)
{
	const struct batch_mapping *m = &e->batch->mappings[index];
	const struct {
		const char *key, *value;
	} ids[] = {
	    {"process.executable.build_id.gnu", m->build_id_gnu},
	    {"process.executable.build_id.go", m->build_id_go},
	    {"process.executable.build_id.htlhash", m->htlhash},
	};
	uint32_t attributes[ARRAY_SIZE(ids)], filename;
	size_t n = 0;

	if (e->mapping_index[index])
		return e->mapping_index[index];
	filename = otlp_add_string(e, m->filename);
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		if (ids[i].value[0])
			attributes[n++] = otlp_add_attribute(e, ids[i].key, ids[i].value, 0);
	buf_reset(&e->a);
	if (m->start < m->limit) {
		wire_uint(&e->a, 1, m->start);
		wire_uint(&e->a, 2, m->limit);
	}
	wire_uint(&e->a, 3, m->file_offset);
	wire_uint(&e->a, 4, filename);
	wire_packed(&e->a, 5, attributes, n);
	e->mapping_index[index] = wire_table_add_buf(&e->mappings, &e->a);
	return e->mapping_index[index];
}

/* A Function {1 name, 2 system_name, 3 filename, 4 start_line}. */
static uint32_t add_function(struct otlp_encoder *e, uint32_t index)
{
	const struct batch_function *f = &e->batch->functions[index];

	if (e->function_index[index])
		return e->function_index[index];
	buf_reset(&e->a);
	wire_uint(&e->a, 1, otlp_add_string(e, f->name));
	wire_uint(&e->a, 2, otlp_add_string(e, f->system_name));
	wire_uint(&e->a, 3, otlp_add_string(e, f->file));
	wire_uint(&e->a, 4, f->start_line);
	e->function_index[index] = wire_table_append(&e->functions, &e->a);
	return e->function_index[index];
}

static uint32_t add_frame_type(struct otlp_encoder *e, enum frame_type type)
{
	uint32_t *index = &e->frame_type_index[type];

	if (!*index)
		*index = otlp_add_attribute(e, "profile.frame.type", frame_type_name(type), 0);
	return *index;
}

/* A Location {1 mapping_index, 2 address, 3 lines {1 function, 2 line}, 4 attribute_indices}. */
static uint32_t add_location(struct otlp_encoder *e, uint32_t index)
{
	const struct batch_location *l = &e->batch->locations[index];
	struct buf *line = &e->a, *out = &e->b;
	uint32_t mapping = 0, type;

	if (e->location_index[index])
		return e->location_index[index];
	/* These two use both scratch buffers, so they come before the message that is made in one.
	 */
	if (l->mapping != BATCH_NO_MAPPING)
		mapping = add_mapping(e, l->mapping);
	type = add_frame_type(e, l->type);
	buf_reset(out);
	wire_uint(out, 1, mapping);
	wire_uint(out, 2, l->address);
	for (uint32_t i = 0; i < l->n_lines; i++) {
		const struct batch_line *from = &e->batch->lines[l->first_line + i];
		uint32_t function = add_function(e, from->function);

		buf_reset(line);
		wire_uint(line, 1, function);
		wire_uint(line, 2, from->line);
		wire_bytes(out, 3, line->data, line->len);
	}
	wire_packed(out, 4, &type, 1);
	e->location_index[index] = wire_table_append(&e->locations, out);
	return e->location_index[index];
}

/* A Stack {1 location_indices}. */
uint32_t otlp_add_stack(struct otlp_encoder *e, uint32_t index)
{
	const struct batch_stack *s = &e->batch->stacks[index];
	const uint32_t *from = e->batch->stack_locations + s->first;
	uint32_t *to;

	if (e->stack_index[index] || !s->len)
		return e->stack_index[index];
	to = malloc(s->len * sizeof(*to));
	if (!to) {
		e->error = -ENOMEM;
		return 0;
	}
	for (uint32_t i = 0; i < s->len; i++)
		to[i] = add_location(e, from[i]);
	buf_reset(&e->a);
	wire_packed(&e->a, 1, to, s->len);
	free(to);
	e->stack_index[index] = wire_table_append(&e->stacks, &e->a);
	return e->stack_index[index];
}
