/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The contract between the BPF side and user space: every struct that crosses a map or the ring
 * buffer. Fixed widths, explicit padding, asserted sizes. Also compiled for the host (tests, and
 * the finisher that completes a walk in user space), so it includes nothing but fixed-width types.
 */
#pragma once

#ifndef __bpf__
#include <stdint.h>
#define KILN_ASSERT_SIZE(type, n) _Static_assert(sizeof(struct type) == (n), "size of " #type)
#else
typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef short int16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
#define KILN_ASSERT_SIZE(type, n) _Static_assert(sizeof(struct type) == (n), "size of " #type)
#endif

/* ---- the time between two samples ------------------------------------------------------------ */

/*
 * The sampling period of a rate of HZ: ns of CPU time that each sample stands for.
 *
 * It is 1.14 % shorter than 1/HZ s, so that sampling does not stay in step with programs that wake
 * at a round rate. At exactly 20 Hz, one that wakes every 10 ms would be interrupted at the same
 * point of its work each time, and the rest of its work would have no samples.
 *
 * The factor was found by simulation: rates from 5 to 1,000 Hz against programs that wake every 1,
 * 2, 4, 5, 10, 16.7, 20, 25, 33.3, 40, 50, 100, 125, 200, 250 and 500 ms. After 20 s, the share of
 * samples in any part of such a program's period is wrong by 0.16 at most (89 Hz, 33.3 ms), mostly
 * by less than 0.1; with 1/HZ s by up to 1.
 */
static inline uint64_t kiln_period(uint32_t hz)
{
	const uint64_t second = 1000000000;

	return hz ? (second - second * 114 / 10000) / hz : second;
}

/* ---- limits ---------------------------------------------------------------------------------- */

enum {
	KILN_MAX_USER_FRAMES = 1024,
	KILN_SHORT_DEPTH = 32,	      /* user frames while the budget asks for short stacks */
	KILN_MAX_KERNEL_FRAMES = 127, /* kernel.perf_event_max_stack's default */
	KILN_COMM_LEN = 16,
	KILN_LEAF_REGS = 33,	   /* registers of a leaf: 33 on arm64, 17 on x86-64 */
	KILN_DUMP_MAX = 28 * 4096, /* bytes of user stack in one record, at most */
	/* The limit while the ring fills up, or after KILN_DUMPS_LARGE large dumps this second. */
	KILN_DUMP_SMALL = 20480,
	KILN_DUMP_PAGES = 256,	/* pages of the stack that a dump can cover: 1 MiB */
	KILN_DUMP_GAP = 16,	/* longest run of unreadable pages in most dumps: dump_page() */
	KILN_DUMPS_LARGE = 32,	/* large dumps per second on each CPU */
	KILN_SHARE_FREE = 2048, /* bytes of a record that no cgroup is charged for: bpf/share.h */
	/* Bytes. Stacks are taken to be smaller than this (default limit: 8 MiB), so a walk that
	 * went further than this from the leaf's stack pointer has gone wrong. */
	KILN_FAR_STACK = 16 << 20,
	/* Bytes below the stack pointer that may be in use (x86-64 psABI 3.2.2; on arm64 there is
	 * no red zone, but Go saves the frame pointer below the stack pointer). */
	KILN_RED_ZONE = 128,
	KILN_RECORD_MAX = 1 << 17, /* bytes; each CPU has scratch memory for one record */
	KILN_MAX_PROBES = 32, /* twice the probes allowed, so that numbers are not reused soon */
	KILN_MAX_POLICIES = 256,
	KILN_MAX_CGROUPS = 8192,	 /* cgroups that have a policy of their own */
	KILN_MAX_IMAGES = 4096,		 /* unwind tables that can be loaded at once */
	KILN_SLOT_BYTES = 64,		 /* value size of the flat arrays: one cache line */
	KILN_UNWIND_SHARD_SLOTS = 8192,	 /* 512 KiB; a power of 2 */
	KILN_MAPPING_SHARD_PAIRS = 4096, /* 256 KiB; a power of 2 */
	KILN_CACHE_ENTRIES = 1024,	 /* rule cache of each CPU, 32 B per entry */
	KILN_SHARED_ENTRIES = 1024,  /* cache of rules that processes share, per CPU, 32 B each */
	KILN_CACHE_ENTRY_BYTES = 32, /* struct kiln_cache_entry */
	KILN_MAX_USER_WORDS = 8192,  /* words of all user frames of one sample */
	KILN_RUNTIME_CREDIT = 4,     /* native frames that each runtime frame adds to the depth */
	KILN_MAX_RUNTIMES = 2048,    /* entries of `runtimes` */
	KILN_RUNTIME_BYTES = 240,    /* bytes of a runtime's own data in such an entry */
	KILN_TEXT_BYTES = 296,	     /* bytes of a runtime's own data in a struct kiln_text */
	KILN_LABEL_BYTES = 1024,     /* bytes of one set of labels */
	KILN_LABEL_KEY_MAX = 127,    /* bytes of a key; longer keys and values are cut off */
	KILN_LABEL_VALUE_MAX = 255,
	KILN_LABELS_MAX = 16, /* labels from Go and custom-labels in one set */
};

