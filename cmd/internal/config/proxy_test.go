package config

import (
	"slices"
	"testing"
	"time"
)

func TestProxyDefaultsAndCommand(t *testing.T) {
	file := working + "proxy: {command: [envoy, -c, 'e,1.yaml'], watch: {folders: [certs]}, reload: {hot_restart: true}}"
	c, _ := mustLoad(t, file, nil)
	x := c.Proxy
	if !slices.Equal(x.Command, []string{"envoy", "-c", "e,1.yaml"}) || !x.WaitForSecrets || x.Restart != "on-failure" ||
		x.StopTimeout.Duration != 20*time.Second || x.Watch.MinDelay.Duration != 10*time.Second || x.Reload.DrainTime.Duration != 45*time.Second {
		t.Errorf("the proxy is %+v", x)
	}
	c, _, err := Read(Input{FileName: "countersign.yaml", File: []byte(file), Command: []string{"sh", "-c", "a,b"}})
	if err != nil || !slices.Equal(c.Proxy.Command, []string{"sh", "-c", "a,b"}) {
		t.Errorf("the command is %q, %v", c.Proxy.Command, err)
	}
	if c, _ := mustLoad(t, working, nil); len(c.Proxy.Command) > 0 {
		t.Errorf("the proxy is %+v", c.Proxy)
	}
}
