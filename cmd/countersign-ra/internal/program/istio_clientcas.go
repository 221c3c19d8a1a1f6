package program

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/signing/guard"
)

// clientCAWatches know the client CAs of each cluster that rules can name. Those of a term go with it.
type clientCAWatches struct {
	mu sync.Mutex
	by map[string]*clientCAWatch // by the cluster's name in rules
}

// clientCAWatch is one of them.
type clientCAWatch struct {
	cluster *fleet.Cluster
	ca      *guard.ClientCA
	stop    context.CancelFunc
}

// run keeps a clientCAWatch in each cluster until ctx ends; wait returns when all are gone. named are
// clusters that only an issuer speaks for: the home cluster's API server stands for them. As it
// looks whenever clusters come and go, it also logs those that the door lacks.
func (l *clientCAWatches) run(ctx context.Context, s *service, named func() []string) (wait func()) {
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		unknownReferences := reported{}
		for {
			s.door.logUnknown(unknownReferences)
			l.settle(ctx, s, named(), &running)
			select {
			case <-s.shifted:
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return running.Wait
}

func (l *clientCAWatches) settle(ctx context.Context, s *service, named []string, running *sync.WaitGroup) {
	wanted := map[string]*fleet.Cluster{}
	for _, id := range named {
		wanted[id] = s.clusters.Local()
	}
	for _, c := range s.clusters.Status() {
		wanted[c.ID], _ = s.clusters.Cluster(c.ID) // nil: it is known, and not connected now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, old := range l.by {
		if _, known := wanted[name]; !known {
			old.stop()
			delete(l.by, name)
		}
	}
	for name, cluster := range wanted {
		if old := l.by[name]; cluster != nil && (old == nil || old.cluster != cluster) {
			l.post(ctx, s, name, cluster, running)
		}
	}
}

// post takes the place of the clientCAWatch that saw the cluster through an earlier client, if any.
func (l *clientCAWatches) post(ctx context.Context, s *service, name string, cluster *fleet.Cluster, running *sync.WaitGroup) {
	cfg := guard.ClientCAConfig{Cluster: name, Client: cluster.Client(), Log: s.log}
	if old := l.by[name]; old != nil {
		old.stop()
		cfg.Former = old.ca
	}
	known, err := guard.NewClientCA(cfg)
	if err != nil {
		s.log.Error("cluster not served", "cluster", name, "error", err)
		return
	}
	ctx, stop := context.WithCancel(ctx)
	running.Go(func() { known.Run(ctx) })
	if l.by == nil {
		l.by = map[string]*clientCAWatch{}
	}
	l.by[name] = &clientCAWatch{cluster, known, stop}
}

// all returns what is known of each cluster.
func (l *clientCAWatches) all() (all []*guard.ClientCA) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range slices.SortedFunc(maps.Keys(l.by), strings.Compare) {
		all = append(all, l.by[name].ca)
	}
	return all
}

// ready returns nil once the client CAs of a cluster are known.
func (l *clientCAWatches) ready(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.by[name]; w != nil {
		return w.ca.Ready()
	}
	return fmt.Errorf("the client CAs of cluster %q are not known", name)
}
