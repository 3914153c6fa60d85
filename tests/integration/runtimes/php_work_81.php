<?php
// SPDX-License-Identifier: Apache-2.0
// Chains of PHP 8.1: fibers, enumerations, functions as values.
namespace Work;

$chains_81 = ['fibers', 'fibers_nested', 'fibers_resumed', 'enums', 'first_class'];

function fiber_body()
{
    return burn(); // AT fiber_body
}

function fibers()
{
    $f = new \Fiber('Work\fiber_body');
    return $f->start(); // AT fibers
}

function fiber_outer()
{
    $f = new \Fiber('Work\fiber_body');
    return $f->start(); // AT fiber_outer
}

function fibers_nested()
{
    $f = new \Fiber('Work\fiber_outer');
    return $f->start(); // AT fibers_nested
}

function fiber_waits()
{
    \Fiber::suspend(1); // AT fiber_suspends
    return burn(); // AT fiber_waits
}

function fibers_resumed()
{
    $f = new \Fiber('Work\fiber_waits');
    $f->start(); // AT fibers_started
    return $f->resume(); // AT fibers_resumed
}

enum Suit
{
    case Hearts;

    public function weigh()
    {
        return burn(); // AT weigh
    }
}

function enums()
{
    return Suit::Hearts->weigh(); // AT enums
}

class Taker
{
    public function take($x)
    {
        return burn() + $x; // AT take
    }

    public function all()
    {
        return array_map($this->take(...), [1]); // AT take_all
    }
}

function first_class()
{
    return (new Taker())->all(); // AT first_class
}
