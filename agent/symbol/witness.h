/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct witness: a file from which a symbol table was made, and what stat() said of it then. Names
 * are read from the file long afterwards, and for everybody who has a file of the same content, so
 * the file must not have been rewritten meanwhile. One thread at a time.
 */
#pragma once

#include "agent/elf/content.h"

#include <sys/stat.h>

struct witness {
	struct image *image; /* NULL: none */
	struct stat seen;
};

/*
 * Takes a reference. -ESTALE: the file is not what IMAGE's content says any more; -ENOMEM. An image
 * whose content is not known is not checked.
 */
int witness_init(struct witness *w, struct image *image) _must_check_;
void witness_done(struct witness *w);
/*
 * 0, also when there is no image; -ESTALE: the file has changed. Reads the file again when its size
 * or times differ. A write through a mapping that changes no time is not noticed.
 */
int witness_check(struct witness *w) _must_check_;
