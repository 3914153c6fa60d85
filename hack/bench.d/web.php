<?php
// SPDX-License-Identifier: Apache-2.0
// The requests of a small shop, one after the other, as a framework handles them: router, middleware, controller,
// repository, template.
// usage: web.php SECONDS
namespace Shop;

class Request
{
    public $path;
    public $query;

    public function __construct($path, array $query)
    {
        $this->path = $path;
        $this->query = $query;
    }
}

class Repository
{
    private $items = [];

    public function __construct()
    {
        for ($i = 0; $i < 60; $i++) {
            $this->items[] = ['name' => "item $i", 'price' => $i * 37 % 101];
        }
    }

    public function cheapest($below)
    {
        $found = array_filter($this->items, function ($item) use ($below) {
            return $this->isCheaper($item, $below);
        });
        usort($found, [$this, 'compare']);
        return $found;
    }

    private function isCheaper(array $item, $below)
    {
        return $item['price'] < $below;
    }

    public function compare(array $a, array $b)
    {
        return $a['price'] <=> $b['price'] ?: strcmp($a['name'], $b['name']);
    }
}

class Template
{
    public function page(array $items)
    {
        return '<table>' . implode('', array_map([$this, 'row'], $items)) . '</table>';
    }

    public function row(array $item)
    {
        return $this->cells([$this->escape($item['name']), $this->escape((string) $item['price'])]);
    }

    private function cells(array $texts)
    {
        $out = '<tr>';
        foreach ($texts as $text) {
            $out .= $this->cell($text);
        }
        return $out . '</tr>';
    }

    private function cell($text)
    {
        return '<td>' . $text . '</td>';
    }

    private function escape($text)
    {
        return preg_replace_callback('/[<>&]/', fn($m) => '&#' . ord($m[0]) . ';', htmlspecialchars($text));
    }
}

class Controller
{
    private $repository;
    private $template;

    public function __construct()
    {
        $this->repository = new Repository();
        $this->template = new Template();
    }

    public function list(Request $request)
    {
        return $this->template->page($this->repository->cheapest($request->query['below']));
    }
}

class Kernel
{
    private $controller;
    private $middleware;

    public function __construct()
    {
        $this->controller = new Controller();
        $this->middleware = [[$this, 'log'], [$this, 'session'], [$this, 'authorize'], [$this, 'cache']];
    }

    public function handle(Request $request)
    {
        return $this->next($request, 0);
    }

    private function next(Request $request, $at)
    {
        if ($at == count($this->middleware)) {
            return $this->route($request);
        }
        return call_user_func($this->middleware[$at], $request, fn($r) => $this->next($r, $at + 1));
    }

    public function log(Request $request, callable $next)
    {
        return $next($request);
    }

    public function session(Request $request, callable $next)
    {
        return $next($request);
    }

    public function authorize(Request $request, callable $next)
    {
        return $next($request);
    }

    public function cache(Request $request, callable $next)
    {
        return $next($request);
    }

    private function route(Request $request)
    {
        return call_user_func([$this->controller, ltrim($request->path, '/')], $request);
    }
}

function main($seconds)
{
    $until = microtime(true) + $seconds;
    $kernel = new Kernel();
    for ($n = 0; microtime(true) < $until; $n++) {
        $kernel->handle(new Request('/list', ['below' => $n % 100]));
    }
}

main((float) $argv[1]);
