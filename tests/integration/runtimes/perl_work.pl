# SPDX-License-Identifier: Apache-2.0
#
# A program with known call chains, for Perl 5.28 and later. Says its chains as JSON, works until it is killed.
#
# Each chain is a list of [sub, lines, file], leaf first; "|" is a native frame of the interpreter's loop, which
# comes after the frames that it runs. main::work is where the time goes. A line has the comment "at NAME" in the
# source; NAME is the chain's, or what comes after a slash tells two apart.
#
# usage: perl perl_work.pl [OPTION...] [CHAIN...]
use strict;
use warnings;
use utf8;
use Cwd qw(realpath);
use List::Util qw(first reduce);
use Storable ();

our $HERE = realpath(__FILE__);
our $DIR = $HERE =~ s{/[^/]*$}{}r;
our $SLICE = 0.1;    # seconds of CPU time for each chain: what is between two is nothing against it

# The leaf: runs for a while without calling anything.
sub work {
	my $total = 0;
	my $until = (times)[0] + $SLICE;
	while ((times)[0] < $until) {    # at work
		for my $i (1 .. 2000) {    # at work
			$total += $i * $i;    # at work
		}
	}
	return $total;    # at work
}

# ---- recursion

sub recurse {
	my ($n) = @_;
	no warnings 'recursion';
	return work() if $n == 0;    # at recurse/end
	return recurse($n - 1);    # at recurse/deeper
}

sub recursion { return recurse(12) }    # at recursion
sub deep { return recurse(600) }    # at deep

# ---- packages, methods and closures

package Shop::Item {
	sub new { return bless {n => $_[1]}, $_[0] }
	sub price { return main::work() }    # at Shop::Item::price
}

package Shop::Cart::Special {
	our @ISA = ('Shop::Item');
	our $AUTOLOAD;

	sub price {
		my $self = shift;
		return $self->SUPER::price();    # at Shop::Cart::Special::price
	}

	sub AUTOLOAD {
		my $self = shift;
		return if $AUTOLOAD =~ /DESTROY$/;
		return $self->price;    # at Shop::Cart::Special::AUTOLOAD
	}
}

package main;

sub methods {
	my $method = 'price';
	return Shop::Cart::Special->new(1)->$method;    # at methods
}

sub autoload { return Shop::Cart::Special->new(1)->whatever }    # at autoload

sub closures {
	my $n = shift // 1;
	my $inner = sub {    # at closures/inner-start
		$n++;
		return work();    # at closures/inner
	};
	my $outer = sub { return $inner->() };    # at closures/outer
	return $outer->();    # at closures
}

sub by_map { return map { work() } 1 }    # at by_map
sub by_goto { goto &goto_target }
sub goto_target { return work() }    # at goto_target
sub to_goto { return by_goto() }    # at to_goto

# ---- sort

sub sort_block {
	my @sorted = sort { work(); $a <=> $b } 2, 1;    # at sort_block
	return @sorted;
}

sub by_work { work(); return $a <=> $b }    # at by_work
sub sort_sub { my @sorted = sort by_work 2, 1; return @sorted }    # at sort_sub
sub stacked($$) { work(); return $_[0] <=> $_[1] }    # at stacked
sub sort_stacked { my @sorted = sort stacked 2, 1; return @sorted }    # at sort_stacked

sub sort_in_sort {
	my @sorted = sort { sort_sub(); $a <=> $b } 2, 1;    # at sort_in_sort
	return @sorted;
}

# ---- tie, overload, DESTROY, __DIE__, __WARN__, signals

package Tied {
	sub TIESCALAR { return bless [], shift }
	sub FETCH { return main::work() }    # at Tied::FETCH
}

package Plus {
	use overload '+' => sub { main::work(); return $_[0] }, '""' => \&text;    # at Plus/plus
	sub text { main::work(); return 'text' }    # at Plus::text
}

package Dies {
	sub DESTROY { main::work(); return }    # at Dies::DESTROY
}

package main;

sub by_tie {
	tie my $tied, 'Tied';
	return $tied + 1;    # at by_tie
}

sub by_overload { return bless([], 'Plus') + 1 }    # at by_overload
sub by_text { return 'a' . bless([], 'Plus') }    # at by_text

sub by_destroy {
	my $object = bless [], 'Dies';
	undef $object;    # at by_destroy
	return;
}

sub on_die { work(); return }    # at on_die

