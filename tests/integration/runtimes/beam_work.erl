%% SPDX-License-Identifier: Apache-2.0
%% A program with known stacks, in each process one. Marks at the ends of lines are read by beam_stacks.py: a frame of
%% the function NAME that calls is at its line marked @NAME, the newest frame anywhere in its function.
-module(beam_work).
-export([main/1, run/2]).

main(Arguments) ->
    [Directory | Names] = Arguments,
    [prepare(Name, Directory) || Name <- Names],
    [spawn(?MODULE, run, [list_to_atom(Name), Directory]) || Name <- Names],
    io:format("{\"pid\": ~s}~n", [os:getpid()]),
    receive stop -> ok end.

prepare("elixir", Directory) ->
    {ok, _} = application:ensure_all_started(elixir),
    'Elixir.Code':compile_file(list_to_binary(Directory ++ "/beam_work.ex"));
prepare(_, _) -> ok.

run(Name, Directory) ->
    State = state(Name, Directory),
    again(Name, State).

again(Name, State) ->
    _ = work(Name, State), % @again
    again(Name, State).

state(reversed, _) -> lists:seq(1, 20000);
state(lookup, _) ->
    Table = ets:new(table, [ordered_set]),
    [ets:insert(Table, {I, I, "abc"}) || I <- lists:seq(1, 100)],
    Table;
state(counted, _) -> lists:seq(1, 100000);
state(joined, _) -> lists:duplicate(20000, 97);
state(packed, _) -> term_to_binary(lists:seq(1, 1000));
state(folded, _) -> lists:seq(1, 100);
state(tuples, _) -> lists:seq(1, 50);
state(told, _) ->
    [spawn(?MODULE, run, [teller, self()]) || _ <- [1, 2, 3]],
    none;
state(teller, Told) -> Told;
state(loaded, Directory) -> Directory;
state(elixir, _) -> lists:seq(1, 100);
state(_, _) -> 40.

work(recursion, N) -> down(N);
work(reversed, List) -> reversed(List);
work(lookup, Table) ->
    _ = lookup(Table, 20), % @rare
    rarely();
work(counted, List) -> counted(List);
work(joined, Bytes) -> joined(Bytes);
work(packed, Bytes) ->
    _ = packed(Bytes), % @rare
    rarely();
work(folded, List) -> folded(List);
work(tuples, List) -> tuples(List);
work(thrown, N) -> thrown(N);
work(wrong, N) -> wrong(N);
work(many, N) -> many(N, 1, 2, 3, 4);
work(applied, N) -> applied(fun spin/2, N);
work(told, _) -> told();
work(teller, Told) -> teller(Told);
work(dirty, _) -> dirty();
work(loaded, Directory) -> loaded(Directory);
work(elixir, List) -> 'Elixir.Shop.Cart':total(List).

%% What takes long has its turn less often.
rarely() -> erlang:bump_reductions(4000).

spin(0, A) -> A;
spin(N, A) -> spin(N - 1, (A * 7 + N) rem 1000003).

down(0) -> spin(20000, 1);
down(N) ->
    X = down(N - 1), % @down
    X + N.

reversed(List) ->
    [First | _] = lists:reverse(List), % @reversed
    First.

lookup(_, 0) -> 0;
lookup(Table, N) ->
    [{_, V, _}] = ets:lookup(Table, N), % @lookup
    [_] = ets:match_object(Table, {N, '_', '_'}), % @lookup
    V + lookup(Table, N - 1). % @lookup

counted(List) ->
    N = length(List), % @counted
    N + 1.

joined(Bytes) ->
    Binary = list_to_binary(Bytes), % @joined
    byte_size(Binary).

packed(Bytes) ->
    Packed = zlib:compress(Bytes), % @packed
    byte_size(Packed).

folded(List) ->
    Sum = lists:foldl( % @folded
        fun(X, A) ->
            Y = spin(100, X), % @folded_fun
            Y + A
        end, 0, List),
    Sum + 1.

tuples([]) -> [];
tuples([X | Rest]) ->
    [{X, [X]} | tuples(Rest)]. % @tuples

thrown(0) -> 0;
thrown(N) ->
    _ = thrown_once(40), % @thrown
    thrown(N - 1).

thrown_once(N) ->
    try thrower(N) of % @thrown_once
        X -> X + 1
    catch
        throw:X -> X
    end.

thrower(0) -> throw(1);
thrower(N) ->
    X = thrower(N - 1), % @thrower
    X + 1.

wrong(N) ->
    case catch divide(N, 0) of % @wrong
        {'EXIT', {badarith, [_ | _]}} -> 0;
        X -> X + 1
    end.

divide(A, B) -> 1 + A div B.

%% Variables that live on the stack.
many(0, A, B, C, D) -> A + B + C + D;
many(N, A, B, C, D) ->
    X = many(N - 1, A + 1, B, C, D), % @many
    Y = spin(20, X + A), % @many
    A + B * 2 + C * 3 + D * 4 + X + Y.

applied(Fun, N) ->
    X = Fun(20000, N), % @applied
    X + 1.

told() ->
    receive % @told
        {From, X} -> From ! X % @told
    end.

teller(Told) ->
    Told ! {self(), lists:seq(1, 1000)},
    receive
        X -> X
    end,
    length(X).

dirty() ->
    _ = erts_debug:dirty_cpu(wait, 100), % @dirty
    1.

%% Another module of the same name takes its place, and the old one's code is given away.
loaded(Directory) ->
    one_of("a", Directory), % @loaded
    one_of("b", Directory), % @loaded
    1.

one_of(Version, Directory) ->
    code:purge(beam_swap),
    {ok, Code} = file:read_file(Directory ++ "/beam_swap_" ++ Version ++ ".beam"),
    {module, _} = code:load_binary(beam_swap, "beam_swap", Code),
    X = apply(beam_swap, list_to_atom("outer_" ++ Version), [200]), % @one_of
    X + 1.
