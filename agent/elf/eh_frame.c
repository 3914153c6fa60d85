// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the containers of call frame information: sections, CIEs, FDEs, encoded pointers. cfi.c
 * executes what is inside.
 *
 * A CIE's initial instructions are executed once, so that the work is bounded by the section's
 * size. An entry that is damaged is counted and skipped; a damaged length ends the section. One
 * thread per struct cfi.
 */
#include "agent/elf/cfi.h"

#include <elf.h>

#include "agent/elf/arch.h"
#include "lib/pace.h"

enum { /* DW_EH_PE_*: LSB 5, "DWARF Exception Header Encoding" */
       PE_ABSPTR = 0x00,
       PE_ULEB = 0x01,
       PE_UDATA2 = 0x02,
       PE_UDATA4 = 0x03,
       PE_UDATA8 = 0x04,
       PE_SLEB = 0x09,
       PE_SDATA2 = 0x0a,
       PE_SDATA4 = 0x0b,
       PE_SDATA8 = 0x0c,
       PE_FORMAT = 0x0f,
       PE_PCREL = 0x10,
       PE_TEXTREL = 0x20,
       PE_DATAREL = 0x30,
       PE_ALIGNED = 0x50,
       PE_BASE = 0x70,
       PE_INDIRECT = 0x80,
       PE_OMIT = 0xff,
};

enum {
	DEBUG_FRAME_MAX = 256 << 20,
	EH_FRAME_MAX = 256 << 20, /* bytes; in a sparse file a section may have any size */
};

/* ---- encoded pointers -------------------------------------------------------------------------
 */

static uint64_t read_format(struct cursor *c, uint8_t encoding)
{
	switch (encoding & PE_FORMAT) {
	case PE_ABSPTR:
	case PE_UDATA8:
	case PE_SDATA8:
		return cursor_u64(c);
	case PE_ULEB:
		return cursor_uleb(c);
	case PE_SLEB:
		return (uint64_t)cursor_sleb(c);
	case PE_UDATA2:
		return cursor_u16(c);
	case PE_SDATA2:
		return (uint64_t)cursor_i16(c);
	case PE_UDATA4:
		return cursor_u32(c);
	case PE_SDATA4:
		return (uint64_t)(int64_t)cursor_i32(c);
	}
	c->bad = true;
	return 0;
}

uint64_t cfi_pointer(const struct cfi *cfi, struct cursor *c, uint8_t encoding)
{
	uint64_t at = cfi->vaddr + c->pos, value, base = 0;
	struct cursor indirect;

	if (encoding == PE_OMIT)
		return 0;
	switch (encoding & PE_BASE) {
	case PE_PCREL:
		base = at;
		break;
	case PE_TEXTREL:
		base = cfi->text;
		break;
	case PE_DATAREL: /* GNU as and gcc: the global offset table */
		base = cfi->got;
		break;
	case PE_ALIGNED:
		cursor_skip(c, MIN(ALIGN_UP(at, 8) - at, cursor_left(c)));
		encoding = PE_ABSPTR;
		break;
	case 0:
		break;
	default:
		c->bad = true;
	}
	value = read_format(c, encoding);
	if (value == 0 || c->bad) /* a null pointer stays one, whatever its base */
		return 0;
	value += base;
	if (!(encoding & PE_INDIRECT))
		return value;
	indirect = image_at_vaddr(cfi->image, value);
	value = cursor_u64(&indirect);
	if (indirect.bad)
		c->bad = true;
	return value;
}

/* ---- entries ----------------------------------------------------------------------------------
 */

struct entry {
	uint64_t at;	 /* section offset of the length field */
	uint64_t id_at;	 /* section offset of the CIE pointer */
	uint64_t cie_at; /* section offset of the CIE that it points to */
	bool is_cie, is_64;
	struct cursor body; /* behind the CIE pointer; positions are those of the section */
};

enum next { NEXT_END, NEXT_ENTRY, NEXT_SKIP };

/* Reads the header at C and moves C behind the entry. */
static enum next next_entry(const struct cfi *cfi, struct cursor *c, struct entry *ret)
{
	struct entry e = {.at = c->pos};
	uint64_t length = cursor_u32(c), id;

	if (c->bad)
		return NEXT_END;
	if (length == 0)
		return cfi->is_terminated ? NEXT_END : NEXT_SKIP;
	e.is_64 = length == UINT32_MAX;
	if (e.is_64)
		length = cursor_u64(c);
	if (c->bad || length > cursor_left(c))
		return NEXT_END;
	e.body = cursor_of(c->data, c->pos + length);
	cursor_seek(&e.body, c->pos);
	cursor_skip(c, length);
	e.id_at = e.body.pos;
	/* .eh_frame keeps the id 4 bytes wide in the 64-bit format too, by the LSB and by gcc. */
	id = e.is_64 && cfi->is_debug ? cursor_u64(&e.body) : cursor_u32(&e.body);
	if (e.body.bad)
		return NEXT_SKIP;
	if (cfi->is_debug) {
		e.is_cie = id == (e.is_64 ? UINT64_MAX : UINT32_MAX);
		e.cie_at = id;
	} else {
		e.is_cie = id == 0;
		e.cie_at = e.id_at - id;
	}
	*ret = e;
	return NEXT_ENTRY;
}

