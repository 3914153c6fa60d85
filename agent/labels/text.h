/* SPDX-License-Identifier: Apache-2.0 */
/* Foreign bytes as text: UTF-8 without NUL, as protobuf strings and C strings want it. */
#pragma once

#include "lib/base.h"

/*
 * Copies LEN bytes to DST, which has room for LEN + 1, with '?' for each byte that is NUL or not
 * UTF-8; a character that is cut off at the end is left out. Ends with a NUL.
 */
void label_text_copy(char *dst, const void *bytes, size_t len);
