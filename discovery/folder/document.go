package folder

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/internal/suggest"
	"github.com/countersign-dev/countersign/internal/version"
	ndsv1 "github.com/countersign-dev/countersign/proto/istio/networking/nds/v1"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// The resource types a folder can hold.
const (
	ClusterURL   = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointURL  = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerURL  = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RouteURL     = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	NameTableURL = "type.googleapis.com/istio.networking.nds.v1.NameTable"
)

const maxName = 4096 // bytes of a resource's name

// key must be unique for each caller.
type key struct{ url, name string }

// order is that of [Folder.Types]: what refers to something is announced after it.
var order = []string{ClusterURL, EndpointURL, ListenerURL, RouteURL, NameTableURL}

// byType compares keys by their types.
func byType(a, b key) int {
	return slices.Index(order, a.url) - slices.Index(order, b.url)
}

// file is the validated content of one file. It is immutable.
type file struct {
	sum       digest
	to        selector
	resources map[key]*xds.Resource
	hosts     map[string]*ndsv1.NameTable_NameInfo // also in versions, as key{NameTableURL, host}
	versions  map[key]string
	refs      []ref            // sorted
	uses      map[ref]struct{} // what may use a resource: refs, and more
	open      bool             // requests choose clusters, which are used by no name
}

// parser parses the documents of one file.
type parser struct{ *file }

func parse(content []byte) (*file, error) {
	documents, err := trees(content)
	if err != nil {
		return nil, err
	}
	p := parser{&file{
		sum: sha256.Sum256(content), resources: map[key]*xds.Resource{},
		hosts: map[string]*ndsv1.NameTable_NameInfo{}, versions: map[key]string{}, uses: map[ref]struct{}{},
	}}
	empty := true
	for i, tree := range documents {
		if tree == nil {
			continue // trailing "---"
		}
		if err := p.document(tree, empty); err != nil {
			return nil, at(document(i), err)
		}
		empty = false
	}
	if empty {
		return nil, faultf("empty file; write resources, or remove it")
	}
	slices.SortFunc(p.refs, compareKeys)
	p.refs = slices.Compact(p.refs)
	return p.file, nil
}

func (p parser) document(tree any, first bool) error {
	entries, ok := tree.(map[string]any)
	if !ok {
		return faultf("unexpected %s; write a resource with \"@type\", or \"resources:\" with a list of them", shown(tree))
	}
	if _, bare := entries["@type"]; bare {
		return p.resource(entries)
	}
	for _, section := range slices.Sorted(maps.Keys(entries)) {
		if err := p.section(section, entries[section], first); err != nil {
			return at(section, err)
		}
	}
	return nil
}

var sections = []string{"for", "resources", "static_resources", "hosts"}

func (p parser) section(name string, tree any, first bool) (err error) {
	switch name {
	case "for":
		if !first {
			return faultf("allowed only in the first document; it applies to the whole file")
		}
		p.to, err = parseSelector(tree)
		return err
	case "resources":
		return p.list(tree, p.resource)
	case "static_resources":
		return p.static(tree)
	case "hosts":
		return p.table(tree)
	case "version_info":
		return nil // as in Envoy's own files; versions derive from the content here
	}
	if meant := suggest.Word(name, sections); meant != "" {
		return faultf("unknown key; did you mean %q?", meant)
	}
	return faultf("unknown key; write a resource with \"@type\", or one of %s", strings.Join(sections, ", "))
}

func (p parser) list(tree any, take func(map[string]any) error) error {
	list, ok := tree.([]any)
	if !ok {
		return faultf("unexpected %s; write a list", shown(tree))
	}
	for i, element := range list {
		entries, ok := element.(map[string]any)
		if !ok {
			return at(index(i), faultf("unexpected %s; write a resource", shown(element)))
		}
		if err := take(entries); err != nil {
			return at(index(i), err)
		}
	}
	return nil
}

