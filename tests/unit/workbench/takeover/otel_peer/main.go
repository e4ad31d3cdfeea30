// Follows one log with the collector's filelog receiver and file_storage, and appends the lines to a file: otel-peer LOG STORAGE OUT
package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/storage/filestorage"
	"github.com/open-telemetry/opentelemetry-collector-contrib/receiver/filelogreceiver"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"
	metric "go.opentelemetry.io/otel/metric/noop"
	trace "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
)

type host map[component.ID]component.Component

func (h host) GetExtensions() map[component.ID]component.Component { return h }

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx, log, storage := context.Background(), os.Args[1], os.Args[2]
	telemetry := component.TelemetrySettings{Logger: zap.NewNop(), MeterProvider: metric.NewMeterProvider(), TracerProvider: trace.NewTracerProvider()}

	files := filestorage.NewFactory()
	kept := files.CreateDefaultConfig()
	check(confmap.NewFromStringMap(map[string]any{"directory": storage}).Unmarshal(&kept))
	name := component.NewID(files.Type())
	keeper, err := files.Create(ctx, extension.Settings{ID: name, TelemetrySettings: telemetry}, kept)
	check(err)
	check(keeper.Start(ctx, host{}))

	out, err := os.OpenFile(os.Args[3], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(err)
	var lock sync.Mutex
	sink, err := consumer.NewLogs(func(_ context.Context, logs plog.Logs) error {
		lock.Lock()
		defer lock.Unlock()
		for _, resource := range logs.ResourceLogs().All() {
			for _, scope := range resource.ScopeLogs().All() {
				for _, record := range scope.LogRecords().All() {
					if _, err := out.WriteString(record.Body().AsString() + "\n"); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	check(err)

	reading := filelogreceiver.NewFactory()
	config := reading.CreateDefaultConfig()
	check(confmap.NewFromStringMap(map[string]any{
		"include": []any{log}, "start_at": "beginning", "storage": name.String(), "include_file_path": true, "poll_interval": "50ms",
	}).Unmarshal(&config))
	reader, err := reading.CreateLogs(ctx, receiver.Settings{ID: component.NewID(reading.Type()), TelemetrySettings: telemetry}, config, sink)
	check(err)
	check(reader.Start(ctx, host{name: keeper}))

	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	<-stopped
	time.Sleep(100 * time.Millisecond)
	check(reader.Shutdown(ctx))
	check(keeper.Shutdown(ctx))
}
