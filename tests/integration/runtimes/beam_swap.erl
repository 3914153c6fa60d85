%% SPDX-License-Identifier: Apache-2.0
%% Compiled twice, with other names: the one takes the other's place.
-module(beam_swap).
-export([?OUTER/1]).

-ifdef(MORE).
-export([?MORE/1]).
?MORE(X) -> X * 3 + byte_size(term_to_binary(X)).
-endif.

?INNER(0, A) -> A;
?INNER(N, A) -> ?INNER(N - 1, (A * 7 + N) rem 1000003).

?OUTER(0) -> 0;
?OUTER(N) ->
    X = ?INNER(1000, N),
    X + ?OUTER(N - 1) - X.
