package config

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Proxy is the program that the agent runs as its child. {locality} in an argument or in a
// value of Env is replaced with the zone.
type Proxy struct {
	// Command is the program and its arguments; anything after "--" on the command line
	// replaces it. Default: none, no child.
	Command []string `json:"command"`
	// Env adds variables to those that the child inherits: the agent's environment without
	// the agent's own settings and tokens.
	Env map[string]string `json:"env"`
	// WaitForSecrets delays the start until all secrets are held. Default: true.
	WaitForSecrets bool `json:"wait_for_secrets"`
	// Restart is on-failure, always or never. After 10 restarts in a row of a proxy that exits
	// within a minute, the agent exits with its exit code. Default: on-failure.
	Restart string `json:"restart"`
	// Drain comes before SIGTERM.
	Drain ProxyDrain `json:"drain"`
	// StopTimeout is the time between SIGTERM and SIGKILL. Default: 20s, which with
	// drain.time and the agent's own drain stays within the 30s that Kubernetes allows.
	StopTimeout Duration      `json:"stop_timeout"`
	Watch       ProxyWatch    `json:"watch"`
	Reload      ProxyReload   `json:"reload"`
	Locality    ProxyLocality `json:"locality"`
}

// ProxyDrain lets Envoy finish what it has begun when the agent ends. Its admin address is
// asked for that by POST /drain_listeners?graceful.
type ProxyDrain struct {
	// Admin is Envoy's admin address: a loopback host:port, or unix:PATH. /readyz asks it for
	// GET /ready, too. Default: none, no drain.
	Admin string `json:"admin"`
	// Time is how long to drain, at most. Default: 5s.
	Time Duration `json:"time"`
	// WhenIdle ends the drain early when no client is connected. Default: false.
	WhenIdle bool `json:"when_idle"`
	// MinTime is how long to drain at least with WhenIdle. Default: 2s.
	MinTime Duration `json:"min_time"`
}

// ProxyWatch lists the files whose changes reload the proxy.
type ProxyWatch struct {
	Folders []string `json:"folders"` // folders or files. Default: none.
	// MinDelay is how long to collect changes for one reload. Default: 10s.
	MinDelay Duration `json:"min_delay"`
}

// ProxyReload selects how to reload the proxy, in one of three ways.
type ProxyReload struct {
	Signal     string   `json:"signal"`      // HUP, QUIT, USR1, USR2 or WINCH
	Command    []string `json:"command"`     // run without a shell; {pid} is the proxy's PID
	HotRestart bool     `json:"hot_restart"` // start a new epoch of Envoy
	// DrainTime is Envoy's --drain-time-s at a hot restart, in whole seconds; the old epoch is
	// shut down a third later. Default: 45s.
	DrainTime Duration `json:"drain_time"`
}

// ProxyLocality is the source of the zone, one of four. Default: none.
type ProxyLocality struct {
	Value    string            `json:"value"`
	Variable string            `json:"variable"` // a variable in the agent's environment
	File     string            `json:"file"`
	URL      string            `json:"url"` // an address of a metadata service
	Headers  map[string]string `json:"headers"`
	// Tries is how often to ask, a second apart. Default: 10.
	Tries uint32 `json:"tries"`
	// WriteFile is a file to write the zone to, before the start or the reload, for a proxy
	// that reads it on a signal. Default: none.
	WriteFile string `json:"write_file"`
	// Restart restarts the proxy if the zone is found after its start, for a proxy that
	// cannot get it by a reload. Default: false.
	Restart bool `json:"restart"`
}

func defaultProxy() Proxy {
	return Proxy{
		WaitForSecrets: true, Restart: "on-failure", StopTimeout: seconds(20),
		Drain:    ProxyDrain{Time: seconds(5), MinTime: seconds(2)},
		Watch:    ProxyWatch{MinDelay: seconds(10)},
		Reload:   ProxyReload{DrainTime: seconds(45)},
		Locality: ProxyLocality{Tries: 10},
	}
}

func (c *Config) checkProxy(p *problems) {
	x := c.Proxy
	if len(x.Command) == 0 {
		if !reflect.DeepEqual(x, defaultProxy()) {
			c.say(p, "proxy.command", "", "the other proxy settings need a program; name it here, or after -- on the command line")
		}
		return
	}
	if x.Command[0] == "" {
		c.say(p, "proxy.command", "", "write a program and its arguments")
	}
	for name := range x.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			c.say(p, "proxy.env", name, "not a valid variable name")
		}
	}
	c.oneOf(p, "proxy.restart", x.Restart, "on-failure", "always", "never")
	c.least(p, "proxy.stop_timeout", x.StopTimeout, 0)
	c.checkDrain(p)
	c.checkProxyReload(p)
	c.checkLocality(p)
}

func (c *Config) checkDrain(p *problems) {
	d, none := c.Proxy.Drain, defaultProxy().Drain
	if d.Admin == "" && d != none {
		c.say(p, "proxy.drain.admin", "", "the drain needs Envoy's admin address: write a loopback host:port, or unix:PATH")
	}
	if checkStatusAddress(d.Admin) != nil {
		c.say(p, "proxy.drain.admin", d.Admin, "write Envoy's admin address: a loopback host:port, or unix:PATH")
	}
	c.least(p, "proxy.drain.time", d.Time, time.Second)
	c.least(p, "proxy.drain.min_time", d.MinTime, 0)
	if d.WhenIdle && d.MinTime.Duration > d.Time.Duration {
		c.say(p, "proxy.drain.min_time", d.MinTime, "write no more than proxy.drain.time")
	}
}

