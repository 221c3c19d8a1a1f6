package meshroots

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/owned"
)

// found is a ConfigMap as an API server has it.
func found(namespace string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: Name, UID: "11111111-2222-3333-4444-555555555555", ResourceVersion: "1000000", Labels: map[string]string{owned.ManagedBy: owned.Manager, "more": strings.Clone(namespace)},
		Annotations: map[string]string{"note": strings.Repeat("x", 1000)},
	}, Data: map[string]string{Key: strings.Repeat("roots", 1000), "more": "text"}}
	for _, manager := range []string{owned.Manager, "pilot-discovery"} {
		m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:root-cert.pem":{}}}`)})
	}
	return m
}

// What is long is not kept: ten thousand namespaces have the same roots.
func TestConfigMapsAreTrimmed(t *testing.T) {
	object, err := trimMap(found("shop"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := trimMap(object) // client-go may do that
	if err != nil || again != object {
		t.Errorf("trimmed again it is another, or %v", err)
	}
	kept := object.(*seen)
	if kept.sum != sumOf(strings.Repeat("roots", 1000)) || kept.rival != "pilot-discovery" || !kept.ours {
		t.Errorf("it is %+v", kept)
	}
	if kept.Labels != nil || kept.Annotations != nil || kept.ManagedFields != nil {
		t.Errorf("it keeps %+v", kept.ObjectMeta)
	}
}

// BenchmarkMemory measures the bytes that are kept for each namespace, without client-go's index.
func BenchmarkMemory(b *testing.B) {
	const namespaces = 10_000
	for b.Loop() {
		before := heap()
		var all []any
		places := map[string]*place{}
		for i := range namespaces {
			name := fmt.Sprintf("namespace-%d", i)
			n, _ := trimNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/metadata.name": strings.Clone(name)}}})
			m, _ := trimMap(found(strings.Clone(name)))
			all, places[name] = append(all, n, m), &place{}
		}
		b.ReportMetric(float64(heap()-before)/namespaces, "B/namespace")
		runtime.KeepAlive(all)
		runtime.KeepAlive(places)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
