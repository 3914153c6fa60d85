// SPDX-License-Identifier: Apache-2.0
/* Images in memory are not checked: they cannot change, and have no file for stat(). */
#include "agent/symbol/witness.h"

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
	       a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* NOW was read before the bytes are, so that a later write changes what stat() says. */
static int look(struct witness *w, const struct stat *now)
{
	int r = image_content(w->image) ? image_content_check(w->image, w->image) : 0;

	if (r < 0)
		return r == -ENOMEM ? r : -ESTALE;
	w->seen = *now;
	return 0;
}

int witness_init(struct witness *w, struct image *image)
{
	struct stat now = {0};
	int r;

	w->image = image_ref(image);
	if (image->fd < 0)
		return 0;
	r = fstat(image->fd, &now) < 0 ? -ESTALE : 0;
	w->seen = now;
	/* The file need not be read again a moment after its content was. */
	if (r == 0 && !image_is_untouched(image, &now))
		r = look(w, &now);
	if (r < 0)
		witness_done(w);
	return r;
}

void witness_done(struct witness *w)
{
	*w = (struct witness){.image = image_unref(w->image)};
}

int witness_check(struct witness *w)
{
	struct stat now;

	if (!w->image || w->image->fd < 0)
		return 0;
	if (fstat(w->image->fd, &now) < 0)
		return -ESTALE;
	return is_same(&w->seen, &now) ? 0 : look(w, &now);
}
