// SPDX-License-Identifier: Apache-2.0
/*
 * Metadata of a module, in the memory of the process (ECMA-335, 6th edition, partition II.22 to
 * II.24). It is tables of rows. How wide a column is depends on the size of the table or heap that
 * it points to. Only the head of the metadata is kept; rows are read when they are asked for. Pure
 * but for the memory.
 */
#include "agent/runtime/dotnet/dotnet.h"

enum {
	ROOT = 0x424a5342, /* "BSJB" */
	STREAMS_MAX = 16,
	VERSION_MAX = 256,
	STEP = 1 << 12,		 /* bytes of one read, backwards from a string to the root */
	METADATA_MAX = 32 << 20, /* bytes */
	ROW_MAX = 64,
	SECTIONS_MAX = 64, /* of an image */
	TABLES_ALL = 64,   /* tables that the format has bits for */
};

/* ---- columns ----------------------------------------------------------------------------------
 */

/*
 * A column is a number of 2 or 4 bytes, an index into a heap, a row of one table (the table's
 * number), or a row of one of several tables.
 */
enum {
	TWO = 0x40,
	FOUR,
	STRING,
	GUID,
	BLOB,
	CODED, /* from here on: rows of one of several tables */
	TYPE_DEF_OR_REF = CODED,
	HAS_CONSTANT,
	HAS_ATTRIBUTE,
	HAS_MARSHAL,
	HAS_SECURITY,
	MEMBER_PARENT,
	HAS_SEMANTICS,
	METHOD_OR_REF,
	FORWARDED,
	IMPLEMENTATION,
	ATTRIBUTE_TYPE,
	SCOPE,
	TYPE_OR_METHOD,
	END = 0xff,
	CODED_MAX = 22,
};

/* II.24.2.6: bits of the tag, and the tables. */
static const struct {
	uint8_t bits, tables[CODED_MAX];
} coded[] = {
    [TYPE_DEF_OR_REF - CODED] = {2, {0x02, 0x01, 0x1b, END}},
    [HAS_CONSTANT - CODED] = {2, {0x04, 0x08, 0x17, END}},
    [HAS_ATTRIBUTE -
	TYPE_DEF_OR_REF] = {5, {0x06, 0x04, 0x01, 0x02, 0x08, 0x09, 0x0a, 0x00, 0x0e, 0x17, 0x14,
				0x11, 0x1a, 0x1b, 0x20, 0x23, 0x26, 0x27, 0x28, 0x2a, 0x2c, 0x2b}},
    [HAS_MARSHAL - CODED] = {1, {0x04, 0x08, END}},
    [HAS_SECURITY - CODED] = {2, {0x02, 0x06, 0x20, END}},
    [MEMBER_PARENT - CODED] = {3, {0x02, 0x01, 0x1a, 0x06, 0x1b, END}},
    [HAS_SEMANTICS - CODED] = {1, {0x14, 0x17, END}},
    [METHOD_OR_REF - CODED] = {1, {0x06, 0x0a, END}},
    [FORWARDED - CODED] = {1, {0x04, 0x06, END}},
    [IMPLEMENTATION - CODED] = {2, {0x26, 0x23, 0x27, END}},
    [ATTRIBUTE_TYPE - CODED] = {3, {0x06, 0x0a, END}},
    [SCOPE - CODED] = {2, {0x00, 0x1a, 0x23, 0x01, END}},
    [TYPE_OR_METHOD - CODED] = {1, {0x02, 0x06, END}},
};

