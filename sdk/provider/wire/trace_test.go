package wire_test

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/countersign-dev/countersign/internal/test/tracetest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
	"github.com/countersign-dev/countersign/sdk/trace"
)

func TestProviderPassesTraceOn(t *testing.T) {
	var within context.Context
	remote := wire.NewRemote(serve(t, &fake{sign: func(ctx context.Context, _ ca.SignRequest) (ca.Certificate, error) {
		within = ctx
		return ca.Certificate{}, ca.ErrDenied
	}}), wire.RemoteOptions{})
	foreign := func(values ...string) context.Context {
		return metadata.NewOutgoingContext(t.Context(), metadata.MD{trace.Header: values})
	}
	traced, span := trace.Begin(t.Context(), &tracetest.Tracer{}, "root")
	defer span.End(nil)
	for name, test := range map[string]struct {
		ctx  context.Context
		want string
	}{
		"a span":              {traced, trace.Parent(traced)},
		"nothing":             {t.Context(), ""},
		"a host of its own":   {foreign(tracetest.Remote), tracetest.Remote},
		"two":                 {foreign(tracetest.Remote, tracetest.Remote), ""},
		"not a parent":        {foreign("00-sesame"), ""},
		"what is much longer": {foreign(tracetest.Remote + tracetest.Remote), ""},
	} {
		_, _ = remote.CSRSign(test.ctx, good()) // it is denied
		out, _ := metadata.FromOutgoingContext(within)
		var want []string
		if test.want != "" {
			want = []string{test.want}
		}
		if got := trace.Parent(within); got != test.want || !slices.Equal(out.Get(trace.Header), want) {
			t.Errorf("%s: the provider has %q and sends %q", name, got, out)
		}
	}
}