/*
 * Offset, in bytes, of the entry for KEY in a rule cache that has ENTRIES entries (a power of 2).
 * The hash is Fibonacci hashing: KEY times 2^64 / golden ratio, of which upper bits are taken
 * (Knuth, The Art of Computer Programming, volume 3, section 6.4).
 */
#define KILN_CACHE_PLACE(key, entries)                                                             \
	((((key)*0x9e3779b97f4a7c15ULL) >> 35) & (((uint64_t)(entries)-1) * KILN_CACHE_ENTRY_BYTES))

/* ---- unwind tables --------------------------------------------------------------------------- */

/* clang-format off: it would reflow the table. */
/*
 * How to step from a frame to its caller. A rule knows four registers by their role: sp, fp (the
 * frame pointer), ra (the return address) and extra (one more callee-saved register that unwind
 * information or a runtime's walker needs). arch_x86.h and arch_arm64.h say which registers these
 * are. Registers are numbered as DWARF numbers them on the architecture.
 *
 * KILN_RULE_CFA      CFA = reg + cfa_off; return address at CFA + ra_off; fp at CFA + fp_off and
 *                    extra at CFA + extra_off when the flags say that they were saved.
 * KILN_RULE_DEREF    as CFA, but CFA = *(reg + cfa_off) + deref_off (stack realignment, OpenSSL).
 * KILN_RULE_PLT      x86-64 only. CFA = sp + 8 + ((pc & 15) >= cfa_off ? 8 : 0): the expression of
 *                    .plt (binutils bfd/elfxx-x86.c, elf_x86_64 eh_frame_plt).
 * KILN_RULE_FP       CFA = fp + 16; return address at fp + 8, caller's fp at fp (Go, JIT code).
 * KILN_RULE_SIGNAL   the rt signal frame's ucontext is at sp + cfa_off; all registers come from its
 *                    mcontext.
 * KILN_RULE_RA_REG   as CFA, but the return address is in register ra_off (arm64: functions that
 *                    have not saved x30; x86-64: vfork).
 * KILN_RULE_STOP     the outermost frame (return address undefined): the walk is complete.
 * KILN_RULE_INVALID  no rule for this code: the walk ends with KILN_END_NO_RULE.
 * KILN_RULE_UNREAD   code without unwind information that user space has not analyzed yet: the walk
 *                    ends with KILN_END_NO_TABLE, and user space analyzes the code
 *                    (docs/unwinding/code-frames.md).
 */
/* clang-format on */
enum kiln_rule_kind {
	KILN_RULE_INVALID,
	KILN_RULE_CFA,
	KILN_RULE_DEREF,
	KILN_RULE_PLT,
	KILN_RULE_FP,
	KILN_RULE_SIGNAL,
	KILN_RULE_RA_REG,
	KILN_RULE_STOP,
	KILN_RULE_UNREAD,
};

enum kiln_rule_flags {
	KILN_RULE_SAVED_FP = 1,	   /* fp of the caller is at CFA + fp_off */
	KILN_RULE_SAVED_EXTRA = 2, /* extra of the caller is at CFA + extra_off */
	/* fp_off and extra_off count from fp, not from the CFA (gcc's realigned stacks:
	 * DW_OP_breg6 n). */
	KILN_RULE_SAVED_AT_FP = 4,
	/* The CFA may lie on another stack, at a lower address too (Go: goroutine, g0, signal). */
	KILN_RULE_SWITCH = 8,
	/* A guess (JIT code by frame pointer): believed only if it leads into a known mapping. */
	KILN_RULE_GUESS = 16,
	/* Code of a runtime (enum kiln_runtime_id in deref_off): its walker runs first. */
	KILN_RULE_RUNTIME = 32,
	/* The code keeps a frame pointer whenever it calls. At a return address the caller is
	 * found through fp; the rule itself is used only when fp does not lead to a frame. */
	KILN_RULE_FRAME_POINTER = 64,
	/* arm64 only. ra_off, fp_off and extra_off count from the value of reg, not from the CFA:
	 * gcc saves registers at the low end of a frame, whatever its size. */
	KILN_RULE_AT_BASE = 128,
};

struct kiln_rule {
	uint8_t kind;	   /* enum kiln_rule_kind */
	uint8_t reg;	   /* DWARF number of the CFA's base register */
	uint8_t flags;	   /* enum kiln_rule_flags */
	int8_t ra_off;	   /* ARCH_RA_UNITs from the CFA; KILN_RULE_RA_REG: a register */
	int32_t cfa_off;   /* bytes */
	int16_t fp_off;	   /* in units of 8 bytes from the CFA */
	int16_t extra_off; /* in units of 8 bytes from the CFA */
	/* Bytes, KILN_RULE_DEREF only; with KILN_RULE_RUNTIME: the lowest five bits tell which
	 * runtime, the others are that runtime's own. */
	int32_t deref_off;
};
KILN_ASSERT_SIZE(kiln_rule, 16);

/* Kind, reg, flags and ra_off in one word, as they lie in memory. The enum has the lowest bits of
 * flags, of KILN_RULE_AT_BASE in flags, and of ra_off. */
enum { KILN_HEAD_FLAGS = 16, KILN_HEAD_BASE = 23, KILN_HEAD_RA = 24 };
#define KILN_HEAD(kind, reg, ra_off)                                                               \
	((uint32_t)(kind) | (uint32_t)(reg) << 8 | (uint32_t)(uint8_t)(ra_off) << KILN_HEAD_RA)
