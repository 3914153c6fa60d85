%% SPDX-License-Identifier: Apache-2.0
%% A web server with a process for each connection and one that keeps the carts. For test_real_programs.py, as
%% shop_server:start(Port).
-module(shop_server).
-export([start/1, carts/1, acceptor/1, connection/1]).

start(Port) ->
    ets:new(items, [named_table, public, {read_concurrency, true}]),
    [ets:insert(items, {N, <<"item-", (integer_to_binary(N))/binary>>, N * N rem 97}) || N <- lists:seq(1, 500)],
    register(carts, spawn_link(?MODULE, carts, [#{}])),
    {ok, Socket} = gen_tcp:listen(Port, [binary, {ip, {127, 0, 0, 1}}, {packet, http_bin}, {active, false},
                                         {reuseaddr, true}, {backlog, 64}]),
    [spawn_link(?MODULE, acceptor, [Socket]) || _ <- lists:seq(1, 8)],
    receive stop -> ok end.

carts(Carts) ->
    receive
        {add, From, Who, Item} ->
            Cart = lists:sublist([Item | maps:get(Who, Carts, [])], 50),
            From ! {cart, Cart},
            carts(Carts#{Who => Cart})
    end.

acceptor(Socket) ->
    {ok, Connection} = gen_tcp:accept(Socket),
    Pid = spawn(?MODULE, connection, [Connection]),
    ok = gen_tcp:controlling_process(Connection, Pid),
    acceptor(Socket).

connection(Connection) ->
    case request(Connection, close) of
        closed -> gen_tcp:close(Connection);
        Keep ->
            Body = page(erlang:unique_integer([positive]) rem 20),
            Head = io_lib:format("HTTP/1.1 200 OK\r\nContent-Length: ~b\r\nConnection: ~s\r\n\r\n",
                                 [iolist_size(Body), Keep]),
            ok = gen_tcp:send(Connection, [Head, Body]),
            connection(Connection)
    end.

%% Reads a request up to its end; keep-alive or close, as it asks.
request(Connection, Keep) ->
    case gen_tcp:recv(Connection, 0, 60000) of
        {ok, http_eoh} -> Keep;
        {ok, {http_header, _, 'Connection', _, Value}} -> request(Connection, string:lowercase(Value));
        {ok, _} -> request(Connection, Keep);
        {error, _} -> closed
    end.

page(Who) ->
    carts ! {add, self(), Who, rand:uniform(500)},
    Cart = receive {cart, Items} -> Items end,
    Rows = [row(ets:lookup(items, Item)) || Item <- lists:sort(Cart)],
    Sum = lists:foldl(fun({_, Price}, Total) -> Total + Price end, 0, [{R, iolist_size(R)} || R <- Rows]),
    ["<ul>", Rows, "</ul>", integer_to_list(Sum), checked(Sum)].

row([{Number, Name, Price}]) ->
    Escaped = binary:replace(<<"<", Name/binary, ">">>, [<<"<">>, <<">">>], <<"&">>, [global]),
    io_lib:format("<li id=~b>~s: ~.2f</li>", [Number, Escaped, Price / 3]).

checked(Sum) ->
    try throw_when_odd(Sum) of even -> "" catch odd -> "!" end.

throw_when_odd(Sum) when Sum rem 2 =:= 1 -> throw(odd);
throw_when_odd(_) -> even.
