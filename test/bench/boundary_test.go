package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/countersign-dev/countersign/providers/file/fileca"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/test/bench/fixedca"
)

const (
	callRounds   = 20
	callsInRound = 2000 // of all callers together
)

// route is one way to an authority, with what calls took by it.
type route struct {
	client ca.Client
	took   []time.Duration // of each call
	busy   time.Duration   // of all rounds
}

// boundary measures CSRSign of an authority that answers without work, in this
// process and behind the boundary. The two take turns in short rounds.
func (b *bench) boundary() error {
	req, reply, err := b.example()
	if err != nil {
		return err
	}
	settings := fixedca.Settings{Chain: string(reply.Chain), Roots: string(reply.Roots)}
	in, err := fixedca.Open(context.Background(), settings)
	if err != nil {
		return err
	}
	out, err := b.openFixed(map[string]any{"chain": settings.Chain, "roots": settings.Roots})
	if err != nil {
		return err
	}
	defer out.Close()
	fmt.Println("\n| CSRSign, callers at once | in the process, median (p99) | over the boundary, median (p99) | more | ratio | calls a second |\n|---|---|---|---|---|---|")
	for _, callers := range []int{1, 64} {
		near, far := &route{client: in}, &route{client: out}
		for range callRounds {
			if err := errors.Join(near.round(callers, req), far.round(callers, req)); err != nil {
				return err
			}
		}
		compare(callers, near, far)
	}
	return b.bareCall(req)
}

// bareCall measures the least that a call by gRPC takes from process to process
// here: a health check over a unix socket.
func (b *bench) bareCall(req ca.SignRequest) error {
	server, err := b.serve()
	if err != nil {
		return err
	}
	defer server.close()
	if err := appear(server.socket); err != nil {
		return err
	}
	conn, err := (&crowd{socket: server.socket}).connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	bare := &route{client: health{healthv1.NewHealthClient(conn)}}
	for range callRounds {
		if err := bare.round(1, req); err != nil {
			return err
		}
	}
	fmt.Printf("| for comparison: 1, a health check by gRPC | | %s (%s) | | | %.0f |\n", us(median(bare.took)), us(p99(bare.took)), float64(len(bare.took))/bare.busy.Seconds())
	return nil
}

// health is a health check in the place of an authority.
type health struct{ healthv1.HealthClient }

func (h health) CSRSign(ctx context.Context, _ ca.SignRequest) (ca.Certificate, error) {
	_, err := h.Check(ctx, &healthv1.HealthCheckRequest{})
	return ca.Certificate{}, err
}

// example returns a request as the agent makes it, and a real authority's reply.
func (b *bench) example() (ca.SignRequest, ca.Certificate, error) {
	none := ca.SignRequest{}
	id, err := pki.NewIdentity("spiffe://example.org/ns/default/sa/web", nil, nil)
	if err != nil {
		return none, ca.Certificate{}, err
	}
	key, err := pki.GenerateKey(pki.ECDSAP256)
	if err != nil {
		return none, ca.Certificate{}, err
	}
	csr, err := pki.CreateCSR(key, id)
	if err != nil {
		return none, ca.Certificate{}, err
	}
	authority, err := fileca.Open(context.Background(), fileca.Settings{Dir: b.ca})
	if err != nil {
		return none, ca.Certificate{}, err
	}
	defer authority.Close()
	req := ca.SignRequest{ID: "018f2f6e-9d2b-7c3a-8f5e-1b2c3d4e5f60", CSR: csr, SubjectID: id.String(), TTL: time.Hour}
	reply, err := authority.CSRSign(context.Background(), req)
	return req, reply, err
}

// round makes some calls by several callers at once.
func (w *route) round(callers int, req ca.SignRequest) error {
	each := callsInRound / callers
	took := make([]time.Duration, each*callers)
	failed := make([]error, callers)
	var all sync.WaitGroup
	begin := time.Now()
	for i := range callers {
		all.Go(func() { failed[i] = w.calls(took[i*each:(i+1)*each], req) })
	}
	all.Wait()
	w.busy += time.Since(begin)
	w.took = append(w.took, took...)
	return errors.Join(failed...)
}

// calls makes one call after the other, as many as took has room for.
func (w *route) calls(took []time.Duration, req ca.SignRequest) error {
	for i := range took {
		begin := time.Now()
		if _, err := w.client.CSRSign(context.Background(), req); err != nil {
			return err
		}
		took[i] = time.Since(begin)
	}
	return nil
}

func compare(callers int, near, far *route) {
	in, out := median(near.took), median(far.took)
	fmt.Printf("| %d | %s (%s) | %s (%s) | %s | %.0f | %.0f |\n", callers, us(in), us(p99(near.took)), us(out), us(p99(far.took)),
		us(out-in), float64(out)/float64(max(in, 1)), float64(len(far.took))/far.busy.Seconds())
}

func p99(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)*99/100]
}

func us(d time.Duration) string { return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond)) }