/* II.22: the columns of each table, up to the last one that is read here. */
static const uint8_t columns[DOTNET_TABLES][10] = {
    [0x00] = {TWO, STRING, GUID, GUID, GUID, END},
    [0x01] = {SCOPE, STRING, STRING, END},
    [0x02] = {FOUR, STRING, STRING, TYPE_DEF_OR_REF, 0x04, 0x06, END},
    [0x03] = {0x04, END},
    [0x04] = {TWO, STRING, BLOB, END},
    [0x05] = {0x06, END},
    [0x06] = {FOUR, TWO, TWO, STRING, BLOB, 0x08, END},
    [0x07] = {0x08, END},
    [0x08] = {TWO, TWO, STRING, END},
    [0x09] = {0x02, TYPE_DEF_OR_REF, END},
    [0x0a] = {MEMBER_PARENT, STRING, BLOB, END},
    [0x0b] = {TWO, HAS_CONSTANT, BLOB, END},
    [0x0c] = {HAS_ATTRIBUTE, ATTRIBUTE_TYPE, BLOB, END},
    [0x0d] = {HAS_MARSHAL, BLOB, END},
    [0x0e] = {TWO, HAS_SECURITY, BLOB, END},
    [0x0f] = {TWO, FOUR, 0x02, END},
    [0x10] = {FOUR, 0x04, END},
    [0x11] = {BLOB, END},
    [0x12] = {0x02, 0x14, END},
    [0x13] = {0x14, END},
    [0x14] = {TWO, STRING, TYPE_DEF_OR_REF, END},
    [0x15] = {0x02, 0x17, END},
    [0x16] = {0x17, END},
    [0x17] = {TWO, STRING, BLOB, END},
    [0x18] = {TWO, 0x06, HAS_SEMANTICS, END},
    [0x19] = {0x02, METHOD_OR_REF, METHOD_OR_REF, END},
    [0x1a] = {STRING, END},
    [0x1b] = {BLOB, END},
    [0x1c] = {TWO, FORWARDED, STRING, 0x1a, END},
    [0x1d] = {FOUR, 0x04, END},
    [0x1e] = {FOUR, FOUR, END},
    [0x1f] = {FOUR, END},
    [0x20] = {FOUR, TWO, TWO, TWO, TWO, FOUR, BLOB, STRING, STRING, END},
    [0x21] = {FOUR, END},
    [0x22] = {FOUR, FOUR, FOUR, END},
    [0x23] = {TWO, TWO, TWO, TWO, FOUR, BLOB, STRING, STRING, BLOB, END},
    [0x24] = {FOUR, 0x23, END},
    [0x25] = {FOUR, FOUR, FOUR, 0x23, END},
    [0x26] = {FOUR, STRING, BLOB, END},
    [0x27] = {FOUR, FOUR, STRING, STRING, IMPLEMENTATION, END},
    [0x28] = {FOUR, FOUR, STRING, IMPLEMENTATION, END},
    [0x29] = {0x02, 0x02, END},
    [0x2a] = {TWO, TWO, TYPE_OR_METHOD, STRING, END},
    [0x2b] = {METHOD_OR_REF, BLOB, END},
    [0x2c] = {0x2a, TYPE_DEF_OR_REF, END},
};

static uint32_t column_size(const struct dotnet_metadata *d, uint8_t column)
{
	uint32_t most = 0;

	if (column < DOTNET_TABLES)
		return d->rows[column] > 0xffff ? 4 : 2;
	switch (column) {
	case TWO:
		return 2;
	case FOUR:
		return 4;
	case STRING:
		return d->wide_strings ? 4 : 2;
	case GUID:
		return d->wide_guids ? 4 : 2;
	case BLOB:
		return d->wide_blobs ? 4 : 2;
	default:
		break;
	}
	for (size_t i = 0; i < CODED_MAX; i++) {
		uint8_t table = coded[column - CODED].tables[i];

		if (table == END)
			break;
		most = MAX(most, d->rows[table]);
	}
	return most >> (16 - coded[column - CODED].bits) ? 4 : 2;
}

static uint32_t row_size(const struct dotnet_metadata *d, size_t table)
{
	uint32_t size = 0;

	for (const uint8_t *c = columns[table]; *c != END; c++)
		size += column_size(d, *c);
	return size;
}

/* ---- the head ---------------------------------------------------------------------------------
 */

static int read_tables(const struct target_memory *m, uint64_t at, struct dotnet_metadata *d)
{
	struct {
		uint32_t reserved;
		uint8_t major, minor, heaps, one;
		uint64_t valid, sorted;
	} head;
	uint32_t rows[TABLES_ALL];
	size_t n = 0;

	if (dotnet_read(m, at, &head, sizeof(head)) < 0)
		return -EFAULT;
	d->wide_strings = head.heaps & 1;
	d->wide_guids = head.heaps >> 1 & 1;
	d->wide_blobs = head.heaps >> 2 & 1;
	at += sizeof(head);
	for (size_t i = 0; i < TABLES_ALL; i++)
		n += head.valid >> i & 1;
	if (dotnet_read(m, at, rows, n * sizeof(rows[0])) < 0)
		return -EFAULT;
	at += n * sizeof(rows[0]);
	n = 0;
	for (size_t i = 0; i < DOTNET_TABLES; i++) {
		if (!(head.valid >> i & 1))
			continue;
		d->rows[i] = rows[n++];
		if (d->rows[i] > 0xffffff) /* a token has no more bits */
			return -ENOENT;
	}
	for (size_t i = 0; i < DOTNET_TABLES; i++) {
		d->sizes[i] = (uint16_t)row_size(d, i);
		d->tables[i] = at;
		at += (uint64_t)d->rows[i] * d->sizes[i];
	}
	return 0;
}

/*
 * Reads the metadata whose root is at ROOT_AT (II.24.2.1). -ENOENT: there is no root, or NAME is
 * not 0 and no address in its heap of strings.
 */
