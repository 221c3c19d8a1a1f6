package ra_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/countersign-dev/countersign/internal/test/tracetest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/trace"
)

func TestTraceLeadsFromCallerToAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer := &tracetest.Tracer{}
		h := newHouse(t, func(c *ra.Config) { c.Tracer = tracer })
		defer h.Close()
		var sent string
		h.ca.Set(func() {
			h.ca.Before = func(ctx context.Context, _ ca.SignRequest) error { sent = trace.Parent(ctx); return nil }
		})
		cert, err := ra.Certify(trace.WithParent(t.Context(), tracetest.Remote), h, request())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		all, signs := tracer.All(t, "certificate.request"), tracer.All(t, "sign")
		if len(all) != 1 || len(signs) != 1 {
			t.Fatalf("%+v\n%+v", all, signs)
		}
		if r := all[0]; r.Remote != tracetest.Remote || r.Kind != trace.Server || r.Attrs["countersign.door"] != kubelet ||
			r.Attrs["countersign.authority"] != "ca" || r.Attrs["countersign.serial"] != cert.Serial || r.Attrs["countersign.subject"] == "" {
			t.Errorf("%+v", r)
		}
		if s := signs[0]; s.Above == nil || s.Above.Name != "certificate.request" || sent != s.Parent() {
			t.Errorf("%+v, and the authority was asked in %q", s, sent)
		}
	})
}

func TestRefusalAndCallerWhoLeavesEndTheirTraces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer := &tracetest.Tracer{}
		h := newHouse(t, func(c *ra.Config) { c.Tracer = tracer })
		defer h.Close()
		unknown := request()
		unknown.Door = "nowhere"
		h.refused(unknown, ca.ErrInvalid)
		answer := make(chan struct{})
		h.ca.Set(func() {
			h.ca.Before = func(context.Context, ca.SignRequest) error { <-answer; return nil }
		})
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := ra.Certify(ctx, h, request())
			left <- err
		}()
		synctest.Wait()
		leave()
		if err := <-left; err == nil {
			t.Error("who left has a certificate")
		}
		close(answer)
		synctest.Wait()
		all, signs := tracer.All(t, "certificate.request"), tracer.All(t, "sign")
		if len(all) != 2 || all[0].Failed == "" || all[1].Failed == "" || len(signs) != 1 || signs[0].Failed != "" {
			t.Errorf("%+v\n%+v", all, signs)
		}
	})
}
