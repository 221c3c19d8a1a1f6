package certmanager

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	cmutil "github.com/cert-manager/cert-manager/pkg/api/util"
	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	issuerapi "github.com/cert-manager/issuer-lib/api/v1alpha1"
	"github.com/cert-manager/issuer-lib/controllers/signer"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// api is the API server's requests, and the informer that shows them at once.
type api struct {
	client.Client
	feed   toolscache.ResourceEventHandler
	before func(verb string, r types.NamespacedName) error // may wait
	after  func(verb string) error                         // the reply is lost

	mu      sync.Mutex
	all     map[types.NamespacedName]*request
	calls   map[string]int // under way, by namespace
	most    map[string]int
	total   int
	patches int
	version int
}

func newAPI() *api {
	return &api{all: map[types.NamespacedName]*request{}, calls: map[string]int{}, most: map[string]int{}}
}

// call counts a call of the API server. The function before may delay it.
func (a *api) call(ctx context.Context, verb string, key types.NamespacedName, do func() error) error {
	a.mu.Lock()
	a.calls[key.Namespace]++
	a.most[key.Namespace] = max(a.most[key.Namespace], a.calls[key.Namespace])
	a.total = max(a.total, sum(a.calls))
	before, after := a.before, a.after
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.calls[key.Namespace]--
	}()
	if before != nil {
		if err := before(verb, key); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := do(); err != nil || after == nil {
		return err
	}
	return after(verb)
}

// peaks returns the most calls at once, of a namespace and of all.
func (a *api) peaks(namespace string) (one, all int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.most[namespace], a.total
}

func sum(all map[string]int) (n int) {
	for _, one := range all {
		n += one
	}
	return n
}

func (a *api) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return a.call(ctx, "get", key, func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		found := a.all[key]
		if found == nil {
			return notFound(key)
		}
		found.DeepCopyInto(into.(*request))
		return nil
	})
}

func notFound(key client.ObjectKey) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "certificaterequests"}, key.Name)
}

func (a *api) Status() client.SubResourceWriter { return apiStatus{of: a} }

type apiStatus struct {
	client.SubResourceWriter
	of *api
}

func (s apiStatus) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	key, options := client.ObjectKeyFromObject(object), client.SubResourcePatchOptions{}
	options.ApplyOptions(opts)
	return s.of.call(ctx, "patch", key, func() error {
		s.of.mu.Lock()
		s.of.patches++
		r := s.of.all[key]
		s.of.mu.Unlock()
		if r == nil {
			return notFound(key)
		}
		if len(options.DryRun) > 0 {
			return nil
		}
		next := r.DeepCopy()
		if f, is := patch.(fenced); is {
			if f.version != r.ResourceVersion {
				return apierrors.NewConflict(cmapi.Resource("certificaterequests"), key.Name, errors.New("changed"))
			}
			patch = f.Patch
		}
		if patch.(status)(next); !equality.Semantic.DeepEqual(r, next) {
			s.of.put(next)
		}
		return nil
	})
}

// status is a patch of a request's status.
type status func(r *request)

func (status) Type() types.PatchType              { return types.ApplyPatchType }
func (status) Data(client.Object) ([]byte, error) { return nil, nil }

// put adds a request, or replaces the one of its name.
func (a *api) put(r *request) {
	a.mu.Lock()
	key := nameOf(r)
	a.version++
	r.ResourceVersion = strconv.Itoa(a.version)
	old, feed := a.all[key], a.feed
	a.all[key] = r
	a.mu.Unlock()
	if old == nil {
		feed.OnAdd(trimmed(r), false)
	} else {
		feed.OnUpdate(trimmed(old), trimmed(r))
	}
}

// follow replaces the informer's handler.
func (a *api) follow(feed toolscache.ResourceEventHandler) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.feed = feed
}

func (a *api) remove(r *request) {
	a.mu.Lock()
	delete(a.all, nameOf(r))
	a.mu.Unlock()
	a.feed.OnDelete(trimmed(r))
}

// set changes what is called before each call.
func (a *api) set(before func(string, types.NamespacedName) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.before = before
}

// ready returns the condition Ready of a request: its reason and message.
func (a *api) ready(r *request) (reason, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.all[nameOf(r)]; now != nil {
		if c := cmutil.GetCertificateRequestCondition(now, cmapi.CertificateRequestConditionReady); c != nil {
			return c.Reason, c.Message
		}
	}
	return "", ""
}

func setReady(reason, message string, chain []byte) status {
	return func(r *request) {
		is := map[bool]cmmeta.ConditionStatus{true: cmmeta.ConditionTrue, false: cmmeta.ConditionFalse}[chain != nil]
		cmutil.SetCertificateRequestCondition(r, cmapi.CertificateRequestConditionReady, is, reason, message)
		r.Status.Certificate = chain
	}
}

// issuerLib does what issuer-lib's RequestController does with a request, in the same order
// (controllers/request_controller.go). The tests in folder real run the original.
func (h *house) issuerLib(c client.Client) func(context.Context, reconcile.Request) (reconcile.Result, error) {
	return func(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
		r := &request{}
		if err := c.Get(ctx, req.NamespacedName, r); err != nil {
			return result, client.IgnoreNotFound(err)
		}
		object := signer.CertificateRequestObjectFromCertificateRequest(r)
		if !cmutil.CertificateRequestIsApproved(r) || finished(r) {
			return result, nil
		}
		if ignored, err := h.ignore(ctx, object, schema.GroupVersionKind{}, types.NamespacedName{}); ignored || err != nil {
			return result, err
		}
		patch, result, err := h.statusOf(ctx, r, object)
		if failed := c.Status().Patch(ctx, r, patch); client.IgnoreNotFound(failed) != nil {
			return reconcile.Result{}, errors.Join(failed, err)
		}
		return result, err
	}
}

func (h *house) statusOf(ctx context.Context, r *request, object signer.CertificateRequestObject) (status, reconcile.Result, error) {
	if cmutil.GetCertificateRequestCondition(r, cmapi.CertificateRequestConditionReady) == nil {
		return setReady("Initializing", "", nil), reconcile.Result{}, nil
	}
	h.mu.Lock()
	issuer := h.issuer
	h.mu.Unlock()
	if issuer == nil {
		return setReady("Pending", "Waiting for issuer to become ready", nil), reconcile.Result{}, nil
	}
	bundle, err := h.sign(ctx, object, issuer)
	var pending signer.PendingError
	switch {
	case err == nil:
		return setReady("Issued", "", bundle.ChainPEM), reconcile.Result{}, nil
	case errors.As(err, &pending):
		return setReady("Pending", err.Error(), nil), reconcile.Result{RequeueAfter: max(pending.RequeueAfter, time.Second)}, nil
	case errors.As(err, &signer.IssuerError{}):
		return setReady("Pending", "Waiting for issuer to become ready", nil), reconcile.Result{}, nil
	}
	return setReady("Failed", err.Error(), nil), reconcile.Result{}, reconcile.TerminalError(err)
}

func (h *house) setIssuer(i issuerapi.Issuer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.issuer = i
}

func requestOf(r *request) reconcile.Request { return reconcile.Request{NamespacedName: nameOf(r)} }
