# SPDX-License-Identifier: Apache-2.0
# A file for by_require and by_do of perl_work.pl.
main::work();
1;
