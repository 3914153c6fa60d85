# SPDX-License-Identifier: Apache-2.0
# A known stack, for hack/record-perl: says its pid when it is there, and stands still until it may go on.
use strict;
use warnings;
use utf8;
no warnings 'experimental::lexical_subs';
use feature 'lexical_subs';
use List::Util qw(first);

sub leaf {
	syswrite STDOUT, "$$\n";
	return scalar <STDIN>;
}

package Shop::Cart {
	sub total { return main::leaf() }
	sub TIESCALAR { return bless [], shift }

	sub FETCH {
		my $self = shift;
		return $self->total;
	}
}

package main;

sub by_tie {
	tie my $tied, 'Shop::Cart';
	return "$tied";
}

sub by_lexical {
	my $n = shift;
	my sub inner { $n++; return by_tie() }
	return inner();
}

sub by_sort {
	my @sorted = sort { by_lexical(1); 0 } 2, 1;
	return @sorted;
}

sub by_eval { return eval "\nby_sort()" }
sub by_regex { return 'a' =~ /a(?{ by_eval() })/ }
sub größe { return by_regex() }
sub été_名 { return größe() }

sub closure {
	my $n = shift;
	return sub {
		$n++;
		return été_名();
	};
}

sub recurse {
	my $n = shift;
	return first { closure(1)->() } 1 if !$n;
	return recurse($n - 1);
}

recurse(3);
