package otlp

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// every is the time between two log lines.
const every = time.Minute

// complaints logs what OpenTelemetry's libraries say, in which a collector may quote the
// headers that it was sent.
type complaints struct {
	log    *slog.Logger
	hidden []ca.Token

	mu     sync.Mutex
	next   time.Time
	missed int
}

// listen makes c the one that OpenTelemetry complains to.
func listen(c *complaints) {
	otel.SetErrorHandler(c)
	otel.SetLogger(logr.New(sink{c}))
}

// Handle implements [otel.ErrorHandler].
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Before(c.next) {
		c.missed++
		return
	}
	c.log.Warn("cannot export traces", "error", text.Redact(err.Error(), c.hidden...), "not_logged_before", c.missed)
	c.next, c.missed = now.Add(every), 0
}

// sink is a log of errors alone, without their details, which are values of the environment.
type sink struct{ to *complaints }

func (s sink) Init(logr.RuntimeInfo)                 {}
func (s sink) Enabled(int) bool                      { return false }
func (s sink) Info(int, string, ...any)              {}
func (s sink) WithValues(...any) logr.LogSink        { return s }
func (s sink) WithName(string) logr.LogSink          { return s }
func (s sink) Error(err error, msg string, _ ...any) { s.to.Handle(fmt.Errorf("%s: %w", msg, err)) }
