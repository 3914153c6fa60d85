/* SPDX-License-Identifier: Apache-2.0 */
/* Flags override the environment, which overrides defaults. getopt_long() parses the syntax. */
#include "operator/options.h"

#include <getopt.h>

#define IMAGE_DEFAULT "kiln-agent:" KILN_VERSION

enum {
	OPT_ROLE = 256,
	OPT_NAMESPACE,
	OPT_IMAGE,
	OPT_KUBECONFIG,
	OPT_CONTEXT,
	OPT_HEALTH,
	OPT_METRICS,
	OPT_STREAM,
	OPT_STREAM_CERT,
	OPT_STREAM_KEY,
	OPT_STREAM_CA,
	OPT_STREAM_CA_LIFE,
	OPT_PEERS,
	OPT_PEERS_TOKEN,
	OPT_LEADER,
	OPT_LEVEL,
	OPT_CHECK,
	OPT_VERSION,
	OPT_HELP
};

enum { LIFE_MIN = 24, LIFE_MAX = 1000000000 };

/* In the order of their numbers. */
static const struct option options[] = {
    {"role", required_argument, NULL, OPT_ROLE},
    {"namespace", required_argument, NULL, OPT_NAMESPACE},
    {"agent-image", required_argument, NULL, OPT_IMAGE},
    {"kubeconfig", required_argument, NULL, OPT_KUBECONFIG},
    {"context", required_argument, NULL, OPT_CONTEXT},
    {"health-address", required_argument, NULL, OPT_HEALTH},
    {"metrics-address", required_argument, NULL, OPT_METRICS},
    {"stream-address", required_argument, NULL, OPT_STREAM},
    {"stream-cert", required_argument, NULL, OPT_STREAM_CERT},
    {"stream-key", required_argument, NULL, OPT_STREAM_KEY},
    {"stream-ca", required_argument, NULL, OPT_STREAM_CA},
    {"stream-ca-life", required_argument, NULL, OPT_STREAM_CA_LIFE},
    {"stream-peers", required_argument, NULL, OPT_PEERS},
    {"stream-token", required_argument, NULL, OPT_PEERS_TOKEN},
    {"leader-elect", required_argument, NULL, OPT_LEADER},
    {"log-level", required_argument, NULL, OPT_LEVEL},
    {"check", no_argument, NULL, OPT_CHECK},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, OPT_HELP},
    {},
};

static const char *const roles[] = {
    [ROLE_ALL] = "all", [ROLE_STREAM] = "stream", [ROLE_CONTROLLER] = "controller"};
static const char *const levels[] = {"debug", "info", "warn", "error"};

const char *options_help(void)
{
	return "kiln-operator: runs Kiln's agents in a Kubernetes cluster as ProfilingConfigs say\n"
	       "\n"
	       "  --role ROLE               stream: serves agents, controller: writes what runs, "
	       "all: "
	       "both (all)\n"
	       "  --namespace NS            where it and the agents live ($POD_NAMESPACE)\n"
	       "  --agent-image IMAGE       the agents' image, unless the config names one "
	       "($KILN_AGENT_IMAGE)\n"
	       "  --kubeconfig FILE         instead of the pod's service account ($KUBECONFIG)\n"
	       "  --context NAME            of the kubeconfig\n"
	       "  --health-address ADDRESS  /healthz and /readyz (:8081)\n"
	       "  --metrics-address ADDRESS /metrics (:8080)\n"
	       "  --stream-address ADDRESS  where agents learn of their pods, over TLS (nowhere)\n"
	       "  --stream-cert FILE        its certificate (of a CA in Secret kiln-stream-ca)\n"
	       "  --stream-key FILE         and key\n"
	       "  --stream-ca FILE          what agents check it with\n"
	       "  --stream-ca-life SECONDS  of that CA, 24 or more; all its times follow (a year)\n"
	       "  --stream-peers ADDRESSES  HOST:PORT,... of role stream, for agents' reports\n"
	       "  --stream-token FILE       sent to them: of audience kiln.dev/node-stream\n"
	       "  --leader-elect BOOL       only one of several replicas writes (true)\n"
	       "  --log-level LEVEL         debug, info, warn, error (info)\n"
	       "  --check                   read flags, credentials and certificates, and end\n"
	       "  --version, --help\n"
	       "\n"
	       "Exit codes: 0 ended by a signal, or --check found nothing wrong, 1 failed,\n"
	       "lost the lead (start it again) or --check found something, 2 wrong usage.\n";
}

