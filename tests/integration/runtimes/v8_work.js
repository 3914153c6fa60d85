// SPDX-License-Identifier: Apache-2.0
// Call chains that v8_stacks.py knows. A comment "AT x" names its line; a chain's leaf is burn().
// Each chain has a time slice in turn. usage: v8_work.js SECONDS
'use strict';
const path = require('path');
const {Worker, isMainThread, workerData} = require('worker_threads');

let sink = 0;

function burn(n) { // AT burn_first
  let x = n | 0;
  for (let i = 0; i < 200000; i++) {
    x = (x * 31 + i) ^ (x >>> 3);
    x = x | 0;
  }
  sink ^= x;
  return x;
} // AT burn_last

// ---- recursion
function recurse(n) {
  if (n > 0)
    return 1 + recurse(n - 1); // AT recurse_call
  return burn(n); // AT recurse_leaf
}

function recursion() {
  const x =
    recurse(12); // AT recursion
  return x;
}

// ---- closures
function makeAdder(by) {
  const cell = {by};
  return function adder(x) {
    cell.by++;
    return x + burn(cell.by); // AT adder
  };
}
const adders = [makeAdder(1), makeAdder(2), makeAdder(3)];

function closures() {
  let x = 0;
  for (const add of adders)
    x += add(x); // AT closures
  return x;
}

// ---- classes
class Shape {
  constructor(side) {
    this.side = burn(side); // AT constructor
  }

  area(n) {
    return burn(this.side + n); // AT shape_area
  }

  static unit(n) {
    return new Circle(1).area(n); // AT unit
  }
}

class Circle extends Shape { // AT circle
  area(n) {
    const square = super.area(n); // AT circle_area
    return square * 3;
  }
}

function classes() {
  return Shape.unit(sink & 7); // AT classes
}

function construct() {
  return new Shape(sink & 7).side; // AT construct
}

// ---- generators
function* innerNumbers(n) {
  for (let i = 0; i < n; i++)
    yield burn(i); // AT inner_numbers
}

function* numbers(n) {
  yield 1;
  yield* innerNumbers(n); // AT numbers
}

function generators() {
  let x = 0;
  for (const v of numbers(4)) // AT generators
    x += v;
  return x;
}

// ---- async functions, as they run
async function later(n) {
  await null;
  return burn(n) + // AT later
    1;
}

async function awaits() {
  let x = 0;
  for (let i = 0; i < 4; i++)
    x += await later(i);
  return x;
}

// ---- callbacks through built-in functions
const items = [5, 3, 4, 1, 2];

function callbacks() {
  return items.map(function mapped(v) { // AT callbacks
    return burn(v); // AT mapped
  }).length;
}

function sorts() {
  return [...items].sort((a, b) => { // AT sorts
    burn(a); // AT comparator
    return a - b;
  })[0];
}

function reduces() {
  return items.reduce(function folded(sum, v) { // AT reduces
    return sum + items.map((w) => { // AT folded
      return burn(v + w); // AT nested
    })[0];
  }, 0);
}

// ---- code that is thrown away again and again
let shapes = 0;

function poly(o) {
  const x = o.a + burn(3); // AT poly
  return x + o.a;
}

function deopts() {
  let x = 0;
  for (let i = 0; i < 200; i++)
    x += poly({a: i}); // AT deopts_a
  shapes++;
  const key = 'k' + shapes;
  x += poly({[key]: 1, a: shapes % 3 ? 1.5 : 'text'}) ? 1 : 0; // AT deopts_b
  if (shapes % 5 === 0)
    x += new Function('poly', 'return poly({z: 1, a: 2})')(poly); // AT deopts_new
  return x;
}

// ---- small functions, which are inlined
function third(n) {
  let x = n;
  for (let i = 0; i < 200000; i++) // AT third_first
    x = (x * 31 + i) ^ (x >>> 3);
  return x | 0; // AT third_last
}

function second(n) {
  const y = n + 1;
  return third(y) + 1; // AT second
}

function first(n) {
  let x = 0;
  x += second(n); // AT first
  return x;
}

function inlining() {
  let x = 0;
  for (let i = 0; i < 20; i++)
    x += first(i); // AT inlining
  sink ^= x;
  return x;
}

// ---- a small function that is inlined twice, in a loop
function spin(n) { // AT spin_first
  let x = n;
  for (let i = 0; i < 100000; i++)
    x = (x * 31 + i) ^ (x >>> 3);
  return x | 0;
} // AT spin_last

function loops() {
  let x = 0;
  for (let i = 0; i < 20; i++) {
    x += spin(i); // AT loops_once
    x ^= 7;
    x += spin(x); // AT loops_twice
  }
  sink ^= x;
  return x;
}

// ---- a loop that is entered once and optimized as it runs
function longLoop() { // AT long_first
  const end = Date.now() + 100;
  let x = 1;
  while (Date.now() < end)
    for (let i = 0; i < 5000; i++)
      x = (x * 31 + i) ^ (x >>> 3);
  sink ^= x;
  return x;
} // AT long_last

// ---- leaves that are built-in functions
const record = {list: items, text: 'x'.repeat(300), inner: {a: 1, b: [1, 2, 3]}};
const text = 'ab'.repeat(400) + 'c';

function jsonLeaf() {
  let n = 0;
  for (let i = 0; i < 20; i++) // AT json_loop
    n += JSON.stringify(JSON.parse(JSON.stringify(record))).length; // AT json
  return n;
}

function regexpLeaf() {
  let n = 0;
  for (let i = 0; i < 20; i++) // AT regexp_loop
    n += /(?:a|b|ab)*c$/.test(text) ? 1 : 0; // AT regexp
  return n;
}

// ---- a module of another kind
let moduleWork = () => 0;

function modules() {
  return moduleWork(burn, 3); // AT modules
}

const chains = {recursion, closures, classes, construct, generators, awaits, callbacks, sorts, reduces,
  deopts, inlining, loops, longLoop, jsonLeaf, regexpLeaf, modules};

async function slice(run, ms) {
  const end = Date.now() + ms;
  while (Date.now() < end) {
    const r = run(); // AT slice
    if (r instanceof Promise)
      await r;
  }
}

async function drive(seconds) {
  const end = Date.now() + seconds * 1000;
  while (Date.now() < end)
    for (const name of Object.keys(chains))
      await slice(chains[name], name === 'longLoop' ? 1 : 100);
}

async function main() {
  moduleWork = (await import(path.join(__dirname, 'v8_module.mjs'))).moduleWork;
  if (!isMainThread)
    return drive(workerData);
  const seconds = Number(process.argv[2] || 20);
  if (process.argv[3] === 'worker')
    new Worker(__filename, {workerData: seconds});
  process.stdout.write(JSON.stringify({pid: process.pid, version: process.version}) + '\n');
  if (process.argv[3] !== 'worker')
    await drive(seconds);
}

main();
