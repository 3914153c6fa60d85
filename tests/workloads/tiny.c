/* SPDX-License-Identifier: Apache-2.0 */
/* The far end of plt.c's calls: next to nothing, so that many samples hit the PLT itself. */
__attribute__((visibility("default"), noipa)) unsigned long tiny_one(unsigned long n);
__attribute__((visibility("default"), noipa)) unsigned long tiny_two(unsigned long n);

unsigned long tiny_one(unsigned long n)
{
	return n + 1;
}

unsigned long tiny_two(unsigned long n)
{
	return n ^ 1;
}
