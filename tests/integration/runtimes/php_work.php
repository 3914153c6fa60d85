<?php
// SPDX-License-Identifier: Apache-2.0
// Does one chain of calls after the other for ever, or for one request, each for some milliseconds; what the chains are is in php_stacks.py,
// which knows the lines by their marks. Says its process id and the chains that this version has, as JSON.
// usage: php_work.php [ITERATIONS [CHAIN...]]
namespace Work;

function burn()
{
    $x = 1;
    $n = \WORK_ITERATIONS; // AT burn_first
    for ($i = 0; $i < $n; $i++) {
        $x = ($x * 31 + $i) % 1000003;
    }
    return $x; // AT burn_last
}

function recurse($depth)
{
    if ($depth == 0) {
        return burn(); // AT recurse_leaf
    }
    return recurse($depth - 1); // AT recurse_call
}

function recursion()
{
    return recurse(30); // AT recursion
}

abstract class Shape
{
    public $hidden;

    public static function unit($class)
    {
        return (new $class())->area(); // AT unit
    }

    public function area()
    {
        return burn(); // AT shape_area
    }

    abstract public function name();
}

class Circle extends Shape
{
    public function area()
    {
        return parent::area(); // AT circle_area
    }

    public function name()
    {
        return 'circle';
    }
}

function classes()
{
    return Shape::unit(Circle::class); // AT classes
}

trait Logs
{
    public function log()
    {
        return burn(); // AT log
    }

    public static function boot()
    {
        return (new static())->log(); // AT boot
    }
}

class Order
{
    use Logs;
}

function traits()
{
    return Order::boot(); // AT traits
}

function closures()
{
    $add = 1;
    $inner = function () use ($add) { // AT inner_start
        return burn() + $add; // AT inner
    };
    $outer = function ($f) { // AT outer_start
        return $f(); // AT outer
    };
    return $outer($inner); // AT closures
}

class Binder
{
    public function maker()
    {
        return function () { // AT bound_start
            return $this->work(); // AT bound
        };
    }

    private function work()
    {
        return burn(); // AT bound_work
    }
}

function bound()
{
    $f = (new Binder())->maker();
    return $f(); // AT bound_call
}

function arrows()
{
    $f = fn($x) => burn() + $x; // AT arrow
    return $f(1); // AT arrows
}

function sorts()
{
    $a = [2, 1];
    usort($a, function ($x, $y) { return burn() * 0 + $x - $y; }); // AT sorts
    return $a;
}

function mapped($x)
{
    return burn() + $x; // AT mapped
}

function callbacks()
{
    return array_map('Work\mapped', [1]); // AT callbacks
}

function nested_inner($x)
{
    return array_map([new Circle(), 'area'], [1]); // AT nested_inner
}

function nested()
{
    return call_user_func('call_user_func_array', 'Work\nested_inner', [1]); // AT nested
}

function replaces()
{
    return preg_replace_callback('/b/', fn($m) => (string) burn(), 'abc'); // AT replaces
}

function expressions()
{
    static $text = null;
    $text = $text ?? str_repeat('ab cd _interface_ ', 1000); // AT expressions_text
    return preg_match_all('/\b(?:class|trait)\s++(?P<name>\w+)|[a-z]+\d/i', $text); // AT expressions
}

function hashes()
{
    for ($i = 0; $i < 20; $i++) {
        $s = hash('sha256', str_repeat('x', 20000)); // AT hashes
    }
    return $s;
}

function internal_callbacks()
{
    static $text = null;
    $text = $text ?? str_repeat('y', 20000); // AT callbacks_text
    return array_map('md5', [$text, $text, $text, $text, $text]); // AT internal_callbacks
}

function numbers()
{
    yield burn(); // AT numbers
}

function generators()
{
    $sum = 0;
    foreach (numbers() as $n) { // AT generators
        $sum += $n;
    }
    return $sum;
}

function first_of($generator)
{
    yield $generator->current(); // AT first_of
}

function generators_nested()
{
    return iterator_to_array(first_of(numbers())); // AT generators_nested
}

function level3()
{
    yield burn(); // AT level3
}

function level2()
{
    yield from level3(); // AT level2
}

function level1()
{
    yield from level2(); // AT level1
}

function delegates()
{
    foreach (level1() as $n) { // AT delegates
        $sum = $n;
    }
    return $sum;
}

class Walk implements \Iterator
{
    private $at = 0;

    #[\ReturnTypeWillChange]
    public function current()
    {
        return burn(); // AT walk_current
    }

    #[\ReturnTypeWillChange]
    public function key()
    {
        return $this->at;
    }

    #[\ReturnTypeWillChange]
    public function next()
    {
        $this->at++;
    }

    #[\ReturnTypeWillChange]
    public function rewind()
    {
        $this->at = 0;
    }

    #[\ReturnTypeWillChange]
    public function valid()
    {
        return $this->at < 1;
    }
}

function iterators()
{
    foreach (new Walk() as $n) { // AT iterators
        $sum = $n;
    }
    return $sum;
}

function from_iterator()
{
    yield from new Walk(); // AT from_iterator
}

function delegates_iterator()
{
    foreach (from_iterator() as $n) { // AT delegates_iterator
        $sum = $n;
    }
    return $sum;
}

