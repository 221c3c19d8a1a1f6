package otlp

import (
	"net/http"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/countersign-dev/countersign/internal/transport"
)

// maxReply bounds the headers and, over gRPC, the message of a collector's answer, in bytes.
// The library bounds the body of an HTTP answer.
const maxReply = 64 << 10

// client returns what the environment describes, with bounds of its own.
func (s settings) client() (otlptrace.Client, error) {
	if s.grpc {
		return s.overGRPC()
	}
	return s.overHTTP()
}

func (s settings) overGRPC() (otlptrace.Client, error) {
	opts := []otlptracegrpc.Option{otlptracegrpc.WithDialOption(
		grpc.WithDisableServiceConfig(), // else DNS could set retries and deadlines
		grpc.WithMaxHeaderListSize(maxReply),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)),
	)}
	if s.endpoint == nil {
		opts = append(opts, otlptracegrpc.WithEndpointURL("http://localhost:4317"))
	}
	if s.secure() {
		config, err := s.config()
		if err != nil {
			return nil, err
		}
		opts = append(opts, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(config)))
	}
	return otlptracegrpc.NewClient(opts...), nil
}

func (s settings) overHTTP() (otlptrace.Client, error) {
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
