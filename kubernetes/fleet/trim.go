package fleet

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Of the clusters' objects, only certificates, keys and what belongs to them is kept. A
// password stored in a Secret never stays in memory.
var (
	secretKeys = []string{"cert", "key", "crl", "cacert", "tls.crt", "tls.key", "tls.ocsp-staple", "ca.crt", "ca.crl"}
	configKeys = []string{"cacert", "ca.crt", "crl", "ca.crl"}

	// otherTypes lists Secret types without a certificate for a proxy; requests to the
	// API server exclude them.
	otherTypes = []corev1.SecretType{
		"helm.sh/release.v1", corev1.SecretTypeServiceAccountToken, corev1.SecretTypeDockercfg, corev1.SecretTypeDockerConfigJson,
		corev1.SecretTypeBasicAuth, corev1.SecretTypeSSHAuth, corev1.SecretTypeBootstrapToken,
	}
)

// noOtherTypes returns the field selector.
func noOtherTypes() string {
	terms := make([]string, len(otherTypes))
	for i, t := range otherTypes {
		terms[i] = "type!=" + string(t)
	}
	return strings.Join(terms, ",")
}

// held is an object as it is kept.
type held interface {
	runtime.Object
	metav1.Object
}

// trimSecret drops what is not kept, including the other types if a server ignored the
// field selector.
func trimSecret(object runtime.Object) held {
	s, ok := object.(*corev1.Secret)
	if !ok {
		return nil
	}
	trimmed := &corev1.Secret{ObjectMeta: trimMeta(s.ObjectMeta), Type: s.Type}
	if !slices.Contains(otherTypes, s.Type) {
		trimmed.Data = only(s.Data, secretKeys, bytes.Clone)
	}
	return trimmed
}

func trimConfigMap(object runtime.Object) held {
	m, ok := object.(*corev1.ConfigMap)
	if !ok {
		return nil
	}
	return &corev1.ConfigMap{ObjectMeta: trimMeta(m.ObjectMeta), Data: only(m.Data, configKeys, strings.Clone)}
}

// trimKubeconfigs trims Secrets whose every key is a cluster.
func trimKubeconfigs(object runtime.Object) held {
	s, ok := object.(*corev1.Secret)
	if !ok {
		return nil
	}
	return &corev1.Secret{ObjectMeta: trimMeta(s.ObjectMeta), Data: s.Data}
}

func trimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp}
}

// only copies everything: a map keeps the memory of deleted entries, and a value
// decoded from base64 that of its line breaks.
func only[V any](data map[string]V, keys []string, clone func(V) V) (kept map[string]V) {
	for _, key := range keys {
		value, has := data[key]
		if !has {
			continue
		}
		if kept == nil {
			kept = map[string]V{}
		}
		kept[key] = clone(value)
	}
	return kept
}

// objectSize is the memory of an object besides its strings: itself, its map, and its
// entries in the informer's store and the ledger.
const objectSize = 1 << 10

func sizeOf(o metav1.Object) int64 {
	// The store's key repeats the name.
	size := objectSize + 2*(len(o.GetNamespace())+len(o.GetName())) + len(o.GetUID()) + len(o.GetResourceVersion())
	switch o := o.(type) {
	case *corev1.Secret:
		size += len(o.Type)
		for _, value := range o.Data {
			size += len(value)
		}
	case *corev1.ConfigMap:
		for _, value := range o.Data {
			size += len(value)
		}
	}
	return int64(size)
}

// same reports whether the kept parts of two versions are equal.
func same(before, after any) bool {
	switch b := before.(type) {
	case *corev1.Secret:
		a, ok := after.(*corev1.Secret)
		return ok && a.UID == b.UID && a.Type == b.Type && maps.EqualFunc(a.Data, b.Data, slices.Equal[[]byte])
	case *corev1.ConfigMap:
		a, ok := after.(*corev1.ConfigMap)
		return ok && a.UID == b.UID && maps.Equal(a.Data, b.Data)
	}
	return false
}