static inline uint32_t kiln_rule_head(const struct kiln_rule *rule)
{
	uint32_t head;

	__builtin_memcpy(&head, rule, sizeof(head));
	return head;
}

/* The rules in slot 0 of `unwind_slab`. They keep 0 from being the position of a table. */
enum kiln_builtin_rule { KILN_BUILTIN_INVALID, KILN_BUILTIN_FP };

/* One row: from this pc on, this rule holds. Sorted by pc within the table. */
struct kiln_row {
	uint16_t low;  /* low 16 bits of (pc - base) */
	uint16_t rule; /* index into the table's rules */
};
KILN_ASSERT_SIZE(kiln_row, 4);

enum {
	KILN_BLOCK_SHIFT = 10, /* one index entry per 1 KiB of code */
};

/*
 * One image's table. Everything lies in the slab `unwind_slab`, addressed in 4-byte words.
 * index[b] is the number of rows before block b (one extra entry at the end holds the total), so
 * the rows of block b are [index[b], index[b + 1]); a pc before the first of them belongs to the
 * row before (index[b] - 1), or to none when index[b] is 0.
 */
struct kiln_table {
	uint64_t base;	   /* ELF virtual address of block 0, a multiple of 1 KiB */
	uint32_t index_at; /* word of index[0] */
	uint32_t blocks;   /* 0: not loaded */
	uint32_t rows_at;  /* word of row 0 */
	uint32_t rows;
	uint32_t rules_at; /* word of rule 0, a multiple of 4 */
	uint32_t rules;
};
KILN_ASSERT_SIZE(kiln_table, 32);

/* ---- processes ------------------------------------------------------------------------------- */

/* One executable mapping. A process's mappings are sorted and lie together in `mapping_slab`. */
struct kiln_mapping {
	uint64_t start, end; /* [start, end) in the process */
	uint64_t bias;	     /* ELF virtual address = pc - bias (modulo 2^64) */
	/* Index in `tables`. 0: no file (JIT code); the walk uses frame pointers. With
	 * KILN_MAPPING_JIT it is the runtime's own table, which has process addresses and may cover
	 * only a part of the code. */
	uint32_t image;
	uint32_t flags; /* enum kiln_mapping_flags */
};
KILN_ASSERT_SIZE(kiln_mapping, 32);

enum kiln_mapping_flags {
	KILN_MAPPING_JIT = 1, /* anonymous executable memory */
	/* JIT code of this enum kiln_runtime_id: (flags >> SHIFT) & 31 */
	KILN_MAPPING_RUNTIME_SHIFT = 8,
	KILN_MAPPING_CERTAIN = 1 << 16, /* the runtime has recognized the code as its own */
};

/*
 * `processes`: tgid -> this. BPF adds a pending entry when it meets a process, user space fills it
 * in; a fork copies the parent's entry, the exit of the last thread deletes it (both in BPF).
 */
struct kiln_process {
	uint32_t first; /* index into mapping_slab, in mappings */
	uint32_t count;
	uint32_t mapset; /* id of this set of mappings, given by user space, unique; 0: not known */
	uint32_t flags;	 /* enum kiln_process_flags */
	/* task_struct.self_exec_id when the mappings were read. The entry is void while the task's
	 * differs from it. */
	uint64_t exec_id;
};
KILN_ASSERT_SIZE(kiln_process, 24);

enum kiln_process_flags {
	KILN_PROCESS_IGNORE = 1,  /* excluded by the process filter: its hits make no samples */
	KILN_PROCESS_PENDING = 2, /* announced to user space, which has not read the mappings yet */
	/* User space could not read the mappings: no walk, no dump, records with the leaf only. */
	KILN_PROCESS_UNRESOLVED = 4,
	/* The runtime in whose walker walks of this process begin: (flags >> SHIFT) & 31. Set by
	 * BPF. */
	KILN_PROCESS_WALKER_SHIFT = 8,
	KILN_PROCESS_LABELS = 1 << 16, /* the process publishes labels; `runtimes` tells where */
};

/* ---- policies -------------------------------------------------------------------------------- */

enum kiln_policy_mode { KILN_POLICY_DISABLED, KILN_POLICY_ENABLED };

/*
 * `policies`: index -> this. `cgroup_policy`: cgroup id -> index. Cgroups that are not in
 * `cgroup_policy` have the policy `default_policy`.
 */
struct kiln_policy {
	uint32_t mode;
	uint32_t hz; /* sampling rate; the timers run at the highest rate of all policies */
	/* Runtimes whose frames are walked and sources whose labels are read: a bit for each enum
	 * kiln_runtime_id and enum kiln_label_source; and KILN_LABEL_KEYS. */
	uint32_t runtimes;
	/* KILN_OFF_CPU_UNIT divided by the ns of waiting per walk; 0: waits are not walked. */
	uint32_t off_cpu;
};
KILN_ASSERT_SIZE(kiln_policy, 16);

/*
 * The policy of the last hit on a CPU. The next hit uses it without a lookup if the task's cgroup
 * is the same and no policy has changed since.
 */
