package otlp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// settings are what OpenTelemetry's variables say, as far as its libraries would pass over
// mistakes in them, log secrets, or trust more than was meant.
type settings struct {
	on       bool
	endpoint *url.URL // nil: port 4318 of this machine
	hidden   []ca.Token
	tls      setting.TLS
	timeout  time.Duration
}

const defaultTimeout = 10 * time.Second

// reader looks variables up and collects what is wrong.
type reader struct {
	getenv func(string) string
	errs   []error
}

// read returns all that is wrong at once.
func read(getenv func(string) string) (settings, error) {
	r := &reader{getenv: getenv}
	var s settings
	if s.on = r.wanted(); !s.on {
		return s, errors.Join(r.errs...)
	}
	r.protocol()
	s.endpoint = r.endpoint()
	s.hidden = append(r.headers("OTEL_EXPORTER_OTLP_HEADERS"), r.headers("OTEL_EXPORTER_OTLP_TRACES_HEADERS")...)
	s.timeout = r.timeout()
	s.tls = r.tls()
	return s, errors.Join(r.errs...)
}

func (r *reader) wrong(name, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s %s", name, fmt.Sprintf(format, args...)))
}

// of returns the variable for traces, else that for all signals.
func (r *reader) of(name string) (variable, value string) {
	variable = "OTEL_EXPORTER_OTLP_TRACES_" + name
	if value = strings.TrimSpace(r.getenv(variable)); value == "" {
		variable = "OTEL_EXPORTER_OTLP_" + name
		value = strings.TrimSpace(r.getenv(variable))
	}
	return variable, value
}

func (r *reader) wanted() bool {
	if strings.EqualFold(r.getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	_, endpoint := r.of("ENDPOINT")
	switch exporter := strings.TrimSpace(r.getenv("OTEL_TRACES_EXPORTER")); exporter {
	case "":
		return endpoint != ""
	case "none":
		return false
	case "otlp":
		return true
	default:
		r.wrong("OTEL_TRACES_EXPORTER", "is %.256q: use otlp or none", exporter)
		return false
	}
}

// protocol must be HTTP: a second one costs every program half a megabyte, and each collector has
// this one.
func (r *reader) protocol() {
	switch name, value := r.of("PROTOCOL"); value {
	case "", "http/protobuf":
	case "grpc":
		r.wrong(name, "is grpc, and traces are exported over HTTP only: use http/protobuf, and the collector's port for OTLP over HTTP (4318) in OTEL_EXPORTER_OTLP_ENDPOINT")
	default:
		r.wrong(name, "is %.256q: use http/protobuf", value)
	}
}

// endpoint must not have a password, which the libraries would log.
func (r *reader) endpoint() *url.URL {
	name, value := r.of("ENDPOINT")
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" {
		r.wrong(name, "is not a URL of the form http://HOST:PORT or https://HOST:PORT of OTLP over HTTP (port 4318), without a user")
		return nil
	}
	return u
}

// headers checks NAME=VALUE,… and returns the values, which are credentials more often than
// not. The libraries would log an entry that they cannot read.
func (r *reader) headers(name string) (values []ca.Token) {
	value := r.getenv(name)
	if value == "" {
		return nil
	}
	for i, entry := range strings.Split(value, ",") {
		key, raw, found := strings.Cut(entry, "=")
		plain, err := url.PathUnescape(raw)
		if !found || err != nil || !httpguts.ValidHeaderFieldName(strings.TrimSpace(key)) || !httpguts.ValidHeaderFieldValue(plain) {
			r.wrong(name, "has no NAME=VALUE (percent-encoded) as entry %d", i+1)
			return nil
		}
		plain = strings.TrimSpace(plain)
		values = append(values, ca.Token(plain))
		if _, token, ok := strings.Cut(plain, " "); ok { // Bearer TOKEN
			values = append(values, ca.Token(token))
		}
	}
	return values
}

func (r *reader) timeout() time.Duration {
	name, value := r.of("TIMEOUT")
	if value == "" {
		return defaultTimeout
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > int(time.Hour/time.Millisecond) {
		r.wrong(name, "is %.256q: use milliseconds, at least 1 and at most an hour", value)
	}
	return time.Duration(n) * time.Millisecond
}

func (r *reader) tls() setting.TLS {
	_, roots := r.of("CERTIFICATE")
	certName, cert := r.of("CLIENT_CERTIFICATE")
	keyName, key := r.of("CLIENT_KEY")
	s := setting.TLS{RootFile: roots, ClientCertFile: cert, ClientKeyFile: key}
	if err := s.Client().Check(certName, keyName); err != nil {
		r.errs = append(r.errs, err)
	}
	return s
}

// config returns the settings of TLS connections. The roots are read once, the client
// certificate for each handshake.
func (s settings) config() (*tls.Config, error) {
	config, err := s.tls.Config()
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
	}
	return config, nil
}

func (s settings) secure() bool { return s.endpoint != nil && s.endpoint.Scheme == "https" }

// warn names what others on the way can read.
func (s settings) warn(log *slog.Logger) {
	if s.endpoint == nil {
		return
	}
	address := net.ParseIP(s.endpoint.Hostname())
	local := s.endpoint.Hostname() == "localhost" || address.IsLoopback()
	if len(s.hidden) > 0 && !s.secure() && !local {
		log.Warn("the headers of OTEL_EXPORTER_OTLP_HEADERS go over plain HTTP", "endpoint", text.Clean(s.endpoint.Host))
	}
	log.Info("exporting traces", "endpoint", text.Clean(s.endpoint.Host), "protocol", "http/protobuf")
}
