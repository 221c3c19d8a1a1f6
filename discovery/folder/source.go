package folder

import (
	"fmt"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// source supplies the resources of one type that is requested by name: endpoints or
// routes.
type source struct {
	*Folder
	url string
}

// Peek returns the caller's resource with that name.
func (s source) Peek(c *discovery.Caller, name string) (*xds.Resource, error) {
	r := s.now.Load().resource(c, key{s.url, name})
	if r == nil {
		return nil, fmt.Errorf("%w: no file has %s for this caller", xds.ErrUnknown, key{s.url, name})
	}
	return r, nil
}

// Watch reports changes of the name, for any caller.
func (s source) Watch(_ *discovery.Caller, name string, notify func(string)) (stop func(), err error) {
	return s.hub.Watch(key{s.url, name}, func() { notify(name) }), nil
}

// lister is a source whose type supports the wildcard.
type lister struct{ source }

// List returns the caller's names. The slice must not be modified.
func (l lister) List(c *discovery.Caller) ([]string, error) {
	return l.now.Load().view(c).names[l.url], nil
}

// WatchList reports changes of the list of names, for any caller.
func (l lister) WatchList(_ *discovery.Caller, notify func()) (stop func(), err error) {
	return l.hub.Watch(key{url: l.url}, notify), nil
}

// table is the source of name tables; each caller has one.
type table struct{ source }

// List returns the name of the table.
func (table) List(*discovery.Caller) ([]string, error) { return []string{tableName}, nil }

// WatchList never calls notify.
func (table) WatchList(*discovery.Caller, func()) (stop func(), err error) {
	return func() {}, nil
}

// Types returns the folder's types: clusters, endpoints, listeners, routes and the name
// table.
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