static int parse_address(const char *name, const char *text, struct host_port *ret,
			 struct error *err)
{
	if (parse_host_port(text, ret) < 0)
		return error_set(err, -EINVAL, "--%s: want HOST:PORT or :PORT, got \"%.64s\"", name,
				 text);
	return 0;
}

static int parse_level(const char *text, enum log_level *ret, struct error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
		if (streq(text, levels[i])) {
			*ret = (enum log_level)i;
			return 0;
		}
	return error_set(err, -EINVAL,
			 "--log-level: want debug, info, warn or error, got \"%.32s\"", text);
}

static int parse_role(const char *text, enum operator_role *ret, struct error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(roles); i++)
		if (streq(text, roles[i])) {
			*ret = (enum operator_role)i;
			return 0;
		}
	return error_set(err, -EINVAL, "--role: want all, stream or controller, got \"%.32s\"",
			 text);
}

static int parse_text(int opt, const char *text, const char **ret, struct error *err)
{
	if (!text[0])
		return error_set(err, -EINVAL, "--%s: want a value, got \"\"",
				 options[opt - OPT_ROLE].name);
	*ret = text;
	return 0;
}

/* A DNS label: it goes into paths. */
static int parse_namespace(const char *text, const char **ret, struct error *err)
{
	size_t n = strlen(text);

	if (n < 1 || n > 63 || text[0] == '-' || text[n - 1] == '-' ||
	    strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") != n)
		return error_set(err, -EINVAL,
				 "--namespace: want a namespace's name, got \"%.64s\"", text);
	*ret = text;
	return 0;
}

static int parse_life(const char *text, int64_t *ret, struct error *err)
{
	int64_t seconds;

	if (parse_i64(text, &seconds) < 0 || seconds < LIFE_MIN || seconds > LIFE_MAX)
		return error_set(err, -EINVAL, "--stream-ca-life: want %d to %d, got \"%.32s\"",
				 LIFE_MIN, LIFE_MAX, text);
	*ret = seconds;
	return 0;
}

static int refuse_option(char *const *argv, struct error *err)
{
	if (optopt >= OPT_ROLE)
		return error_set(err, -EINVAL, "--%s: takes no value",
				 options[optopt - OPT_ROLE].name);
	if (optopt)
		return error_set(err, -EINVAL, "-%c: unknown option; see --help", optopt);
	return error_set(err, -EINVAL, "%.64s: unknown option; see --help", argv[optind - 1]);
}

static int take_option(int opt, const char *value, struct operator_options *o,
		       enum options_action *action, struct error *err)
{
	struct host_port ignored;

	switch (opt) {
	case OPT_ROLE:
		return parse_role(value, &o->role, err);
	case OPT_NAMESPACE:
		return parse_namespace(value, &o->ns, err);
	case OPT_IMAGE:
		return parse_text(opt, value, &o->agent_image, err);
	case OPT_KUBECONFIG:
		return parse_text(opt, value, &o->kubeconfig, err);
	case OPT_CONTEXT:
		return parse_text(opt, value, &o->context, err);
	case OPT_HEALTH:
		return parse_address("health-address", value, &o->health, err);
	case OPT_METRICS:
		return parse_address("metrics-address", value, &o->metrics, err);
	case OPT_STREAM:
		o->stream.address = value;
		return parse_address("stream-address", value, &ignored, err);
	case OPT_STREAM_CERT:
		return parse_text(opt, value, &o->stream.cert_file, err);
	case OPT_STREAM_KEY:
		return parse_text(opt, value, &o->stream.key_file, err);
	case OPT_STREAM_CA:
		return parse_text(opt, value, &o->stream.ca_file, err);
	case OPT_STREAM_CA_LIFE:
		return parse_life(value, &o->stream.ca_life_s, err);
	case OPT_PEERS:
		return parse_text(opt, value, &o->peers, err);
	case OPT_PEERS_TOKEN:
		return parse_text(opt, value, &o->peers_token, err);
	case OPT_LEADER:
		if (parse_bool(value, &o->leader_elect) < 0)
			return error_set(err, -EINVAL,
					 "--leader-elect: want true or false, got \"%.32s\"",
					 value);
		return 0;
	case OPT_LEVEL:
		return parse_level(value, &o->level, err);
	case OPT_CHECK:
		if (*action == OPTIONS_RUN)
			*action = OPTIONS_CHECK;
		return 0;
	case OPT_VERSION:
		*action = OPTIONS_SHOW_VERSION;
		return 0;
	case OPT_HELP:
		*action = OPTIONS_SHOW_HELP;
		return 0;
	default:
		return error_set(err, -EINVAL, "unknown option");
	}
}

static const char *env_or(const char *name, const char *otherwise)
{
	const char *value = getenv(name);

	return value && value[0] ? value : otherwise;
}

/* Checks the options against each other. */
static int check_options(const struct operator_options *o, bool of_controller, struct error *err)
{
	if (o->role == ROLE_STREAM && of_controller)
		return error_set(err, -EINVAL,
				 "--role=stream: --agent-image and --leader-elect are for "
				 "--role=controller: this role writes nothing");
	if (!o->stream.cert_file != !o->stream.key_file)
		return error_set(err, -EINVAL, "--stream-cert, --stream-key: want both or none");
	if (o->stream.ca_file && !o->stream.cert_file && o->role != ROLE_CONTROLLER)
		return error_set(err, -EINVAL,
				 "--stream-ca: want --stream-cert, which it is the CA of");
	if (o->role == ROLE_STREAM && !o->stream.address)
		return error_set(err, -EINVAL,
				 "--role=stream: want --stream-address, where agents come");
	if (o->role == ROLE_CONTROLLER && (o->stream.address || o->stream.cert_file))
		return error_set(err, -EINVAL,
				 "--role=controller: serves no agents, so that --stream-address "
				 "and --stream-cert are for --role=stream alone");
	if (o->role == ROLE_STREAM && (o->peers || o->peers_token))
		return error_set(err, -EINVAL,
				 "--role=stream: --stream-peers and --stream-token are for "
				 "--role=controller, which asks this role for reports");
	if (!o->peers != !o->peers_token)
		return error_set(err, -EINVAL, "--stream-peers, --stream-token: want both or none");
	if (o->role == ROLE_CONTROLLER && !o->peers)
		return error_set(err, -EINVAL,
				 "--role=controller: want --stream-peers, the replicas of role "
				 "stream, and --stream-token");
	return 0;
}

int options_parse(int argc, char *const *argv, struct operator_options *ret,
		  enum options_action *ret_action, struct error *err)
{
	struct operator_options o = {.ns = env_or("POD_NAMESPACE", NULL),
				     .pod_name = env_or("POD_NAME", NULL),
				     .agent_image = env_or("KILN_AGENT_IMAGE", IMAGE_DEFAULT),
				     .health = {.port = 8081},
				     .metrics = {.port = 8080},
				     .leader_elect = true,
				     .level = LOG_INFO};
	enum options_action action = OPTIONS_RUN;
	bool of_controller = false;
	int opt, r;

	optind = 1;
	opterr = 0;
	while ((opt = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (opt == '?')
			return refuse_option(argv, err);
		if (opt == ':')
			return error_set(err, -EINVAL, "%.64s: wants a value", argv[optind - 1]);
		of_controller |= opt == OPT_IMAGE || opt == OPT_LEADER;
		r = take_option(opt, optarg, &o, &action, err);
		if (r < 0)
			return r;
	}
	if (optind < argc)
		return error_set(err, -EINVAL, "%.64s: unexpected argument; see --help",
				 argv[optind]);
	r = check_options(&o, of_controller, err);
	if (r < 0)
		return r;
	*ret = o;
	*ret_action = action;
	return 0;
}
