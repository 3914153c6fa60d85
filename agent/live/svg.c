/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a trie of the batch's stacks, with a node for each process below the root, and then gives
 * each node its place in the picture.
 *
 * A node is made after its parent, so its number is the larger one. Sorted by parent and then by
 * name, every node's parent has its place already when the node's turn comes: one pass, no
 * recursion. Nodes that would be narrower than a third of a pixel take their room and are not
 * drawn. When the trie is full, a stack counts for those of its frames that have a node.
 */
#include "agent/live/svg.h"

#include "lib/ref_table.h"
#include "agent/profile/folded.h"
#include "agent/profile/strings.h"

enum {
	NODES_MAX = 1 << 20,
	WIDTH = 1200,
	ROW = 18,
	HEAD = 32,
	FOOT = 8,
	NO_TYPE = FRAME_TYPE_COUNT
};

#define NARROWEST   0.3 /* pixels */
#define GLYPH_WIDTH 6.2

struct node {
	const char *name; /* of the batch, where equal strings are one pointer */
	uint32_t parent, depth, pid;
	uint32_t type; /* enum frame_type or NO_TYPE */
	int64_t total; /* ns */
	int64_t at;    /* where its first child begins, then where the next one does; ns */
};

struct trie {
	struct node *nodes; /* 0 is the root */
	size_t cap;
	uint32_t n, depth;
	struct ref_table index;
};

/* ---- the trie -------------------------------------------------------------------------------- */

static bool equal(const void *owner, uint32_t index, const void *key)
{
	const struct node *a = &((const struct trie *)owner)->nodes[index], *b = key;

	return a->parent == b->parent && a->name == b->name && a->type == b->type &&
	       a->pid == b->pid;
}

/* The child of PARENT, or PARENT when there is no room for another node. */
static int child(struct trie *t, uint32_t parent, const char *name, uint32_t type, uint32_t pid,
		 uint32_t *ret)
{
	struct node key = {.name = name, .parent = parent, .pid = pid, .type = type};
	uint64_t h = mix64((uintptr_t)name) ^ mix64((uint64_t)parent << 32 | pid) ^ mix64(type);
	uint32_t index = ref_table_index(&t->index, h, equal, t, &key);
	int r;

	if (index == REF_TABLE_NONE && t->n == NODES_MAX)
		index = parent;
	if (index != REF_TABLE_NONE) {
		*ret = index;
		return 0;
	}
	r = grow_array((void **)&t->nodes, &t->cap, t->n + 1UL, sizeof(*t->nodes), NODES_MAX);
	if (r == 0)
		r = ref_table_reserve(&t->index, 1);
	if (r < 0)
		return r;
	key.depth = t->n ? t->nodes[parent].depth + 1 : 0;
	t->depth = MAX(t->depth, key.depth);
	t->nodes[t->n] = key;
	ref_table_insert(&t->index, h, t->n + 1);
	*ret = t->n++;
	return 0;
}

static int add_sample(struct trie *t, const struct batch *b, const struct batch_sample *s,
		      int64_t weight)
{
	const struct batch_process *process = &b->processes[s->process];
	const struct batch_stack *stack = &b->stacks[s->stack];
	uint32_t at;
	int r = child(t, 0, process->executable_name, NO_TYPE, process->pid, &at);

	for (uint32_t i = stack->len; i-- > 0 && r == 0;) {
		const struct batch_location *l =
		    &b->locations[b->stack_locations[stack->first + i]];

		for (uint32_t j = l->n_lines; j-- > 0 && r == 0;)
			r = child(t, at, b->functions[b->lines[l->first_line + j].function].name,
				  l->type, 0, &at);
	}
	if (r == 0)
		t->nodes[at].total += weight;
	return r;
}

static int fill(struct trie *t, const struct batch *b, enum profile_kind kind)
{
	uint32_t root;
	int r = child(t, 0, "all", NO_TYPE, 0, &root);

	for (uint32_t i = 0; i < b->n_profiles && r == 0; i++) {
		const struct batch_profile *p = &b->profiles[i];
		int64_t unit = profile_type_of(p->kind)->period_type ? (int64_t)p->period_ns : 1;
		bool wanted = kind == FOLDED_WALL ? p->kind <= PROFILE_OFF_CPU : p->kind == kind;

		for (uint32_t j = 0; j < p->n_samples && wanted && r == 0; j++) {
			const struct batch_sample *s = &b->samples[p->first_sample + j];

			r = add_sample(t, b, s, s->value * unit);
		}
	}
	for (uint32_t i = t->n; r == 0 && i-- > 1;)
		t->nodes[t->nodes[i].parent].total += t->nodes[i].total;
	return r;
}

/* ---- the document ---------------------------------------------------------------------------- */

#define BLACK "#000000"
#define WHITE "#ffffff"

/* web/flame.js has the same, and says where they are from; ink is what can be read on it. */
static const struct {
	const char *fill, *ink;
} colours[NO_TYPE + 1] = {
    [FRAME_NATIVE] = {"#e69f00", BLACK},  [FRAME_KERNEL] = {"#d55e00", BLACK},
    [FRAME_GO] = {"#56b4e9", BLACK},	  [FRAME_RUST] = {"#cc79a7", BLACK},
    [FRAME_CPYTHON] = {"#009e73", BLACK}, [FRAME_V8JS] = {"#f0e442", BLACK},
    [FRAME_JVM] = {"#0072b2", WHITE},	  [FRAME_RUBY] = {"#993333", WHITE},
    [FRAME_PHP] = {"#33ffbb", BLACK},	  [FRAME_PERL] = {"#7777ff", BLACK},
    [FRAME_DOTNET] = {"#99bb77", BLACK},  [FRAME_BEAM] = {"#335577", WHITE},
    [FRAME_LUAJIT] = {"#3333dd", WHITE},  [FRAME_ABORT] = {"#5f666e", WHITE},
    [NO_TYPE] = {"#c9ced6", BLACK},
};

