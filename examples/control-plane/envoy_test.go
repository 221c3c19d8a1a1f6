package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const patience = 2 * time.Minute

// needEnvoy returns the path of Envoy's binary. An example imports nothing internal, in its
// tests either.
func needEnvoy(t *testing.T) string {
	t.Helper()
	_ = os.Getenv("COUNTERSIGN_FOREIGN") // its hash, for Go's test cache
	path := os.Getenv("COUNTERSIGN_ENVOY")
	switch {
	case path != "":
	case os.Getenv("CI") != "":
		t.Fatal("COUNTERSIGN_ENVOY is not set: CI leaves no test out")
	default:
		t.Skip("COUNTERSIGN_ENVOY is not set: make test and make check set it")
	}
	return path
}

// startEnvoy starts Envoy with this example's bootstrap in dir, where the control
// plane's socket is.
func startEnvoy(t *testing.T, path, dir, api string) {
	t.Helper()
	bootstrap, err := os.ReadFile("envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(string(bootstrap), "api_type: GRPC", "api_type: "+api, 1)
	if err := os.WriteFile(filepath.Join(dir, "envoy.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd := exec.Command(path, "-c", "envoy.yaml", "--disable-hot-restart", "--concurrency", "1", "--log-level", "warn")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
}

// listenerOf waits until Envoy is live, and returns its listener's address.
func listenerOf(t *testing.T, dir string) (address string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "admin.sock"))
	}}
	admin := &http.Client{Transport: transport, Timeout: patience}
	await(t, "Envoy's listener", func() error {
		if err := isLive(admin); err != nil {
			return err
		}
		var err error
		address, err = askListener(admin)
		return err
	})
	return address
}

func isLive(admin *http.Client) error {
	resp, err := admin.Get("http://unix/ready")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("Envoy is not ready: %s", resp.Status)
	}
	return nil
}

func askListener(admin *http.Client) (string, error) {
	resp, err := admin.Get("http://unix/listeners?format=json")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var page struct {
		Listeners []struct {
			Local struct {
				Socket struct {
					Address string
					Port    int `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		return "", err
	}
	if len(page.Listeners) == 0 {
		return "", errors.New("there is no listener")
	}
	socket := page.Listeners[0].Local.Socket
	return fmt.Sprintf("%s:%d", socket.Address, socket.Port), nil
}

// await tries until it goes well.
func await(t *testing.T, what string, try func() error) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("%s: %v", what, err)
		}
	}
}
