%% SPDX-License-Identifier: Apache-2.0
%% deep:main(DEPTH) spins at the end of a chain of DEPTH calls. Every 20 ms or so it returns and calls again.
-module(deep).
-export([main/1]).

main(Depth) ->
    _ = down(Depth),
    main(Depth).

down(0) -> spin(4000000, 1);
down(N) -> down(N - 1) + 1.

spin(0, A) -> A;
spin(N, A) -> spin(N - 1, (A * 7 + N) rem 1000003).
