// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of generic types and methods, as far as the code is made for them alone. Code that all
 * reference types share is made for System.__Canon, which says nothing: an argument that is not
 * known is 0 or has no name, and the parameter's name stands for it. Loop thread.
 *
 * Offsets are those of 8, 9 and 10 (v8.0.4, src/coreclr/vm/methodtable.h: MethodTable and
 * GenericsDictInfo; method.hpp: InstantiatedMethodDesc, behind MethodDesc).
 */
#include "agent/runtime/dotnet/dotnet.h"

enum {
	/* MethodTable */
	TABLE_FLAGS = 0x00,
	TABLE_FLAGS2 = 0x08,
	TABLE_INSTANCE = 0x30, /* of a generic type: m_pPerInstInfo; of an array: its elements */
	/* Flags */
	IS_GENERIC = 0x30,	  /* enum_flag_GenericsMask */
	CATEGORY = 0xc0000,	  /* enum_flag_Category_Array_Mask */
	CATEGORY_ARRAY = 0x80000, /* enum_flag_Category_Array */
	TOKEN_SHIFT = 8,	  /* of flags2: the row of its type */
	/* GenericsDictInfo, 8 bytes in front of what m_pPerInstInfo points to */
	INFO_DICTIONARIES = -4,
	INFO_ARGUMENTS = -2,
	DICTIONARIES_MAX = 64,
	/* InstantiatedMethodDesc, from the end of MethodDesc on */
	METHOD_INSTANCE = 0x08,
	METHOD_ARGUMENTS = 0x12,
	METHOD_INSTANTIATED = 5, /* mcInstantiated */
	/* A DynamicMethodDesc's name comes so much behind the end of MethodDesc. */
	NAME_BEHIND = 0x10,
};
#define HAS_COMPONENTS 0x80000000U /* enum_flag_HasComponentSize: arrays and strings */

size_t dotnet_type_arguments(const struct target_memory *memory, uint64_t table, uint64_t *ret,
			     size_t max)
{
	uint64_t instance, arguments;
	uint32_t flags;
	uint16_t dictionaries, n;

	if (dotnet_read(memory, table + TABLE_FLAGS, &flags, 4) < 0 || (flags & HAS_COMPONENTS) ||
	    !(flags & IS_GENERIC) ||
	    dotnet_read(memory, table + TABLE_INSTANCE, &instance, 8) < 0 ||
	    dotnet_read(memory, instance + (uint64_t)INFO_DICTIONARIES, &dictionaries, 2) < 0 ||
	    dotnet_read(memory, instance + (uint64_t)INFO_ARGUMENTS, &n, 2) < 0 || !dictionaries ||
	    dictionaries > DICTIONARIES_MAX ||
	    dotnet_read(memory, instance + (dictionaries - 1U) * 8, &arguments, 8) < 0 ||
	    dotnet_read(memory, arguments, ret, MIN((size_t)n, max) * 8) < 0)
		return 0;
	return MIN((size_t)n, max);
}

size_t dotnet_method_arguments(const struct dotnet_process *p, const struct target_memory *memory,
			       uint64_t method, uint64_t *ret, size_t max)
{
	uint64_t behind = method + p->kernel.dynamic_name - NAME_BEHIND, arguments;
	uint16_t flags, n;

	if (dotnet_read(memory, method + KILN_DOTNET_METHOD_FLAGS, &flags, 2) < 0 ||
	    (flags & KILN_DOTNET_METHOD_CLASS) != METHOD_INSTANTIATED ||
	    dotnet_read(memory, behind + METHOD_INSTANCE, &arguments, 8) < 0 ||
	    dotnet_read(memory, behind + METHOD_ARGUMENTS, &n, 2) < 0 ||
	    dotnet_read(memory, arguments, ret, MIN((size_t)n, max) * 8) < 0)
		return 0;
	return MIN((size_t)n, max);
}

int dotnet_type_of(const struct dotnet_process *p, const struct target_memory *memory,
		   uint64_t handle, struct dotnet_type *ret)
{
	uint32_t flags, more;

	*ret = (struct dotnet_type){0};
	/* Another handle is that of a TypeDesc: a pointer, a type parameter. */
	if (!handle || (handle & 7) || dotnet_read(memory, handle + TABLE_FLAGS, &flags, 4) < 0 ||
	    dotnet_read(memory, handle + TABLE_FLAGS2, &more, 4) < 0)
		return -ENOENT;
	if ((flags & HAS_COMPONENTS) && (flags & CATEGORY) == CATEGORY_ARRAY)
		return dotnet_read(memory, handle + TABLE_INSTANCE, &ret->element, 8);
	ret->row = more >> p->row_shift;
	return dotnet_read(memory, handle + p->method_module, &ret->module, 8);
}
