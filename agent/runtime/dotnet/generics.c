// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the type arguments of generic types and methods: the "int" of List<int>. The runtime
 * compiles a generic method once for each value type, but only once for all reference types; the
 * argument of that shared code is System.__Canon, and name.c then writes the parameter's name
 * (List<T>). Loop thread.
 *
 * Sources of the offsets, which .NET 8, 9 and 10 have in common (dotnet/runtime v8.0.4,
 * src/coreclr/vm): methodtable.h, classes MethodTable and GenericsDictInfo; method.hpp, class
 * InstantiatedMethodDesc, whose fields follow those of its base class MethodDesc.
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
	/* GenericsDictInfo, 8 bytes in front of what m_pPerInstInfo points to */
	INFO_DICTIONARIES = -4,
	INFO_ARGUMENTS = -2,
	DICTIONARIES_MAX = 64,
	/* InstantiatedMethodDesc, from the end of MethodDesc on */
	METHOD_INSTANCE = 0x08,
	METHOD_ARGUMENTS = 0x12,
	METHOD_INSTANTIATED = 5, /* mcInstantiated */
	/* Bytes from the end of MethodDesc to the name in a DynamicMethodDesc. */
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
	/* With low bits set it is the address of a TypeDesc (of a pointer or a type parameter),
	 * not of a MethodTable. */
	if (!handle || (handle & 7) || dotnet_read(memory, handle + TABLE_FLAGS, &flags, 4) < 0 ||
	    dotnet_read(memory, handle + TABLE_FLAGS2, &more, 4) < 0)
		return -ENOENT;
	if ((flags & HAS_COMPONENTS) && (flags & CATEGORY) == CATEGORY_ARRAY)
		return dotnet_read(memory, handle + TABLE_INSTANCE, &ret->element, 8);
	ret->row = more >> p->row_shift;
	return dotnet_read(memory, handle + p->method_module, &ret->module, 8);
}