static int read_root(const struct target_memory *m, uint64_t root_at, uint64_t name,
		     struct dotnet_metadata *ret)
{
	uint32_t head[4], stream[2];
	uint64_t at = root_at, tables = 0;
	uint16_t counts[2];
	char text[32];

	*ret = (struct dotnet_metadata){0};
	if (dotnet_read(m, at, head, sizeof(head)) < 0 || head[0] != ROOT || head[3] > VERSION_MAX)
		return -ENOENT;
	at += sizeof(head) + ALIGN_UP(head[3], 4U);
	if (dotnet_read(m, at, counts, sizeof(counts)) < 0 || counts[1] > STREAMS_MAX)
		return -ENOENT;
	at += sizeof(counts);
	for (int i = 0; i < counts[1]; i++) {
		size_t n = 0;

		if (dotnet_read(m, at, stream, sizeof(stream)) < 0)
			return -ENOENT;
		at += sizeof(stream);
		for (; n < sizeof(text); n++)
			if (dotnet_read(m, at + n, &text[n], 1) < 0 || !text[n])
				break;
		if (n == sizeof(text))
			return -ENOENT;
		text[n] = '\0';
		at += ALIGN_UP(n + 1, (size_t)4);
		if (streq(text, "#~"))
			tables = root_at + stream[0];
		if (!streq(text, "#Strings"))
			continue;
		ret->strings = root_at + stream[0];
		ret->strings_size = stream[1];
	}
	if (!tables || !ret->strings ||
	    (name && (name < ret->strings || name - ret->strings >= ret->strings_size)))
		return -ENOENT;
	return read_tables(m, tables, ret);
}

int dotnet_metadata_find(const struct target_memory *memory, uint64_t name,
			 struct dotnet_metadata *ret)
{
	uint32_t words[STEP / 4];
	uint64_t page = name & ~(uint64_t)(STEP - 1);

	/* The root is aligned to 4 bytes, somewhere before the strings. */
	for (size_t i = 0; i < METADATA_MAX / STEP && page; i++, page -= STEP) {
		if (dotnet_read(memory, page, words, sizeof(words)) < 0)
			return -ENOENT;
		for (size_t k = STEP / 4; k-- > 0;)
			if (words[k] == ROOT && read_root(memory, page + k * 4, name, ret) == 0)
				return 0;
	}
	return -ENOENT;
}

/*
 * Returns the offset in its file of the byte RVA of an image, by the N section headers at AT
 * (II.25.3); 0: the file does not have it.
 */
static uint32_t file_offset(const struct target_memory *m, uint64_t at, uint16_t n, uint32_t rva)
{
	uint32_t v[4]; /* size, address, size in the file, place there */

	for (uint32_t i = 0; i < MIN(n, (uint16_t)SECTIONS_MAX); i++) {
		if (dotnet_read(m, at + i * 40 + 8, v, sizeof(v)) < 0)
			return 0;
		if (rva >= v[1] && rva - v[1] < v[2])
			return rva - v[1] + v[3];
	}
	return 0;
}

/* II.25.2.3.3 (directory 14) and II.25.3.3 (the CLR's header: its metadata at 8). */
int dotnet_metadata_of_image(const struct target_memory *memory, uint64_t base,
			     struct dotnet_metadata *ret)
{
	uint32_t pe, clr, root, at;
	uint16_t mz, n, size, magic;
	uint64_t sections;

	if (dotnet_read(memory, base, &mz, 2) < 0 || mz != 0x5a4d ||
	    dotnet_read(memory, base + 0x3c, &pe, 4) < 0 || pe > STEP ||
	    dotnet_read(memory, base + pe + 6, &n, 2) < 0 ||
	    dotnet_read(memory, base + pe + 20, &size, 2) < 0 ||
	    dotnet_read(memory, base + pe + 24, &magic, 2) < 0 ||
	    dotnet_read(memory, base + pe + 24 + (magic == 0x20b ? 112 : 96) + 14 * 8, &clr, 4) < 0)
		return -ENOENT;
	sections = base + pe + 24 + size;
	/* Is the image as it is loaded? Else it is as in the file. */
	if (dotnet_read(memory, base + clr + 8, &root, 4) == 0 &&
	    read_root(memory, base + root, 0, ret) == 0)
		return 0;
	at = file_offset(memory, sections, n, clr);
	if (!at || dotnet_read(memory, base + at + 8, &root, 4) < 0)
		return -ENOENT;
	at = file_offset(memory, sections, n, root);
	return at ? read_root(memory, base + at, 0, ret) : -ENOENT;
}

/* ---- rows -------------------------------------------------------------------------------------
 */

