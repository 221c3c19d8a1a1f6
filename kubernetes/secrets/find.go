package secrets

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/sdk/xds"
)

// place is where an object is. Without namespace and name it is a whole cluster.
type place struct {
	cluster         string
	kind            Kind
	namespace, name string
}

func wholeOf(cluster string) place { return place{cluster: cluster} }

// object is a secret or config map that was found.
type object struct {
	place
	uid string // of this instance: a deleted and recreated object has another
	// stamp changes with the content; empty if that cannot be determined.
	stamp string
	// entry returns the data of a key, empty for none.
	entry func(key string) []byte
}

// places returns where the object of a request may be.
func (s *Source) places(r request) (places []place) {
	for _, cluster := range r.clusters {
		for _, name := range r.objects() {
			places = append(places, place{cluster, r.kind(), r.namespace, name})
		}
	}
	return places
}

// withClusters appends the clusters themselves to the places.
func (s *Source) withClusters(r request, places []place) []place {
	all := append(make([]place, 0, len(places)+len(r.clusters)), places...)
	for _, cluster := range r.clusters {
		all = append(all, wholeOf(cluster))
	}
	return all
}

// find returns the first object that exists. It stops at the first place whose content
// is unknown: the result must not depend on which cluster was read first.
func (s *Source) find(r request) (object, error) {
	if _, exists := s.cfg.Clusters.Cluster(r.subject.Cluster); !exists {
		return object{}, &refusal{NoCluster, "the caller's cluster does not exist"}
	}
	for _, p := range s.places(r) {
		cluster, _ := s.cfg.Clusters.Cluster(p.cluster)
		if cluster == nil {
			return object{}, xds.ErrNotReady
		}
		found, err := read(cluster, p)
		if err == nil {
			return found, nil
		}
		if !errors.Is(err, ErrNotFound) {
			return object{}, xds.ErrNotReady
		}
	}
	return object{}, &refusal{Missing, "no such object"}
}

func read(cluster Cluster, p place) (object, error) {
	if p.kind == ConfigMap {
		found, err := cluster.ConfigMap(p.namespace, p.name)
		if err != nil {
			return object{}, err
		}
		return object{p, string(found.UID), stampOf(found.ObjectMeta), func(key string) []byte { return []byte(found.Data[key]) }}, nil
	}
	found, err := cluster.Secret(p.namespace, p.name)
	if err != nil {
		return object{}, err
	}
	return object{p, string(found.UID), stampOf(found.ObjectMeta), func(key string) []byte { return found.Data[key] }}, nil
}

// stampOf returns the version of this object instance.
func stampOf(meta metav1.ObjectMeta) string {
	if meta.ResourceVersion == "" {
		return ""
	}
	return string(meta.UID) + " " + meta.ResourceVersion
}
