module kiln/hack/collector

go 1.25.0

require (
	github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter v0.164.0
	go.opentelemetry.io/collector/exporter/debugexporter v0.164.0
	go.opentelemetry.io/collector/exporter/nopexporter v0.164.0
	go.opentelemetry.io/collector/otelcol v0.164.0
	go.opentelemetry.io/collector/receiver/otlpreceiver v0.164.0
)
