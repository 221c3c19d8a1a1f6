package kubetest

import (
	"encoding/json"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Object is any object of Kubernetes.
type Object map[string]any

// As reads an object as one of client-go's types.
func As[O any](from any) *O {
	var o O
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		panic(err)
	}
	return &o
}

// ObjectOf copies an object, whose kind it adds where that is one of client-go's types.
func ObjectOf(from any) (o Object) {
	o = *As[Object](from)
	if typed, is := from.(runtime.Object); is {
		kinds, _, err := scheme.Scheme.ObjectKinds(typed)
		if err != nil {
			panic(err)
		}
		o["apiVersion"], o["kind"] = kinds[0].GroupVersion().String(), kinds[0].Kind
	}
	return o
}

func (o Object) clone() Object { return ObjectOf(o) }

func (o Object) meta() map[string]any {
	if o["metadata"] == nil {
		o["metadata"] = map[string]any{}
	}
	return o["metadata"].(map[string]any)
}

// At returns what is at a path; nil if nothing is.
func (o Object) At(path ...string) any {
	var v any = map[string]any(o)
	for _, name := range path {
		below, _ := v.(map[string]any)
		v = below[name]
	}
	return v
}

func (o Object) labels() labels.Set {
	all := labels.Set{}
	given, _ := o.meta()["labels"].(map[string]any)
	for name, value := range given {
		all[name], _ = value.(string)
	}
	return all
}

func (o Object) key() key {
	version, _ := o["apiVersion"].(string)
	kind, _ := o["kind"].(string)
	namespace, _ := o.meta()["namespace"].(string)
	name, _ := o.meta()["name"].(string)
	resource, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(version, kind))
	return key{resource.Resource, namespace, name}
}

// kinds are those of client-go's types, by resource.
var kinds = sync.OnceValue(func() map[schema.GroupVersionResource]string {
	all := map[schema.GroupVersionResource]string{}
	for kind := range scheme.Scheme.AllKnownTypes() {
		if !strings.HasSuffix(kind.Kind, "List") {
			resource, _ := meta.UnsafeGuessKindToResource(kind)
			all[resource] = kind.Kind
		}
	}
	return all
})

func kindOf(c *Call) string { return kinds()[c.group.WithResource(c.Resource)] }