sub by_die {
	local $SIG{__DIE__} = \&on_die;
	eval { die "x\n" };    # at by_die
	return;
}

sub by_warn {
	local $SIG{__WARN__} = sub { work() };    # at by_warn/handler
	warn "x\n";    # at by_warn
	return;
}

sub by_signal {
	local $SIG{USR1} = sub { work() };    # at by_signal/handler
	kill USR1 => $$;    # at by_signal
	return;    # at by_signal
}

# ---- eval

sub eval_block {
	return eval { work() };    # at eval_block
}

# eval {} in code that C called: one more loop of ops, without a sub that C called.
sub eval_in_sort {
	my @sorted = sort { eval { work() }; $a <=> $b } 2, 1;    # at eval_in_sort
	return @sorted;
}

package Caught {
	sub TIESCALAR { return bless [], shift }

	sub FETCH {
		eval { 1 };
		return eval { after() };    # at Caught::FETCH
	}
	sub after { return main::work() }    # at Caught::after
}

package main;

sub eval_in_tie {
	tie my $tied, 'Caught';
	return $tied + 1;    # at eval_in_tie
}

sub eval_string { return eval "1;\nwork();\n" }    # at eval_string

sub eval_sub {
	eval "no warnings; sub made_by_eval {\n  return 1 && work();\n}\n1" or die;
	return made_by_eval();    # at eval_sub
}

sub eval_closure { return eval("\nsub {\n  work();\n}")->() }    # at eval_closure
sub eval_line { return eval "#line 7 \"named.pl\"\nwork();\n" }    # at eval_line

# ---- files

sub by_require {
	delete $INC{'perl_work_file.pl'};
	local @INC = $DIR;
	return require 'perl_work_file.pl';    # at by_require
}

sub by_do { return do "$DIR/perl_work_file.pl" }    # at by_do

sub by_begin {
	return eval "\nBEGIN { main::work() }\n1";    # at by_begin
}

# ---- regular expressions

sub by_regex { return 'a' =~ /a(?{ work() })/ }    # at by_regex

sub by_qr {
	my $n = shift // 1;
	my $qr = qr/a(?{ $n++; work() })/;    # at by_qr/code
	return 'ba' =~ /b$qr/;    # at by_qr
}

sub by_replace { return 'a' =~ s/a/work()/er }    # at by_replace

# ---- through modules in C

sub by_first { return first { work() } 1 }    # at by_first
sub by_reduce { return reduce { work() } 1, 2 }    # at by_reduce

package Freezes {
	sub STORABLE_freeze { main::work(); return 'x' }    # at Freezes::STORABLE_freeze
	sub STORABLE_thaw { return }
}

package main;

sub by_storable { return Storable::freeze(bless [], 'Freezes') }    # at by_storable

# ---- lexical subs, formats, names

use feature 'lexical_subs', 'state';
no warnings 'experimental::lexical_subs';

sub by_lexical {
	my $n = shift // 1;
	my sub inner { $n++; return work() }    # at by_lexical/inner
	return inner();    # at by_lexical
}

sub by_state {
	state sub inner { return work() }    # at by_state/inner
	return inner();    # at by_state
}

open NULL, '>', '/dev/null' or die;
format NULL =
@<<<
work()
.

sub by_format { return write NULL }    # at by_format

sub größe_名前 { return work() }    # at größe_名前
sub été { return größe_名前() }    # at été

# ---- what newer versions have

my %newer;
$newer{by_try} = <<'END' if $] >= 5.034;
use feature 'try'; no warnings;
sub by_try {
	try { return work() } catch ($e) { die }    # at by_try
}
END
$newer{by_defer} = <<'END' if $] >= 5.036;
use feature 'defer'; no warnings;
sub by_defer {
	{ defer { work() } 1 }    # at by_defer
	return;
}
END
$newer{by_class} = <<'END' if $] >= 5.038;
use feature 'class'; no warnings;
class Point {
	field $x = 1;
	method length_of { $x++; return main::work() }    # at Point::length_of
}
sub by_class { return Point->new->length_of }    # at by_class
END
$newer{by_any} = <<'END' if $] >= 5.042;
use feature 'keyword_any'; no warnings;
sub by_any { return any { work() } 1 }    # at by_any
END

