// SPDX-License-Identifier: Apache-2.0
// An ES module of v8_work.js.
function helper(work, n) {
  const x = n + 1;
  return work(x) + 1; // AT helper
}

export function moduleWork(work, n) {
  let x = 0;
  for (let i = 0; i < n; i++)
    x += helper(work, i); // AT module_work
  return x;
}
