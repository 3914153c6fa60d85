// SPDX-License-Identifier: Apache-2.0
// What test_recorded.c has recordings of: calls in a loop, of whose first round Maglev makes code of
// its own.
'use strict';
let sink = 0;

function leaf(n) {
  let x = n | 0;
  for (let i = 0; i < 300; i++)
    x = (x * 31 + i) ^ (x >>> 3);
  sink ^= x;
  return x;
}

function other(n) {
  return n + sink;
}

function middle(work, n) {
  const x = work(n); // middle
  return x + 1;
}

function inner(n) {
  let x = n;
  for (let i = 0; i < 300; i++)
    x = (x * 31 + i) ^ (x >>> 3);
  return x;
}

function loop(works, n) {
  let x = 0;
  for (let i = 0; i < n; i++) { // head
    x += middle(works[i & 1], i); // once
    x ^= inner(x); // inner
    x += middle(works[i + 1 & 1], i); // twice
    x ^= inner(x + 1); // inner twice
  }
  return x;
}

(function top() {
  const works = [leaf, other];
  for (;;)
    sink ^= loop(works, 20); // top
})();
