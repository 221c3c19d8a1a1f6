package otlp

import (
	"net/http"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"

	"github.com/countersign-dev/countersign/internal/transport"
)

// client returns what the environment describes, with bounds of its own. The library bounds the
// body of an answer.
func (s settings) client() (otlptrace.Client, error) {
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	transport := transport.Outward(config)
	transport.ForceAttemptHTTP2, transport.MaxConnsPerHost = true, 1
	opts := []otlptracehttp.Option{otlptracehttp.WithHTTPClient(&http.Client{
		Timeout: s.timeout,
		// The headers, and with them a token, are for that collector alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     transport,
	})}
	if s.endpoint == nil {
		opts = append(opts, otlptracehttp.WithEndpointURL("http://localhost:4318/v1/traces"))
	}
	return otlptracehttp.NewClient(opts...), nil
}
