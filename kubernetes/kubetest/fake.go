package kubetest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Fake is an API server in memory: objects of any kind, their versions and conflicts, lists,
// watches, status and approval. It validates and authorizes nothing and takes no patches. Tests
// in a synctest bubble reach it by [Fake.Client], which uses no sockets, others by [Fake.Listen].
// Its fields are set before it is used, or by [Fake.Set].
type Fake struct {
	// Before is called for each request. An [apierrors.APIStatus] is answered, any other error
	// breaks the connection. It may change what is written, wait, and call the Fake.
	Before func(*Call) error
	// After is called when a request has been carried out.
	After func(*Call)
	// Answers reply to objects that are created and not kept, such as reviews, by resource.
	Answers map[string]func(Object) any
	// Token is the only one that it takes. Default: any, and none.
	Token string
	// Instead answers over HTTP whom the server knows. Optional.
	Instead http.HandlerFunc
	// Ended is called when a watch or a connection has ended. Optional.
	Ended func()

	mu       sync.Mutex
	objects  map[key]stored
	history  []change
	changed  chan struct{} // closed by the next change
	cut      chan struct{} // closed to end all watches
	calls    []Call
	watching int
	faults   []*fault
}

// Call is a request. Kinds of verbs are Kubernetes'.
type Call struct {
	Verb, Resource, Subresource, Namespace, Name string

	Context context.Context
	Method  string
	URL     string
	Header  http.Header
	Object  Object // what is created or updated

	// Reply is answered at once, where [Fake.Before] sets it.
	Reply any
	// Hides has a watch not show what it is true for.
	Hides func(Object) bool

	group schema.GroupVersion
	query map[string][]string
}

var errCut = errors.New("the connection is cut")

type key struct{ resource, namespace, name string }

type stored struct {
	object Object
	text   json.RawMessage
}

type change struct {
	key
	stored
	kind string
}

// NewFake has no objects.
func NewFake() *Fake {
	return &Fake{
		Answers: map[string]func(Object) any{"selfsubjectreviews": func(o Object) any { return o }},
		objects: map[key]stored{}, changed: make(chan struct{}), cut: make(chan struct{}),
	}
}

// Client reaches it without sockets.
func (f *Fake) Client() kubernetes.Interface { return ClientBy(f, "http://fake") }

// ClientBy reaches the server at an address by a transport, as often as it likes.
func ClientBy(transport http.RoundTripper, address string) kubernetes.Interface {
	config := &rest.Config{Host: address, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: transport})
	if err != nil {
		panic(err)
	}
	return client
}

// Set changes what hooks read.
func (f *Fake) Set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// Cut ends all watches.
func (f *Fake) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.cut)
	f.cut = make(chan struct{})
}

// Fail has each request end with the error from now on, and ends all watches; nil ends that.
func (f *Fake) Fail(err error) {
	f.Set(func() {
		f.Before = nil
		if err != nil {
			f.Before = func(*Call) error { return err }
		}
	})
	f.Cut()
}

// Also has a hook called before the one that is there, unless it replies or refuses.
func (f *Fake) Also(first func(*Call) error) {
	f.Set(func() {
		then := f.Before
		f.Before = func(c *Call) error {
			if err := first(c); err != nil || c.Reply != nil || then == nil {
				return err
			}
			return then(c)
		}
	})
}

// FailOn has requests of a verb for a resource ("": any) fail, until it is ended.
func (f *Fake) FailOn(verb, resource string, err error) (end func()) {
	failing := &fault{verb, resource, err}
	f.Set(func() { f.faults = append(f.faults, failing) })
	return func() {
		f.Set(func() { f.faults = slices.DeleteFunc(f.faults, func(each *fault) bool { return each == failing }) })
	}
}

type fault struct {
	verb, resource string
	err            error
}

func (c *Call) meets(all []*fault) error {
	for _, f := range all {
		if c.is(f.verb, f.resource) {
			return f.err
		}
	}
	return nil
}

func (c *Call) is(verb, resource string) bool {
	return (verb == "" || verb == c.Verb) && (resource == "" || resource == c.Resource)
}

// Hang has each request wait from now on, until [Fake.Fail] or [Fake.Cut].
func (f *Fake) Hang() {
	f.Cut()
	f.Set(func() {
		until := f.cut
		f.Before = func(c *Call) error {
			select {
			case <-until:
				return errCut
			case <-c.Context.Done():
				return c.Context.Err()
			}
		}
	})
}

// Calls are the requests so far.
func (f *Fake) Calls() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// Called counts the requests of a verb for a resource; "" is any.
func (f *Fake) Called(verb, resource string) (n int) {
	for _, c := range f.Calls() {
		if c.is(verb, resource) {
			n++
		}
	}
	return n
}

// Watches counts the open ones.
func (f *Fake) Watches() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watching
}

