/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the parser: one decoder for each part of the objects. */
#pragma once

#include "operator/policy/config.h"
#include "operator/policy/json_fields.h"

/* Functions for json_row.decode. OUT is the part's struct, zeroed or with its ABSENT values. */
int destination_decode(struct json_fields *f, const cJSON *node, void *out);	    /* cluster */
int tenant_destination_decode(struct json_fields *f, const cJSON *node, void *out); /* only otlp */
int agent_decode(struct json_fields *f, const cJSON *node, void *out);		    /* spec.agent */
int groups_decode(struct json_fields *f, const cJSON *node, void *out);	   /* cluster_config */
int probes_decode(struct json_fields *f, const cJSON *node, void *out);	   /* cluster_config */
int selector_decode(struct json_fields *f, const cJSON *node, void *out);  /* struct selector */
int object_id_decode(struct json_fields *f, const cJSON *node, void *out); /* metadata */
/* Sets the defaults of fields that metadata does not have: namespace NS, uid "". */
int object_id_finish(struct json_fields *f, struct object_id *id, const char *ns);
/* {matchLabels: {...}} alone, of 1..MAX labels. */
int label_selector_decode(struct json_fields *f, const cJSON *node, size_t max,
			  struct selector *out);

void agent_spec_init(struct agent_spec *a);
void agent_spec_done(struct agent_spec *a);
void profile_spec_init(struct profile_spec *p);
void selector_done(struct selector *s);
void probes_free(struct probe_config *p, size_t n);
void destinations_free(struct destination *d, size_t n);

extern const struct json_choice enabled_choices[]; /* TOGGLE_ENABLED, TOGGLE_DISABLED */