my $loop = '|';
my @sort = (['main::sort_sub'], $loop);
our %CHAINS = (
	recursion => [['main::recurse', 'recurse/end'], (['main::recurse', 'recurse/deeper']) x 12, ['main::recursion']],
	deep => [['main::recurse', 'recurse/end'], (['main::recurse', 'recurse/deeper']) x 600, ['main::deep']],
	methods => [['Shop::Item::price'], ['Shop::Cart::Special::price'], ['main::methods']],
	autoload => [
		['Shop::Item::price'], ['Shop::Cart::Special::price'], ['Shop::Cart::Special::AUTOLOAD'],
		['main::autoload']],
	closures => [
		['main::__ANON__[closures/inner-start+1]', 'closures/inner'], ['main::__ANON__[closures/outer]', 'closures/outer'],
		['main::closures']],
	by_map => [['main::by_map']],
	to_goto => [['main::goto_target'], ['main::to_goto']],
	sort_block => [$loop, ['main::sort_block']],
	sort_sub => [['main::by_work'], $loop, ['main::sort_sub']],
	sort_stacked => [['main::stacked'], $loop, ['main::sort_stacked']],
	sort_in_sort => [['main::by_work'], $loop, ['main::sort_sub'], $loop, ['main::sort_in_sort']],
	by_tie => [['Tied::FETCH'], $loop, ['main::by_tie']],
	by_overload => [['Plus::__ANON__[Plus/plus]', 'Plus/plus'], $loop, ['main::by_overload']],
	by_text => [['Plus::text'], $loop, ['main::by_text']],
	by_destroy => [['Dies::DESTROY'], $loop, ['main::by_destroy']],
	by_die => [['main::on_die'], $loop, ['main::by_die']],
	by_warn => [['main::__ANON__[by_warn/handler]', 'by_warn/handler'], $loop, ['main::by_warn']],
	by_signal => [['main::__ANON__[by_signal/handler]', 'by_signal/handler'], $loop, ['main::by_signal']],
	eval_block => [['main::eval_block']],
	eval_in_sort => [$loop, $loop, ['main::eval_in_sort']],
	eval_in_tie => [['Caught::after'], ['Caught::FETCH'], $loop, $loop, ['main::eval_in_tie']],
	eval_string => [['(eval)', 2, '(eval)'], ['main::eval_string']],
	eval_sub => [['main::made_by_eval', 2, '(eval)'], ['main::eval_sub']],
	eval_closure => [['main::__ANON__[(eval):3]', 3, '(eval)'], ['main::eval_closure']],
	eval_line => [['(eval)', 7, 'named.pl'], ['main::eval_line']],
	by_require => [['(require perl_work_file.pl)', 3, "$DIR/perl_work_file.pl"], ['main::by_require']],
	by_do => [['(require perl_work_file.pl)', 3, "$DIR/perl_work_file.pl"], ['main::by_do']],
	by_begin => [['main::BEGIN', 2, '(eval)'], $loop, ['(eval)', 2, '(eval)'], ['main::by_begin']],
	by_regex => [$loop, ['main::by_regex']],
	by_qr => [['main::__ANON__', 'by_qr/code'], $loop, ['main::by_qr']],
	by_replace => [['main::by_replace']],
	by_first => [['main::__ANON__[by_first]', 'by_first'], $loop, ['main::by_first']],
	by_reduce => [['main::__ANON__[by_reduce]', 'by_reduce'], $loop, ['main::by_reduce']],
	by_storable => [['Freezes::STORABLE_freeze'], $loop, '*', ['main::by_storable']],
	by_lexical => [['inner', 'by_lexical/inner'], ['main::by_lexical']],
	by_state => [['inner', 'by_state/inner'], ['main::by_state']],
	by_format => [['format main::NULL', 'by_format/line'], ['main::by_format']],
	été => [['main::größe_名前'], ['main::été']],
	by_try => [['main::by_try', 3, '(eval)']],
	by_defer => [$loop, ['main::by_defer', 3, '(eval)']],
	by_class => [['Point::length_of', 4, '(eval)'], ['main::by_class', 6, '(eval)']],
	by_any => [['main::by_any', 2, '(eval)']],
);
# Of each the sub of its name; not those that this version does not know.
for my $name (qw(by_try by_defer by_class by_any)) {
	next if $newer{$name} && eval "$newer{$name};1";
	die $@ if $newer{$name};
	delete $CHAINS{$name};
}

sub run {
	my @names = @_;
	no strict 'refs';
	while (1) {
		for my $name (@names) {
			&{"main::$name"}();    # at run
		}
	}
}

