package main

import (
	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
)

// flags returns what the commands that read the configuration share.
func flags() daemon.Flags[*config.Config] {
	return daemon.Flags[*config.Config]{Parse: func(file string, dirs []string) (*config.Config, error) {
		c, err := config.Read(file, dirs...)
		return &c, err
	}}
}