struct kiln_verdict {
	uint64_t css;	 /* cgroup_subsys_state.serial_nr, which the kernel never reuses */
	uint64_t cgroup; /* the kernfs id of the cgroup's directory */
	uint32_t epoch;	 /* policy_epoch when the policy was looked up; the first is 1 */
	uint32_t index;
	uint32_t period;   /* ns of CPU time that a sample stands for; 0: no samples are taken */
	uint32_t runtimes; /* of the policy */
};

/* ---- off-CPU --------------------------------------------------------------------------------- */

/*
 * When a thread is switched out, its stack is walked with a probability of about its usual wait
 * divided by the ns of waiting per walk of its policy; docs/off-cpu.md has the arithmetic.
 * Probabilities are in units of 2^-32.
 */
#define KILN_OFF_CPU_UNIT	 (1ULL << 42)
#define KILN_OFF_CPU_CERTAIN	 (1ULL << 32)
#define KILN_OFF_CPU_RATE_MASK	 ((1U << 24) - 1) /* of `rate` in struct kiln_thread */
/* off_cpu of a struct kiln_policy, for a number of walks per second of waiting; 1000 at most. */
#define KILN_OFF_CPU_RATE(walks) ((uint32_t)((double)KILN_OFF_CPU_UNIT * (walks) / 1e9))
enum {
	KILN_OFF_CPU_RATE_SHIFT = 10, /* log2 of KILN_OFF_CPU_UNIT / 2^32 */
	KILN_OFF_CPU_LEAST = 1 << 22, /* the lowest probability, before off_cpu_shift halves it */
	KILN_WALKED_SHIFT = 20,
	KILN_WALKED_MAX = 2000,	  /* cap of the time since a walk, in 2^KILN_WALKED_SHIFT ns */
	KILN_MAX_THREADS = 32768, /* slots of `threads`; a power of 2 */
};

/* What a thread waits for, as far as the kernel side knows: `detail` of a sample. */
enum kiln_wait {
	KILN_WAIT_BLOCKED,   /* in a system call, or a kernel thread */
	KILN_WAIT_RUN_QUEUE, /* for a CPU: it was preempted, or yielded */
	KILN_WAIT_IO,	     /* for a block device: task_struct.in_iowait */
	KILN_WAIT_FAULT,     /* in a page fault or another exception */
};

/*
 * Each thread has several moving means of the length of its waits: one for waits on the run queue,
 * one for each of two places where its waits are unusually long, and one for all other waits. A
 * place is a system call together with the user-mode pc and sp at which it was made.
 */
enum kiln_mean { KILN_MEAN_OTHER, KILN_MEAN_QUEUE, KILN_MEAN_PLACE, KILN_MEANS = 4 };
enum {
	KILN_PLACES = KILN_MEANS - KILN_MEAN_PLACE,
	KILN_MEAN_SHIFT = 12,
	KILN_MEAN_MAX = 0xffff, /* 268 ms */
};

/*
 * `threads`: one thread. It is in slot tid & (KILN_MAX_THREADS - 1), or in that slot's number ^ 1.
 * Written by the CPU that switches the thread. Mapped into user space, which reads from it which
 * threads still wait.
 */
struct kiln_thread {
	/* Of the thread's policy, as in struct kiln_verdict; css has its low 32 bits only. */
	uint32_t css, epoch;
	uint32_t rate;	 /* low 24 bits: the policy's off_cpu; high 8: its index */
	uint32_t random; /* never 0 */
	/* ns: CLOCK_MONOTONIC minus the thread's run time (sum_exec_runtime), a difference that
	 * grows only while the thread waits. base: its value when the thread got this slot;
	 * waited: when the thread was last switched out or in. */
	uint64_t base, waited;
	/* When it was switched out, CLOCK_MONOTONIC; the lowest two bits tell to which mean the
	 * wait belongs (enum kiln_mean). 0: it runs. */
	uint64_t out;
	uint32_t tid; /* 0: free */
	/* Of the current wait. 0: it has no sample. While its stack is walked: the probability
	 * with which it was to be walked, in units of 2^-32; ~0: certain. After the walk: the ns
	 * that the walk took. ~0 as well if its sample comes from a list of waiting threads. */
	uint32_t sampled;
	uint32_t walked;	     /* time of the last walk, in 2^KILN_WALKED_SHIFT ns */
	uint16_t mean[KILN_MEANS];   /* moving means of its waits, in 2^KILN_MEAN_SHIFT ns */
	uint16_t place[KILN_PLACES]; /* hash of the place of mean[KILN_MEAN_PLACE + i]; 0: none */
};
KILN_ASSERT_SIZE(kiln_thread, 64);
enum {
	KILN_SLEEP_SHOWN = 1000000000, /* ns: `sleepers` reports a longer wait that has no sample */
	KILN_SLEEPER_FRAMES = 64,      /* kernel frames of a sleeper */
};

/* ---- runtimes -------------------------------------------------------------------------------- */

/*
 * Numbers of the runtimes whose frames are walked: 1 to KILN_RUNTIME_MAX - 1. Each runtime defines
 * its number in agent/runtime/NAME/walker_data.h.
 */
enum kiln_runtime_id {
	KILN_RUNTIME_NONE,
	KILN_RUNTIME_MAX = 32 /* five bits of a frame word, a bit of a mask */
};

/*
 * `runtimes`: the data that the walker of one runtime needs about the processes of one mapset. The
 * key is the mapset because a process has a new one after every exec and mmap, and forked processes
 * share one.
 */