# ---- what it says

sub lines {
	my %found;
	open my $f, '<:encoding(UTF-8)', $HERE or die;
	while (<$f>) {
		push @{$found{$1}}, $. while /# at (\S+)/g;
		# Lines of a format have no comments.
		push @{$found{'by_format/line'}}, $. + 1 if /^\@<<</;
	}
	return \%found;
}

# main::foo and foo are at "foo".
sub place {
	my ($at, $name) = @_;
	return $at->{$name} // $at->{$name =~ s/^main:://r} // die "no line of $name";
}

sub describe {
	my ($at, $chain) = @_;
	my $file = $HERE =~ s{.*/}{}r;
	my @frames = ref $chain eq 'ARRAY' ? @$chain : ();
	my @out;
	for my $frame (['main::work'], @frames) {
		if (!ref $frame) {
			push @out, $frame;
			next;
		}
		my ($name, $where, $in) = @$frame;
		my $lines = !defined $where ? place($at, $name) : $where =~ /^\d+$/ ? [$where + 0] : place($at, $where);
		$name =~ s{\[([^\]:]+?)(?:\+(\d+))?\]$}{"[$file:" . ($at->{$1}[0] + ($2 // 0)) . ']'}e;
		push @out, [$name, $lines, $in // $HERE];
	}
	return \@out;
}

sub json {
	my $v = shift;
	return '[' . join(',', map { json($_) } @$v) . ']' if ref $v eq 'ARRAY';
	return '{' . join(',', map { json($_) . ':' . json($v->{$_}) } sort keys %$v) . '}' if ref $v eq 'HASH';
	return $v if $v =~ /^\d+$/;
	return '"' . ($v =~ s/(["\\])/\\$1/gr) . '"';
}

sub say_chains {
	my ($pids, $tails, @names) = @_;
	my $at = lines();
	my @chains;
	for my $tail (@$tails) {
		push @chains, map { [@{describe($at, $CHAINS{$_})}, ['main::run', $at->{run}, $HERE], @$tail] } @names;
	}
	binmode STDOUT, ':utf8';
	local $| = 1;
	print json({pid => $$ . '', pids => $pids, file => $HERE, version => "$^V", chains => \@chains}), "\n";
	return;
}

sub started { run(@_); return }    # at started

# Options: --thread, another thread does the same; --fork N, children do it; --exec PERL, after 3 s it is done by that
# interpreter in the same process; --respawn, children do it, each for 1.5 s; --ms N, it ends then.
my %options = @ARGV % 2 ? (@ARGV, '') : @ARGV;
my %given = map { $_ => 1 } @ARGV;
my @names = grep { $CHAINS{$_} } map { utf8::decode(my $n = $_); $n } @ARGV;
@names = sort keys %CHAINS unless @names;
my $at = lines();
my @tails = ([['(main)', $at->{main}, $HERE], '|']);
my @pids = ($$);
for (1 .. $options{'--fork'} // 0) {
	my $pid = fork;
	if (!$pid) {
		sleep 1;
		run(@names);    # at main
	}
	push @pids, $pid;
}
if ($given{'--thread'}) {
	require threads;
	# Signals are the process's, not the thread's.
	@names = grep { $_ ne 'by_signal' } @names;
	push @tails, [['main::started', $at->{started}, $HERE], '|'];
	threads->create(\&started, @names)->detach;
}
sub end_after {
	my ($seconds, $how) = @_;
	my $parent = $$;
	my $pid = fork;
	return $pid if $pid;
	select undef, undef, undef, $seconds;
	kill $how => $parent;
	POSIX::_exit(0);
}
require POSIX;
end_after($options{'--ms'} / 1000, 'KILL') if $given{'--ms'};
if ($given{'--exec'}) {
	my @again = ($options{'--exec'}, $HERE, @names);
	$SIG{USR2} = sub { exec @again };
	end_after(3, 'USR2');
}
say_chains(\@pids, \@tails, @names);
while ($given{'--respawn'}) {
	my @children;
	for (1 .. 2) {
		my $pid = fork;
		if (!$pid) {
			$given{'--respawn'} = 0;
			end_after(1.5, 'KILL');
			last;
		}
		push @children, $pid;
		local $| = 1;
		print "{\"pid\": $pid}\n";
	}
	last unless $given{'--respawn'};
	waitpid $_, 0 for @children;
}
run(@names);    # at main
