package pods

import (
	"encoding/json"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
)

// object has the fields of a pod that are used.
type object struct {
	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		UID       string `json:"uid"`
	} `json:"metadata"`
	Spec struct {
		NodeName       string `json:"nodeName"`
		ServiceAccount string `json:"serviceAccountName"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// pod returns the pod of an object; false if it runs on no node of these, or no longer.
func (o object) pod(node string) (Pod, bool) {
	runs := o.Spec.NodeName != "" && (node == "" || o.Spec.NodeName == node) && o.Status.Phase != "Succeeded" && o.Status.Phase != "Failed"
	return Pod{o.Metadata.Namespace, o.Metadata.Name, o.Metadata.UID, o.Spec.ServiceAccount, o.Spec.NodeName}, runs
}

// observer takes what the follower brings. Its goroutine calls it.
type observer struct{ *Pods }

// Begin implements [kubeapi.Observer].
func (o observer) Begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = map[string]bool{}
}

// See implements [kubeapi.Observer].
func (o observer) See(e kubeapi.Event) {
	if e.Type == kubeapi.Bookmark {
		o.arrived("")
		return
	}
	var got object
	if json.Unmarshal(e.Object, &got) != nil || got.Metadata.UID == "" {
		return
	}
	o.arrived(got.Metadata.UID)
	if pod, runs := got.pod(o.cfg.Node); runs && e.Type != kubeapi.Deleted {
		o.take(pod)
	} else {
		o.remove(pod.UID)
	}
}

// arrived notes what a list has brought, or that a watch works again.
func (o observer) arrived(uid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen != nil {
		o.seen[uid] = true
	} else {
		o.away = false
	}
}

// Complete implements [kubeapi.Observer].
func (o observer) Complete() {
	o.mu.Lock()
	var ends []func()
	for uid, one := range o.byUID {
		if !o.seen[uid] {
			ends = append(ends, o.forget(one))
		}
	}
	o.seen, o.listed, o.away = nil, true, false
	o.notify()
	o.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// Away implements [kubeapi.Observer].
func (o observer) Away(err error, wait time.Duration) {
	o.mu.Lock()
	o.away = true
	o.mu.Unlock()
	o.cfg.Log.Warn("failed to follow the pods, retrying", "node", o.cfg.Node, "error", text.Clean(err.Error()), "retry_in", wait)
}
