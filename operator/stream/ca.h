/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct stream_ca: the CA of the node stream as the Secret kiln-stream-ca has it, and the rules of
 * its rotation: which step is due at a time. Pure; any thread.
 *
 *	current		signs; in the bundle
 *	next		in the bundle, so that every agent knows it before it signs
 *	old		signed before; in the bundle while a certificate of it may be in use
 */
#pragma once

#include <cjson/cJSON.h>

#include "lib/base.h"
#include "lib/error.h"

#define STREAM_CA_NAME "kiln-stream-ca" /* of the Secret, and of the ConfigMap with the bundle */
#define STREAM_CA_KEY  "ca.crt"

enum { STREAM_CA_LIFE_S = 365 * 86400 };

struct ca_times {
	int64_t life_s;	   /* of a CA; the next one is made when a third of it is left */
	int64_t leaf_s;	   /* of a certificate that it signs */
	int64_t overlap_s; /* of the next CA in the bundle before it signs */
	int64_t poll_s;	   /* between two looks at the Secret */
};
/* For a life of a year: 30 days, 1 h, 1 min. Shorter lives have proportionate parts. */
void ca_times_init(struct ca_times *ret, int64_t life_s);

struct ca_pair {
	char *cert_pem; /* NULL: none */
	char *key_pem;	/* secret; the old one's is not kept */
	int64_t begin, end;
};

struct stream_ca {
	struct ca_pair current, next, old;
	int64_t published; /* since when the next one is in the bundle; 0: it is not */
	int64_t switched;  /* when the old one ceased to sign */
};

enum ca_step {
	CA_KEEP,
	CA_MAKE,    /* make a CA: none can sign */
	CA_ADD,	    /* make the next CA */
	CA_PUBLISH, /* note that the bundle has the next CA */
	CA_SWITCH,  /* sign with the next CA */
	CA_FORGET,  /* drop the old CA */
};
/* The step that is due. IN_BUNDLE: the published bundle is that of CA. */
enum ca_step stream_ca_next(const struct stream_ca *ca, const struct ca_times *times, int64_t now,
			    bool in_bundle);
/* Applies STEP to CA; on failure CA is unchanged. */
int stream_ca_step(struct stream_ca *ca, enum ca_step step, const struct ca_times *times,
		   int64_t now, struct error *err) _must_check_;

/*
 * Reads the valid parts of a Secret. *RET_DAMAGE: 0, or -EINVAL with the cause in ERR: parts are
 * missing, perhaps all. Returns 0 or -ENOMEM.
 */
int stream_ca_parse(const cJSON *secret, struct stream_ca *ret, int *ret_damage,
		    struct error *err) _must_check_;
/* Makes the Secret. VERSION: the resourceVersion that it replaces, NULL to create one. */
int stream_ca_secret(const struct stream_ca *ca, const char *ns, const char *version,
		     cJSON **ret) _must_check_;
/* The certificates of all CAs that agents are to trust. */
int stream_ca_bundle(const struct stream_ca *ca, char **ret) _must_check_;
void stream_ca_done(struct stream_ca *ca);
/* Wipes the data of the Secret, and frees it. */
void stream_ca_secret_free(cJSON *secret);

static inline bool stream_ca_usable(const struct ca_pair *pair, int64_t now)
{
	return pair->cert_pem && pair->key_pem && pair->end > now;
}