class Magic implements \ArrayAccess, \JsonSerializable, \Countable
{
    public function __get($name)
    {
        return burn(); // AT magic_get
    }

    public function __call($name, $arguments)
    {
        return burn(); // AT magic_call
    }

    public static function __callStatic($name, $arguments)
    {
        return burn(); // AT magic_static
    }

    public function __invoke()
    {
        return burn(); // AT magic_invoke
    }

    public function __toString()
    {
        return (string) burn(); // AT magic_string
    }

    #[\ReturnTypeWillChange]
    public function offsetGet($i)
    {
        return burn(); // AT magic_offset
    }

    #[\ReturnTypeWillChange]
    public function offsetExists($i)
    {
        return true;
    }

    #[\ReturnTypeWillChange]
    public function offsetSet($i, $v)
    {
    }

    #[\ReturnTypeWillChange]
    public function offsetUnset($i)
    {
    }

    #[\ReturnTypeWillChange]
    public function jsonSerialize()
    {
        return burn(); // AT magic_json
    }

    #[\ReturnTypeWillChange]
    public function count()
    {
        return burn(); // AT magic_count
    }
}

function magic()
{
    $m = new Magic();
    $x = $m->anything; // AT use_get
    $x = $m->something(1); // AT use_call
    $x = Magic::other(2); // AT use_static
    $x = $m(); // AT use_invoke
    $x = "$m"; // AT use_string
    $x = $m[1]; // AT use_offset
    $x = json_encode($m); // AT use_json
    return count($m); // AT use_count
}

class Dying
{
    public function __destruct()
    {
        burn(); // AT destruct
    }
}

function destructors()
{
    $d = new Dying();
    $d = null; // AT destructors
    return 1;
}

function leave_local()
{
    $d = new Dying();
    return 1;
}

function destructors_leave()
{
    return leave_local(); // AT destructors_leave
}

function throws()
{
    throw new \RuntimeException('x');
}

function exceptions()
{
    try {
        try {
            throws();
        } finally {
            burn(); // AT finally
        }
    } catch (\RuntimeException $e) {
        burn(); // AT catch
    }
}

function thrower_with_local()
{
    $d = new Dying();
    throws();
}

function unwinding()
{
    try {
        thrower_with_local(); // AT unwinding
    } catch (\RuntimeException $e) {
        return 1;
    }
    return 0;
}

function evaluated()
{
    return eval('namespace Work; return burn();'); // AT evaluated
}

function eval_function()
{
    static $done = false;
    if (!$done) {
        eval('namespace Work; function made() { return burn(); }');
        $done = true;
    }
    return made(); // AT eval_function
}

function includes()
{
    return include __DIR__ . '/php_include.php'; // AT includes
}

function included_function()
{
    require_once __DIR__ . '/php_library.php';
    return library(); // AT included_function
}

function anonymous()
{
    $o = new class () {
        public function work()
        {
            return burn(); // AT anonymous_work
        }
    };
    return $o->work(); // AT anonymous
}

function reflected()
{
    static $m = null;
    $m = $m ?? new \ReflectionMethod(Circle::class, 'area');
    return $m->invoke(new Circle()); // AT reflected
}

function buffered()
{
    ob_start(fn($text) => (string) burn()); // AT buffered_start
    echo 'x';
    return ob_get_clean(); // AT buffered
}

function variadic(...$all)
{
    return burn() + count($all); // AT variadic
}

function variadics()
{
    return variadic(...[1, 2, 3]); // AT variadics
}

function long_loop()
{
    $x = 0;
    for ($i = 0; $i < \WORK_ITERATIONS; $i++) { // AT long_first
        $x ^= $i;
        $x += $i & 7;
    } // AT long_last
    return $x;
}

$chains = ['recursion', 'classes', 'traits', 'closures', 'bound', 'arrows', 'sorts', 'callbacks', 'nested', 'replaces', 'expressions', 'hashes',
    'internal_callbacks', 'generators', 'generators_nested', 'delegates', 'iterators', 'delegates_iterator', 'magic', 'destructors',
    'destructors_leave', 'exceptions', 'unwinding', 'evaluated', 'eval_function', 'includes', 'included_function', 'anonymous',
    'reflected', 'buffered', 'variadics', 'long_loop'];
if (PHP_VERSION_ID >= 80100) {
    require __DIR__ . '/php_work_81.php';
    $chains = array_merge($chains, $chains_81);
}
if (PHP_VERSION_ID >= 80400) {
    require __DIR__ . '/php_work_84.php';
    $chains = array_merge($chains, $chains_84);
}

function slice($chain)
{
    $chain = 'Work\\' . $chain;
    $until = hrtime(true) + \WORK_NS;
    do {
        $chain(); // AT slice
    } while (hrtime(true) < $until);
}

$web = PHP_SAPI != 'cli';
define('WORK_ITERATIONS', (int) ($_GET['iterations'] ?? $argv[1] ?? 4000));
define('WORK_NS', $web ? 1500000 : 12000000);
if (!$web && $argc > 2) {
    $chains = array_intersect(array_slice($argv, 2), $chains);
}
echo json_encode(['pid' => getmypid(), 'version' => PHP_VERSION, 'chains' => array_values($chains)]), "\n";
flush();
do {
    foreach ($chains as $chain) {
        slice($chain); // AT main
    }
} while (!$web);
