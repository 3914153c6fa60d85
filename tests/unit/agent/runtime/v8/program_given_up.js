// SPDX-License-Identifier: Apache-2.0
// What test_recorded.c has recordings of: code that V8 gives up while it is on the stack.
'use strict';
const shape = {constant: 1};

function leaf(n) {
  let x = n | 0;
  for (;;)
    x = (x * 31 + n) ^ (x >>> 3);
}

// So many that V8 inlines none of them into middle().
const works = [];
for (let i = 0; i < 6; i++)
  works.push((n) => {
    if (n < 1000)
      return i;
    shape.constant = n;
    return leaf(n);
  });

const calls = works.map((work) => new Function('work', 'n', 'return work(n)'));

function middle(n) {
  const x = calls[n % 6](works[n % 6], n); // middle
  return x + shape.constant;
}

function outer(n) {
  let x = 1;
  x += works.length;
  x += middle(n); // outer
  return x;
}

(function top() {
  for (let i = 0; i < 300000; i++)
    outer(i % 10);
  outer(1000); // top
})();
