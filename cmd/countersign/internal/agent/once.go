package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/output"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// onceTimeout is how long --once waits by default.
const onceTimeout = 2 * time.Minute

// forOnce returns the configuration of a run that only writes its outputs: it opens no socket, so that
// it runs beside an agent that serves.
func forOnce(c config.Config, timeout time.Duration) (config.Config, error) {
	switch {
	case timeout <= 0:
		return c, fmt.Errorf("--once-timeout is %s: write a positive duration, such as 2m", timeout)
	case len(c.Outputs) == 0:
		return c, errors.New("--once writes the files of outputs, and the configuration has none")
	case len(c.Proxy.Command) > 0:
		return c, errors.New("--once runs no proxy: remove proxy.command, or the command after --")
	}
	c.Socket.Enabled, c.Gateway.Enabled, c.WorkloadAPI.Socket = false, false, ""
	c.Status, c.PublishBundle, c.Broker = config.Status{}, config.PublishBundle{}, config.Broker{}
	c.Secrets = c.Named() // the agent that serves has the log of names on demand
	return c, nil
}

// onceWritten tracks which outputs are written, and their programs reloaded. It is safe for concurrent
// use; a nil one tracks nothing.
type onceWritten struct {
	all  chan struct{}     // closed when nothing is left
	pair map[string]string // the secret of each output

	mu       sync.Mutex
	left     map[string]bool      // by output; true: its program is reloaded, too
	failures map[string]string    // the last of each, unless it was written since
	due      map[string]time.Time // when what is written expires, of a certificate that is due for renewal
}

func newOnceWritten(c config.Config) *onceWritten {
	o := &onceWritten{all: make(chan struct{}), pair: map[string]string{}, left: map[string]bool{}, failures: map[string]string{}, due: map[string]time.Time{}}
	for _, out := range c.Outputs {
		o.pair[out.Name] = out.Secret
		o.left[out.Name] = len(out.Reload.Command) > 0 || out.Reload.Signal != ""
	}
	return o
}

// observe takes the event of an output.
func (o *onceWritten) observe(e output.Event) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.Type == output.Written {
		delete(o.failures, e.Output)
		delete(o.due, e.Output)
		if e.Due {
			o.due[e.Output] = e.NotAfter
		}
	}
	reloads, left := o.left[e.Output]
	switch {
	case !left, e.Partial, e.Due: // the rest, or the successor, follows
	case e.Type == output.Reloaded, e.Type == output.Written && !reloads:
		delete(o.left, e.Output)
		if len(o.left) == 0 {
			close(o.all)
		}
	case e.Text != "":
		o.failures[e.Output] = e.Text
	}
}

// err names what is left.
func (o *onceWritten) err(secrets []secret.Status) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var errs []error
	for name := range o.left {
		errs = append(errs, fmt.Errorf("output %s is not complete: %s", text.Clean(name), o.why(name, secrets)))
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func (o *onceWritten) why(name string, secrets []secret.Status) string {
	if failed := o.failures[name]; failed != "" {
		return failed
	}
	why := "its secrets are not held, or not renewed, yet"
	i := slices.IndexFunc(secrets, func(s secret.Status) bool { return s.Failure != nil && s.Name == o.pair[name] })
	if i < 0 { // of its bundles
		i = slices.IndexFunc(secrets, func(s secret.Status) bool { return s.Failure != nil })
	}
	if i >= 0 {
		why = fmt.Sprintf("secret %s: %s", text.Clean(secrets[i].Name), secrets[i].Failure.Text)
	}
	if ends, due := o.due[name]; due {
		why += fmt.Sprintf(" (what is written is valid until %s)", ends.UTC().Format(time.RFC3339))
	}
	return why
}

// runOnce runs the agent until its outputs are written, or the timeout.
func (s *start) runOnce(ctx context.Context, timeout time.Duration) error {
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.child.run(running, s.agent) }()
	var err error
	select {
	case <-s.once.all:
	case <-ctx.Done():
		err = errors.New("interrupted")
	case <-time.After(timeout):
		err = s.once.err(s.agent.Status())
	}
	cancel()
	return errors.Join(err, <-ended)
}
