// SPDX-License-Identifier: Apache-2.0
/*
 * Opening ELF files: identification, segments, sections, notes. See image.h for the rules about
 * foreign bytes. Section headers are a convenience that stripped files lack or that a packer
 * ruined: when they do not fit the file, the image has none. Program headers are what the kernel
 * loads by, so a file without usable ones is refused. Any thread; an image is not written to once
 * it is open, except as image.h says.
 */
#include "agent/elf/image.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <openssl/sha.h>

#include "agent/elf/arch.h"
#include "agent/elf/content.h"
#include "agent/elf/image_fault.h"

enum {
	HASH_BLOCK = 4096,
	RUST_SCAN_MAX = 1 << 20,
	NOTE_BYTES_MAX = 1 << 20,
	SECTION_NAME_MAX = 4096,
	PAGE = 4096,
	NT_GO_BUILD_ID = 4, /* Go: cmd/internal/buildid/note.go, ELF_NOTE_GOBUILDID_TAG */
};

static bool in_file(const struct image *image, uint64_t offset, uint64_t size)
{
	return offset <= image->size && size <= image->size - offset;
}

static struct cursor file_range(const struct image *image, uint64_t offset, uint64_t size)
{
	if (!in_file(image, offset, size))
		return (struct cursor){.bad = true};
	return cursor_of(image->data + offset, size);
}

/* ---- headers ----------------------------------------------------------------------------------
 */

static int check_header(struct image *image, Elf64_Ehdr *ret, struct error *err)
{
	Elf64_Ehdr h;

	if (image->size < EI_NIDENT || memcmp(image->data, ELFMAG, SELFMAG) != 0)
		return error_set(err, -ENOEXEC, "not an ELF file");
	if (image->data[EI_CLASS] != ELFCLASS64)
		return error_set(err, -ENOEXEC, "not a 64-bit ELF file");
	if (image->data[EI_DATA] != ELFDATA2LSB)
		return error_set(err, -ENOEXEC, "not a little-endian ELF file");
	if (image->size < sizeof(h))
		return error_set(err, -ENOEXEC, "ELF header cut short");
	memcpy(&h, image->data, sizeof(h));
	if (h.e_machine != arch_machine)
		return error_set(err, -ENOEXEC, "ELF file of another machine (%u)", h.e_machine);
	if (h.e_type != ET_EXEC && h.e_type != ET_DYN)
		return error_set(err, -ENOEXEC, "ELF type %u is not executable", h.e_type);
	if (h.e_phnum == 0 || h.e_phentsize != sizeof(Elf64_Phdr))
		return error_set(err, -ENOEXEC, "no program headers");
	if (!in_file(image, h.e_phoff, (uint64_t)h.e_phnum * sizeof(Elf64_Phdr)))
		return error_set(err, -ENOEXEC, "program headers cut short");
	image->machine = h.e_machine;
	image->type = h.e_type;
	image->entry = h.e_entry;
	*ret = h;
	return 0;
}

/*
 * *BUDGET: bytes that may still be read; for all calls together, as many headers may name the same
 * bytes.
 */
static void read_notes(struct image *image, struct cursor c, uint64_t align, size_t *budget)
{
	c.size = MIN(c.size, c.pos + *budget);
	*budget -= cursor_left(&c);
	while (cursor_left(&c) >= sizeof(Elf64_Nhdr)) {
		uint32_t namesz = cursor_u32(&c), descsz = cursor_u32(&c), type = cursor_u32(&c);
		const uint8_t *name = cursor_bytes(&c, namesz), *desc;

		cursor_skip(&c, MIN(ALIGN_UP(c.pos, align) - c.pos, cursor_left(&c)));
		desc = cursor_bytes(&c, descsz);
		cursor_skip(&c, MIN(ALIGN_UP(c.pos, align) - c.pos, cursor_left(&c)));
		if (!name || !desc || !descsz)
			continue;
		if (type == NT_GNU_BUILD_ID && namesz == 4 && memcmp(name, "GNU", 4) == 0 &&
		    descsz <= IMAGE_BUILD_ID_MAX && !image->build_id_len) {
			memcpy(image->build_id, desc, descsz);
			image->build_id_len = descsz;
		} else if (type == NT_GO_BUILD_ID && namesz == 4 && memcmp(name, "Go\0", 4) == 0 &&
			   descsz < sizeof(image->go_build_id)) {
			memcpy(image->go_build_id, desc, descsz);
			image->go_build_id[descsz] = 0;
		}
	}
}

