// SPDX-License-Identifier: Apache-2.0
/*
 * Reads strings of a Perl process: names of symbols, packages and files. All memory is foreign:
 * types are checked, lengths are capped, and the results are valid UTF-8. Loop thread.
 */
#include "agent/runtime/perl/perl.h"

#include "agent/profile/strings.h"

enum {
	HV_MAX_MAX = 1 << 28,
	CHUNK = 64,
};

static void put(struct perl_text *t, const void *bytes, size_t n)
{
	memcpy(t->at, bytes, n);
	t->at += n;
	t->left -= n;
}

void perl_text_bytes(struct perl_text *t, const uint8_t *bytes, size_t len, bool utf8)
{
	while (len && *bytes) {
		size_t n = utf8 || *bytes < 0x80 ? utf8_len((const char *)bytes, len) : 0;
		const uint8_t latin[] = {0xc0 | *bytes >> 6, 0x80 | (*bytes & 0x3f)};

		if (t->left < MAX(n, sizeof(latin)) + 1)
			return;
		if (n)
			put(t, bytes, n);
		else
			put(t, latin, sizeof(latin));
		n = MAX(n, 1);
		bytes += n;
		len -= n;
	}
}

void perl_text_add(struct perl_text *t, const char *s)
{
	perl_text_bytes(t, (const uint8_t *)s, strlen(s), true);
}

const char *perl_text_end(struct perl_text *t, char *start)
{
	if (!t->left)
		return "";
	*t->at++ = '\0';
	t->left--;
	return start;
}

int perl_hek(const struct target_memory *m, uint64_t address, struct perl_text *t, const char **ret)
{
	uint8_t bytes[PERL_NAME_MAX], flags = 0;
	char *start = t->at;
	uint32_t len;
	int r;

	if (!address)
		return -EFAULT;
	r = target_read(m, address + PERL_HEK_LENGTH, &len, sizeof(len));
	if (r < 0)
		return r;
	if (len > INT32_MAX)
		return -EFAULT;
	r = target_read(m, address + PERL_HEK_KEY + len + 1, &flags, 1);
	if (r < 0)
		return r;
	len = MIN(len, PERL_NAME_MAX);
	r = target_read(m, address + PERL_HEK_KEY, bytes, len);
	if (r < 0)
		return r;
	perl_text_bytes(t, bytes, len, flags & PERL_HEK_UTF8);
	*ret = perl_text_end(t, start);
	return 0;
}

int perl_read_sv(const struct target_memory *m, uint64_t address, uint32_t type, uint64_t *ret_body,
		 struct perl_sv *ret)
{
	uint8_t head[24];
	struct perl_sv sv;
	int r = address ? target_read(m, address, head, sizeof(head)) : -EFAULT;

	if (r < 0)
		return r;
	memcpy(&sv.flags, head + PERL_SV_FLAGS, sizeof(sv.flags));
	memcpy(&sv.u, head + PERL_SV_U, sizeof(sv.u));
	if ((sv.flags & PERL_SV_TYPE_MASK) != type)
		return -EFAULT;
	memcpy(ret_body, head + PERL_SV_ANY, sizeof(*ret_body));
	if (ret)
		*ret = sv;
	return 0;
}

int perl_stash_name(const struct perl_layout *l, const struct target_memory *m, uint64_t address,
		    struct perl_text *t, const char **ret)
{
	uint64_t body, aux, name, max;
	struct perl_sv sv;
	uint32_t count;
	int r = perl_read_sv(m, address, PERL_SVT_PVHV, &body, &sv);

	if (r < 0)
		return r;
	if (!(sv.flags & PERL_HV_HAS_AUX))
		return -EFAULT;
	aux = body + l->stash_aux;
	if (!l->stash_aux) {
		r = perl_read_word(m, body + PERL_HV_MAX, &max);
		if (r < 0)
			return r;
		if (max > HV_MAX_MAX)
			return -EFAULT;
		aux = sv.u + (max + 1) * 8;
	}
	r = perl_read_word(m, aux + PERL_AUX_NAME, &name);
	if (r == 0)
		r = target_read(m, aux + PERL_AUX_NAME_COUNT, &count, sizeof(count));
	/* With a count, `name` is an array of several names; the first one is used. */
	if (r == 0 && count)
		r = perl_read_word(m, name, &name);
	return r < 0 ? r : perl_hek(m, name, t, ret);
}

int perl_gv_name(const struct perl_layout *l, const struct target_memory *m, uint64_t address,
		 struct perl_text *t, const char **ret_package, const char **ret)
{
	uint64_t body, egv, egv_body, stash, name;
	struct perl_sv sv;
	int r = perl_read_sv(m, address, PERL_SVT_PVGV, &body, &sv);

	if (r < 0)
		return r;
	/* Use the effective GV of those that share a gp (gv_efullname4() of gv.c). */
	if (sv.u && perl_read_word(m, sv.u + PERL_GP_EGV, &egv) == 0 && egv && egv != address &&
	    perl_read_sv(m, egv, PERL_SVT_PVGV, &egv_body, NULL) == 0)
		body = egv_body;
	r = perl_read_word(m, body + PERL_GV_NAME, &name);
	if (r == 0)
		r = perl_read_word(m, body + PERL_GV_STASH, &stash);
	if (r < 0)
		return r;
	/* Perl's own name for the package of a GV whose package was deleted. */
	if (!stash || perl_stash_name(l, m, stash, t, ret_package) < 0)
		*ret_package = "__ANON__";
	return perl_hek(m, name, t, ret);
}

int perl_gv_file(const struct target_memory *m, uint64_t address, uint64_t *ret)
{
	uint64_t body, name;
	int r = perl_read_sv(m, address, PERL_SVT_PVGV, &body, NULL);

	if (r == 0)
		r = perl_read_word(m, body + PERL_GV_NAME, &name);
	if (r == 0)
		*ret = name + PERL_HEK_KEY + 2;
	return r;
}

int perl_c_string(const struct target_memory *m, uint64_t address, struct perl_text *t,
		  uint64_t *ret_cookie)
{
	uint64_t words[KILN_PERL_NAME_WORDS] = {0};
	uint8_t bytes[PERL_PATH_MAX];
	size_t len = 0, part;
	int r;

	/* Read up to the NUL, in pieces that do not cross the end of a page. */
	do {
		part = MIN(CHUNK - (address + len) % CHUNK, sizeof(bytes) - len);
		r = target_read(m, address + len, bytes + len, part);
		if (r < 0)
			return r;
		len += part;
	} while (len < sizeof(bytes) && !memchr(bytes + len - part, 0, part));
	len = strnlen((char *)bytes, len);
	/* The same words as the walker's: a longer name is cut and ends with a NUL. */
	memcpy(words, bytes, MIN(len, sizeof(words) - 1));
	*ret_cookie = kiln_perl_file_cookie(words);
	perl_text_bytes(t, bytes, len, true);
	return 0;
}