/* At most CHARS characters of S, the last an ellipsis when more are there. What XML may not hold,
 * control characters and U+FFFE and U+FFFF, is a blank. */
static void put_text(struct buf *out, const char *s, size_t chars)
{
	size_t len = strlen(s), n;

	for (size_t i = 0; i < len && chars; i += n, chars--) {
		unsigned char c = (unsigned char)s[i];

		n = MAX(utf8_len(s + i, len - i), (size_t)1);
		if (chars == 1 && i + n < len)
			buf_puts(out, "…");
		else if (c == '&')
			buf_puts(out, "&amp;");
		else if (c == '<')
			buf_puts(out, "&lt;");
		else if (c == '>')
			buf_puts(out, "&gt;");
		else if (c == '"')
			buf_puts(out, "&quot;");
		else if (c < 0x20 || c == 0x7f || (n == 1 && c >= 0x80) ||
			 (n == 3 && c == 0xef && (unsigned char)s[i + 1] == 0xbf &&
			  (unsigned char)s[i + 2] >= 0xbe))
			buf_puts(out, " ");
		else
			buf_append(out, s + i, n);
	}
}

/* The label of a node: its name. That of a process has the pid too, when both fit. */
static void put_name(struct buf *out, const struct node *n, size_t chars)
{
	const char *name = n->name[0] ? n->name : "[unknown]";
	char pid[16] = "";

	if (n->type == NO_TYPE && n->pid)
		snprintf(pid, sizeof(pid), " (%u)", n->pid);
	put_text(out, name, chars);
	if (chars >= strlen(name) + strlen(pid))
		buf_puts(out, pid);
}

static void put_node(struct buf *out, const struct trie *t, uint32_t index, int height)
{
	const struct node *n = &t->nodes[index], *root = t->nodes;
	double scale = (double)WIDTH / (double)root->total, w = (double)n->total * scale;
	double room = (w - 6) / GLYPH_WIDTH;
	int y = height - FOOT - ((int)n->depth + 1) * ROW;

	if (w < NARROWEST)
		return;
	buf_puts(out, "<g><title>");
	put_name(out, n, SIZE_MAX);
	buf_printf(out, " %.2f%%</title><rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" ",
		   100.0 * (double)n->total / (double)root->total, (double)n->at * scale, y,
		   MAX(w - 0.5, NARROWEST), ROW - 1);
	buf_printf(out, "fill=\"%s\"/>", colours[MIN(n->type, (uint32_t)NO_TYPE)].fill);
	if (room >= 3) {
		buf_printf(out, "<text x=\"%.1f\" y=\"%d\" fill=\"%s\">", (double)n->at * scale + 3,
			   y + 12, colours[MIN(n->type, (uint32_t)NO_TYPE)].ink);
		put_name(out, n, (size_t)room);
		buf_puts(out, "</text>");
	}
	buf_puts(out, "</g>\n");
}

static int by_place(const void *pa, const void *pb, void *arg)
{
	const struct trie *t = arg;
	const struct node *a = &t->nodes[*(const uint32_t *)pa],
			  *b = &t->nodes[*(const uint32_t *)pb];
	int c;

	if (a->parent != b->parent)
		return a->parent < b->parent ? -1 : 1;
	c = strcmp(a->name, b->name);
	if (c)
		return c;
	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	return (a->type > b->type) - (a->type < b->type);
}

static int put_nodes(struct trie *t, struct buf *out, int height)
{
	_cleanup_free_ uint32_t *order = calloc(t->n, sizeof(*order));

	if (!order)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->n; i++)
		order[i] = i;
	/* The root is its own parent and stays first. */
	qsort_r(order + 1, t->n - 1, sizeof(*order), by_place, t);
	put_node(out, t, 0, height);
	for (uint32_t i = 1; i < t->n; i++) {
		struct node *n = &t->nodes[order[i]], *parent = &t->nodes[n->parent];

		n->at = parent->at;
		parent->at += n->total;
		put_node(out, t, order[i], height);
	}
	return 0;
}

int svg_encode(const struct batch *b, enum profile_kind kind, const char *host, struct buf *out)
{
	struct trie t = {0};
	int r = fill(&t, b, kind), height = ((int)t.depth + 1) * ROW + HEAD + FOOT;

	if (r == 0) {
		buf_printf(out,
			   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
			   "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\">\n"
			   "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>"
			   "<text x=\"4\" y=\"20\" font-size=\"14\">",
			   WIDTH, height, WIDTH, height);
		put_text(out, host, SIZE_MAX);
		if (kind == PROFILE_PROBE)
			buf_printf(out, " · %lld hits", (long long)t.nodes[0].total);
		else
			buf_printf(out, " · %.2f s %s", (double)t.nodes[0].total / 1e9,
				   kind == PROFILE_CPU	 ? "CPU"
				   : kind == FOLDED_WALL ? "on and off CPU"
							 : "off CPU");
		buf_printf(out, " in %.0f s</text>\n", (double)b->duration_ns / 1e9);
		if (t.nodes[0].total > 0)
			r = put_nodes(&t, out, height);
		buf_puts(out, "</svg>\n");
		if (r == 0)
			r = buf_error(out);
	}
	free(t.nodes);
	ref_table_done(&t.index);
	return r;
}
