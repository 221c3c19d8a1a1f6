//go:build e2e

package real_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
)

func TestRealPodsStartWhenTheCAIsBack(t *testing.T) {
	t.Parallel()
	o := open(t, kubetest.Start(t, kubetest.Options{Nodes: true}), ra.Limits{})
	o.ServiceAccount("shop", "web")
	node := o.HollowNode("one")
	o.ca.Always(catest.Fault{Err: ca.ErrUnavailable})
	web := o.CreatePod(kubetest.CertificatePod("shop", "web-0", "web", node.Name, signer))
	api := o.CreatePod(kubetest.CertificatePod("shop", "web-1", "web", node.Name, signer))
	requests := []string{o.AwaitRequest(web).Name, o.AwaitRequest(api).Name}
	kubetest.Await(t, "the CA is not asked again", func(context.Context) (bool, error) { return len(o.ca.Requests()) > 3, nil })
	for _, r := range o.requests() {
		if kind, c := outcome(&r); kind != "" {
			t.Errorf("while the CA is away, the request of pod %s is %s: %s", r.Spec.PodName, kind, c.Message)
		}
	}
	o.ca.Always(catest.Fault{})
	o.AwaitRunning(web, api)
	for _, r := range o.requests() {
		if kind, _ := outcome(&r); kind != issued || r.Name != requests[0] && r.Name != requests[1] {
			t.Errorf("request %s is %q; the kubelet's first were %q", r.Name, kind, requests)
		}
	}
}

// A pod whose request is Failed or Denied never asks again.
func TestRealNoWordOfTheCAIsFinal(t *testing.T) {
	t.Parallel()
	o := open(t, kubetest.Start(t, kubetest.Options{Nodes: true}), ra.Limits{})
	o.ServiceAccount("shop", "web")
	o.Node("one")
	for _, err := range []error{ca.ErrDenied, ca.ErrInvalid, ca.ErrUnauthenticated, ca.ErrRateLimited, ca.ErrInternal, errors.New("a surprise")} {
		o.ca.Next(1, catest.Fault{Err: err})
	}
	o.awaitIssued(o.ask("shop", "a", "b", "c", "d", "e", "f")...)
	o.ca.Next(1, catest.Fault{Break: catest.WrongKey})
	wrong := o.ask("shop", "g")[0]
	kubetest.Await(t, "the wrong reply is not noticed", func(context.Context) (bool, error) {
		return strings.Contains(o.log.String(), "stopped asking the authority"), nil
	})
	for _, r := range o.requests() {
		if kind, c := outcome(&r); r.Name == wrong.Name && kind != "" {
			t.Errorf("after a wrong reply, the request is %s: %s", kind, c.Message)
		}
	}
}

func TestRealCertificateOutlivesTheAPIServer(t *testing.T) {
	t.Parallel()
	issuesOnce(t, func(o *registrar, answer func()) {
		o.Stop()
		answer()
		kubetest.Await(t, "the API server is not missed", func(context.Context) (bool, error) {
			return strings.Contains(o.log.String(), "cannot write the certificate into the request, trying again"), nil
		})
		o.Resume()
	})
}

// Leadership may change in mid-request.
func TestRealNextDoorDeliversWhatTheLastAskedFor(t *testing.T) {
	t.Parallel()
	issuesOnce(t, func(o *registrar, answer func()) {
		o.closePods()
		answer()
		inBackground(t, o.pods.Run)
	})
}

// issuesOnce checks that a pod gets its certificate with one call of the CA, whatever meanwhile does before
// and after the CA's answer.
func issuesOnce(t *testing.T, meanwhile func(o *registrar, answer func())) {
	t.Helper()
	o := open(t, kubetest.Start(t, kubetest.Options{Nodes: true}), ra.Limits{})
	o.ServiceAccount("shop", "web")
	o.Node("one")
	o.warmUp()
	asked, answer := o.pauseCA()
	requests := o.ask("shop", "web-0")
	<-asked
	meanwhile(o, answer)
	o.awaitIssued(requests...)
	if n := len(asked); n > 0 {
		t.Errorf("the CA was asked %d times more", n)
	}
}

// pauseCA has each call of the CA send on asked, and wait for answer.
func (o *registrar) pauseCA() (asked <-chan struct{}, answer func()) {
	calls, end := make(chan struct{}, 100), make(chan struct{})
	o.ca.Always(catest.Fault{Break: func(*catest.Draft) {
		calls <- struct{}{}
		<-end
	}})
	answer = sync.OnceFunc(func() { close(end) })
	o.t.Cleanup(answer)
	return calls, answer
}
