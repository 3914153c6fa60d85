/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's effective settings: defaults <- file <- environment <- flags (docs/configuration.md).
 * Made once at start, read-only afterwards. All strings are owned by the struct config.
 */
#pragma once

#include "lib/base.h"
#include "lib/buf.h"
#include "lib/error.h"
#include "lib/log.h"
#include "lib/probe_spec.h"

enum {
	CONFIG_FILE_MAX = 1 << 20, /* bytes */
	CONFIG_COMPONENTS_MAX = 64,
	CONFIG_LIST_MAX = 256,
	CONFIG_HEADERS_MAX = 64,
	CONFIG_RUNTIMES_MAX = 32,
};

struct config_pair {
	char *key, *value;
};

struct config_pairs {
	struct config_pair *items;
	size_t n;
};

struct config_strings {
	char **items;
	size_t n;
};

/* What `tracers` can name. */
struct tracer {
	const char *name;
	const char *api_name; /* in ProfilingConfig and ProfilingNode */
	/*
	 * The runtime whose frames the tracer enables, 1..31; masks of tracers have bit 1 << id for
	 * it. 0: part of the native walk, which is always done.
	 */
	uint32_t id;
	bool walked; /* false: known by name only, this version does not walk its stacks */
};

#define TRACERS_ALL UINT32_MAX

/* The settings of one runtime: receivers.profiling.NAME. */
struct runtime_config {
	bool native_frames; /* show the frames of the interpreter's own file; default true */
};

/* Limits of the agent's own CPU time and memory. */
struct budget {
	uint32_t cpu;	       /* millionths of all CPUs, 100..1000000; 0: no limit */
	uint64_t memory_bytes; /* 16 MiB..64 GiB; 0: derived from the machine's memory */
};

/* receivers: profiling (and customprofilesreceiver for the window) */
#define OFF_CPU_THRESHOLD 0.02 /* of --off-cpu: one walk for each 50 ms of waiting */
struct receiver_config {
	uint32_t samples_per_second;   /* 1..1000, default 20 */
	uint32_t tracers;	       /* a bit for each runtime; default TRACERS_ALL */
	uint32_t named_tracers;	       /* those that `tracers` or --tracers names */
	uint64_t reporter_interval_ms; /* default 5000 */
	uint32_t max_stack_depth;      /* user frames, 1..1024, default 1024 */
	uint32_t unwind_table_mib;     /* room for unwind tables, 4..1024, default 512 */
	struct budget budget;
	/* 0..1: stacks walked for each ms of waiting; 0: off-CPU time is not sampled */
	double off_cpu_threshold;
	char *process_filter; /* POSIX extended regular expression on the name; NULL: all */
	bool timestamps;
	struct config_strings labels; /* keys that may be exported, beside trace and span id */
	struct runtime_config runtimes[CONFIG_RUNTIMES_MAX]; /* by struct tracer's id */
	uint32_t *pids;					     /* --pid; NULL: all */
	size_t n_pids;
	struct probe_spec *probes; /* PROBE_COUNT_MAX at most, no two of one name */
	size_t n_probes;
};

struct tls_config {
	bool insecure; /* plaintext */
	bool insecure_skip_verify;
	char *ca_file, *cert_file, *key_file, *server_name_override; /* NULL: not given */
	char *min_version;
};

struct retry_config {
	bool enabled;		      /* default true */
	uint64_t initial_interval_ms; /* default 5000 */
	double multiplier;	      /* default 1.5 */
	double randomization_factor;  /* default 0.5 */
	uint64_t max_interval_ms;     /* default 30000 */
	uint64_t max_elapsed_time_ms; /* default 300000; 0: forever */
};

struct queue_config {
	bool enabled;		    /* default true */
	uint32_t queue_size;	    /* requests, default 1000 */
	uint32_t num_consumers;	    /* not used: an exporter sends one request at a time */
	uint64_t max_bytes;	    /* encoded bytes held in memory, default 64 MiB */
	char *storage;		    /* directory of the disk spool; NULL: memory only */
	uint64_t storage_max_bytes; /* default 1 GiB */
};

