// A cluster for hack/bench operator, of the standard library alone.
module kiln/hack/bench_operator_cluster

go 1.22
