// Agents for hack/bench stream, of the standard library alone.
module kiln/hack/bench_stream_agents

go 1.22
