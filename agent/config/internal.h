/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of agent/config; also entry points for tests and the fuzzer. */
#pragma once

#include "agent/config/config.h"
#include "lib/fields.h"

enum {
	REPORTER_INTERVAL_MIN_MS = 100,
	REPORTER_INTERVAL_MAX_MS = 3600000,
	SAMPLES_PER_SECOND_MAX = 1000,
	STACK_DEPTH_MAX = 1024,
	PROCESS_FILTER_MAX = 1024, /* characters */
	LABEL_KEYS_MAX = 64,
	LABEL_KEY_BYTES_MAX = 127,
};

/* The state of one load of the configuration. External input is passed in; warnings go to
 * `warn`. */
struct loading {
	struct config *config;
	const char *const *envp;
	void (*warn)(void *arg, const char *line);
	void *arg;
	const char *file; /* NULL: none given */
	unsigned int
	    exporter_lines[CONFIG_COMPONENTS_MAX]; /* by index of config->exporters; 0: no file */
	bool have_profiling, have_window;	   /* receivers that the file has set up */
};
void loading_warn(struct loading *l, const char *format, ...) _printf_(2, 3);

/* config_load() with a place for warnings instead of the log. */
int config_load_with(int argc, char *const *argv, const char *const *envp,
		     const struct tracer *tracers, void (*warn)(void *arg, const char *line),
		     void *arg, struct config **ret, enum config_action *ret_action,
		     struct error *err) _must_check_;

/* config.c */
struct config *config_new(const struct tracer *tracers); /* defaults; NULL: out of memory */
int config_add_exporter(struct config *c, const char *type, const char *id,
			struct exporter_config **ret) _must_check_;

/* file.c: DATA is the file's content, L->file its name. */
int config_read_file(struct loading *l, struct error *err) _must_check_;
int config_read_bytes(struct loading *l, const void *data, size_t size,
		      struct error *err) _must_check_;

/* expand.c: ${env:NAME} in every scalar below ROOT. */
int config_expand(struct fields *f, struct yaml_node *root, const char *const *envp) _must_check_;
const char *config_getenv(const char *const *envp, const char *name); /* NULL: not set */

/* One type of component. A foreign type is known to the Collector only. */
struct component_type {
	const char *name; /* as written */
	const char *canonical;
	bool foreign;
};
extern const struct component_type receiver_types[], processor_types[], exporter_types[],
    extension_types[];
typedef int (*component_decode)(struct fields *f, const struct component_type *type,
				const struct yaml_node *node, struct loading *l);
int receiver_decode(struct fields *f, const struct component_type *type,
		    const struct yaml_node *node, struct loading *l);
int processor_decode(struct fields *f, const struct component_type *type,
		     const struct yaml_node *node, struct loading *l);
int exporter_decode(struct fields *f, const struct component_type *type,
		    const struct yaml_node *node, struct loading *l);
int extension_decode(struct fields *f, const struct component_type *type,
		     const struct yaml_node *node, struct loading *l);

/* env.c, flags.c */
struct flags;
int config_apply_env(struct loading *l, const struct flags *flags, struct error *err) _must_check_;

enum { FLAG_PIDS_MAX = 1024 };
struct flags {
	const char *config, *collection_agent, *process_filter, *service_name, *pprof_file,
	    *folded_file;
	const char *tags[CONFIG_LIST_MAX];
	size_t n_tags;
	uint32_t samples_per_second; /* 0: not given */
	const struct tracer *known_tracers;
	uint32_t tracers;
	bool have_tracers;
	uint64_t reporter_interval_ms; /* 0: not given */
	struct budget budget;	       /* 0: not given */
	double off_cpu_threshold;
	const char *labels; /* NULL: not given */
	bool timestamps;
	bool have_off_cpu, off_cpu, disable_tls, use_stdout, live, check, verbose;
	const char *live_address; /* NULL: the default */
	uint64_t duration_ms;
	uint32_t pids[FLAG_PIDS_MAX];
	size_t n_pids;
	const char *probes[PROBE_COUNT_MAX];
	size_t n_probes;
};
/* Strings of *ret point into ARGV. */
int flags_parse(struct loading *l, int argc, char *const *argv, struct flags *ret,
		enum config_action *ret_action, struct error *err) _must_check_;
int flags_apply(struct loading *l, const struct flags *flags, struct error *err) _must_check_;

/* values.c: parsing that file, environment and flags share. The caller puts the place before the
 * error. */
char *trim_space(char *s); /* in place: without white space at both ends */
int set_string(char **to, const char *from) _must_check_; /* 0 or -ENOMEM */
int config_strings_add(struct config_strings *s,
		       const char *text) _must_check_; /* -E2BIG, -ENOMEM */
/* Adds, or replaces the value of an equal key. */
int pairs_set(struct config_pairs *p, const char *key, const char *value, size_t max) _must_check_;
void pairs_remove(struct config_pairs *p, const char *key);
const char *pairs_get(const struct config_pairs *p, const char *key);
/* Header names are case-insensitive (RFC 9110 section 5.1): the spelling of NAME that HEADERS has
 * already, else NAME. */
const char *header_spelled(const struct config_pairs *headers, const char *name);
void pairs_done(struct config_pairs *p);
void config_strings_done(struct config_strings *s);
/* A key of labels that may be exported. */
int add_label_key(struct config_strings *s, const char *key, struct error *why) _must_check_;
/* "KEY,KEY" */
int add_label_keys(struct config_strings *s, const char *text, struct error *why) _must_check_;
/* "k=v,k2=v2". Messages give the pair's number, never its text. */
int pairs_parse(struct config_pairs *p, const char *text, bool percent, size_t max,
		struct error *err) _must_check_;
/* tracers.c: the bits of a list of names. */
int parse_tracers(const struct tracer *known, const char *text, uint32_t *ret,
		  struct error *err) _must_check_;
/* Warns of tracers that were named in the configuration but that this version does not have. */
void warn_of_tracers(struct loading *l);
/* Parses the probe TEXT (lib/probe_spec.h) and adds it to RX. */
int add_probe(struct receiver_config *rx, const char *text, struct error *err) _must_check_;
int check_process_filter(const char *text, struct error *err) _must_check_;
/* *RET_PLAINTEXT: 1 for http:// (plaintext), -1 for https:// (TLS), 0 without a scheme. */
int check_grpc_endpoint(const char *text, int *ret_plaintext, struct error *err) _must_check_;
int check_http_endpoint(const char *text, struct error *err) _must_check_;
int check_header(const char *name, const char *value, struct error *err) _must_check_;
int check_path_template(const char *text, struct error *err) _must_check_;
int parse_address(const char *text, struct http_config *http, struct error *err) _must_check_;
bool is_loopback_host(const char *host); /* an address, or localhost; no other name */
/* Whether LIVE needs no further protection: it listens on loopback only, or requires a token or a
 * client certificate. */
bool is_safe_live(const struct http_config *live);

/* budget.c: "0.5%" and "128MiB". */
int parse_budget_cpu(const char *text, uint32_t *ret, struct error *err) _must_check_;
int parse_budget_memory(const char *text, uint64_t *ret, struct error *err) _must_check_;
/* "cpu=0.5%,memory=128MiB"; what is not named stays. */
int parse_budget(const char *text, struct budget *ret, struct error *err) _must_check_;

extern const char *const folded_profile_names[], *const compression_names[],
						     *const otlp_generation_names[];