struct kiln_runtime_key {
	uint32_t mapset;
	uint32_t id; /* enum kiln_runtime_id */
};

struct kiln_runtime {
	uint64_t size;			       /* bytes of `data` that are in use */
	uint64_t data[KILN_RUNTIME_BYTES / 8]; /* struct kiln_python, struct kiln_v8, ... */
};

/* Why frames of a runtime are not in a stack: in a KILN_FRAME_MISSING word. */
enum kiln_missing {
	KILN_MISSING_NONE,
	/* User space had not read the runtime, or the mappings, when the sample was taken. */
	KILN_MISSING_UNKNOWN,
	KILN_MISSING_NO_THREAD,	 /* the runtime's state of the thread was not found */
	KILN_MISSING_READ,	 /* memory of the runtime could not be read */
	KILN_MISSING_BROKEN,	 /* its structures make no sense: cycles, wild pointers */
	KILN_MISSING_BUDGET,	 /* more frames than one walk may follow */
	KILN_MISSING_NOT_LOADED, /* the runtime's walker is not in the kernel (yet) */
	KILN_MISSING_SWITCHES,	 /* the stack goes from runtime to runtime too often */
	KILN_MISSING_COUNT
};

/* ---- knobs ------------------------------------------------------------------------------------
 */

enum { KILN_KNOWN_PROCESSES = 16 /* a power of two; see struct kiln_known_process */ };

/*
 * Written by user space (bpf/knobs.h), except processes_epoch, by both. The first two are set
 * before loading; they are here and not in rodata, so that a hit that is not taken finds all its
 * switches in one cache line.
 */
struct kiln_knobs {
	uint8_t cgroup_v1;   /* cgroups are those of the v1 memory controller */
	uint8_t filter_pids; /* only processes in pid_filter are sampled */
	uint16_t pad;
	uint32_t cache_epoch;	 /* a new value makes every cached rule void */
	uint32_t runtimes_epoch; /* a new value, after a change of `runtimes`, makes copies of it
				  * void */
	uint32_t default_policy; /* of cgroups that are not in cgroup_policy */
	uint64_t timer_ns;	 /* ns between two timer hits: the CPU time that a hit stands for */
	uint32_t use_cgroups;	 /* cgroups have policies: the task's cgroup is looked up */
	uint32_t policy_epoch;	 /* a new value, after a change of the above or of the maps, makes
				  * every verdict void; never 0 */
	uint32_t off_cpu_shift; /* how many times draw() of bpf/offcpu.bpf.c halves a probability */
	uint32_t less_detail;	/* by the budget; 1: no copies of stacks, 2: short stacks as well */
	uint32_t pid_namespace; /* inode of the agent's pid namespace; 0: it is the machine's first
				 * one. Set before loading. */
	uint32_t pad2;
	uint64_t pad3[2]; /* to the end of the cache line */
	/* The version of entries in `processes`; the index is tgid modulo KILN_KNOWN_PROCESSES.
	 * Whoever changes an entry, user space or a BPF program, increments its version afterwards.
	 * A CPU that has kept a copy of the entry under an older version reads it again. */
	uint32_t processes_epoch[KILN_KNOWN_PROCESSES];
};
KILN_ASSERT_SIZE(kiln_knobs, 128);

/* ---- records --------------------------------------------------------------------------------- */

/*
 * A user frame is one to four 64-bit words. In the first word, bits 63..62 are the number of words
 * that follow; bits 61..57 are an enum kiln_frame_kind if no word follows, else the enum
 * kiln_runtime_id of the runtime whose header describes the words
 * (agent/runtime/NAME/walker_data.h: two words); bits 56..54 are flags; bits 53..0 are the pc or
 * another address.
 */
enum kiln_frame_kind {
	KILN_FRAME_NATIVE = 1,
	KILN_FRAME_MISSING = 2, /* bits 15..8 enum kiln_runtime_id, 7..0 enum kiln_missing */
};
#define KILN_FRAME_KIND_SHIFT  57
#define KILN_FRAME_FLAG_SHIFT  54
#define KILN_FRAME_RETURN      (1ULL << 56) /* a return address: name and line are those of pc - 1 */
#define KILN_FRAME_PC_MASK     ((1ULL << KILN_FRAME_FLAG_SHIFT) - 1)
#define KILN_FRAME_FLAGS(word) ((uint32_t)((word) >> KILN_FRAME_FLAG_SHIFT) & 7)
/* The KILN_FRAME_KIND() of a frame of the runtime ID, which has two words. */
#define KILN_FRAME_RUNTIME(id) (1U << 5 | (uint32_t)(id))
/* The upper seven bits: enum kiln_frame_kind or KILN_FRAME_RUNTIME(). */
#define KILN_FRAME_KIND(word)  ((uint32_t)((word) >> KILN_FRAME_KIND_SHIFT))

/* The number of words of the frame whose first word is WORD. */
static inline uint32_t kiln_frame_words(uint64_t word)
{
	return 1 + (uint32_t)(word >> 62);
}

/* The enum kiln_runtime_id of the frame whose first word is WORD; 0: not a runtime's frame. */
static inline uint32_t kiln_frame_runtime(uint64_t word)
{
	return kiln_frame_words(word) > 1 ? KILN_FRAME_KIND(word) & 31 : 0;
}

