// SPDX-License-Identifier: Apache-2.0

// Takes a PodMonitor or a PrometheusRule in YAML on its standard input, by the types of Prometheus' operator: a field
// that they do not have is an error.
package main

import (
	"fmt"
	"io"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

func read(text []byte) error {
	var kind struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return err
	}
	if kind.APIVersion != monitoring.SchemeGroupVersion.String() {
		return fmt.Errorf("apiVersion %q", kind.APIVersion)
	}
	switch kind.Kind {
	case monitoring.PodMonitorsKind:
		return yaml.UnmarshalStrict(text, &monitoring.PodMonitor{})
	case monitoring.PrometheusRuleKind:
		return yaml.UnmarshalStrict(text, &monitoring.PrometheusRule{})
	}
	return fmt.Errorf("kind %q", kind.Kind)
}

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = read(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