// least requires a minimum duration.
func (c *Config) least(p *problems, path string, d Duration, least time.Duration) {
	if d.Duration < least {
		c.say(p, path, d, fmt.Sprintf("write %s or more", least))
	}
}

func (c *Config) checkProxyReload(p *problems) {
	r, w := c.Proxy.Reload, c.Proxy.Watch
	switch ways := count(r.Signal != "", len(r.Command) > 0, r.HotRestart); {
	case ways > 1:
		p.add(errors.New("proxy.reload has more than one method: write one of signal, command and hot_restart"))
	case ways == 0 && len(w.Folders) > 0:
		c.say(p, "proxy.reload", "", "write how to reload the proxy when proxy.watch.folders change: signal, command or hot_restart")
	case ways == 1 && len(w.Folders) == 0 && c.Proxy.Locality.source() == "":
		c.say(p, "proxy.watch.folders", "", "nothing would trigger the reload; list the files the proxy reads, or remove proxy.reload")
	}
	if r.Signal != "" {
		c.oneOf(p, "proxy.reload.signal", r.Signal, "HUP", "QUIT", "USR1", "USR2", "WINCH")
	}
	if len(r.Command) > 0 && r.Command[0] == "" {
		c.say(p, "proxy.reload.command", "", "write a program and its arguments")
	}
	c.least(p, "proxy.watch.min_delay", w.MinDelay, 0)
	if r.HotRestart {
		c.checkHotRestart(p)
	}
}

// epochFlags are set by the agent for a hot restart.
var epochFlags = []string{
	"--restart-epoch", "--base-id", "--use-dynamic-base-id", "--base-id-path", "--disable-hot-restart",
	"--drain-time-s", "--parent-shutdown-time-s", "--mode",
}

func (c *Config) checkHotRestart(p *problems) {
	for _, arg := range c.Proxy.Command {
		name, _, _ := strings.Cut(arg, "=")
		if slices.Contains(epochFlags, name) {
			c.say(p, "proxy.command", arg, "the agent sets this flag for proxy.reload.hot_restart; remove it")
		}
	}
	if drain := c.Proxy.Reload.DrainTime; drain.Duration < time.Second || drain.Duration%time.Second != 0 {
		c.say(p, "proxy.reload.drain_time", drain, "write whole seconds, 1s or more")
	}
}

// source names the configured source, "" for none.
func (l ProxyLocality) source() string {
	for _, s := range []struct{ name, value string }{{"value", l.Value}, {"variable", l.Variable}, {"file", l.File}, {"url", l.URL}} {
		if s.value != "" {
			return s.name
		}
	}
	return ""
}

func (c *Config) checkLocality(p *problems) {
	l := c.Proxy.Locality
	switch {
	case count(l.Value != "", l.Variable != "", l.File != "", l.URL != "") > 1:
		p.add(errors.New("proxy.locality has more than one source: write one of value, variable, file and url"))
	case l.source() == "" && c.Proxy.wantsLocality():
		c.say(p, "proxy.locality", "", "set the source of {locality}: value, variable, file or url")
	case len(l.Headers) > 0 && l.URL == "":
		p.add(errors.New("proxy.locality.headers is (set): it has no effect without proxy.locality.url"))
	}
	if at, err := url.Parse(l.URL); l.URL != "" && (err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https") {
		c.say(p, "proxy.locality.url", l.URL, "write http://HOST/PATH or https://HOST/PATH")
	}
	c.checkHandover(p)
	if l.Tries == 0 {
		c.say(p, "proxy.locality.tries", l.Tries, "write 1 or more")
	}
}

// checkHandover requires a way to pass on a zone that is found after the proxy's start.
func (c *Config) checkHandover(p *problems) {
	l, r := c.Proxy.Locality, c.Proxy.Reload
	carried := r.HotRestart || len(r.Command) > 0
	switch {
	case l.source() == "" && (l.WriteFile != "" || l.Restart):
		c.say(p, "proxy.locality", "", "write_file and restart need a zone; set its source: value, variable, file or url")
	case l.WriteFile != "" && l.Restart:
		p.add(errors.New("proxy.locality has write_file and restart: write the one that suits the proxy"))
	case l.Restart && carried:
		c.say(p, "proxy.locality.restart", l.Restart, "proxy.reload already passes the zone on; remove it")
	case r.Signal != "" && l.late() && l.WriteFile == "" && !l.Restart && c.Proxy.wantsLocality():
		c.say(p, "proxy.reload.signal", r.Signal, "a signal carries no zone, and proxy.locality."+l.source()+" may find it only after the start; set proxy.locality.write_file to a file that the proxy reads on that signal, or proxy.locality.restart: true, or tries: 1")
	}
}

// late reports whether the zone may be found after the start.
func (l ProxyLocality) late() bool { return l.Tries > 1 && (l.File != "" || l.URL != "") }

func (x Proxy) wantsLocality() bool {
	texts := slices.Concat(x.Command, x.Reload.Command)
	for _, value := range x.Env {
		texts = append(texts, value)
	}
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "{locality}") })
}

func count(conditions ...bool) (n int) {
	for _, is := range conditions {
		if is {
			n++
		}
	}
	return n
}
