-- SPDX-License-Identifier: Apache-2.0
-- Questions that profiles answer. Of the last hour; type 'cpu' is time on a CPU.

-- Top functions by deployment: seconds of CPU in the function itself, and in it and all that it calls.
SELECT namespace, workload, function,
       sum(if(function = stack[1], value, 0)) / 1e9 AS self_seconds,
       sum(value) / 1e9 AS total_seconds
FROM kiln.samples
ARRAY JOIN arrayDistinct(stack) AS function
WHERE type = 'cpu' AND workload_kind = 'deployment' AND time > now() - INTERVAL 1 HOUR
GROUP BY namespace, workload, function
ORDER BY self_seconds DESC
LIMIT 10 BY namespace, workload;

-- CPUs that each deployment uses, by minute.
SELECT toStartOfMinute(time) AS minute, namespace, workload, sum(value) / 60e9 AS cpus
FROM kiln.samples
WHERE type = 'cpu' AND workload_kind = 'deployment' AND time > now() - INTERVAL 1 HOUR
GROUP BY minute, namespace, workload
ORDER BY minute, cpus DESC;

-- One function, wherever it runs: what a change to it could save.
SELECT workload, count(DISTINCT pod) AS pods, sum(value) / 1e9 AS seconds
FROM kiln.samples
WHERE type = 'cpu' AND has(stack, 'malloc') AND time > now() - INTERVAL 1 HOUR
GROUP BY workload
ORDER BY seconds DESC;

-- Stacks of a deployment in the folded form, root first, for flamegraph.pl and speedscope.
SELECT concat(arrayStringConcat(arrayReverse(stack), ';'), ' ', toString(intDiv(sum(value), 1000000))) AS line
FROM kiln.samples
WHERE type = 'cpu' AND workload = 'shop' AND notEmpty(stack) AND time > now() - INTERVAL 1 HOUR
GROUP BY stack
ORDER BY sum(value) DESC;
