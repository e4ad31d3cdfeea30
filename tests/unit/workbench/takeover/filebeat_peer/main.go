// Filebeat itself with its inputs log and filestream, and its output to a file: filebeat-peer -e -c CONFIGURATION --path.data DIRECTORY
package main

import (
	"os"

	"github.com/elastic/beats/v7/filebeat/beater"
	"github.com/elastic/beats/v7/filebeat/input/filestream"
	_ "github.com/elastic/beats/v7/filebeat/input/log"
	v2 "github.com/elastic/beats/v7/filebeat/input/v2"
	"github.com/elastic/beats/v7/libbeat/beat"
	"github.com/elastic/beats/v7/libbeat/cmd/instance"
	"github.com/elastic/beats/v7/libbeat/logp"
	_ "github.com/elastic/beats/v7/libbeat/outputs/codec/format"
	_ "github.com/elastic/beats/v7/libbeat/outputs/fileout"
)

func inputs(_ beat.Info, log *logp.Logger, store beater.StateStore) []v2.Plugin {
	return []v2.Plugin{filestream.Plugin(log, store)}
}

func main() {
	if err := instance.Run(instance.Settings{Name: "filebeat"}, beater.New(inputs)); err != nil {
		os.Exit(1)
	}
}