/* Reads the data of a CIE's augmentation string LETTERS. False when it cannot be understood. */
static bool read_augmentation(const struct cfi *cfi, struct cursor *c, const char *letters,
			      struct cfi_cie *cie)
{
	uint64_t length, end;

	if (letters[0] == 0)
		return true;
	if (letters[0] != 'z')
		return false;
	cie->has_augmentation = true;
	length = cursor_uleb(c);
	if (length > cursor_left(c))
		return false;
	end = c->pos + length;
	for (letters++; *letters; letters++) {
		uint8_t encoding;

		if (*letters == 'R') {
			cie->encoding = cursor_u8(c);
		} else if (*letters == 'P') {
			encoding = cursor_u8(c);
			(void)cfi_pointer(cfi, c, encoding & (uint8_t)~PE_INDIRECT);
		} else if (*letters == 'L') {
			cursor_skip(c, 1);
		} else if (*letters == 'S') {
			cie->is_signal = true;
		} else if (*letters != 'B' && *letters != 'G') { /* arm64: PAC key, MTE */
			break;
		}
	}
	if (c->bad || c->pos > end)
		return false;
	cursor_seek(c, end);
	return true;
}

static bool read_cie(struct cfi *cfi, struct cursor c, struct cfi_cie *cie)
{
	uint8_t version = cursor_u8(&c);
	const char *letters = cursor_str(&c);
	uint64_t ra;

	if (!letters || (version != 1 && version != 3 && version != 4))
		return false;
	if (version == 4) {
		uint8_t address = cursor_u8(&c), segment = cursor_u8(&c);

		if (address != 8 || segment != 0)
			return false;
	}
	if (streq(letters, "eh")) { /* gcc 2: a pointer to its exception table */
		cursor_skip(&c, 8);
		letters = "";
	}
	cie->code_align = cursor_uleb(&c);
	cie->data_align = cursor_sleb(&c);
	ra = version == 1 ? cursor_u8(&c) : cursor_uleb(&c);
	cie->encoding = PE_ABSPTR;
	if (c.bad || ra != ARCH_REG_RA || !read_augmentation(cfi, &c, letters, cie))
		return false;
	if (c.bad || cie->encoding == PE_OMIT)
		return false;
	return cfi_run(cfi, cie, c, &cie->initial, 0, NULL, NULL);
}

static int add_cie(struct cfi *cfi, const struct entry *e)
{
	struct cfi_cie cie = {.at = e->at};
	int r;

	r = grow_array((void **)&cfi->cies, &cfi->cies_cap, cfi->n_cies + 1, sizeof(*cfi->cies),
		       CFI_CIES_MAX);
	if (r == -ENOMEM)
		return r;
	cie.is_bad = r < 0 || !read_cie(cfi, e->body, &cie);
	if (cie.is_bad)
		cfi->malformed++;
	if (r == 0)
		cfi->cies[cfi->n_cies++] = cie;
	cfi->last = NULL; /* the array may have moved */
	return 0;
}

static const struct cfi_cie *find_cie(struct cfi *cfi, uint64_t at)
{
	size_t low = 0, high = cfi->n_cies;

	if (cfi->last && cfi->last->at == at)
		return cfi->last;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (cfi->cies[middle].at < at)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == cfi->n_cies || cfi->cies[low].at != at || cfi->cies[low].is_bad)
		return NULL;
	return cfi->last = &cfi->cies[low];
}

static bool read_fde(struct cfi *cfi, struct entry *e, struct cfi_fde *ret)
{
	struct cfi_fde f = {.cie = find_cie(cfi, e->cie_at)};
	struct cursor *c = &e->body;
	uint64_t length;

	if (!f.cie)
		return false;
	f.start = cfi_pointer(cfi, c, f.cie->encoding);
	f.size = read_format(c, f.cie->encoding & PE_FORMAT);
	if (f.cie->has_augmentation) {
		length = cursor_uleb(c);
		if (length > cursor_left(c))
			return false;
		cursor_skip(c, length);
	}
	if (c->bad)
		return false;
	f.program = *c;
	*ret = f;
	return true;
}

bool cfi_read_fde(struct cfi *cfi, uint64_t at, struct cfi_fde *ret)
{
	struct cursor c = cfi->data;
	struct entry e;

	cursor_seek(&c, at);
	return next_entry(cfi, &c, &e) == NEXT_ENTRY && !e.is_cie && read_fde(cfi, &e, ret);
}

/* ---- spans ------------------------------------------------------------------------------------
 */

