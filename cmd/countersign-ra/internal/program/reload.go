package program

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/istioca"
)

// live are the settings that a reload takes over; all others need a restart. [config.Config.With]
// does so.
var live = []string{"rules", "istio.clusters", "istio.issuers", "istio.node_proxies", "istio.csr_names", "istio.renewals", "mesh.roots.namespaces"}

// rotate opens the audit log anew at each SIGHUP, and takes over the configuration.
func (s *service) rotate(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-hangups:
			if err := s.audit.Reopen(); err != nil {
				s.log.Error("cannot reopen the audit log, keeping the old file", "error", err)
			} else {
				s.log.Info("audit log reopened", "file", s.config.Audit.File)
			}
			s.reload()
		case <-ctx.Done():
			return
		}
	}
}

// reload takes over the rules and the callers of the configuration file. A caller that is taken out is
// refused at once, on connections that are open as well.
func (s *service) reload() {
	next, err := s.read()
	if err == nil {
		err = s.takeOver(next)
	}
	if err != nil {
		s.life.Reloaded(time.Now(), nil, err)
		s.log.Error("cannot apply the configuration, keeping the previous one", "error", err)
		return
	}
	s.log.Info("configuration applied: rules, callers of istio, and namespaces of the mesh")
	left := differ(s.config.Explain(), next.Explain())
	s.life.Reloaded(time.Now(), left, nil)
	if len(left) > 0 {
		s.log.Warn("changed settings need a restart", "settings", strings.Join(left, ", "))
	}
}

// takeOver checks all before it takes over the first of it.
func (s *service) takeOver(next *config.Config) error {
	if err := s.foreign(next); err != nil {
		return err
	}
	merged := s.config.With(next)
	replace, err := s.door.prepare(&merged)
	if err != nil {
		return err
	}
	s.now.Store(&merged)
	if t := s.session.Load(); t != nil {
		s.follow(t.engine)
		for _, o := range t.all() {
			o.mesh.follow(&merged)
		}
	}
	if s.door != nil {
		if e := s.door.engine.Load(); e != nil {
			s.follow(e)
		}
	}
	replace() // who calls with a new CertSigner finds its door
	return nil
}

// foreign returns an error if rules need what only a restart brings.
func (s *service) foreign(next *config.Config) error {
	if next.Cluster.ID != s.config.Cluster.ID {
		return fmt.Errorf("cluster.id is %q: another name of the home cluster needs a restart", next.Cluster.ID)
	}
	if !reflect.DeepEqual(next.Mesh.Istiod, s.config.Mesh.Istiod) {
		return errors.New("mesh.istiod has changed, and needs a restart: its rule would not fit what is asked for")
	}
	here := s.config.Doors()
	for _, door := range next.Doors() {
		if s.config.Istio.Enabled() && (istioca.IsDoor(door.Name) || door.Name == config.IstioItself) {
			continue // they come and go with the rules, or stay as they are
		}
		if !slices.ContainsFunc(here, func(d ra.Door) bool { return d.Name == door.Name }) {
			return fmt.Errorf("requests of %s need a restart", door.Name)
		}
	}
	for _, r := range next.Rules {
		if !slices.ContainsFunc(s.config.Authorities, func(a config.Authority) bool { return a.Name == r.Authority }) {
			return fmt.Errorf("rules.%s.authority is %q: a provider that is new needs a restart", r.Name, r.Authority)
		}
	}
	return nil
}

// follow gives an engine the rules in force, which may be newer than those that it was made with,
// and what depends on them. [service.foreign] has seen that they fit.
func (s *service) follow(engine *ra.Engine) {
	now := s.now.Load()
	if err := engine.SetRules(now.Policy(), now.Doors()); err != nil {
		s.log.Error("cannot apply the rules", "error", err)
	}
	for _, a := range now.Authorities {
		engine.SetRootsWait(a.Name, now.RootsWait(a))
	}
}

// differ names the settings that are not live and have changed. A credential that has is not
// among them: both are hidden.
func differ(now, next []agent.Explained) (all []string) {
	were := map[string]string{}
	for _, e := range now {
		were[e.Setting] = fmt.Sprint(e.Value)
	}
	for _, e := range next {
		if was, known := were[e.Setting]; !known || was != fmt.Sprint(e.Value) {
			all = append(all, e.Setting)
		}
		delete(were, e.Setting)
	}
	all = slices.AppendSeq(all, maps.Keys(were)) // they are gone
	all = slices.DeleteFunc(all, isLive)
	slices.Sort(all)
	return all
}

func isLive(setting string) bool {
	return slices.ContainsFunc(live, func(prefix string) bool {
		return setting == prefix || strings.HasPrefix(setting, prefix+".")
	})
}
