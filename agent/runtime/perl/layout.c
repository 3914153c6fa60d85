// SPDX-License-Identifier: Apache-2.0
/*
 * Offsets by version. Releases of one minor version do not change them, since extension modules are
 * compiled against them.
 *
 * From the headers of 5.26.3, 5.28.3, 5.30.3, 5.32.1, 5.34.3, 5.36.0, 5.38.2, 5.40.1, 5.42.3
 * and 5.44.0, as a compiler lays them out on x86-64 (intrpvar.h, cop.h, hv.h, opnames.h): those
 * from 5.32 on as Debian packages them, the others from Perl's repository. Threaded and not, they
 * are the same.
 */
#include "agent/runtime/perl/perl.h"

/* clang-format off: it would reflow the tables. */

/* struct interpreter */
#define VARIABLES(curcop_, curstackinfo_, top_env_, compiling_, markstack_, sortcop_)              \
	.at = {.op = 8,                                                                            \
	       .curcop = curcop_,                                                                  \
	       .curstackinfo = curstackinfo_,                                                      \
	       .top_env = top_env_,                                                                \
	       .compiling = compiling_,                                                            \
	       .markstack = markstack_,                                                            \
	       .markstack_ptr = markstack_ + 8,                                                    \
	       .sortcop = sortcop_}
#define VARIABLES_26 VARIABLES(0xe0, 0xf0, 0x380, 0x720, 0x70, 0x478)
#define VARIABLES_28 VARIABLES(0xe0, 0xf0, 0x308, 0x7a0, 0x70, 0x408)
#define VARIABLES_34 VARIABLES(0xd0, 0xe0, 0x2f8, 0x790, 0x68, 0x3f8)
#define VARIABLES_38 VARIABLES(0xd0, 0xe0, 0x308, 0x6b8, 0x68, 0x408)

/* PERL_CONTEXT, struct stackinfo */
#define CONTEXTS(size_, sub_cv_, oldmark_, stackinfo_type_)                                        \
	.context_size = size_, .sub_cv = sub_cv_, .oldmark = oldmark_,                             \
	.stackinfo_type = stackinfo_type_
#define CONTEXTS_26 CONTEXTS(0x60, 0x40, 0x0c, 0x28)
#define CONTEXTS_32 CONTEXTS(0x68, 0x48, 0x0c, 0x2c)
#define CONTEXTS_40 CONTEXTS(0x68, 0x48, 0x2c, 0x2c)

/* enum opcode */
#define OPS(nextstate_, dbstate_, sort_, entersub_)                                                \
	.nextstate = nextstate_, .dbstate = dbstate_, .sort = sort_, .entersub = entersub_
#define OPS_26 OPS(195, 196, 166, 184)
#define OPS_28 OPS(195, 196, 167, 184)
#define OPS_38 OPS(198, 199, 170, 187)
#define OPS_42 OPS(202, 203, 171, 191)

static const struct perl_layout layouts[] = {
    {26, VARIABLES_26, CONTEXTS_26, OPS_26},
    {28, VARIABLES_28, CONTEXTS_26, OPS_28},
    {32, VARIABLES_28, CONTEXTS_32, OPS_28},
    {34, VARIABLES_34, CONTEXTS_32, OPS_28},
    {36, VARIABLES_34, CONTEXTS_32, OPS_28, .stash_aux = 0x20},
    {38, VARIABLES_38, CONTEXTS_32, OPS_38, .stash_aux = 0x20},
    {40, VARIABLES_38, CONTEXTS_40, OPS_38, .stash_aux = 0x20},
    {42, VARIABLES_38, CONTEXTS_40, OPS_42, .stash_aux = 0x20, .defer_catches = true},
};
/* clang-format on */

const struct perl_layout *perl_layout_of(unsigned int minor)
{
	const struct perl_layout *found = NULL;

	/* Odd minor versions are in development, and change from one release to the next. */
	if (minor < PERL_MINOR_MIN || minor > PERL_MINOR_MAX || minor % 2)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++)
		if (layouts[i].minor <= minor)
			found = &layouts[i];
	return found;
}