/* The enum kiln_runtime_id in a KILN_FRAME_MISSING WORD: whose frames are missing. */
static inline uint32_t kiln_missing_runtime(uint64_t word)
{
	return (uint32_t)(word >> 8) & 31;
}

/* The enum kiln_missing in a KILN_FRAME_MISSING WORD: why the frames are missing. */
static inline uint32_t kiln_missing_reason(uint64_t word)
{
	return (uint32_t)(word & 255) % KILN_MISSING_COUNT;
}

/* Why the walk of the user stack ended. Also the label of kiln_unwind_end_total. */
enum kiln_end {
	KILN_END_NONE,	     /* no user stack (kernel thread, exec under way) */
	KILN_END_ROOT,	     /* complete */
	KILN_END_NO_PROCESS, /* mappings of the process are not known yet */
	KILN_END_NO_MAPPING, /* pc lies in no known mapping */
	KILN_END_NO_TABLE,   /* the table is not loaded, or not for this code */
	KILN_END_NO_RULE,    /* no unwind information for this pc */
	KILN_END_BAD_READ,   /* the stack could not be read */
	KILN_END_BAD_CFA,    /* the CFA does not move towards the caller, or is no stack address */
	KILN_END_DEPTH,	     /* deeper than the limit */
	/* Cut: a shared buffer was nearly full and the cgroup had used more than its share. */
	KILN_END_SHED,
	KILN_END_UNRESOLVED, /* the mappings of the process cannot be read: the leaf only */
	KILN_END_COUNT
};

/* The registers of a frame that a walk needs to go on from it. */
struct kiln_regs {
	uint64_t pc, sp, fp, extra;
};
KILN_ASSERT_SIZE(kiln_regs, 32);

enum kiln_record_type {
	KILN_RECORD_SAMPLE = 1,
	KILN_RECORD_TEXT = 2,
	KILN_RECORD_WAIT_END = 3,
	KILN_RECORD_LABELS = 4,
};

enum kiln_sample_flags {
	KILN_SAMPLE_KERNEL_MODE = 1, /* interrupted in the kernel */
	/* `leaf` of struct kiln_resume has all registers of the frame at which the walk ended. */
	KILN_SAMPLE_FIRST_FRAME = 2,
	KILN_SAMPLE_KTHREAD = 4,
	KILN_SAMPLE_LABELS = 8, /* KILN_PROCESS_LABELS was set: labels of the thread were read */
};

/* What made the kernel take a sample. A row for each in agent/profile/batch.c, with its unit. */
enum kiln_origin {
	KILN_ORIGIN_CPU, /* the CPU clock; value in ns of CPU time */
	/* A thread was switched out at `time`. value: the probability with which it was walked. A
	 * struct kiln_wait_end tells the length of the wait when the thread runs again. */
	KILN_ORIGIN_OFF_CPU,
	KILN_ORIGIN_PROBE, /* a probe was hit; value in hits */
	KILN_ORIGIN_COUNT
};

/*
 * A sample. `value` is what it stands for, in the unit of its origin. Where `period` is not 0 the
 * origin samples at a rate: value is a multiple of period, and value / period samples are counted.
 * Each sample has its period, so that rates may change at any moment. Where period is 0, value was
 * measured and one sample is counted.
 *
 * After the header: n_kernel kernel addresses, n_user user frame words (leaf first),
 * then, when the walk ended for want of a mapping or table, a struct kiln_resume and dump_len bytes
 * of the user stack from (resume.regs.sp & ~7) - KILN_RED_ZONE on, so that user space can complete
 * the walk once it has the table. Pages that could not be read are left out: pages of a large frame
 * that were never touched are not present. Without a dump there is no struct kiln_resume.
 */
struct kiln_sample {
	uint16_t type;	 /* enum kiln_record_type */
	uint16_t policy; /* index of the policy that it was taken under */
	uint32_t size;	 /* of the whole record, bytes */
	uint64_t time;	 /* CLOCK_MONOTONIC, ns */
	/* When the process's leader started, boot-time ns: tells processes apart that had the same
	 * pid one after the other. */
	uint64_t start_time;
	uint64_t exec_id; /* task_struct.self_exec_id */
	uint64_t cgroup;  /* cgroup id: v2, or v1 memory controller; 0: cgroups have no policies */
	uint64_t value, period;
	uint64_t label; /* id of a set of labels; 0: none */
	uint32_t tgid, tid;
	uint32_t mapset;
	uint32_t runtimes; /* of the policy */
	uint16_t n_kernel, n_user;
	uint16_t flags; /* enum kiln_sample_flags */
	uint16_t cpu;
	uint16_t end;	/* enum kiln_end */
	uint8_t origin; /* enum kiln_origin */
	uint8_t detail; /* of the origin: enum kiln_wait, or the number of the probe */
	uint32_t dump_len;
	char comm[KILN_COMM_LEN];
	uint64_t words[];
};
KILN_ASSERT_SIZE(kiln_sample, 112);

