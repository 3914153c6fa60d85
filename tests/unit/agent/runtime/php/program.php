<?php
// SPDX-License-Identifier: Apache-2.0
// A known stack to be recorded: a callback through C, recursion, generators, a closure, a method as a value, eval, an
// included file. Says that it is there, and sleeps.
namespace Record;

function wait()
{
    echo "ready\n";
    sleep(600);
}

function recurse($n)
{
    return $n ? recurse($n - 1) : wait();
}

trait Waits
{
    public function later($x)
    {
        return recurse(2);
    }
}

class Shop
{
    use Waits;

    public function all()
    {
        return array_map(\Closure::fromCallable([$this, 'later']), [1]);
    }
}

function inner()
{
    yield (new Shop())->all();
}

function middle()
{
    yield from inner();
}

function outer()
{
    yield from middle();
}

function generate()
{
    foreach (outer() as $x) {
        return $x;
    }
}

$closure = function () {
    return eval('return Record\generate();');
};

if (__FILE__ == $argv[0]) {
    require $argv[1];
}
