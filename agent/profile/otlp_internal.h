/* SPDX-License-Identifier: Apache-2.0 */
/* The OTLP encoder's state, shared by its two halves: otlp.c (requests) and otlp_dictionary.c. */
#pragma once

#include "agent/profile/otlp.h"
#include "agent/profile/wire.h"

struct otlp_encoder {
	const struct batch *batch;
	enum otlp_generation generation;
	size_t max_bytes;
	/* The dictionary, in field order. */
	struct wire_table mappings, locations, functions, links, strings, attributes, stacks;
	/* Index in the batch -> index in the dictionary; 0: not there yet. One allocation, at
	 * mapping_index. */
	uint32_t *mapping_index, *function_index, *location_index, *stack_index;
	size_t n_indices; /* of all of them */
	uint32_t frame_type_index[FRAME_TYPE_COUNT];
	const struct batch_profile *profile;
	const struct batch_resource *resource_of; /* the resource of the open ResourceProfiles */
	struct buf resources, profiles, samples;  /* closed messages of the level above */
	struct buf resource;			  /* the open Resource */
	struct buf a, b;			  /* scratch */
	uint32_t sample_type, sample_unit, period_type, period_unit;
	bool has_executable_name, has_executable_path; /* the resource already has this attribute */
	uint32_t n_samples;			       /* of the open profile */
	int64_t request_samples;		       /* CPU values of the open request */
	struct otlp_request *requests;
	size_t n_requests, requests_cap;
	int error; /* other than a buffer's */
};

/*
 * Each returns the index in the open request's dictionary, and adds the entry if it is missing.
 * Failures stick in the tables and in `error`; the index is then not valid. All of them use the
 * scratch buffers.
 */
uint32_t otlp_add_string(struct otlp_encoder *e, const char *s);
/* The value is STR, or NUM when STR is NULL. */
uint32_t otlp_add_attribute(struct otlp_encoder *e, const char *key, const char *str, uint64_t num);
/* The link to the trace context of SET; 0, the empty link, if it has none. */
uint32_t otlp_add_link(struct otlp_encoder *e, const struct batch_label_set *set);
uint32_t otlp_add_stack(struct otlp_encoder *e, uint32_t index);