static int read_segments(struct image *image, const Elf64_Ehdr *h, struct error *err)
{
	size_t cap = MIN(h->e_phnum, IMAGE_SEGMENTS_MAX), budget = NOTE_BYTES_MAX;
	bool executable = false;

	image->segments = calloc(cap, sizeof(*image->segments));
	if (!image->segments)
		return error_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < h->e_phnum; i++) {
		Elf64_Phdr p;

		memcpy(&p, image->data + h->e_phoff + i * sizeof(p), sizeof(p));
		if (p.p_type == PT_GNU_EH_FRAME)
			image->eh_frame_hdr = p.p_vaddr;
		if (p.p_type == PT_NOTE)
			read_notes(image, file_range(image, p.p_offset, p.p_filesz),
				   p.p_align == 8 ? 8 : 4, &budget);
		if (p.p_type != PT_LOAD || p.p_memsz == 0)
			continue;
		if (p.p_vaddr + p.p_memsz < p.p_vaddr || p.p_filesz > p.p_memsz)
			return error_set(err, -ENOEXEC, "program header %zu is damaged", i);
		if (image->n_segments == cap)
			return error_set(err, -ENOEXEC, "more than %d segments",
					 IMAGE_SEGMENTS_MAX);
		/* A truncated file can be executed up to its end, so its segment is truncated
		 * too. */
		image->segments[image->n_segments++] = (struct image_segment){
		    .vaddr = p.p_vaddr,
		    .memsz = p.p_memsz,
		    .offset = MIN(p.p_offset, image->size),
		    .filesz =
			p.p_offset < image->size ? MIN(p.p_filesz, image->size - p.p_offset) : 0,
		    .flags = p.p_flags,
		};
		executable |= p.p_flags & PF_X;
	}
	if (!executable)
		return error_set(err, -ENOEXEC, "no executable segment");
	return 0;
}

static const char *section_name(const struct cursor *names, uint32_t at)
{
	struct cursor c = *names;
	const char *s;

	cursor_seek(&c, at);
	c.size = MIN(c.size, c.pos + SECTION_NAME_MAX);
	s = cursor_str(&c);
	return s ? s : "";
}

static int read_sections(struct image *image, const Elf64_Ehdr *h, struct error *err)
{
	struct cursor names = {.bad = true};
	Elf64_Shdr first, s;
	size_t n, strings, budget = NOTE_BYTES_MAX;

	if (!h->e_shoff || h->e_shentsize != sizeof(s) || !in_file(image, h->e_shoff, sizeof(s)))
		return 0;
	memcpy(&first, image->data + h->e_shoff, sizeof(first));
	n = h->e_shnum ? h->e_shnum : first.sh_size; /* gABI: "extended section numbering" */
	strings = h->e_shstrndx == SHN_XINDEX ? first.sh_link : h->e_shstrndx;
	if (n == 0 || n > IMAGE_SECTIONS_MAX || !in_file(image, h->e_shoff, n * sizeof(s)))
		return 0;
	if (strings < n) {
		memcpy(&s, image->data + h->e_shoff + strings * sizeof(s), sizeof(s));
		if (s.sh_type == SHT_STRTAB)
			names = file_range(image, s.sh_offset, s.sh_size);
	}
	image->sections = calloc(n, sizeof(*image->sections));
	if (!image->sections)
		return error_set(err, -ENOMEM, "out of memory");
	image->n_sections = n;
	for (size_t i = 0; i < n; i++) {
		memcpy(&s, image->data + h->e_shoff + i * sizeof(s), sizeof(s));
		image->sections[i] = (struct image_section){
		    .name = section_name(&names, s.sh_name),
		    .vaddr = s.sh_addr,
		    .offset = s.sh_offset,
		    .size = s.sh_size,
		    .entsize = s.sh_entsize,
		    .type = s.sh_type,
		    .link = s.sh_link,
		    .info = s.sh_info,
		    .flags = s.sh_flags,
		};
		if (s.sh_type == SHT_NOTE)
			read_notes(image, file_range(image, s.sh_offset, s.sh_size),
				   s.sh_addralign == 8 ? 8 : 4, &budget);
	}
	return 0;
}

/* ---- what kind of file it is ------------------------------------------------------------------
 */

static bool section_contains(const struct image *image, const char *name, const char *text)
{
	const struct image_section *s = image_section(image, name);
	struct cursor c = {.bad = true};

	if (s)
		c = image_section_data(image, s);
	return !c.bad && memmem(c.data, MIN(c.size, (size_t)RUST_SCAN_MAX), text, strlen(text));
}

static void detect_language(struct image *image)
{
	image->is_go = image->go_build_id[0] || image_section(image, ".gopclntab") ||
		       image_section(image, ".go.buildinfo");
	/* rustc names itself in .comment; panic messages hold its source path where that is gone.
	 */
	image->is_rust = section_contains(image, ".comment", "rustc version") ||
			 (!image_section(image, ".comment") && !image->is_go &&
			  section_contains(image, ".rodata", "/rustc/"));
}

