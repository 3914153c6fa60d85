/* SPDX-License-Identifier: Apache-2.0 */
/* Transports are asynchronous, so the request gets an event loop of its own, which is run here. */
#include "agent/export/otlp_probe.h"

#include "agent/export/otlp_exporter.h"

struct probe {
	bool answered, taken;
	char *words;
};

static void on_answer(const struct transport_answer *answer, void *arg)
{
	struct probe *p = arg;
	bool taken = answer->result == TRANSPORT_SENT;

	p->answered = true;
	p->taken = taken;
	snprintf(p->words, OTLP_PROBE_WORDS_MAX, "%s%s%s",
		 taken		? "takes profiles"
		 : answer->away ? "is not reachable"
				: "refuses profiles",
		 answer->message[0] ? ": " : "", answer->message);
}

static void ask(uv_loop_t *loop, const struct exporter_config *config, uint64_t timeout_ms,
		struct probe *p)
{
	static uint8_t nothing[1];
	struct payload empty = {.data = nothing, .encoding = PAYLOAD_PLAIN};
	struct transport *transport = NULL;
	struct error err = {0};
	int r = streq(config->type, "otlp_grpc")
		    ? otlp_grpc_transport_new(config, loop, &transport, &err)
		    : otlp_http_transport_new(config, loop, &transport, &err);

	if (r == 0) {
		r = transport->ops->send(transport, &empty, timeout_ms, on_answer, p);
		while (r == 0 && !p->answered && uv_run(loop, UV_RUN_ONCE))
			;
		transport->ops->destroy(transport);
	}
	if (!p->answered)
		snprintf(p->words, OTLP_PROBE_WORDS_MAX, "cannot be asked: %s",
			 err.message[0] ? err.message : strerror(r ? -r : EIO));
}

bool otlp_probe(const struct exporter_config *config, uint64_t timeout_ms,
		char words[OTLP_PROBE_WORDS_MAX])
{
	struct probe p = {.words = words};
	uv_loop_t loop;

	if (uv_loop_init(&loop) < 0) {
		snprintf(words, OTLP_PROBE_WORDS_MAX, "cannot be asked: no event loop");
		return false;
	}
	ask(&loop, config, timeout_ms, &p);
	/* Handles that the transport has left to the loop close there. */
	uv_run(&loop, UV_RUN_DEFAULT);
	(void)uv_loop_close(&loop);
	return p.taken;
}
