<?php
// SPDX-License-Identifier: Apache-2.0
// Parses and prints what is installed of PHP, file by file, under PHPUnit. For test_real_programs.py.
use PhpParser\NodeTraverser;
use PhpParser\NodeVisitor\NameResolver;
use PhpParser\ParserFactory;
use PhpParser\PrettyPrinter\Standard;
use PHPUnit\Framework\TestCase;

require_once 'PhpParser/autoload.php';

final class ParserTest extends TestCase
{
    public function files(): iterable
    {
        $tree = new RecursiveIteratorIterator(new RecursiveDirectoryIterator('/usr/share/php/Symfony'));
        foreach (new RegexIterator($tree, '/\.php$/') as $file) {
            yield [(string) $file];
        }
    }

    /** @dataProvider files */
    public function testIsPrintedAsItWasParsed(string $path): void
    {
        $parser = (new ParserFactory())->create(ParserFactory::ONLY_PHP7);
        $printer = new Standard();
        $traverser = new NodeTraverser();
        $traverser->addVisitor(new NameResolver());
        $once = $printer->prettyPrintFile($parser->parse(file_get_contents($path)));
        $twice = $printer->prettyPrintFile($parser->parse($once));
        $this->assertSame($once, $twice);
        $this->assertNotEmpty($traverser->traverse($parser->parse($twice)) ?: [1]);
    }
}
