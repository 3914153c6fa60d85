/* SPDX-License-Identifier: Apache-2.0 */
/* A request that otlp_encode() made, in another wire generation. Any thread; no state. */
#pragma once

#include "agent/profile/otlp.h"

/*
 * Changes the LEN bytes of a request from one generation to another, in place: its length stays.
 * -EBADMSG: they are no such request; then they may be changed in part.
 */
int otlp_convert(uint8_t *data, size_t len, enum otlp_generation from,
		 enum otlp_generation to) _must_check_;
