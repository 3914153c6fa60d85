/* SPDX-License-Identifier: Apache-2.0 */
/* The text of --help; docs/configuration.md is its long form. */
#include "agent/config/internal.h"

static const char head[] =
    "kiln-agent [--config FILE] [options]\n"
    "\n"
    "Samples every CPU and exports profiles. Without a file and without a destination "
    "it\n"
    "shows the top functions and writes kiln.pb.gz.\n"
    "\n"
    "What to sample\n"
    "  --samples-per-second N   rate per CPU, 1..1000 (20)\n"
    "  --reporter-interval D    window that is exported at once (5s)\n"
    "  -t, --tracers LIST       all, or some of ";
static const char rest[] =
    "\n"
    "                           (go, native and kernel are always on)\n"
    "  --process-filter RE      only processes whose name matches (POSIX extended)\n"
    "  --pid PID...             only these processes\n"
    "  --probe PROBE            sample each hit of it too; may be repeated:\n"
    "                           uprobe:PATH:FUNCTION  uretprobe:PATH:FUNCTION\n"
    "                           kprobe:FUNCTION  tracepoint:SUBSYSTEM:NAME\n"
    "                           each with ,rate=N: samples a second and CPU (100)\n"
    "  --duration D             profile that long, flush, exit 0\n"
    "  --budget cpu=0.5%,memory=128MiB\n"
    "                           what the agent may cost: a share of all CPUs, and memory;\n"
    "                           at the limit it samples less\n"
    "  --labels KEY,...         labels of programs that are exported beside trace and span id\n"
    "  --timestamps             each sample with its own time\n"
    "  --off-cpu                also profile what threads wait for\n"
    "  --off-cpu-threshold F    0..1: ... with F walks for each ms of waiting (0.02)\n"
    "\n"
    "Where to\n"
    "  --collection-agent HOST:PORT  OTLP over gRPC, with TLS unless:\n"
    "  --disable-tls            plaintext\n"
    "  --stdout                 text, every sample\n"
    "  --pprof-file PATH        for go tool pprof\n"
    "  --folded-file PATH       for flame graph tools\n"
    "  --live [HOST:PORT]       flame graph page (127.0.0.1:7070)\n"
    "  --service-name NAME      service.name of everything\n"
    "  --tags K=V,...           more resource attributes\n"
    "\n"
    "Running\n"
    "  --config FILE            YAML in the Collector's shape; - is standard input\n"
    "  --check                  tell what would run, and whether it can, exit\n"
    "  -v, --verbose            debug log\n"
    "  --feature-gates LIST     accepted, ignored\n"
    "  --version, --help\n"
    "\n"
    "Options take one dash or two, and a value after a space or '='. Flags win over\n"
    "environment variables, those over the file, that over the defaults.\n"
    "Exit codes: 0 done, 1 failed while running, 2 bad configuration or usage,\n"
    "3 the kernel or the privileges do not allow it.\n";

int config_help(const struct tracer *tracers, struct buf *out)
{
	const char *comma = "";

	buf_puts(out, head);
	for (; tracers->name; tracers++, comma = ",")
		buf_printf(out, "%s%s", comma, tracers->name);
	buf_puts(out, rest);
	return buf_error(out);
}
