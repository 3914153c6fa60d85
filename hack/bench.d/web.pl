# SPDX-License-Identifier: Apache-2.0
# The requests of a small shop, one after the other, as a framework handles them: middleware, router, controller,
# repository, template.
# usage: web.pl SECONDS
use strict;
use warnings;

package Shop::Repository;

sub new {
	my ($class) = @_;
	return bless { items => [map { { name => "item $_", price => $_ * 37 % 101 } } 0 .. 59] }, $class;
}

sub cheapest {
	my ($self, $below) = @_;
	return sort { compare($a, $b) } grep { $self->is_cheaper($_, $below) } @{ $self->{items} };
}

sub is_cheaper {
	my ($self, $item, $below) = @_;
	return $item->{price} < $below;
}

sub compare {
	my ($one, $other) = @_;
	return $one->{price} <=> $other->{price} || $one->{name} cmp $other->{name};
}

package Shop::Template;

sub new { return bless {}, shift }

sub page {
	my ($self, @items) = @_;
	return '<table>' . join('', map { $self->row($_) } @items) . '</table>';
}

sub row {
	my ($self, $item) = @_;
	return $self->cells($self->escape($item->{name}), $self->escape($item->{price}));
}

sub cells {
	my ($self, @texts) = @_;
	my $out = '<tr>';
	$out .= $self->cell($_) for @texts;
	return "$out</tr>";
}

sub cell {
	my ($self, $text) = @_;
	return "<td>$text</td>";
}

sub escape {
	my ($self, $text) = @_;
	$text =~ s/([<>& ])/entity($1)/ge;
	return $text;
}

sub entity { return '&#' . ord(shift) . ';' }

package Shop::Controller;

sub new {
	my ($class) = @_;
	return bless { repository => Shop::Repository->new, template => Shop::Template->new }, $class;
}

sub list {
	my ($self, $request) = @_;
	return $self->{template}->page($self->{repository}->cheapest($request->{below}));
}

package Shop::Kernel;

sub new {
	my ($class) = @_;
	my $self = bless { controller => Shop::Controller->new }, $class;
	$self->{middleware} = [map { my $name = $_; sub { $self->$name(@_) } } qw(log session authorize cache)];
	return $self;
}

sub handle {
	my ($self, $request, $at) = @_;
	$at //= 0;
	return $self->route($request) if $at == @{ $self->{middleware} };
	return $self->{middleware}[$at]->($request, sub { $self->handle(shift, $at + 1) });
}

sub log { my ($self, $request, $next) = @_; return $next->($request) }
sub session { my ($self, $request, $next) = @_; return $next->($request) }
sub authorize { my ($self, $request, $next) = @_; return $next->($request) }
sub cache { my ($self, $request, $next) = @_; return $next->($request) }

sub route {
	my ($self, $request) = @_;
	my $method = substr $request->{path}, 1;
	return $self->{controller}->$method($request);
}

package main;

my $until = time + $ARGV[0];
my $kernel = Shop::Kernel->new;
for (my $n = 0; time < $until; $n++) {
	$kernel->handle({ path => '/list', below => $n % 100 });
}
