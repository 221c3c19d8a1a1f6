package bench

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

const (
	manyProxies   = 1000
	discoveryRuns = 3
	groupChanges  = 50 // of a secret that ten watch
	sharedChanges = 10 // of one that all watch
	swaps         = 2
	reclusterings = 3
)

// served is what runs with secrets and one with clusters came to.
type served struct {
	cost
	group, shared, swapped, clusters pushed
}

// pushed is how changes of one kind reached whom they concern.
type pushed struct {
	took []time.Duration // each answer of each change
	last []time.Duration // of each change
	cpu  time.Duration   // of the server, for a change
}

// discovery measures what the discovery service costs.
func (b *bench) discovery() error {
	if err := raiseFiles(); err != nil {
		return err
	}
	var all served
	var costs []cost
	for range discoveryRuns {
		if err := b.withProxies(secretURL, all.secrets); err != nil {
			return err
		}
		costs = append(costs, all.cost)
	}
	all.cost = medianCost(costs)
	all.showSecrets()
	if err := b.withProxies(clusterURL, all.complete); err != nil {
		return err
	}
	all.showClusters()
	return nil
}

// withProxies makes one run with a server of its own.
func (b *bench) withProxies(typ string, run func(*server, *proxies) error) error {
	s, err := b.startServer("discoveryserver", strconv.Itoa(proxyGroups))
	if err != nil {
		return err
	}
	p, err := newProxies(s, typ)
	if err != nil {
		return errors.Join(err, s.close())
	}
	err = run(s, p)
	p.close()
	return errors.Join(err, s.close())
}

func (all *served) secrets(s *server, p *proxies) (err error) {
	if all.cost, err = p.enter(s); err != nil {
		return err
	}
	for i := range groupChanges {
		order := fmt.Sprintf("change group-%d", i)
		if err := all.group.measure(s, p, order, manyProxies/proxyGroups); err != nil {
			return err
		}
	}
	for range sharedChanges {
		if err := all.shared.measure(s, p, "change shared", manyProxies); err != nil {
			return err
		}
	}
	for range swaps {
		if err := s.ask("renew", new(any)); err != nil {
			return err
		}
		if err := all.swapped.measure(s, p, "swap", 2*manyProxies); err != nil {
			return err
		}
	}
	return nil
}

func (all *served) complete(s *server, p *proxies) error {
	if _, err := p.enter(s); err != nil {
		return err
	}
	for range reclusterings {
		if err := all.clusters.measure(s, p, "recluster", manyProxies); err != nil {
			return err
		}
	}
	return nil
}

// enter opens the streams.
func (p *proxies) enter(s *server) (c cost, err error) {
	if err := p.join(proxyGroups); err != nil { // what the first of a group brings is not each stream's
		return c, err
	}
	time.Sleep(quiet)
	before, err := s.memory()
	if err != nil {
		return c, err
	}
	begin := time.Now()
	if err := p.join(manyProxies - proxyGroups); err != nil {
		return c, err
	}
	c.answered = time.Since(begin)
	time.Sleep(quiet)
	after, err := s.memory()
	c.each(before, after, manyProxies-proxyGroups)
	return c, err
}

// measure gives an order and waits for the answers that come of it.
func (d *pushed) measure(s *server, p *proxies, order string, answers int) error {
	before, err := s.cpu()
	if err != nil {
		return err
	}
	p.expect(answers)
	begin := time.Now()
	if err := s.ask(order, new(any)); err != nil {
		return err
	}
	took, err := p.until(begin)
	if err != nil {
		return fmt.Errorf("%s: %w", order, err)
	}
	time.Sleep(quiet)
	after, err := s.cpu()
	d.took, d.last = append(d.took, took...), append(d.last, took[len(took)-1])
	d.cpu += after - before
	return err
}

func (all *served) showSecrets() {
	fmt.Printf("\n| Discovery service: %d ADS streams over mutual TLS, each on its own connection, client on the same cores | measured |\n|---|---|\n", manyProxies)
	row("memory for a stream of two secrets, resident (heap + stacks)", fmt.Sprintf("%.1f KiB (%.1f + %.1f)", all.resident, all.heap, all.stacks))
	row(fmt.Sprintf("%d streams answered, handshake and certificate verified", manyProxies-proxyGroups), fmt.Sprintf("%.2f s", all.answered.Seconds()))
	row("a secret changed that 10 streams watch: median, p99", all.group.quantiles())
	row("a secret changed that all watch: median, p99; the last", all.shared.quantiles()+"; "+ms(median(all.shared.last)))
	row("… server's CPU for a push and its acknowledgement", all.shared.each(manyProxies))
	row("all secrets changed and the cluster swapped (spread over 1 s): the last", fmt.Sprintf("%.2f s", median(all.swapped.last).Seconds()))
	row("… server's CPU for a stream", all.swapped.each(manyProxies))
}

func (all *served) showClusters() {
	row("one of 1,000 clusters changed, a megabyte for each stream (spread over 1 s): median, the last",
		fmt.Sprintf("%.2f s, %.2f s", median(all.clusters.took).Seconds(), median(all.clusters.last).Seconds()))
	row("… server's CPU for a stream", all.clusters.each(manyProxies))
}

func (d *pushed) quantiles() string {
	slices.Sort(d.took)
	return fmt.Sprintf("%s, %s", ms(median(d.took)), ms(d.took[len(d.took)*99/100]))
}

// each returns the server's CPU for one of so many streams that a change concerns.
func (d *pushed) each(streams int) string {
	cpu := d.cpu / time.Duration(len(d.last)*streams)
	return fmt.Sprintf("%.1f µs", float64(cpu)/float64(time.Microsecond))
}
