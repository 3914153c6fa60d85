/* SPDX-License-Identifier: Apache-2.0 */
/* Names with several addresses: which are tried, in which order, and which one wins. */
#include "lib/dial.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/support/test.h"

enum { DEADLINE_MS = 20000, HOLES = 4 };

/* ---- what a name resolves to -------------------------------------------------------------------
 */

static const char *const *addresses; /* of any name; NULL: the resolver says EAI_NONAME */
static unsigned int lookups;
static uv_getaddrinfo_t inner, *outer;
static uv_getaddrinfo_cb outer_done;

int __wrap_uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *req, uv_getaddrinfo_cb cb,
			  const char *node, const char *service, const struct addrinfo *hints);
int __real_uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *req, uv_getaddrinfo_cb cb,
			  const char *node, const char *service, const struct addrinfo *hints);

/* A block for each, as glibc has it. */
static struct addrinfo *make_list(uint16_t port)
{
	struct entry {
		struct addrinfo ai;
		struct sockaddr_storage sa;
	} * e;
	struct addrinfo *list = NULL, **tail = &list;

	for (size_t i = 0; addresses[i]; i++) {
		e = calloc(1, sizeof(*e));
		if (uv_ip4_addr(addresses[i], port, (struct sockaddr_in *)&e->sa) == 0)
			e->ai.ai_addrlen = sizeof(struct sockaddr_in);
		else if (uv_ip6_addr(addresses[i], port, (struct sockaddr_in6 *)&e->sa) == 0)
			e->ai.ai_addrlen = sizeof(struct sockaddr_in6);
		e->ai.ai_family = e->sa.ss_family;
		e->ai.ai_addr = (struct sockaddr *)&e->sa;
		*tail = &e->ai;
		tail = &e->ai.ai_next;
	}
	return list;
}

static uint16_t resolved_port;

static void on_inner(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
	uv_freeaddrinfo(list);
	outer_done(outer, addresses ? 0 : UV_EAI_NONAME,
		   addresses ? make_list(resolved_port) : NULL);
}

int __wrap_uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *req, uv_getaddrinfo_cb cb,
			  const char *node, const char *service, const struct addrinfo *hints)
{
	lookups++;
	resolved_port = (uint16_t)atoi(service);
	outer = req;
	outer_done = cb;
	return __real_uv_getaddrinfo(loop, &inner, on_inner, "127.0.0.1", service, NULL);
}

/* ---- peers -------------------------------------------------------------------------------------
 */

static int listen_at(const char *address, uint16_t port, int backlog, uint16_t *ret_port)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
	struct sockaddr_in to;
	socklen_t len = sizeof(to);

	assert_int_equal(uv_ip4_addr(address, port, &to), 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	assert_int_equal(bind(fd, (struct sockaddr *)&to, len), 0);
	assert_int_equal(listen(fd, backlog), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&to, &len), 0);
	*ret_port = ntohs(to.sin_port);
	return fd;
}

/* A listener whose queue is full, so that it answers no SYN. */
struct hole {
	int fd, fill[HOLES];
};

static void dig(struct hole *h, const char *address, uint16_t port)
{
	struct sockaddr_in to;
	uint16_t same;

	h->fd = listen_at(address, port, 0, &same);
	assert_int_equal(uv_ip4_addr(address, port, &to), 0);
	for (size_t i = 0; i < HOLES; i++) {
		h->fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		(void)connect(h->fill[i], (struct sockaddr *)&to, sizeof(to));
		usleep(20000);
	}
}

static void close_hole(struct hole *h)
{
	for (size_t i = 0; i < HOLES; i++)
		close(h->fill[i]);
	close(h->fd);
}

/* ---- the dial ----------------------------------------------------------------------------------
 */

struct scene {
	uv_loop_t loop;
	uv_timer_t alarm;
	bool timed_out;
	struct dial *dial;
	unsigned int connected, failed;
	char address[256], words[DIAL_WORDS_MAX];
};

