package meshroots

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/countersign-dev/countersign/kubernetes/owned"
)

// seen is what is kept of a ConfigMap. It has a type of its own, as client-go trims some objects
// twice.
type seen struct {
	metav1.ObjectMeta        // only the names and versions
	ours              bool   // it has our label
	sum               string // of the roots
	rival             string // who else wrote them
}

// watch makes the informers. What they keep is trimmed: a large cluster has ten thousand
// namespaces, and all ConfigMaps have the same content.
func (r *run) watch() error {
	client := r.cfg.Client
	r.namespaces = informers.NewNamespaceInformer(client, 0, cache.Indexers{}) // all, as the selector may change
	r.maps = informers.NewFilteredConfigMapInformer(client, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", Name).String()
	})
	for informer, trim := range map[cache.SharedIndexInformer]cache.TransformFunc{r.namespaces: trimNamespace, r.maps: trimMap} {
		if err := informer.SetTransform(trim); err != nil {
			return err
		}
	}
	if _, err := r.namespaces.AddEventHandler(r.handler(func(name cache.ObjectName) string { return name.Name })); err != nil {
		return err
	}
	_, err := r.maps.AddEventHandler(r.handler(func(name cache.ObjectName) string { return name.Namespace }))
	return err
}

// handler queues the namespace of each event.
func (r *run) handler(of func(cache.ObjectName) string) cache.ResourceEventHandler {
	queue := func(object any) {
		if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
			r.add(of(name))
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: queue, DeleteFunc: queue, UpdateFunc: func(_, after any) { queue(after) }}
}

// await returns false if ctx ends before all is known.
func (r *run) await(ctx context.Context) bool {
	for _, informer := range []cache.SharedIndexInformer{r.namespaces, r.maps} {
		select {
		case <-informer.HasSyncedChecker().Done():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// chosen reports whether a namespace is, and does not go away.
func (r *run) chosen(namespace string) bool {
	object, known, err := r.namespaces.GetStore().GetByKey(namespace)
	found, ok := object.(*corev1.Namespace)
	return known && ok && err == nil && found.DeletionTimestamp == nil && (*r.selector.Load()).Matches(labels.Set(found.Labels))
}

// all returns the namespaces that are known.
func (r *run) all() []string { return r.namespaces.GetStore().ListKeys() }

// found returns the ConfigMap of a namespace, or nil.
func (r *run) found(namespace string) *seen {
	object, _, _ := r.maps.GetStore().GetByKey(cache.NewObjectName(namespace, Name).String())
	found, _ := object.(*seen)
	return found
}

func trimNamespace(object any) (any, error) {
	if n, ok := object.(*corev1.Namespace); ok {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels, DeletionTimestamp: n.DeletionTimestamp,
		}}, nil
	}
	return object, nil
}

func trimMap(object any) (any, error) {
	m, ok := object.(*corev1.ConfigMap)
	if !ok {
		return object, nil
	}
	return &seen{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion},
		ours:       owned.Labelled(m.Labels), sum: sumOf(m.Data[Key]), rival: owned.Rival(m.ManagedFields, Key),
	}, nil
}

func sumOf(roots string) string {
	sum := sha256.Sum256([]byte(roots))
	return hex.EncodeToString(sum[:])
}
