/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. */
#include "tests/support/grpc_scene.h"

const char *const scene_good[] = {SCENE_GRPC, NULL};
const char *const scene_ok[] = {"grpc-status", "0", NULL};

void scene_done(const struct grpc_answer *a, void *arg)
{
	struct scene *s = arg;

	s->done++;
	s->status = a->status;
	s->connected = a->connected;
	snprintf(s->words, sizeof(s->words), "%s", a->message);
	free(s->body);
	s->body = a->body_len ? malloc(a->body_len) : NULL;
	if (s->body)
		memcpy(s->body, a->body, a->body_len);
	s->body_len = a->body_len;
	s->details_len = a->details_len;
	s->has_details = a->details != NULL;
	if (a->details)
		memcpy(s->details, a->details, MIN(a->details_len, sizeof(s->details)));
}

void scene_begin(struct scene *s, const struct grpc_client_options *options)
{
	struct grpc_client_options o = *options;
	struct error err = {0};

	*s = (struct scene){0};
	h2_peer_start(&s->p);
	o.endpoint = s->p.endpoint;
	o.tls.insecure = true;
	if (grpc_client_new(&o, &s->p.loop, &s->client, &err) < 0)
		fail_msg("%s", err.message);
}

void scene_call(struct scene *s, const void *data, size_t len, uint64_t timeout_ms)
{
	assert_int_equal(grpc_client_call(s->client, SCENE_METHOD, data, len, false, timeout_ms,
					  scene_done, s, &s->call),
			 0);
}

void scene_begin_call(struct scene *s)
{
	scene_begin(s, &(struct grpc_client_options){0});
	scene_call(s, "abc", 3, 60000);
	UNTIL(&s->p, s->p.n == 1);
	h2_peer_greet(&s->p, 0);
	UNTIL(&s->p, h2_peer_heard(&s->p, 0, H2_DATA, H2_END_STREAM, NULL) == 1);
}

void scene_answer(struct scene *s, size_t i, uint32_t id)
{
	static const char *const fields[] = {SCENE_GRPC, "grpc-status", "0", NULL};

	h2_peer_headers(&s->p, i, H2_END_STREAM, id, fields);
}

void scene_end(struct scene *s)
{
	s->client = grpc_client_free(s->client);
	h2_peer_stop(&s->p);
	free(s->body);
}
