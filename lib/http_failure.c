/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that speaks TLS to a port of plain text, or plain text to a port of TLS, gets an error
 * from curl that names neither. The codes and texts below are those of curl 7.88 over OpenSSL 3,
 * seen with servers that answer in the other protocol, close the connection or reset it.
 */
#include "lib/http_failure.h"

static const char closed_in_handshake[] = "the peer closed the connection during the TLS "
					  "handshake: it may speak plain text (use http://)";
static const char closed_unanswered[] =
    "the peer closed the connection before any answer: it may want TLS (use https://)";

static const struct {
	bool tls, guess; /* guess: not used for a URL that has answered before */
	CURLcode code;
	const char *part; /* of curl's text */
	const char *words;
} rows[] = {
    {true, false, CURLE_SSL_CONNECT_ERROR, "wrong version number",
     "the port speaks plain text, not TLS (use http://)"},
    {true, true, CURLE_SSL_CONNECT_ERROR, "SSL_ERROR_SYSCALL", closed_in_handshake},
    {true, true, CURLE_SSL_CONNECT_ERROR, "unexpected eof", closed_in_handshake},
    {true, true, CURLE_SSL_CONNECT_ERROR, "reset by peer", closed_in_handshake},
    /* curl takes each answer that does not begin with "HTTP/" for HTTP/0.9. */
    {false, false, CURLE_UNSUPPORTED_PROTOCOL, "HTTP/0.9",
     "the answer is not HTTP/1: the port may speak TLS (use https://) or gRPC (otlp_grpc)"},
    {false, true, CURLE_GOT_NOTHING, "", closed_unanswered},
    {false, true, CURLE_RECV_ERROR, "", closed_unanswered},
    {false, true, CURLE_SEND_ERROR, "", closed_unanswered},
};

const char *http_failure_words(const struct http_failure *f)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].tls == f->tls && rows[i].code == f->code &&
		    !(rows[i].guess && f->answered) && strstr(f->said, rows[i].part))
			return rows[i].words;
	return f->said;
}