/* One component of `exporters`. Fields that its type does not have keep their defaults. */
struct exporter_config {
	char *type; /* canonical: "otlp_grpc" for otlp and otlp_grpc, ... */
	char *id;   /* as written: "otlp/backend" */
	/* otlp_grpc, otlp_http */
	char *endpoint;		 /* as written; host:port or URL */
	char *profiles_endpoint; /* otlp_http: full URL, wins over endpoint; NULL: not given */
	struct tls_config tls;
	struct config_pairs headers; /* values may be secret: never logged */
	/* A header's value or a TLS file is missing, and the configured operator can send the
	 * destination: nothing is sent until it has. */
	bool awaits_operator;
	char *compression;   /* "gzip" (default), "zstd", "none" */
	uint64_t timeout_ms; /* default 5000 (grpc), 30000 (http) */
	struct retry_config retry;
	struct queue_config queue;
	char *proto_generation; /* default "auto" */
	/* customprofilesexporter */
	bool export_resource_attributes, export_profile_attributes, export_sample_attributes,
	    export_stack_frames, export_function_file, ignore_profiles_without_container_id;
	struct config_strings export_stack_frame_types; /* empty: all */
	struct config_strings export_sample_types;	/* empty: all */
	char *output;					/* NULL: standard output */
	/* pprof_file, folded_file */
	char *path;	      /* may hold %s = start time; rewritten whole at each rotation */
	char *profile;	      /* folded_file: "cpu", "off_cpu", "wall"; NULL: "cpu" */
	uint64_t rotation_ms; /* 0: one file for the whole run, written at the end */
	/* top (embedded default): rows shown */
	uint32_t top_rows;
};

struct attr_action {		    /* resource processor */
	char *key, *value, *action; /* insert, update, upsert, delete */
};

/* k8sattributes' `operator`: where metadata and policies of pods come from. */
struct operator_config {
	bool enabled;
	char *endpoint;	     /* HOST:PORT; NULL: only what snapshot_file has */
	char *ca_file;	     /* CA of the operator's certificate; read again for each connection */
	char *token_file;    /* ServiceAccount token; read again for each connection */
	char *snapshot_file; /* last known good state; NULL: none is kept */
	char *server_name;   /* name in the operator's certificate; NULL: the endpoint's host */
	/* when_unknown is "default": export samples whose policy the operator has not sent. */
	bool export_untold;
};

/* The settings of all processors of the pipeline together. */
struct processors_config {
	struct config_pairs add_attributes; /* customprofilesexporter used as a processor */
	struct attr_action *resource;
	size_t n_resource;
	bool k8sattributes;
	struct config_strings k8s_metadata; /* extract.metadata */
	bool extracts;			    /* extract.labels or extract.annotations name some */
	struct operator_config node_stream;
	uint64_t memory_limit_bytes, memory_spike_bytes; /* 0: none */
};

struct http_config { /* extensions that listen */
	bool enabled;
	char *host; /* "" = all addresses */
	uint16_t port;
	char *path; /* health_check */
	/* live; NULL: none. Without a token and a client CA only loopback addresses are allowed. */
	char *token_file, *cert_file, *key_file, *client_ca_file;
};

struct config {
	const struct tracer *known_tracers; /* as given to config_load() */
	struct receiver_config receiver;
	struct processors_config processors;
	struct exporter_config *exporters; /* in pipeline order */
	size_t n_exporters;
	struct http_config pprof;		 /* default :1777 */
	struct http_config health_check;	 /* default localhost:13133 */
	struct http_config live;		 /* default 127.0.0.1:7070 */
	struct config_pairs resource_attributes; /* --tags, OTEL_RESOURCE_ATTRIBUTES */
	char *service_name;   /* --service-name, OTEL_SERVICE_NAME; NULL: not given */
	char *node_name;      /* NODE_NAME, KUBERNETES_NODE_NAME; NULL: not given */
	uint64_t duration_ms; /* --duration; 0: until a signal */
	bool check;
	bool verbose; /* wins over log_level */
	enum log_level log_level;
	bool embedded;	    /* no configuration was given: the built-in pipeline */
	uint64_t file_hash; /* hash_bytes() of the file as it was read; 0: there was none */
};
/* Frees everything; takes NULL. */
struct config *config_free(struct config *c);
DEFINE_CLEANUP(struct config *, config_free)

/* Everything that a command line gives. Environment is passed in so that tests need none. */
enum config_action { CONFIG_RUN, CONFIG_SHOW_HELP, CONFIG_SHOW_VERSION };
/*
 * Reads flags, environment, and file. TRACERS are the names that `tracers` and `interpreters`
 * accept, up to an entry without a name; they must outlive the configuration. On a mistake -EINVAL
 * and one line that names place and cause. *RET_ACTION says what to do. Warnings (known keys that
 * do not apply) are logged.
 */
int config_load(int argc, char *const *argv, const char *const *envp, const struct tracer *tracers,
		struct config **ret, enum config_action *ret_action,
		struct error *err) _must_check_;
/* The text of --help. */
int config_help(const struct tracer *tracers, struct buf *out);