// static parses static_resources from Envoy's bootstrap.
func (p parser) static(tree any) error {
	entries, ok := tree.(map[string]any)
	if !ok {
		return faultf("unexpected %s; write \"listeners:\" and \"clusters:\" below it", shown(tree))
	}
	for _, kind := range slices.Sorted(maps.Keys(entries)) {
		var empty func() proto.Message
		switch kind {
		case "listeners":
			empty = func() proto.Message { return &listenerv3.Listener{} }
		case "clusters":
			empty = func() proto.Message { return &clusterv3.Cluster{} }
		case "secrets":
			return at(kind, faultf("secrets cannot be served from this folder"))
		default:
			return at(kind, faultf("only listeners and clusters are allowed here"))
		}
		err := p.list(entries[kind], func(tree map[string]any) error {
			return p.take(empty(), tree)
		})
		if err != nil {
			return at(kind, err)
		}
	}
	return nil
}

// resource parses a resource that states its type.
func (p parser) resource(tree map[string]any) error {
	url, ok := tree["@type"].(string)
	if !ok {
		return at("@type", faultf("missing; write the type of the resource, such as %s", ClusterURL))
	}
	empty := map[string]proto.Message{
		ClusterURL: &clusterv3.Cluster{}, EndpointURL: &endpointv3.ClusterLoadAssignment{},
		ListenerURL: &listenerv3.Listener{}, RouteURL: &routev3.RouteConfiguration{},
	}[url]
	if empty == nil {
		if _, err := typeOf(url); err != nil {
			return at("@type", err)
		}
		return at("@type", faultf("resources of type %.256q cannot be served from this folder; use listeners, routes, clusters or endpoints", url))
	}
	fields := maps.Clone(tree)
	delete(fields, "@type")
	return p.take(empty, fields)
}

// take reads a resource into the message and validates it.
func (p parser) take(m proto.Message, tree map[string]any) error {
	if err := fill(m, tree); err != nil {
		return err
	}
	field, name := nameOf(m)
	if fault := nameFault(name); fault != "" {
		return at(field, faultf("invalid resource name %.256q: %s", name, fault))
	}
	if err := validate(m, p.note); err != nil {
		return err
	}
	return p.add(name, m)
}

func (p parser) add(name string, m proto.Message) error {
	r, err := marshal(name, m)
	if err != nil {
		return err
	}
	k := key{r.Body.TypeUrl, name}
	if p.resources[k] != nil {
		return faultf("duplicate %s in this file", k)
	}
	if c, ok := m.(*clusterv3.Cluster); ok && c.GetType() == clusterv3.Cluster_EDS {
		// Envoy warms a changed cluster anew and waits for its endpoints.
		r.Refreshes = []xds.Ref{{Type: EndpointURL, Name: endpointsOf(c)}}
	}
	p.resources[k], p.versions[k] = r, r.Version
	return nil
}

// marshal returns a resource whose version identifies the bytes sent.
func marshal(name string, m proto.Message) (*xds.Resource, error) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, says(err)
	}
	url := "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
	return &xds.Resource{Name: name, Version: version.Of(body), Body: &anypb.Any{TypeUrl: url, Value: body}}, nil
}

func nameOf(m proto.Message) (field, name string) {
	if endpoints, ok := m.(*endpointv3.ClusterLoadAssignment); ok {
		return "cluster_name", endpoints.GetClusterName()
	}
	return "name", m.(interface{ GetName() string }).GetName()
}

func nameFault(name string) string {
	switch {
	case name == "":
		return "must not be empty"
	case name == "*":
		return "* is the wildcard"
	case len(name) > maxName:
		return fmt.Sprintf("must not have more than %d bytes", maxName)
	}
	return ""
}

// String names a resource within a sentence.
func (k key) String() string {
	what := map[string]string{ClusterURL: "cluster", EndpointURL: "endpoints of", ListenerURL: "listener", RouteURL: "route configuration", NameTableURL: "host"}[k.url]
	return fmt.Sprintf("%s %.256q", what, k.name)
}
