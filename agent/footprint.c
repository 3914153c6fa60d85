/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The libraries of the network exporters are large, and the dynamic linker reads all of their
 * symbols and relocations once; after that most of it is dead weight in the RSS. Only segments that
 * are never written are given back, so a page that comes again is the file's, as it was. Segments
 * that relocation writes to (PT_GNU_RELRO lies in them) are not touched.
 */
#include "agent/footprint.h"

#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "lib/base.h"
#include "lib/log.h"

enum { FILES_ENOUGH = 65536 };

void footprint_raise_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= FILES_ENOUGH)
		return;
	limit.rlim_cur = MIN(limit.rlim_max, FILES_ENOUGH);
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		log_debug("agent", "limit of open files: %m");
}

static int trim_object(struct dl_phdr_info *object, size_t size, void *arg)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		uintptr_t start = object->dlpi_addr + segment->p_vaddr, end;

		/* Objects with text relocations, whose changes to read-only segments would be lost,
		 * are not expected. */
		if (segment->p_type != PT_LOAD || segment->p_flags & PF_W)
			continue;
		end = start + segment->p_filesz;
		start &= ~(page - 1);
		(void)madvise((void *)start, ALIGN_UP(end - start, page), MADV_DONTNEED);
	}
	return 0;
}

/* jemalloc's, when that is the allocator (mallctl(3); 4096: MALLCTL_ARENAS_ALL). */
extern int mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size)
    __attribute__((weak));

void footprint_trim(void)
{
	(void)dl_iterate_phdr(trim_object, NULL);
	if (mallctl)
		(void)mallctl("arena.4096.purge", NULL, NULL, NULL, 0);
}

void footprint_decay(void)
{
	if (mallctl)
		(void)mallctl("arena.4096.decay", NULL, NULL, NULL, 0);
}

/*
 * Pages by /proc/self/statm (proc(5)): in memory, and how many of them are of files or shared.
 * False: the file cannot be read. It stays open: to open it costs more than to read it, and it is
 * read each second.
 */
static bool read_pages(unsigned long long *ret_resident, unsigned long long *ret_shared)
{
	static int fd = -1;
	char text[128];
	ssize_t n;

	if (fd < 0)
		fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return false;
	text[n] = 0;
	return sscanf(text, "%*u %llu %llu", ret_resident, ret_shared) == 2;
}

uint64_t footprint_anonymous(void)
{
	unsigned long long resident, shared;

	return read_pages(&resident, &shared)
		   ? (resident - MIN(resident, shared)) * (uint64_t)sysconf(_SC_PAGESIZE)
		   : 0;
}

uint64_t footprint_resident(void)
{
	unsigned long long resident, shared;

	return read_pages(&resident, &shared) ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}
