# SPDX-License-Identifier: Apache-2.0
# A mailbox with 40 mails of every kind of words, of links and of a page, for SpamAssassin. For test_real_programs.py.
use strict;
use warnings;

my @words = qw(offer meeting invoice free money garden click report limited pills transfer holiday urgent table prize);
for my $n (1 .. 40) {
	my @lines = map {
		my $line = $_;
		join ' ', map { $words[($_ * $n + $line) % @words] } 1 .. 12
	} 1 .. 60;
	print "From sender$n\@example.com Thu Jan  1 00:00:00 1970\n";
	print "From: \"Sender $n\" <sender$n\@example.com>\nTo: you\@example.org\nMessage-Id: <$n\@example.com>\n";
	print "Date: Thu, 01 Jan 1970 00:00:0", $n % 10, " +0000\nSubject: $words[$n % @words] for you!!!\n";
	print "Received: from host$n.example.com (host$n.example.com [192.0.2.$n]) by mx.example.org; Thu, 01 Jan 1970 00:00:00 +0000\n";
	print "MIME-Version: 1.0\nContent-Type: multipart/alternative; boundary=\"b$n\"\n\n";
	print "--b$n\nContent-Type: text/plain\n\n", join("\n", @lines), "\nhttp://www.example.com/$n?x=%20$n\n";
	print "--b$n\nContent-Type: text/html\n\n<html><body>", map({ "<p>$_ <a href=\"http://host.example.net/$n\">here</a></p>\n" } @lines);
	print "</body></html>\n--b$n--\n\n";
}
