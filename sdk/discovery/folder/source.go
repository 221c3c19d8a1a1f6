package folder

import (
	"fmt"

	"github.com/countersign-dev/countersign/sdk/discovery"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// source has the resources of one type: endpoints or routes, which are asked for by
// name.
type source struct {
	*Folder
	url string
}

// Peek returns the resource under that name that the caller may have.
func (s source) Peek(c *discovery.Caller, name string) (*xds.Resource, error) {
	r := s.now.Load().resource(c, key{s.url, name})
	if r == nil {
		return nil, fmt.Errorf("%w: no file has %s for this caller", xds.ErrUnknown, key{s.url, name})
	}
	return r, nil
}

// Watch tells of changes of the name, whomever they are for.
func (s source) Watch(_ *discovery.Caller, name string, notify func(string)) (stop func(), err error) {
	return s.hub.Watch(key{s.url, name}, func() { notify(name) }), nil
}

// lister is a source whose type knows the wildcard.
type lister struct{ source }

// List returns the names that the caller may have. Nobody changes it.
func (l lister) List(c *discovery.Caller) ([]string, error) {
	return l.now.Load().view(c).names[l.url], nil
}

// WatchList tells of changes of the names, whomever they are for.
func (l lister) WatchList(_ *discovery.Caller, notify func()) (stop func(), err error) {
	return l.hub.Watch(key{url: l.url}, notify), nil
}

// table is the source of name tables, of which each caller has one.
type table struct{ source }

// List returns its name.
func (table) List(*discovery.Caller) ([]string, error) { return []string{tableName}, nil }

// WatchList never tells anything.
func (table) WatchList(*discovery.Caller, func()) (stop func(), err error) {
	return func() {}, nil
}

// Types returns the types of the folder: clusters, endpoints, listeners, routes and the
// name table.
func (f *Folder) Types() []discovery.Type {
	of := func(url string) source { return source{f, url} }
	return []discovery.Type{
		{URL: ClusterURL, Source: lister{of(ClusterURL)}, Complete: true},
		{URL: EndpointURL, Source: of(EndpointURL)},
		{URL: ListenerURL, Source: lister{of(ListenerURL)}, Complete: true},
		{URL: RouteURL, Source: of(RouteURL)},
		{URL: NameTableURL, Source: table{of(NameTableURL)}},
	}
}