static void on_connected(void *arg, int fd, const char *address)
{
	struct scene *s = arg;

	s->connected++;
	snprintf(s->address, sizeof(s->address), "%s", address);
	close(fd);
}

static void on_failed(void *arg, const char *words)
{
	struct scene *s = arg;

	s->failed++;
	snprintf(s->words, sizeof(s->words), "%s", words);
}

static void on_alarm(uv_timer_t *timer)
{
	((struct scene *)timer->data)->timed_out = true;
}

#define UNTIL(s, condition)                                                                        \
	do {                                                                                       \
		uv_update_time(&(s)->loop);                                                        \
		uv_timer_start(&(s)->alarm, on_alarm, DEADLINE_MS, 0);                             \
		while (!(condition) && !(s)->timed_out)                                            \
			uv_run(&(s)->loop, UV_RUN_ONCE);                                           \
		uv_timer_stop(&(s)->alarm);                                                        \
		assert_true(condition);                                                            \
	} while (0)

static void begin(struct scene *s, const char *host, uint16_t port, const char *path)
{
	struct dial_events events = {on_connected, on_failed, s};

	*s = (struct scene){0};
	lookups = 0;
	uv_loop_init(&s->loop);
	uv_timer_init(&s->loop, &s->alarm);
	s->alarm.data = s;
	assert_int_equal(dial_new(&s->loop, host, port, path, &events, &s->dial), 0);
}

static void end(struct scene *s)
{
	dial_free(s->dial);
	uv_close((uv_handle_t *)&s->alarm, NULL);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&s->loop), 0);
}

static void test_an_address_needs_no_resolver(void **state)
{
	struct scene s;
	uint16_t port;
	int fd = listen_at("127.0.0.1", 0, 8, &port);
	char want[64];

	begin(&s, "127.0.0.1", port, NULL);
	assert_int_equal(s.connected + s.failed, 0);
	UNTIL(&s, s.connected);
	assert_int_equal(lookups, 0);
	snprintf(want, sizeof(want), "127.0.0.1:%u", port);
	assert_string_equal(s.address, want);
	end(&s);
	close(fd);
}

static void test_all_that_fails_is_told(void **state)
{
	static const char *const list[] = {"::1",	"fe80::1",   "127.0.0.2",
					   "127.0.0.3", "127.0.0.4", NULL};
	/* Addresses of IPv6 and IPv4 take turns, whether this machine has IPv6 or not. */
	static const char *const order[] = {
	    "[::1]:9: ", "127.0.0.2:9: ", "[fe80::1]:9: ", "127.0.0.3:9: ", "127.0.0.4:9: "};
	const char *at;
	struct scene s;

	addresses = list;
	begin(&s, "name.example", 9, NULL);
	UNTIL(&s, s.failed);
	assert_int_equal(lookups, 1);
	at = s.words;
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		at = strstr(at, order[i]);
		assert_non_null(at);
	}
	end(&s);
}

static void test_a_name_that_nobody_knows(void **state)
{
	struct scene s;

	addresses = NULL;
	begin(&s, "name.example", 9, NULL);
	UNTIL(&s, s.failed);
	assert_true(has_prefix(s.words, "name.example: "));
	assert_int_equal(s.connected, 0);
	end(&s);
}

static void test_the_next_one_need_not_wait_for_one_that_is_silent(void **state)
{
	static const char *const list[] = {"127.0.0.2", "127.0.0.3", NULL};
	struct hole hole;
	struct scene s;
	uint16_t port;
	int fd = listen_at("127.0.0.3", 0, 8, &port);

	dig(&hole, "127.0.0.2", port);
	addresses = list;
	begin(&s, "name.example", port, NULL);
	UNTIL(&s, s.connected);
	assert_true(has_prefix(s.address, "127.0.0.3:"));
	assert_int_equal(s.failed, 0);
	end(&s);
	close_hole(&hole);
	close(fd);
}

