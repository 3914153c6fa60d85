-- SPDX-License-Identifier: Apache-2.0
-- Profiles in ClickHouse. collector.yaml beside this file inserts each OTLP request into kiln.otlp, as JSON; that table
-- keeps nothing, its view makes a row of kiln.samples for each sample.
CREATE DATABASE IF NOT EXISTS kiln;

CREATE TABLE IF NOT EXISTS kiln.samples
(
    time DateTime64(9, 'UTC') CODEC(Delta, ZSTD),                    -- when its window began
    type LowCardinality(String),                                     -- cpu: of the period, or of the samples where there is none
    service LowCardinality(String),
    namespace LowCardinality(String),
    workload_kind LowCardinality(String),                            -- deployment, statefulset, ...; '' outside of a cluster
    workload LowCardinality(String),
    pod LowCardinality(String),
    container LowCardinality(String),
    node LowCardinality(String),                                     -- in a cluster, else the host's name
    process LowCardinality(String),
    thread LowCardinality(String),
    pid UInt32,
    stack Array(LowCardinality(String)),                             -- functions, leaf first
    value UInt64,                                                    -- nanoseconds of CPU
    attributes Map(LowCardinality(String), String)                   -- of the resource, all of them
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (namespace, workload, service, process, time)
TTL toDateTime(time) + INTERVAL 14 DAY;

CREATE TABLE IF NOT EXISTS kiln.otlp (request String) ENGINE = Null;

-- Field names: opentelemetry-proto v1.10.0, profiles/v1development/profiles.proto, as JSON. Indices are from 0, arrays
-- from 1. A Collector moves keys and strings of resources to the string table; the agent writes them in place.
CREATE MATERIALIZED VIEW IF NOT EXISTS kiln.otlp_samples TO kiln.samples AS
WITH
    JSONExtract(request, 'resourceProfiles', 'Array(Tuple(
        resource Tuple(attributes Array(Tuple(key String, keyStrindex UInt32,
            value Tuple(stringValue String, stringValueStrindex UInt32, intValue String, boolValue String)))),
        scopeProfiles Array(Tuple(profiles Array(Tuple(
            timeUnixNano UInt64, period UInt64, periodType Tuple(typeStrindex UInt32),
            sampleType Tuple(typeStrindex UInt32),
            samples Array(Tuple(stackIndex UInt32, attributeIndices Array(UInt32), values Array(UInt64),
                timestampsUnixNano Array(UInt64)))))))))') AS resources,
    JSONExtract(request, 'dictionary', 'Tuple(
        stringTable Array(String), stackTable Array(Tuple(locationIndices Array(UInt32))),
        locationTable Array(Tuple(lines Array(Tuple(functionIndex UInt32)))),
        functionTable Array(Tuple(nameStrindex UInt32)),
        attributeTable Array(Tuple(keyStrindex UInt32, value Tuple(stringValue String, intValue String))))') AS d,
    d.stringTable AS strings,
    -- Once for each location and each stack of the request, not for each sample.
    arrayMap(l -> arrayMap(i -> strings[d.functionTable[i.functionIndex + 1].nameStrindex + 1], l.lines),
             d.locationTable) AS locations,
    arrayMap(s -> arrayFilter(f -> f != '', arrayFlatten(arrayMap(i -> locations[i + 1], s.locationIndices))),
             d.stackTable) AS stacks,
    CAST(arrayMap(a -> (if(a.key != '', a.key, strings[a.keyStrindex + 1]),
                        multiIf(a.value.stringValue != '', a.value.stringValue,
                                a.value.stringValueStrindex > 0, strings[a.value.stringValueStrindex + 1],
                                a.value.intValue != '', a.value.intValue, a.value.boolValue)),
                  r.resource.attributes), 'Map(String, String)') AS of_resource,
    CAST(arrayMap(i -> (strings[d.attributeTable[i + 1].keyStrindex + 1],
                        concat(d.attributeTable[i + 1].value.stringValue, d.attributeTable[i + 1].value.intValue)),
                  s.attributeIndices), 'Map(String, String)') AS of_sample,
    arrayFirst(k -> of_resource[concat('k8s.', k, '.name')] != '',
               ['deployment', 'statefulset', 'daemonset', 'cronjob', 'job', 'replicaset']) AS kind
SELECT
    fromUnixTimestamp64Nano(toInt64(p.timeUnixNano), 'UTC') AS time,
    strings[if(p.period > 0, p.periodType.typeStrindex, p.sampleType.typeStrindex) + 1] AS type,
    of_resource['service.name'] AS service,
    of_resource['k8s.namespace.name'] AS namespace,
    kind AS workload_kind,
    of_resource[concat('k8s.', kind, '.name')] AS workload,
    of_resource['k8s.pod.name'] AS pod,
    of_resource['k8s.container.name'] AS container,
    if(of_resource['k8s.node.name'] != '', of_resource['k8s.node.name'], of_resource['host.name']) AS node,
    of_resource['process.executable.name'] AS process,
    of_sample['thread.name'] AS thread,
    toUInt32OrZero(of_sample['process.pid']) AS pid,
    stacks[s.stackIndex + 1] AS stack,
    -- A sample that has timestamps stands for as many; without a period the values are what is measured.
    if(empty(s.values), length(s.timestampsUnixNano), arraySum(s.values)) * if(p.period > 0, p.period, 1) AS value,
    of_resource AS attributes
FROM kiln.otlp
ARRAY JOIN resources AS r
ARRAY JOIN r.scopeProfiles AS scope
ARRAY JOIN scope.profiles AS p
ARRAY JOIN p.samples AS s;
