package kubetest

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
	case c.Verb == "patch" && c.Object != nil:
		return f.apply(c, k)
	case !exists:
		return 0, nil, apierrors.NewNotFound(of, c.Name)
	case c.Verb == "get":
		return http.StatusOK, known.text, nil
	case c.Verb == "delete" && !c.permits(known.object):
		return 0, nil, apierrors.NewConflict(of, c.Name, errors.New("the precondition does not hold"))
	case c.Verb == "delete":
		f.remove(k)
		return http.StatusOK, metav1.Status{Status: metav1.StatusSuccess}, nil
	case c.Verb != "update":
		return 0, nil, apierrors.NewMethodNotSupported(of, c.Verb)
	}
	if sent, _ := c.Object.meta()["resourceVersion"].(string); sent != "" && sent != known.object.meta()["resourceVersion"] {
		return 0, nil, apierrors.NewConflict(of, c.Name, errors.New("it was modified"))
	}
	if c.Object.meta()["uid"] == nil {
		c.Object.meta()["uid"] = known.object.meta()["uid"]
	}
	if c.Subresource != "" { // the approval is in the status
		next := known.object.clone()
		next["status"] = c.Object["status"]
		c.Object = next
	}
	if c.Asks("dryRun") != "" {
		return http.StatusOK, c.Object, nil
	}
	return http.StatusOK, f.store(k, c.Object).text, nil
}

// permits reports whether the preconditions of a deletion hold.
func (c *Call) permits(known Object) bool {
	for _, name := range []string{"uid", "resourceVersion"} {
		if wants := c.Object.At("preconditions", name); wants != nil && wants != known.meta()[name] {
			return false
		}
	}
	return true
}

// apply creates an object, or merges what is applied into the one that exists. Unless that is forced, no
// value may change.
func (f *Fake) apply(c *Call, k key) (int, any, error) {
	known, exists := f.objects[k]
	before := Object{}
	if exists {
		before = known.object
	}
	conflict := apierrors.NewConflict(schema.GroupResource{Group: c.group.Group, Resource: c.Resource}, c.Name, errors.New("it was modified"))
	for _, name := range []string{"uid", "resourceVersion"} {
		if sent := c.Object.meta()[name]; sent != nil && sent != before.At("metadata", name) {
			return 0, nil, conflict
		}
	}
	next := before.clone()
	changed := merge(next, c.Object)
	switch {
	case exists && changed && c.Asks("force") != "true":
		return 0, nil, conflict
	case exists && reflect.DeepEqual(before, next):
		return http.StatusOK, known.text, nil
	}
	return http.StatusOK, f.store(k, next).text, nil
}

// merge adds values to an object. It reports whether that replaced any.
func merge(into, from map[string]any) (replaced bool) {
	for name, value := range from {
		below, isMap := value.(map[string]any)
		has, _ := into[name].(map[string]any)
		switch {
		case isMap && has != nil:
			replaced = merge(has, below) || replaced
			continue
		case into[name] != nil && !reflect.DeepEqual(into[name], value):
			replaced = true
		}
		into[name] = value
	}
	return replaced
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
		if f.selects(c, k, f.objects[k].object) {
			items = append(items, f.objects[k].text)
		}
	}
	return items
}

// selects ignores field selectors, as a server does that is not to be believed, unless it is
// told to honor the one for service accounts.
func (f *Fake) selects(c *Call, k key, o Object) bool {
	if k.resource != c.Resource || c.Namespace != "" && c.Namespace != k.namespace || c.Hides != nil && c.Hides(o) {
		return false
	}
	_, account, of := strings.Cut(c.Asks("fieldSelector"), "spec.serviceAccountName=")
	account, _, _ = strings.Cut(account, ",")
	if f.SelectsAccounts && of && o.At("spec", "serviceAccountName") != account {
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
