package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Fake is an API server in memory: objects of any kind, their versions and conflicts, lists,
// watches, status and approval. Of patches it takes those of server-side apply, and records no field
// managers. It validates and authorizes nothing. Tests
// in a synctest bubble reach it by [Fake.Client], which uses no sockets, others by [Fake.Listen].
// Its fields are set before it is used, or by [Fake.Set].
type Fake struct {
	// Before is called for each request. An APIStatus of apimachinery is answered, any other error
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
	// SelectsAccounts has it honor the field selector spec.serviceAccountName. Without, a test of
	// many pods is one of lists.
	SelectsAccounts bool
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
	Object  Object // what is created, updated or applied

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
