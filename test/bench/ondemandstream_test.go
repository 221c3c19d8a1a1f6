package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/countersign-dev/countersign/sdk/sds"
)

// demandStream asks an agent for names on one delta ADS stream, as Envoy does: it keeps a name that
// it got, and unsubscribes from one that is refused.
type demandStream struct {
	conn   *grpc.ClientConn
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	done   chan struct{} // closed when it has ended, with err

	mu      sync.Mutex // guards Send and the rest
	waiting map[string][]chan bool
	first   time.Time // when the first of them was answered
	err     error
}

func openDemandStream(ctx context.Context, socket string) (*demandStream, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, err
	}
	d := &demandStream{conn: conn, done: make(chan struct{}), waiting: map[string][]chan bool{}}
	d.stream, err = discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err == nil {
		err = d.send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "bench"}, ResourceNamesSubscribe: []string{"ROOTCA"}})
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go d.receive()
	return d, nil
}

// close ends the stream.
func (d *demandStream) close() {
	_ = d.conn.Close()
	<-d.done
}

// send sends a request. The caller holds the lock, but for the first one.
func (d *demandStream) send(r *discoveryv3.DeltaDiscoveryRequest) error {
	r.TypeUrl = sds.TypeURL
	return d.stream.Send(r)
}

// receive acknowledges each answer and passes it on to the caller that waits.
func (d *demandStream) receive() {
	defer close(d.done)
	for d.err == nil {
		answer, err := d.stream.Recv()
		d.mu.Lock()
		if d.err = err; err == nil {
			for _, r := range answer.Resources {
				d.answered(r.Name, true)
			}
			for _, name := range answer.RemovedResources {
				d.answered(name, false)
			}
			d.err = d.send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: answer.Nonce, ResourceNamesUnsubscribe: answer.RemovedResources})
		}
		d.mu.Unlock()
	}
}

func (d *demandStream) answered(name string, served bool) {
	for _, to := range d.waiting[name] {
		if d.first.IsZero() {
			d.first = time.Now()
		}
		to <- served
	}
	delete(d.waiting, name)
}

// firstAnswer returns when the first name was answered.
func (d *demandStream) firstAnswer() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.first
}

// subscribe asks for names. Each gets a slot for its answer.
func (d *demandStream) subscribe(names ...string) (map[string]chan bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	slots := make(map[string]chan bool, len(names))
	for _, name := range names {
		slots[name] = make(chan bool, 1)
		d.waiting[name] = append(d.waiting[name], slots[name])
	}
	return slots, d.send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: names})
}

// ask asks for a name, and reports whether it is served. It unsubscribes when ctx ends first.
func (d *demandStream) ask(ctx context.Context, name string) (served bool, err error) {
	slots, err := d.subscribe(name)
	if err != nil {
		return false, err
	}
	select {
	case served = <-slots[name]:
		return served, nil
	case <-d.done:
		return false, fmt.Errorf("the stream ended: %w", d.err)
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.waiting, name)
		return false, errors.Join(ctx.Err(), d.send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{name}}))
	}
}

// must asks for a name, and fails unless the answer is the wanted one.
func (d *demandStream) must(ctx context.Context, name string, want bool) error {
	served, err := d.ask(ctx, name)
	if err == nil && served != want {
		err = fmt.Errorf("%s: served %t, want %t", name, served, want)
	}
	return err
}