/* Before the dump: what the walk needs to go on. */
struct kiln_resume {
	struct kiln_regs regs; /* where the walk ended */
	uint64_t code_mask;    /* the bits of a return address that are not a signature */
	/* All registers at the interrupt or, when the walk has passed a signal frame, those that
	 * the signal frame saved; by DWARF number. */
	uint64_t leaf[KILN_LEAF_REGS];
	/* Bit i: page i of the stack is in the dump; of page 0 the part from the dump's first
	 * address on. */
	uint64_t pages[KILN_DUMP_PAGES / 64];
	/* Of a process without a mapset: when its parent started (boot-time ns), and the parent's
	 * pid. Else 0. */
	uint64_t parent_start;
	uint32_t parent;
	uint32_t forked; /* 1: no exec since the fork, so the mappings are those of the parent */
};
KILN_ASSERT_SIZE(kiln_resume, 352);

/*
 * The names of a frame, read by its walker (bpf/text.h), because the objects that hold them may be
 * freed before user space reads the sample. Precedes the first sample with the frame.
 */
struct kiln_text {
	uint16_t type; /* enum kiln_record_type */
	uint16_t pad;
	uint32_t size; /* of the whole record, bytes */
	uint32_t mapset;
	uint32_t runtime;		/* enum kiln_runtime_id */
	uint64_t words[2];		/* of the frame */
	uint8_t bytes[KILN_TEXT_BYTES]; /* layout: the runtime's walker_data.h */
};
KILN_ASSERT_SIZE(kiln_text, 328);

/*
 * A sleeping thread whose stack was not walked when it was switched out. The BPF iterator
 * `sleepers` writes one of these for each (agent/sampler/off_cpu.h). `sample` has the header and
 * the kernel stack; user space adds the user stack, which it reads with process_vm_readv().
 */
struct kiln_sleeper {
	uint64_t leaf[KILN_LEAF_REGS]; /* as in struct kiln_resume */
	uint64_t code_mask;
	struct kiln_sample sample; /* and its n_kernel words */
};
#define KILN_SLEEPER_BYTES (sizeof(struct kiln_sleeper) + KILN_SLEEPER_FRAMES * 8)

/* The end of a wait for which a sample was sent: the thread runs again. Follows that sample. */
struct kiln_wait_end {
	uint16_t type; /* enum kiln_record_type */
	uint16_t pad;
	uint32_t size;
	uint32_t tid, pad2;
	uint64_t began; /* time of the sample */
	uint64_t ns;	/* length of the wait */
};
KILN_ASSERT_SIZE(kiln_wait_end, 32);
/* ---- labels ---------------------------------------------------------------------------------- */

/*
 * How a program publishes labels of its threads (agent/labels/). The map `runtimes` has an entry
 * for each source of a mapset: the key is the mapset and one of these numbers, the data is the
 * struct that is named here.
 */
enum kiln_label_source {
	/* No runtime has a number from here on. */
	KILN_LABELS_OTEL = 29,	 /* OpenTelemetry's thread context; struct kiln_thread_place */
	KILN_LABELS_GO = 30,	 /* pprof labels of a goroutine; struct kiln_go_place */
	KILN_LABELS_CUSTOM = 31, /* custom-labels; struct kiln_thread_place */
};
#define KILN_LABEL_SOURCES                                                                         \
	(1U << KILN_LABELS_OTEL | 1U << KILN_LABELS_GO | 1U << KILN_LABELS_CUSTOM)
/* In kiln_policy.runtimes: the policy lets some keys leave the node, so attributes are read. */
#define KILN_LABEL_KEYS 1U

/* A thread-local variable: at OFFSET from the thread pointer, or from the block of MODULE. */
struct kiln_thread_place {
	int64_t offset;
	uint32_t module; /* 0: OFFSET is from the thread pointer */
	uint32_t shift;	 /* log2 of the bytes of an entry in the vector of TLS blocks */
};
KILN_ASSERT_SIZE(kiln_thread_place, 16);

/* How to find the goroutine that a thread of a Go program runs, and the goroutine's labels. */
struct kiln_go_place {
	struct kiln_thread_place g;
	uint16_t m, curg, labels; /* offsets: g.m, m.curg, g.labels */
	uint8_t is_map;		  /* labels are a map (before Go 1.24), else a slice */
	uint8_t in_register;	  /* 1: g is in the register of number `reg` (arm64: x28) */
	uint8_t reg;
	uint8_t pad[7];
};
KILN_ASSERT_SIZE(kiln_go_place, 32);

/*
 * A set of labels as it was read, sent before the first sample with its id. The id is a hash of
 * mapset and of everything from `trace_id` on. `bytes` has n_attributes bytes as in OpenTelemetry's
 * record, {key index, length, value}..., then n_pairs bytes {length of key, length of value, key,
 * value}...
 */
struct kiln_labels {
	uint16_t type;	/* enum kiln_record_type */
	uint16_t flags; /* enum kiln_labels_flags */
	uint32_t size;	/* of the whole record, bytes */
	uint64_t id;
	uint64_t start_time; /* of the process's leader, as in struct kiln_sample */
	uint32_t mapset, tgid;
	uint8_t trace_id[16], span_id[8];
	uint32_t n_attributes, n_pairs;
	uint8_t bytes[];
};
KILN_ASSERT_SIZE(kiln_labels, 64);

enum kiln_labels_flags { KILN_LABELS_CUT = 1 /* some labels were left out or cut off */ };