// Changes counts what was ever written.
func (f *Fake) Changes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.history)
}

// Put adds or changes an object, past the hooks: an [Object] or one of client-go's types.
func (f *Fake) Put(object any) {
	o := ObjectOf(object)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store(o.key(), o)
}

// Remove deletes an object, if it exists, past the hooks.
func (f *Fake) Remove(resource, namespace, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(key{resource, namespace, name})
}

// Get reads an object, past the hooks; nil: there is none. O may be [Object].
func Get[O any](f *Fake, resource, namespace, name string) *O {
	f.mu.Lock()
	found, exists := f.objects[key{resource, namespace, name}]
	f.mu.Unlock()
	if !exists {
		return nil
	}
	return As[O](found.text)
}

func (f *Fake) store(k key, o Object) stored {
	kind := "MODIFIED"
	if _, exists := f.objects[k]; !exists {
		kind = "ADDED"
	}
	if o.meta()["uid"] == nil {
		o.meta()["uid"] = "uid-of-" + k.resource + "/" + k.namespace + "/" + k.name
	}
	f.objects[k] = f.note(k, o, kind)
	return f.objects[k]
}

func (f *Fake) remove(k key) {
	if gone, exists := f.objects[k]; exists {
		delete(f.objects, k)
		f.note(k, gone.object.clone(), "DELETED")
	}
}

func (f *Fake) note(k key, o Object, kind string) stored {
	o.meta()["resourceVersion"] = strconv.Itoa(len(f.history) + 1)
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	s := stored{o, text}
	f.history = append(f.history, change{k, s, kind})
	close(f.changed)
	f.changed = make(chan struct{})
	return s
}

// do carries a request out and returns the status code and the object for the answer.
func (f *Fake) do(c *Call) (int, any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := key{c.Resource, c.Namespace, c.Name}
	known, exists := f.objects[k]
	of := schema.GroupResource{Group: c.group.Group, Resource: c.Resource}
	switch {
	case c.Verb == "list":
		return http.StatusOK, f.list(c), nil
	case c.Verb == "create" && exists:
		return 0, nil, apierrors.NewAlreadyExists(of, c.Name)
	case c.Verb == "create":
		return http.StatusCreated, f.store(k, c.Object).text, nil
	case !exists:
		return 0, nil, apierrors.NewNotFound(of, c.Name)
	case c.Verb == "get":
		return http.StatusOK, known.text, nil
	case c.Verb == "delete":
		f.remove(k)
		return http.StatusOK, metav1.Status{Status: metav1.StatusSuccess}, nil
	case c.Verb != "update":
		return 0, nil, apierrors.NewMethodNotSupported(of, c.Verb)
	}
	if sent, _ := c.Object.meta()["resourceVersion"].(string); sent != "" && sent != known.object.meta()["resourceVersion"] {
		return 0, nil, apierrors.NewConflict(of, c.Name, fmt.Errorf("it was modified"))
	}
	if c.Object.meta()["uid"] == nil {
		c.Object.meta()["uid"] = known.object.meta()["uid"]
	}
	if c.Subresource != "" { // the approval is in the status
		next := known.object.clone()
		next["status"] = c.Object["status"]
		c.Object = next
	}
	return http.StatusOK, f.store(k, c.Object).text, nil
}

// list answers with the objects of a namespace, or of all, that have the labels.
func (f *Fake) list(c *Call) any {
	return Object{
		"kind": kindOf(c) + "List", "apiVersion": c.group.String(), "items": f.selected(c),
		"metadata": Object{"resourceVersion": strconv.Itoa(len(f.history))},
	}
}

func (f *Fake) selected(c *Call) []json.RawMessage {
	all := slices.SortedFunc(maps.Keys(f.objects), func(a, b key) int {
		return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
	})
	items := []json.RawMessage{}
	for _, k := range all {
		if c.selects(k, f.objects[k].object) {
			items = append(items, f.objects[k].text)
		}
	}
	return items
}

// selects leaves field selectors out, as a server does that is not to be believed, except the
// service account's, without which a test of many pods would be one of lists.
func (c *Call) selects(k key, o Object) bool {
	if k.resource != c.Resource || c.Namespace != "" && c.Namespace != k.namespace || c.Hides != nil && c.Hides(o) {
		return false
	}
	_, account, of := strings.Cut(c.Asks("fieldSelector"), "spec.serviceAccountName=")
	account, _, _ = strings.Cut(account, ",")
	if of && o.At("spec", "serviceAccountName") != account {
		return false
	}
	selector, err := labels.Parse(c.Asks("labelSelector"))
	return err == nil && selector.Matches(o.labels())
}

// Asks returns a parameter of the query.
func (c *Call) Asks(name string) string {
	if all := c.query[name]; len(all) > 0 {
		return all[0]
	}
	return ""
}
