package istiocompat

import (
	"encoding/json"
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
)

const (
	// adminPort is that of Envoy's admin address in a mesh.
	adminPort = "15000"
	// agentPort is where Istio's agent has its metrics, envoyPort where its Envoy has its own.
	agentPort, envoyPort = "15020", "15090"
	// untilKilled is a drain that only an idle proxy or Kubernetes ends.
	untilKilled = "1h"
)

// drain reads how the proxy ends. Istio's agent looks for open connections either after a
// while and for as long as it takes, or not at all.
func (t *translator) drain() {
	const after, idle, least = "TERMINATION_DRAIN_DURATION_SECONDS", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "MINIMUM_DRAIN_DURATION"
	whenIdle := t.isTrue(idle)
	drain, from := t.drainTime(after)
	switch {
	case whenIdle:
		if drain > 0 {
			t.warn("%s has no effect with %s=true, as with Istio's agent", from, idle)
		}
		from = idle
	case t.set[least] != "":
		t.warn("%s has no effect without %s=true", least, idle)
	}
	if !whenIdle && drain == 0 {
		return
	}
	if !t.given.Proxy {
		t.warn("%s has no effect: the agent runs no proxy", from)
		return
	}
	t.admin(from)
	if !whenIdle {
		t.add("proxy.drain.time", drain.String(), from)
		return
	}
	t.add("proxy.drain.time", untilKilled, idle)
	t.add("proxy.drain.when_idle", "true", idle)
	t.add("proxy.drain.min_time", t.leastDrain(least), least)
}

// drainTime returns how long to drain, and the variable that sets it; 0 is not at all.
func (t *translator) drainTime(variable string) (d time.Duration, from string) {
	if t.set[variable] == "" {
		return t.durationField(drainField), fieldPath(drainField)
	}
	seconds, err := strconv.ParseUint(t.set[variable], 10, 16)
	if err != nil {
		t.reject(variable, "write a number of seconds")
	}
	return time.Duration(seconds) * time.Second, variable
}

// admin sets Envoy's admin address for a drain: to the port in PROXY_CONFIG, or, where the
// settings name none, to that of a mesh.
func (t *translator) admin(from string) {
	port := t.portField(adminField, "")
	switch {
	case port != "":
		t.add("proxy.drain.admin", net.JoinHostPort("127.0.0.1", port), fieldPath(adminField))
	case t.given.Admin == "":
		t.add("proxy.drain.admin", net.JoinHostPort("127.0.0.1", adminPort), from)
	}
}

// leastDrain is the variable, or the default of Istio's agent.
func (t *translator) leastDrain(name string) string {
	if t.set[name] == "" {
		return "5s"
	}
	if d, err := time.ParseDuration(t.set[name]); err != nil || d < 0 {
		t.reject(name, "write a duration such as 5s")
	}
	return t.set[name]
}

// probes reads the ports for those outside: Istio's agent has its metrics, those of Envoy
// and those of the application at one of them.
func (t *translator) probes() {
	const status = "ENVOY_STATUS_PORT"
	metrics := t.metrics()
	switch port := t.set[status]; {
	case port == "" || !t.isPort(status):
	case port == metrics:
		t.warn("%s has no effect: port %s is that of the metrics; set status.probes to another one", status, port)
	default:
		t.add("status.probes", ":"+port, status)
	}
}

// metrics reads where the metrics are and returns the port; empty: nowhere.
func (t *translator) metrics() (own string) {
	const annotations, envoy, local = "ISTIO_PROMETHEUS_ANNOTATIONS", "ENVOY_PROMETHEUS_PORT", "METRICS_LOCALHOST_ACCESS_ONLY"
	host, onlyLocal := "", t.isTrue(local)
	if onlyLocal {
		host = "127.0.0.1"
	}
	if t.set[annotations] == "" {
		if t.set[envoy] != "" {
			t.warn("%s has no effect without %s", envoy, annotations)
		}
		if onlyLocal {
			t.warn("%s has no effect without %s; write the address in status.metrics", local, annotations)
		}
		return ""
	}
	var of struct{ Scrape, Path, Port string }
	if err := json.Unmarshal([]byte(t.set[annotations]), &of); err != nil {
		t.reject(annotations, `write {"scrape": "true", "path": "/metrics", "port": "80"}`)
		return ""
	}
	if of.Scrape == "false" {
		return ""
	}
	var from []string
	if t.given.Proxy {
		port := envoyPort
		if t.set[envoy] != "" && t.isPort(envoy) {
			port = t.set[envoy]
		}
		from = append(from, metricsAt(port, "/stats/prometheus"))
	}
	if of.Port == "" {
		of.Port = "80"
	}
	own = t.portField(statusField, agentPort)
	if _, err := strconv.ParseUint(of.Port, 10, 16); err != nil || of.Port == own {
		t.reject(annotations, "its port must be the application's, a number other than "+own)
		return ""
	}
	from = append(from, metricsAt(of.Port, of.Path))
	t.add("status.metrics", host+":"+own, annotations)
	t.add("status.metrics_from", strings.Join(from, ","), annotations)
	return own
}

// isTrue reads a variable that is true or false, and false if it is not set.
func (t *translator) isTrue(name string) bool {
	on, err := strconv.ParseBool(t.set[name])
	if t.set[name] != "" && err != nil {
		t.reject(name, "must be true or false")
	}
	return on
}

func (t *translator) isPort(name string) bool {
	_, err := strconv.ParseUint(t.set[name], 10, 16)
	if err != nil {
		t.reject(name, "write a port")
	}
	return err == nil
}

// metricsAt is a URL that a list with commas can have.
func metricsAt(port, at string) string {
	if at == "" {
		at = "/metrics"
	}
	file, query, _ := strings.Cut(at, "?")
	u := url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", port), Path: path.Join("/", file), RawQuery: query}
	return strings.ReplaceAll(u.String(), ",", "%2C")
}
