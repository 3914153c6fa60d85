/* SPDX-License-Identifier: Apache-2.0 */
/* The mappings in which a SIGBUS means that a file was cut short. For image.c only. */
#pragma once

#include "lib/base.h"

/* -EMFILE when IMAGE_MAPPED_MAX ranges are known already. START is page aligned. */
int image_fault_add(const void *start, size_t size);
void image_fault_remove(const void *start);