/* OpenTelemetry semantic conventions, process.executable.build_id.htlhash. */
static void hash_file(struct image *image)
{
	size_t n = MIN(image->size, (size_t)HASH_BLOCK);
	uint8_t in[2 * HASH_BLOCK + 8], digest[SHA256_DIGEST_LENGTH];
	uint64_t size = image->size;

	memcpy(in, image->data, n);
	memcpy(in + n, image->data + image->size - n, n);
	for (int i = 0; i < 8; i++)
		in[2 * n + i] = (uint8_t)(size >> (56 - 8 * i));
	SHA256(in, 2 * n + 8, digest);
	for (int i = 0; i < 16; i++)
		snprintf(image->htlhash + 2 * i, 3, "%02x", digest[i]);
}

/* ---- construction -----------------------------------------------------------------------------
 */

static void drop_bytes(struct image *image)
{
	if (image->is_mapped) {
		image_fault_remove(image->data);
		munmap((void *)image->data, ALIGN_UP(image->size, PAGE) + PAGE);
	} else {
		free((void *)image->data);
	}
	if (image->fd >= 0)
		close(image->fd);
	free(image->sections); /* their names are in the bytes */
	image->sections = NULL;
	image->n_sections = 0;
	image->data = NULL;
	image->size = 0;
	image->is_mapped = false;
	image->fd = -1;
}

static struct image *image_free(struct image *image)
{
	drop_bytes(image);
	free(image->segments);
	free(image->path);
	free(image);
	return NULL;
}

struct image *image_ref(struct image *image)
{
	atomic_fetch_add_explicit(&image->refs, 1, memory_order_relaxed);
	return image;
}

struct image *image_unref(struct image *image)
{
	if (image && atomic_fetch_sub_explicit(&image->refs, 1, memory_order_acq_rel) == 1)
		image_free(image);
	return NULL;
}

static struct image *image_new(const char *path)
{
	struct image *image = calloc(1, sizeof(*image));

	if (!image)
		return NULL;
	image->fd = -1;
	atomic_init(&image->refs, 1);
	image->path = strdup(path);
	if (!image->path)
		return image_free(image);
	return image;
}

static int read_all(struct image *image, struct error *err)
{
	Elf64_Ehdr h = {0};
	int r;

	r = check_header(image, &h, err);
	if (r < 0)
		return r;
	r = read_segments(image, &h, err);
	if (r < 0)
		return r;
	r = read_sections(image, &h, err);
	if (r < 0)
		return r;
	detect_language(image);
	hash_file(image);
	return 0;
}

