/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slabs without a kernel: a shard is a file in memory, and the array of maps, which only programs
 * read, does not exist. The tests are linked with --wrap for the calls of libbpf below.
 */
#include <bpf/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

int __wrap_bpf_map_create(enum bpf_map_type type, const char *name, uint32_t key_size,
			  uint32_t value_size, uint32_t max_entries,
			  const struct bpf_map_create_opts *options);
int __wrap_bpf_map_update_elem(int fd, const void *key, const void *value, uint64_t flags);
int __wrap_bpf_map_update_batch(int fd, const void *keys, const void *values, uint32_t *count,
				const struct bpf_map_batch_opts *options);
int __wrap_bpf_map_delete_elem(int fd, const void *key);

int __wrap_bpf_map_create(enum bpf_map_type type, const char *name, uint32_t key_size,
			  uint32_t value_size, uint32_t max_entries,
			  const struct bpf_map_create_opts *options)
{
	int fd = memfd_create(name, MFD_CLOEXEC);

	if (fd >= 0 && ftruncate(fd, (off_t)value_size * max_entries) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

int __wrap_bpf_map_update_elem(int fd, const void *key, const void *value, uint64_t flags)
{
	return 0;
}

int __wrap_bpf_map_update_batch(int fd, const void *keys, const void *values, uint32_t *count,
				const struct bpf_map_batch_opts *options)
{
	return 0;
}

int __wrap_bpf_map_delete_elem(int fd, const void *key)
{
	return 0;
}
