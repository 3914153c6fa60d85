/* SPDX-License-Identifier: Apache-2.0 */
/* To be included before a walker that sends texts: host_text.h has the functions. */
#pragma once

KILN_INLINE struct kiln_text *env_new_text(struct kiln_walk *w, const uint64_t words[2]);
KILN_INLINE void env_send_text(const struct kiln_text *text);
KILN_INLINE int env_read_string(void *dst, uint32_t len, uint64_t address);
