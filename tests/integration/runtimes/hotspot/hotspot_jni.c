// SPDX-License-Identifier: Apache-2.0
/* Native code that calls back into Java: HotspotWork.call(). The few parts of jni.h that it takes.
 */
#include <stddef.h>
#include <stdint.h>

/* Places in the table of functions: JNI specification, chapter 4. */
enum { GET_STATIC_METHOD_ID = 113, CALL_STATIC_LONG_METHOD = 132 };

typedef const void *const **environment;

__attribute__((noinline)) int64_t hotspot_jni_inner(environment env, void *class, int64_t x,
						    int32_t depth)
{
	void *(*find)(environment, void *, const char *, const char *) =
	    (void *(*)(environment, void *, const char *, const char *))(
		uintptr_t)(*env)[GET_STATIC_METHOD_ID];
	int64_t (*call)(environment, void *, void *, ...) = (int64_t(*)(
	    environment, void *, void *, ...))(uintptr_t)(*env)[CALL_STATIC_LONG_METHOD];
	void *method = find(env, class, "callBack", "(JI)J");

	return method ? call(env, class, method, x, depth) + 1 : 0;
}

__attribute__((visibility("default"))) int64_t
Java_kiln_HotspotWork_call(environment env, void *class, int64_t x, int32_t depth);
int64_t Java_kiln_HotspotWork_call(environment env, void *class, int64_t x, int32_t depth)
{
	return hotspot_jni_inner(env, class, x, depth) + 1;
}
