package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is an API server in memory.
type server func(*http.Request) (*http.Response, error)

func (s server) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

func replies(code int, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(text)))}, err
}

// newPods follows the pods of the node "here" on a server that is called only to confirm.
func newPods(t *testing.T, by server) *Pods {
	t.Helper()
	client, err := kubeapi.New(kubeapi.Config{URL: "https://api.test", Transport: by})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Config{Client: client, Node: "here", Log: slog.New(slog.DiscardHandler), Identify: func(pod Pod) (string, error) {
		if pod.ServiceAccount == "none" {
			return "", errors.New("no claim")
		}
		return "spiffe://example.org/" + pod.Namespace + "/" + pod.ServiceAccount, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func podOf(name, uid string, change ...func(*object)) object {
	var o object
	o.Metadata.Namespace, o.Metadata.Name, o.Metadata.UID = "shop", name, uid
	o.Spec.NodeName, o.Spec.ServiceAccount, o.Status.Phase = "here", name, "Running"
	for _, c := range change {
		c(&o)
	}
	return o
}

func event(kind string, o object) kubeapi.Event {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return kubeapi.Event{Type: kind, Object: text}
}

// list gives the observer a whole list.
func (p *Pods) list(all ...object) {
	o := observer{p}
	o.Begin()
	for _, one := range all {
		o.See(event(kubeapi.Added, one))
	}
	o.Complete()
}

func reference(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	packed, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func pod(key *api.KubernetesObjectKey, uid string) *api.KubernetesObjectReference {
	return &api.KubernetesObjectReference{Type: &api.KubernetesObjectType{Plural: "pods", Group: "core"}, Key: key, Uid: uid}
}

func named(name string) *api.KubernetesObjectKey {
	return &api.KubernetesObjectKey{Namespace: "shop", Name: name}
}

func TestReferenceByKeyOrUIDIsResolved(t *testing.T) {
	p := newPods(t, nil)
	p.list(podOf("web", "u-1"), podOf("db", "u-2"))
	for _, r := range []*api.KubernetesObjectReference{pod(named("web"), ""), pod(nil, "u-1"), pod(named("web"), "u-1"), pod(nil, "U-1")} {
		w, err := p.Resolve(t.Context(), reference(t, r), func(error) { t.Error("it has ended") })
		if err != nil || w.SPIFFEID != "spiffe://example.org/shop/web" || w.Name != "pod shop/web (u-1)" || w.Check() != nil {
			t.Errorf("%v: %+v, %v", r, w, err)
			continue
		}
		w.Release()
	}
	p.list() // released references do not end
}

func TestReferenceThatFitsNoPodIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPods(t, nil)
		p.list(podOf("web", "u-1"), podOf("none", "u-2"), podOf("away", "u-3", func(o *object) { o.Spec.NodeName = "there" }),
			podOf("done", "u-4", func(o *object) { o.Status.Phase = "Succeeded" }), podOf("pending", "u-5", func(o *object) { o.Spec.NodeName = "" }))
		for name, want := range map[string]struct {
			reference proto.Message
			code      codes.Code
		}{
			"another message":     {&api.WorkloadPIDReference{Pid: 1}, codes.InvalidArgument},
			"no type":             {&api.KubernetesObjectReference{Key: named("web")}, codes.InvalidArgument},
			"another type":        {&api.KubernetesObjectReference{Type: &api.KubernetesObjectType{Plural: "deployments", Group: "apps"}, Key: named("web")}, codes.InvalidArgument},
			"group not core":      {&api.KubernetesObjectReference{Type: &api.KubernetesObjectType{Plural: "pods"}, Key: named("web")}, codes.InvalidArgument},
			"neither key nor UID": {pod(nil, ""), codes.InvalidArgument},
			"no namespace":        {pod(&api.KubernetesObjectKey{Name: "web"}, ""), codes.InvalidArgument},
			"no name":             {pod(&api.KubernetesObjectKey{Namespace: "shop"}, "u-1"), codes.InvalidArgument},
			"no such name":        {pod(named("other"), ""), codes.NotFound},
			"no such UID":         {pod(nil, "u-9"), codes.NotFound},
			"UIDs differ":         {pod(named("web"), "u-2"), codes.NotFound},
			"another node's":      {pod(named("away"), ""), codes.NotFound},
			"completed":           {pod(nil, "u-4"), codes.NotFound},
			"not scheduled":       {pod(nil, "u-5"), codes.NotFound},
			"no identity":         {pod(named("none"), ""), codes.PermissionDenied},
		} {
			if _, err := p.Resolve(t.Context(), reference(t, want.reference), func(error) {}); status.Code(err) != want.code {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestWorkloadEndsWithItsPod(t *testing.T) {
	gone := map[string]func(*Pods){
		"deleted": func(p *Pods) { observer{p}.See(event(kubeapi.Deleted, podOf("web", "u-1"))) },
		"completed": func(p *Pods) {
			observer{p}.See(event(kubeapi.Modified, podOf("web", "u-1", func(o *object) { o.Status.Phase = "Failed" })))
		},
		"not in the list":      func(p *Pods) { p.list(podOf("db", "u-2")) },
		"another has its name": func(p *Pods) { observer{p}.See(event(kubeapi.Added, podOf("web", "u-3"))) },
	}
	for name, end := range gone {
		t.Run(name, func(t *testing.T) {
			p := newPods(t, nil)
			p.list(podOf("web", "u-1"), podOf("db", "u-2"))
			ended := make(chan error, 2)
			w, err := p.Resolve(t.Context(), reference(t, pod(named("web"), "")), func(why error) { ended <- why })
			if err != nil {
				t.Fatal(err)
			}
			other, err := p.Resolve(t.Context(), reference(t, pod(nil, "u-2")), func(error) { t.Error("the other pod ended") })
			if err != nil {
				t.Fatal(err)
			}
			end(p)
			if len(ended) != 1 || status.Code(<-ended) != codes.NotFound || status.Code(w.Check()) != codes.NotFound || other.Check() != nil {
				t.Errorf("%d ends, %v, %v", len(ended), w.Check(), other.Check())
			}
			other.Release()
		})
	}
}

func TestChangeThatKeepsThePodEndsNothing(t *testing.T) {
	p := newPods(t, nil)
	p.list(podOf("web", "u-1"))
	w, err := p.Resolve(t.Context(), reference(t, pod(nil, "u-1")), func(error) { t.Error("it has ended") })
	if err != nil {
		t.Fatal(err)
	}
	observer{p}.See(event(kubeapi.Modified, podOf("web", "u-1")))
	observer{p}.See(event(kubeapi.Deleted, podOf("web", "u-0"))) // its predecessor's, late
	observer{p}.See(kubeapi.Event{Type: kubeapi.Added, Object: json.RawMessage(`{"metadata":7}`)})
	observer{p}.Begin()
	observer{p}.Away(errors.New("cut"), time.Second) // a list that failed
	p.list(podOf("web", "u-1"))
	if w.Check() != nil {
		t.Error(w.Check())
	}
}

// A reference may come before the watch has brought its pod.
func TestReferenceWaitsForItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPods(t, nil)
		if _, err := p.Resolve(t.Context(), reference(t, pod(nil, "u-1")), func(error) {}); ca.ReasonFor(err) != ca.Unavailable {
			t.Errorf("before a list: %v", err)
		}
		go func() {
			time.Sleep(time.Second)
			p.list(podOf("db", "u-2"))
			observer{p}.See(event(kubeapi.Added, podOf("web", "u-1")))
		}()
		if _, err := p.Resolve(t.Context(), reference(t, pod(nil, "u-1")), func(error) {}); err != nil {
			t.Errorf("it came: %v", err)
		}
		begun := time.Now()
		if _, err := p.Resolve(t.Context(), reference(t, pod(nil, "u-3")), func(error) {}); status.Code(err) != codes.NotFound || time.Since(begun) != lag {
			t.Errorf("none came: %v after %s", err, time.Since(begun))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Resolve(ctx, reference(t, pod(nil, "u-3")), func(error) {}); err == nil {
			t.Error("the broker left")
		}
	})
}

// While the watch has failed, what it brought may be over: the API server is asked for new references.
func TestPodIsConfirmedWhileTheWatchHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		code, is := http.StatusOK, podOf("web", "u-1")
		asked := 0
		p := newPods(t, func(r *http.Request) (*http.Response, error) {
			asked++
			if r.URL.Path != "/api/v1/namespaces/shop/pods/web" {
				return nil, fmt.Errorf("called %s", r.URL)
			}
			if code == 0 {
				return nil, errors.New("refused")
			}
			return replies(code, is)
		})
		p.list(podOf("web", "u-1"))
		observer{p}.Away(errors.New("cut"), time.Second)
		held := 0
		resolve := func() error {
			w, err := p.Resolve(t.Context(), reference(t, pod(named("web"), "")), func(error) {})
			if err == nil {
				held++
				w.Release()
			}
			return err
		}
		if err := resolve(); err != nil {
			t.Error(err)
		}
		is = podOf("web", "u-2")
		if err := resolve(); status.Code(err) != codes.NotFound {
			t.Errorf("another UID: %v", err)
		}
		is = podOf("web", "u-1", func(o *object) { o.Status.Phase = "Failed" })
		if err := resolve(); status.Code(err) != codes.NotFound {
			t.Errorf("completed: %v", err)
		}
		code = http.StatusNotFound
		if err := resolve(); status.Code(err) != codes.NotFound {
			t.Errorf("deleted: %v", err)
		}
		code = 0
		if err := resolve(); ca.ReasonFor(err) != ca.Unavailable {
			t.Errorf("away: %v", err)
		}
		code = http.StatusTooManyRequests
		if err := resolve(); ca.ReasonFor(err) != ca.Unavailable {
			t.Errorf("busy: %v", err)
		}
		if _, err := p.Resolve(t.Context(), reference(t, pod(nil, "u-7")), func(error) {}); ca.ReasonFor(err) != ca.Unavailable {
			t.Errorf("unknown while away: %v", err)
		}
		before := asked
		observer{p}.See(event(kubeapi.Modified, podOf("web", "u-1")))
		if err := resolve(); err != nil || asked != before {
			t.Errorf("%v, asked %d times for what the watch has", err, asked-before)
		}
		if n := p.byUID["u-1"].watchers.Len(); n != 0 {
			t.Errorf("%d references are left", n)
		}
	})
}

// A watch that works again may bring no pod for hours. Its bookmarks show that it works.
func TestBookmarkEndsTheTimeAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watches := 0
		p := newPods(t, func(r *http.Request) (*http.Response, error) {
			if !r.URL.Query().Has("watch") {
				return replies(http.StatusOK, map[string]any{"metadata": map[string]string{"resourceVersion": "5"}})
			}
			if watches++; watches == 1 {
				return nil, errors.New("reset")
			}
			reader, writer := io.Pipe()
			go func() {
				_, _ = io.WriteString(writer, `{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9"}}}`)
				<-r.Context().Done()
				_ = writer.CloseWithError(r.Context().Err())
			}()
			return &http.Response{StatusCode: http.StatusOK, Body: reader}, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); p.Run(ctx) }()
		time.Sleep(time.Minute)
		if _, err := p.Resolve(t.Context(), reference(t, pod(nil, "u-1")), func(error) {}); status.Code(err) != codes.NotFound {
			t.Errorf("%v after %d watches", err, watches)
		}
		cancel()
		<-done
	})
}

// The UID of a reference may be that of a pod which the watch has not brought.
func TestReferenceWaitsForTheSuccessorOfAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPods(t, nil)
		p.list(podOf("web", "u-1"))
		successor := reference(t, pod(named("web"), "u-2"))
		time.AfterFunc(time.Second, func() { observer{p}.See(event(kubeapi.Added, podOf("web", "u-2"))) })
		if _, err := p.Resolve(t.Context(), successor, func(error) {}); err != nil {
			t.Errorf("it came: %v", err)
		}
		observer{p}.Away(errors.New("cut"), time.Second)
		if _, err := p.Resolve(t.Context(), reference(t, pod(named("web"), "u-3")), func(error) {}); ca.ReasonFor(err) != ca.Unavailable {
			t.Errorf("while the watch has failed: %v", err)
		}
	})
}

// Nothing is known of a pod that the broker did not wait for.
func TestBrokerThatLeavesIsNotRefused(t *testing.T) {
	p := newPods(t, nil)
	p.list(podOf("web", "u-1"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Resolve(ctx, reference(t, pod(nil, "u-3")), func(error) {}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