int dotnet_metadata_string(const struct dotnet_metadata *d, const struct target_memory *memory,
			   uint32_t index, char *ret, size_t size)
{
	size_t left, n = 0;

	if (index >= d->strings_size)
		return -EFAULT;
	left = MIN(d->strings_size - index, size - 1);
	/* Read in pieces: most strings are short. */
	while (n < left) {
		size_t piece = MIN(left - n, (size_t)32);

		if (dotnet_read(memory, d->strings + index + n, ret + n, piece) < 0)
			return -EFAULT;
		if (memchr(ret + n, 0, piece))
			break;
		n += piece;
	}
	ret[left] = '\0';
	for (char *c = ret; *c; c++)
		if ((uint8_t)*c < ' ' || *c == 0x7f)
			*c = '?';
	return 0;
}

/* Reads the first N columns of the row ROW of TABLE. The first row is 1. */
static int read_row(const struct dotnet_metadata *d, const struct target_memory *m, size_t table,
		    uint32_t row, uint32_t *ret, size_t n)
{
	uint8_t bytes[ROW_MAX] = {0};
	struct cursor c = cursor_of(bytes, d->sizes[table]);

	if (!row || row > d->rows[table] || d->sizes[table] > sizeof(bytes))
		return -ENOENT;
	if (dotnet_read(m, d->tables[table] + (uint64_t)(row - 1) * d->sizes[table], bytes,
			d->sizes[table]) < 0)
		return -EFAULT;
	for (size_t i = 0; i < n; i++)
		ret[i] = column_size(d, columns[table][i]) == 4 ? cursor_u32(&c) : cursor_u16(&c);
	return c.bad ? -EFAULT : 0;
}

int dotnet_metadata_type(const struct dotnet_metadata *d, const struct target_memory *memory,
			 uint32_t row, struct dotnet_type_row *ret)
{
	uint32_t v[6];
	int r = read_row(d, memory, DOTNET_TYPE_DEF, row, v, ARRAY_SIZE(v));

	if (r == 0)
		*ret = (struct dotnet_type_row){.name = v[1], .space = v[2], .methods = v[5]};
	return r;
}

int dotnet_metadata_method(const struct dotnet_metadata *d, const struct target_memory *memory,
			   uint32_t method, uint32_t *ret_name)
{
	uint32_t v[4];
	int r = read_row(d, memory, DOTNET_METHOD_DEF, method, v, ARRAY_SIZE(v));

	if (r == 0)
		*ret_name = v[3];
	return r;
}

/*
 * Finds the last row of TABLE, which is sorted by COLUMN, whose COLUMN is VALUE or less; *RET 0:
 * none.
 */
static int search(const struct dotnet_metadata *d, const struct target_memory *m, size_t table,
		  size_t column, uint32_t value, uint32_t *ret)
{
	uint32_t lo = 0, hi = d->rows[table], v[6];
	int r;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		r = read_row(d, m, table, mid + 1, v, column + 1);
		if (r < 0)
			return r;
		if (v[column] <= value)
			lo = mid + 1;
		else
			hi = mid;
	}
	*ret = lo;
	return 0;
}

int dotnet_metadata_owner(const struct dotnet_metadata *d, const struct target_memory *memory,
			  uint32_t method, uint32_t *ret)
{
	int r = search(d, memory, DOTNET_TYPE_DEF, 5, method, ret);

	return r < 0 ? r : *ret ? 0 : -ENOENT;
}

int dotnet_metadata_outer(const struct dotnet_metadata *d, const struct target_memory *memory,
			  uint32_t type, uint32_t *ret)
{
	uint32_t row, v[2];
	int r = search(d, memory, DOTNET_NESTED_CLASS, 0, type, &row);

	*ret = 0;
	if (r < 0 || !row)
		return r;
	r = read_row(d, memory, DOTNET_NESTED_CLASS, row, v, ARRAY_SIZE(v));
	if (r == 0 && v[0] == type)
		*ret = v[1];
	return r;
}

int dotnet_metadata_parameters(const struct dotnet_metadata *d, const struct target_memory *memory,
			       bool of_method, uint32_t owner, uint32_t *ret, size_t max)
{
	uint32_t row, v[4], coded_owner = owner << 1 | of_method;
	int n = 0, r = search(d, memory, DOTNET_GENERIC_PARAM, 2, coded_owner - 1, &row);

	if (r < 0)
		return r;
	for (size_t i = 0; i < max && row++ < d->rows[DOTNET_GENERIC_PARAM]; i++) {
		r = read_row(d, memory, DOTNET_GENERIC_PARAM, row, v, ARRAY_SIZE(v));
		if (r < 0)
			return r;
		if (v[2] != coded_owner)
			break;
		ret[n++] = v[3];
	}
	return n;
}