/* Counters, each CPU's own; user space sums them up into /metrics. */
enum kiln_stat {
	KILN_STAT_RUNS,	     /* timer hits on tasks */
	KILN_STAT_SKIPPED,   /* hits excluded by policy or process filter */
	KILN_STAT_THINNED,   /* hits beyond the policy's own rate */
	KILN_STAT_RING_FULL, /* record lost: the ring buffer was full */
	KILN_STAT_CACHE_HIT, /* frames whose rule was in the rule cache */
	KILN_STAT_CACHE_MISS,
	KILN_STAT_PROCESS_FULL, /* no room in `processes`: the sample is incomplete */
	/* The ring filled up, and the sample's cgroup had put more than its share into it: */
	KILN_STAT_SHED_DUMP,	     /* the copy of the stack was left out (or by less_detail) */
	KILN_STAT_SHED_FRAMES,	     /* only the frames next to the leaf were sent */
	KILN_STAT_SHED_SAMPLE,	     /* nothing was sent */
	KILN_STAT_WAITS,	     /* switches that were walked */
	KILN_STAT_WAIT_FULL,	     /* both slots of the thread were taken: it is not sampled */
	KILN_STAT_WAIT_END_LOST,     /* the ring was full when a wait ended */
	KILN_STAT_LABELS_UNREADABLE, /* memory of a process's labels could not be read */
	KILN_STAT_LABELS_BROKEN,     /* labels were inconsistent, or changed while they were read */
	KILN_STAT_LABELS_CUT,	     /* labels were left out or cut off for want of room */
	KILN_STAT_LABELS_UNSENT,     /* the ring had no room for the set */
	KILN_STAT_COUNT
};

struct kiln_stats {
	uint64_t n[KILN_STAT_COUNT];
};

/* ---- probes ---------------------------------------------------------------------------------- */

/* Which of the hits of one probe on one CPU become samples: bpf/draw.h. */
struct kiln_draw {
	uint64_t size, pick, at; /* open block: its hits, the hit to take (from 1), hits so far */
	uint64_t start;		 /* when the block was opened: monotonic ns */
	uint64_t hits, time;	 /* recent hits, and the ns in which they came */
	int64_t credit;		 /* ns saved up for samples, each of which costs a period */
};
KILN_ASSERT_SIZE(kiln_draw, 56);

/* `probes`: number -> this, for each CPU. */
struct kiln_probe {
	struct kiln_draw draw;
	uint64_t hits, samples;
	uint64_t skipped;	  /* hits excluded by policy or process filter */
	uint64_t busy;		  /* hits that came while another hit was being sampled */
	uint64_t lost, lost_hits; /* samples that found no room in the ring, and their values */
	/* Tracepoints: the kernel function that calls the programs, [start, end); 0: not known. */
	uint64_t trace_start, trace_end;
	uint64_t skip; /* kernel frames from the program to that function; 0: not counted yet */
};
KILN_ASSERT_SIZE(kiln_probe, 128);

/* What the pc of a user stack's leaf is. */
enum kiln_leaf {
	/* Where the thread entered the kernel: in a system call, after its instruction. */
	KILN_LEAF_SAVED,
	KILN_LEAF_EXACT,  /* the instruction that runs next */
	KILN_LEAF_RETURN, /* a return address */
};

/* `probe_hits`: CPU number -> this: the hit that is being taken. */
struct kiln_probe_hit {
	uint32_t busy; /* hits that own or try to claim the scratch: probe_claim() in bpf/probe.h */
	uint16_t number;
	uint8_t leaf; /* enum kiln_leaf */
	uint8_t pad;
	uint64_t value;
	uint64_t dropped; /* samples that the CPU had dropped before this one */
};
KILN_ASSERT_SIZE(kiln_probe_hit, 24);

/* A CPU's copy of an entry of `processes`. It saves looking the process up in that hash map for
 * each sample, which takes a microsecond when the map is not in the CPU's caches. */
struct kiln_known_process {
	uint32_t tgid;	     /* 0: none */
	uint32_t epoch;	     /* that of processes_epoch before the entry was read */
	uint64_t start_time; /* task_struct.start_boottime of the process */
	struct kiln_process entry;
	uint32_t fresh;	 /* user space has to be woken for the process */
	uint32_t pad[5]; /* to the end of the cache line */
};
KILN_ASSERT_SIZE(kiln_known_process, 64);

/* `cpus`: CPU number -> this. What a hit on an unselected task touches is in the first 64 bytes. */
struct kiln_cpu {
	struct kiln_verdict verdict;
	/*
	 * ns between the timer's last hit and a change of its rate, which restarts the timer. The
	 * next hit stands for this time too if it comes before carry_until (monotonic ns). A later
	 * hit does not: the timer had fired before it, while the CPU was idle. Written by user
	 * space, reset by take_carry() (bpf/policy.h).
	 */
	uint64_t carry;
	uint64_t ring_room; /* bytes this CPU may put into the ring before ring_used() queries it */
	struct kiln_stats stats;
	uint64_t carry_until;
	struct kiln_known_process known[KILN_KNOWN_PROCESSES]; /* by tgid */
};
_Static_assert(__builtin_offsetof(struct kiln_cpu, stats.n[KILN_STAT_SKIPPED]) + 8 <= 64,
	       "an unselected hit touches one cache line");
KILN_ASSERT_SIZE(kiln_cpu, 192 + 64 * KILN_KNOWN_PROCESSES);