/* Cuts [start, start + size) to the executable segment that holds START. */
static bool cut_to_segment(const struct image *image, uint64_t start, uint64_t *size)
{
	for (size_t i = 0; i < image->n_segments; i++) {
		const struct image_segment *s = &image->segments[i];

		if (!(s->flags & PF_X) || start < s->vaddr || start - s->vaddr >= s->memsz)
			continue;
		*size = MIN(*size, s->memsz - (start - s->vaddr));
		*size = MIN(*size, (uint64_t)SPAN_SIZE_MAX);
		return *size > 0;
	}
	return false;
}

static int add_fde(struct cfi *cfi, struct entry *e, struct spans *spans)
{
	struct cfi_fde f;

	if (e->at > UINT32_MAX || !read_fde(cfi, e, &f)) {
		cfi->malformed++;
		return 0;
	}
	/* Functions that the linker dropped stand at 0. */
	if (f.start == 0 || !cut_to_segment(cfi->image, f.start, &f.size))
		return 0;
	return spans_add(spans,
			 &(struct span){.start = f.start,
					.size = (uint32_t)f.size,
					.source = cfi->is_debug ? SPAN_DEBUG_FRAME : SPAN_EH_FRAME,
					.item = (uint32_t)e->at});
}

/* One pass over the section for the CIEs, the FDEs, or both. */
static int scan(struct cfi *cfi, bool cies, bool fdes, struct spans *spans)
{
	struct cursor c = cfi->data;
	enum next next;
	struct entry e;

	while ((next = next_entry(cfi, &c, &e)) != NEXT_END) {
		int r = 0;

		pace_point();
		if (next == NEXT_SKIP)
			continue;
		if (e.is_cie && cies)
			r = add_cie(cfi, &e);
		else if (!e.is_cie && fdes)
			r = add_fde(cfi, &e, spans);
		if (r < 0)
			return r;
	}
	return 0;
}

int cfi_collect(struct cfi *cfi, struct spans *spans)
{
	int r;

	/* The CIE pointer of .eh_frame counts backwards; that of .debug_frame may point anywhere.
	 */
	if (!cfi->is_debug)
		return scan(cfi, true, true, spans);
	r = scan(cfi, true, false, spans);
	return r < 0 ? r : scan(cfi, false, true, spans);
}

/* ---- sections ---------------------------------------------------------------------------------
 */

static uint64_t section_vaddr(const struct image *image, const char *name)
{
	const struct image_section *s = image_section(image, name);

	return s ? s->vaddr : 0;
}

/* A struct cfi of IMAGE that has no section yet. */
static struct cfi cfi_of(const struct image *image)
{
	return (struct cfi){.image = image,
			    .text = section_vaddr(image, ".text"),
			    .got = section_vaddr(image, ".got")};
}

/* Without section headers: PT_GNU_EH_FRAME leads to .eh_frame (LSB 5, "The .eh_frame_hdr section").
 */
static int open_by_header(struct cfi *cfi)
{
	struct cursor c = image_at_vaddr(cfi->image, cfi->image->eh_frame_hdr);
	struct cfi header = {.image = cfi->image,
			     .vaddr = cfi->image->eh_frame_hdr,
			     .text = cfi->text,
			     .got = cfi->got};
	uint8_t version = cursor_u8(&c), encoding = cursor_u8(&c);

	cursor_skip(&c, 2);
	cfi->vaddr = cfi_pointer(&header, &c, encoding);
	if (c.bad || version != 1 || cfi->vaddr == 0)
		return -ENOENT;
	cfi->data = image_at_vaddr(cfi->image, cfi->vaddr);
	cfi->is_terminated = true;
	cfi->data.size = MIN(cfi->data.size, (size_t)EH_FRAME_MAX);
	return cfi->data.bad ? -ENOENT : 0;
}

int cfi_open_eh_frame(struct cfi *cfi, const struct image *image)
{
	const struct image_section *s = image_section(image, ".eh_frame");

	*cfi = cfi_of(image);
	if (!s || s->type == SHT_NOBITS)
		return image->eh_frame_hdr ? open_by_header(cfi) : -ENOENT;
	cfi->data = image_section_data(image, s);
	cfi->data.size = MIN(cfi->data.size, (size_t)EH_FRAME_MAX);
	cfi->vaddr = s->vaddr;
	return cfi->data.bad ? -ENOENT : 0;
}

int cfi_open_debug_frame(struct cfi *cfi, const struct image *image)
{
	const struct image_section *s = image_section(image, ".debug_frame");

	if (!s)
		s = image_section(image, ".zdebug_frame");
	*cfi = cfi_of(image);
	cfi->is_debug = true;
	if (!s || s->type == SHT_NOBITS)
		return -ENOENT;
	return image_section_unpack(image, s, DEBUG_FRAME_MAX, &cfi->owned, &cfi->data, NULL);
}

void cfi_done(struct cfi *cfi)
{
	free(cfi->owned);
	free(cfi->cies);
	*cfi = (struct cfi){0};
}
