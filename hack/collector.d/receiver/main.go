// SPDX-License-Identifier: Apache-2.0

// The OTLP receiver of an older OpenTelemetry Collector without the rest of it: what it takes goes to a file, a line of
// JSON for each request, as the Collector's file exporter writes it.
//
//	receiver GRPC-ADDRESS HTTP-ADDRESS FILE
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/xreceiver"
)

func run(grpc, http, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var mutex sync.Mutex
	write := func(_ context.Context, profiles pprofile.Profiles) error {
		line, err := (&pprofile.JSONMarshaler{}).MarshalProfiles(profiles)
		if err != nil {
			return err
		}
		mutex.Lock()
		defer mutex.Unlock()
		_, err = file.Write(append(line, '\n'))
		return err
	}
	consumer, err := xconsumer.NewProfiles(write)
	if err != nil {
		return err
	}
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	if err := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{
		"grpc": map[string]any{"endpoint": grpc},
		"http": map[string]any{"endpoint": http},
	}}).Unmarshal(config); err != nil {
		return err
	}
	settings := receiver.Settings{
		ID:                component.NewID(factory.Type()),
		TelemetrySettings: componenttest.NewNopTelemetrySettings(),
		BuildInfo:         component.NewDefaultBuildInfo(),
	}
	otlp, err := factory.(xreceiver.Factory).CreateProfiles(context.Background(), settings, config, consumer)
	if err != nil {
		return err
	}
	if err := otlp.Start(context.Background(), componenttest.NewNopHost()); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	fmt.Fprintln(os.Stderr, "Everything is ready")
	<-stop
	return otlp.Shutdown(context.Background())
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: receiver GRPC-ADDRESS HTTP-ADDRESS FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
