// SPDX-License-Identifier: Apache-2.0
// What test_recorded.c has recordings of.
'use strict';
let sink = 0;

function leaf(n) {
  let x = n | 0;
  for (let i = 0; i < 200; i++) // leaf
    x = (x * 31 + i) ^ (x >>> 3);
  sink ^= x;
  return x;
}

class Counter {
  constructor() { this.n = 0; }

  step(by) {
    Counter.last = this;
    this.n += leaf(by); // step
    return this.n;
  }
}

const counter = new Counter();
const through = (list) => list.map((v) => {
  return counter.step(v); // arrow
});

function recurse(n) {
  return n ? recurse(n - 1) + 1 : through([1, 2, 3]).length; // recurse
}

(function top() {
  for (;;)
    recurse(3); // top
})();