/* The file, and behind it at least one page of zeros. */
static int map_file(struct image *image, struct error *err)
{
	size_t span = ALIGN_UP(image->size, PAGE) + PAGE;
	void *at;
	int r;

	at = mmap(NULL, span, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return error_set(err, -errno, "mmap: %s", strerror(errno));
	if (mmap(at, image->size, PROT_READ, MAP_PRIVATE | MAP_FIXED, image->fd, 0) == MAP_FAILED) {
		r = -errno;
		munmap(at, span);
		return error_set(err, r, "mmap: %s", strerror(-r));
	}
	r = image_fault_add(at, span - PAGE);
	if (r < 0) {
		munmap(at, span);
		return error_set(err, r, "more than %d images", IMAGE_MAPPED_MAX);
	}
	image->data = at;
	image->is_mapped = true;
	return 0;
}

int image_open(int fd, const char *path, struct image **ret, struct error *err)
{
	_cleanup_(image_unrefp) struct image *image = NULL;
	_cleanup_close_ int owned = fd;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return error_set(err, -errno, "fstat: %s", strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_size < EI_NIDENT)
		return error_set(err, -ENOEXEC, "not an ELF file");
	image = image_new(path);
	if (!image)
		return error_set(err, -ENOMEM, "out of memory");
	image->fd = TAKE_FD(owned);
	image->size = (size_t)st.st_size;
	r = map_file(image, err);
	if (r < 0)
		return r;
	r = read_all(image, err);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(image);
	return 0;
}

int image_open_headers(int fd, const char *path, struct image **ret, struct error *err)
{
	_cleanup_(image_unrefp) struct image *image = NULL;
	int r = image_open(fd, path, &image, err);

	if (r < 0)
		return r;
	drop_bytes(image);
	image->is_headers = true;
	image->data = calloc(1, 1); /* readers may make pointers to the end of no bytes */
	if (!image->data)
		return error_set(err, -ENOMEM, "out of memory");
	image_keep_unshared(image);
	*ret = TAKE_PTR(image);
	return 0;
}

int image_from_memory(const void *data, size_t size, const char *path, struct image **ret,
		      struct error *err)
{
	_cleanup_(image_unrefp) struct image *image = image_new(path);
	uint8_t *copy;
	int r;

	copy = image ? malloc(size + 1) : NULL;
	if (!copy)
		return error_set(err, -ENOMEM, "out of memory");
	if (size)
		memcpy(copy, data, size);
	copy[size] = 0; /* strings end, as in mapped files */
	image->data = copy;
	image->size = size;
	r = read_all(image, err);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(image);
	return 0;
}

int image_copy(const struct image *image, struct image **ret, struct error *err)
{
	_cleanup_(image_unrefp) struct image *copy = NULL;
	size_t done = 0;
	uint8_t *data;
	ssize_t n;
	int r;

	if (image->is_headers)
		return error_set(err, -EFBIG, "only the file's headers were read");
	if (image->fd < 0)
		return image_from_memory(image->data, image->size, image->path, ret, err);
	if (image->size > IMAGE_COPY_MAX)
		return error_set(err, -EFBIG, "file of %zu bytes", image->size);
	copy = image_new(image->path);
	data = copy ? malloc(image->size + 1) : NULL;
	if (!data)
		return error_set(err, -ENOMEM, "out of memory");
	copy->data = data;
	copy->size = image->size;
	while (done < image->size) {
		n = pread(image->fd, data + done, image->size - done, (off_t)done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_set(err, n < 0 ? -errno : -EIO, "cannot read the file");
		done += (size_t)n;
	}
	data[done] = 0; /* strings end, as in mapped files */
	r = read_all(copy, err);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(copy);
	return 0;
}

int image_vdso(struct image **ret, struct error *err)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/maps", "re");
	char line[PATH_MAX + 128];

	if (!f)
		return error_set(err, -errno, "/proc/self/maps: %s", strerror(errno));
	while (fgets(line, sizeof(line), f)) {
		unsigned long start, end;

		if (strstr(line, "[vdso]") && sscanf(line, "%lx-%lx", &start, &end) == 2)
			return image_from_memory((const void *)start, end - start, "[vdso]", ret,
						 err);
	}
	return error_set(err, -ENOENT, "this kernel maps no vDSO");
}

/* ---- access -----------------------------------------------------------------------------------
 */

const struct image_section *image_section(const struct image *image, const char *name)
{
	for (size_t i = 0; i < image->n_sections; i++)
		if (streq(image->sections[i].name, name))
			return &image->sections[i];
	return NULL;
}

struct cursor image_section_data(const struct image *image, const struct image_section *section)
{
	if (section->type == SHT_NOBITS || section->type == SHT_NULL)
		return (struct cursor){.bad = true};
	return file_range(image, section->offset, section->size);
}

struct cursor image_at_vaddr(const struct image *image, uint64_t vaddr)
{
	for (size_t i = 0; i < image->n_segments; i++) {
		const struct image_segment *s = &image->segments[i];

		if (vaddr >= s->vaddr && vaddr - s->vaddr < s->filesz)
			return file_range(image, s->offset + (vaddr - s->vaddr),
					  s->filesz - (vaddr - s->vaddr));
	}
	return (struct cursor){.bad = true};
}

bool image_is_code(const struct image *image, uint64_t vaddr)
{
	for (size_t i = 0; i < image->n_segments; i++) {
		const struct image_segment *s = &image->segments[i];

		if ((s->flags & PF_X) && vaddr >= s->vaddr && vaddr - s->vaddr < s->memsz)
			return true;
	}
	return false;
}

bool image_offset_to_vaddr(const struct image *image, uint64_t offset, uint64_t *ret_vaddr)
{
	/* First by the exact bounds of segments, then by bounds rounded to pages, as mmap() maps
	 * them. */
	for (uint64_t page = 1; page <= PAGE; page *= PAGE) {
		for (size_t i = 0; i < image->n_segments; i++) {
			const struct image_segment *s = &image->segments[i];
			uint64_t start = s->offset / page * page;
			uint64_t end = ALIGN_UP(s->offset + s->filesz, page);

			if (!(s->flags & PF_X) || offset < start || offset >= end)
				continue;
			*ret_vaddr = s->vaddr + (offset - s->offset);
			return true;
		}
	}
	return false;
}

void image_forget(const struct image *image)
{
	if (image->is_mapped)
		madvise((void *)image->data, ALIGN_UP(image->size, PAGE), MADV_DONTNEED);
}

void image_build_id_hex(const struct image *image, char *out, size_t size)
{
	if (size == 0)
		return;
	out[0] = 0;
	for (size_t i = 0; i < image->build_id_len && 2 * i + 3 <= size; i++)
		snprintf(out + 2 * i, 3, "%02x", image->build_id[i]);
}
