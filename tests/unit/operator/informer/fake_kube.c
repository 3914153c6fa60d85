/* SPDX-License-Identifier: Apache-2.0 */
/* Calls are on one list in the order in which they were made; nothing happens by itself. */
#include "tests/unit/operator/informer/fake_kube.h"

#include <utlist.h>

#include "tests/support/test.h"

struct kube_call *fake_calls;
int fake_refuse;

static void free_call(struct kube_call *call)
{
	free(call->method);
	free(call->path);
	free(call->accept);
	free(call->body);
	free(call);
}

static bool copy(const void *data, size_t len, char **ret)
{
	*ret = data ? calloc(1, len + 1) : NULL;
	if (*ret)
		memcpy(*ret, data, len);
	return !data || *ret;
}

int kube_call(struct kube_client *client, const struct kube_request *request,
	      struct kube_call **ret)
{
	struct kube_call *call;

	if (fake_refuse < 0)
		return fake_refuse;
	call = calloc(1, sizeof(*call));
	if (!call)
		return -ENOMEM;
	call->request = *request;
	if (!copy(request->method, strlen(request->method), &call->method) ||
	    !copy(request->path, strlen(request->path), &call->path) ||
	    !copy(request->accept, request->accept ? strlen(request->accept) : 0, &call->accept) ||
	    !copy(request->body, request->len, &call->body)) {
		free_call(call);
		return -ENOMEM;
	}
	call->request.method = call->request.path = call->request.accept = NULL;
	call->request.body = NULL;
	LL_APPEND(fake_calls, call);
	*ret = call;
	return 0;
}

void kube_cancel(struct kube_call *call)
{
	assert_false(call->over);
	call->over = call->cancelled = true;
}

unsigned int fake_count(void)
{
	const struct kube_call *call;
	unsigned int n;

	LL_COUNT(fake_calls, call, n);
	return n;
}

struct kube_call *fake_live(void)
{
	struct kube_call *call = fake_calls;

	while (call && call->next)
		call = call->next;
	assert_non_null(call);
	assert_false(call->over);
	return call;
}

bool fake_idle(void)
{
	const struct kube_call *call;

	LL_FOREACH (fake_calls, call) {
		if (!call->over)
			return false;
	}
	return true;
}

void fake_answer_with(struct kube_call *call, const struct kube_answer *answer)
{
	assert_false(call->over);
	call->over = true;
	call->request.done(call->request.arg, answer);
}

void fake_answer(struct kube_call *call, int status, const char *body)
{
	const struct kube_answer answer = {
	    .status = status,
	    .message = status >= 200 && status < 300 ? "" : "made up",
	    .reason = "",
	    .content_type = "application/json",
	    .body = (const uint8_t *)body,
	    .len = body ? strlen(body) : 0,
	};

	fake_answer_with(call, &answer);
}

int fake_data(struct kube_call *call, const void *bytes, size_t len)
{
	struct kube_answer answer = {
	    .message = "the receiver refused", .reason = "", .content_type = ""};
	int r;

	assert_false(call->over);
	r = call->request.data(call->request.arg, "application/json", bytes, len);
	if (r < 0 && !call->over)
		fake_answer_with(call, &answer);
	return r;
}

void fake_reset(void)
{
	struct kube_call *call, *next;

	LL_FOREACH_SAFE (fake_calls, call, next)
		free_call(call);
	fake_calls = NULL;
	fake_refuse = 0;
}