/* The addresses that lost the race are tried again, except the winner. */
static void test_when_the_winner_is_of_no_use_the_others_are_tried(void **state)
{
	static const char *const list[] = {"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5",
					   NULL};
	struct hole hole;
	struct scene s;
	uint16_t port, same;
	int third = listen_at("127.0.0.3", 0, 8, &port);
	int fifth = listen_at("127.0.0.5", port, 8, &same);

	dig(&hole, "127.0.0.2", port);
	addresses = list;
	begin(&s, "name.example", port, NULL);
	UNTIL(&s, s.connected == 1);
	assert_true(has_prefix(s.address, "127.0.0.3:"));
	dial_again(s.dial, "the third is broken");
	assert_int_equal(s.connected, 1);
	UNTIL(&s, s.connected == 2);
	assert_true(has_prefix(s.address, "127.0.0.5:"));
	close_hole(&hole);
	dial_again(s.dial, "the fifth is broken");
	UNTIL(&s, s.failed);
	assert_int_equal(s.connected, 2);
	assert_non_null(strstr(s.words, "the third is broken"));
	assert_non_null(strstr(s.words, "127.0.0.4:"));
	assert_non_null(strstr(s.words, "the fifth is broken"));
	assert_non_null(strstr(s.words, "127.0.0.2:"));
	end(&s);
	close(third);
	close(fifth);
}

static void test_more_addresses_than_anybody_has(void **state)
{
	const char *list[DIAL_ADDRESSES_MAX + 2] = {0};
	struct scene s;
	uint16_t port;
	int fd = listen_at("127.0.0.3", 0, 8, &port);

	for (size_t i = 0; i < DIAL_ADDRESSES_MAX; i++)
		list[i] = "127.0.0.2";
	list[DIAL_ADDRESSES_MAX] = "127.0.0.3";
	addresses = list;
	begin(&s, "name.example", port, NULL);
	UNTIL(&s, s.failed); /* the last address is beyond the limit */
	end(&s);
	list[DIAL_ADDRESSES_MAX - 1] = "127.0.0.3";
	begin(&s, "name.example", port, NULL);
	UNTIL(&s, s.connected);
	end(&s);
	close(fd);
}

static void test_freed_in_every_state(void **state)
{
	static const char *const list[] = {"127.0.0.2", NULL};
	struct hole hole;
	struct scene s;
	uint16_t port;
	int fd = listen_at("127.0.0.9", 0, 8, &port);

	close(fd);
	dig(&hole, "127.0.0.2", port);
	addresses = list;
	for (unsigned int rounds = 0; rounds < 8; rounds++) {
		begin(&s, rounds % 2 ? "name.example" : "127.0.0.2", port, NULL);
		for (unsigned int i = 0; i < rounds; i++)
			uv_run(&s.loop, UV_RUN_NOWAIT);
		end(&s);
		assert_int_equal(s.connected + s.failed, 0);
	}
	close_hole(&hole);
}

static void test_a_unix_socket(void **state)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	char dir[] = "/tmp/kiln-test-dial-XXXXXX";
	struct scene s;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_non_null(mkdtemp(dir));
	snprintf(to.sun_path, sizeof(to.sun_path), "%s/s", dir);
	begin(&s, NULL, 0, to.sun_path);
	UNTIL(&s, s.failed);
	assert_non_null(strstr(s.words, "/s: No such file"));
	end(&s);
	assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(listen(fd, 8), 0);
	begin(&s, NULL, 0, to.sun_path);
	UNTIL(&s, s.connected);
	assert_string_equal(s.address, to.sun_path);
	end(&s);
	close(fd);
	unlink(to.sun_path);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_an_address_needs_no_resolver),
	    cmocka_unit_test(test_all_that_fails_is_told),
	    cmocka_unit_test(test_a_name_that_nobody_knows),
	    cmocka_unit_test(test_the_next_one_need_not_wait_for_one_that_is_silent),
	    cmocka_unit_test(test_when_the_winner_is_of_no_use_the_others_are_tried),
	    cmocka_unit_test(test_more_addresses_than_anybody_has),
	    cmocka_unit_test(test_freed_in_every_state),
	    cmocka_unit_test(test_a_unix_socket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
