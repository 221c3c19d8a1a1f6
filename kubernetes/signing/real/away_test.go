//go:build e2e && linux && long

package real_test

import (
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// away is the absence of a CA for some pods.
type away struct {
	mu      sync.Mutex
	refused map[string]int // calls since it began
}

func (a *away) from(pods ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pod := range pods {
		a.refused[pod] = 0
	}
}

func (a *away) end(pods ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pod := range pods {
		delete(a.refused, pod)
	}
}

func (a *away) count(pods ...string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pod := range pods {
		n += a.refused[pod]
	}
	return n
}

func (a *away) refuse(r ca.SignRequest) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	pod := podOf(r)
	if _, is := a.refused[pod]; !is {
		return nil
	}
	a.refused[pod]++
	return ca.ErrUnavailable
}

// podOf returns the pod for which a certificate is asked.
func podOf(r ca.SignRequest) string {
	pod, _, _ := strings.Cut(r.DNSNames[0], ".")
	return pod
}
