/* SPDX-License-Identifier: Apache-2.0 */
/* kiln-operator: options in, exit code out. Everything between is operator_run(). */
#include "lib/core_dump.h"
#include "lib/log.h"
#include "operator/operator.h"

/*
 * OpenSSL allocates and frees 17 KiB for each TLS record: the thread's cache holds that. Freed
 * memory that does not fit there goes back to the kernel at once (dirty_decay_ms:0): gRPC uses the
 * first page or two of a connection's larger buffers, but pages that another allocation has touched
 * stay resident. When 5,000 streams are cut and reconnect, 1000 ms takes 650 MiB and more each
 * time, 0 ms 550.
 */
extern const char *malloc_conf;
const char *malloc_conf = "narenas:1,tcache_max:32768,dirty_decay_ms:0,muzzy_decay_ms:0";

int main(int argc, char **argv)
{
	struct operator_options options;
	enum options_action action;
	struct error err = {0};
	int no_core = core_dump_forbid(), r = options_parse(argc, argv, &options, &action, &err);

	if (r < 0) {
		fprintf(stderr, "kiln-operator: %s\n", err.message);
		return 2;
	}
	if (action == OPTIONS_CHECK) {
		r = operator_check(&options, &err);
		if (r < 0)
			fprintf(stderr, "kiln-operator: %s\n", err.message);
		return r < 0 ? 1 : 0;
	}
	if (action != OPTIONS_RUN) {
		fputs(action == OPTIONS_SHOW_HELP ? options_help()
						  : "kiln-operator " KILN_VERSION "\n",
		      stdout);
		return fflush(stdout) == 0 ? 0 : 1;
	}
	log_set_level(options.level);
	if (no_core < 0)
		log_warn("operator", "cannot switch core files off: %s", strerror(-no_core));
	r = operator_run(&options, &err);
	if (r < 0)
		fprintf(stderr, "kiln-operator: %s\n", err.message[0] ? err.message : strerror(-r));
	return r == -EINVAL ? 2 : r < 0 ? 1 : 0;
}
