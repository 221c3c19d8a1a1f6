package fleet

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is held of the clusters' objects: only what can be a certificate, a key or what
// belongs to them. A password that somebody keeps in a Secret never stays in memory.
var (
	secretKeys = []string{"cert", "key", "crl", "cacert", "tls.crt", "tls.key", "tls.ocsp-staple", "ca.crt", "ca.crl"}
	configKeys = []string{"cacert", "ca.crt", "crl", "ca.crl"}

	// otherTypes are those of Secrets that hold no certificate for a proxy; the API
	// server is asked to leave them out.
	otherTypes = []corev1.SecretType{
		"helm.sh/release.v1", corev1.SecretTypeServiceAccountToken, corev1.SecretTypeDockercfg, corev1.SecretTypeDockerConfigJson,
		corev1.SecretTypeBasicAuth, corev1.SecretTypeSSHAuth, corev1.SecretTypeBootstrapToken,
	}
)

// noOtherTypes is the field selector.
func noOtherTypes() string {
	terms := make([]string, len(otherTypes))
	for i, t := range otherTypes {
		terms[i] = "type!=" + string(t)
	}
	return strings.Join(terms, ",")
}

// trimSecret is a transform of an informer. A server that did not leave out the other
// types is not believed.
func trimSecret(object any) (any, error) {
	s, ok := object.(*corev1.Secret)
	if !ok {
		return object, nil // a tombstone
	}
	trimmed := &corev1.Secret{ObjectMeta: trimMeta(s.ObjectMeta), Type: s.Type}
	if !slices.Contains(otherTypes, s.Type) {
		trimmed.Data = only(s.Data, secretKeys)
	}
	return trimmed, nil
}

func trimConfigMap(object any) (any, error) {
	m, ok := object.(*corev1.ConfigMap)
	if !ok {
		return object, nil
	}
	return &corev1.ConfigMap{ObjectMeta: trimMeta(m.ObjectMeta), Data: only(m.Data, configKeys)}, nil
}

// trimKubeconfigs is for the Secrets whose every key is a cluster.
func trimKubeconfigs(object any) (any, error) {
	s, ok := object.(*corev1.Secret)
	if !ok {
		return object, nil
	}
	return &corev1.Secret{ObjectMeta: trimMeta(s.ObjectMeta), Data: s.Data}, nil
}

func trimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp}
}

func only[V any](data map[string]V, keys []string) map[string]V {
	kept := maps.Clone(data)
	maps.DeleteFunc(kept, func(key string, _ V) bool { return !slices.Contains(keys, key) })
	return kept
}

// same tells that what is held of two versions does not differ.
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
