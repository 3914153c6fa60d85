/* SPDX-License-Identifier: Apache-2.0 */
/* Error text. No allocation, so that out of memory can be reported too. */
#include "lib/error.h"

#include <stdarg.h>

int error_set(struct error *err, int code, const char *format, ...)
{
	va_list ap;

	if (!err)
		return code;
	err->code = code;
	va_start(ap, format);
	vsnprintf(err->message, sizeof(err->message), format, ap);
	va_end(ap);
	return code;
}

int error_wrap(struct error *err, int code, const char *format, ...)
{
	char prefix[512], old[sizeof(err->message)];
	va_list ap;

	if (!err)
		return code;
	va_start(ap, format);
	vsnprintf(prefix, sizeof(prefix), format, ap);
	va_end(ap);
	memcpy(old, err->message, sizeof(old));
	if (!old[0])
		snprintf(old, sizeof(old), "%s", strerror(-code));
	/* The cut is intended: the front of a message says more than its end. */
	if (snprintf(err->message, sizeof(err->message), "%s: %s", prefix, old) < 0)
		err->message[0] = 0;
	err->code = code;
	return code;
}
