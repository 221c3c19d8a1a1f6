package certmanager

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	issuerapi "github.com/cert-manager/issuer-lib/api/v1alpha1"
	"github.com/cert-manager/issuer-lib/controllers"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/certmanager/v1alpha1"
	"github.com/countersign-dev/countersign/kubernetes/signing"
)

const (
	// owner is the field manager of what is written, and the reporter of events.
	owner = "countersign-ra"
	// soonest and latest bound the waits after a call for an issuer that fails.
	soonest, latest = 200 * time.Millisecond, 10 * time.Second
	// startAgain is the wait after a run that ended, such as that of a cluster without our CRDs.
	startAgain = 15 * time.Second
	// checkWithin bounds the check of an issuer and the update of its status.
	checkWithin = time.Minute
	// syncWithin bounds the first list of all requests.
	syncWithin = 2 * time.Minute
)

// Run works until ctx ends and all is quiet. Where cert-manager's API or ours is not installed, it
// looks again later. It may be called again then, as leadership comes and goes, but not twice at
// once.
func (d *Door) Run(ctx context.Context, config *rest.Config) {
	setLog.Do(func() { ctrl.SetLogger(logr.FromSlogHandler(quiet{d.cfg.Log.Handler()})) })
	defer d.is(errStarting)
	for ctx.Err() == nil {
		err := d.run(ctx, config)
		if ctx.Err() != nil {
			return
		}
		d.is(fmt.Errorf("the requests of cert-manager cannot be followed: %w", err))
		d.cfg.Log.Error("cannot follow the requests of cert-manager, trying again", "error", text.Clean(err.Error()))
		signing.Sleep(ctx, startAgain)
	}
}

// setLog is controller-runtime's log of the whole process, of which it complains if it has none.
var setLog sync.Once

// quiet leaves out what controllers say of each start and end.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && q.Handler.Enabled(ctx, level)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }
func (q quiet) WithGroup(name string) slog.Handler       { return quiet{q.Handler.WithGroup(name)} }

// run works until ctx ends or something fails.
func (d *Door) run(ctx context.Context, config *rest.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	mgr, err := d.manager(config)
	if err != nil {
		return err
	}
	if err := known(mgr); err != nil {
		return err
	}
	h := &hooks{Door: d, ctx: ctx, cached: mgr.GetCache(), writes: mgr.GetClient()}
	work := signing.NewWork(ctx, signing.MaxHandled, h.handle)
	defer work.Close()
	defer cancel()
	informer, err := mgr.GetCache().GetInformer(ctx, &cmapi.CertificateRequest{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(signing.Feed(work, open, (*cmapi.CertificateRequest).GetNamespace)); err != nil {
		return err
	}
	if err := h.combined(mgr, work).SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if mgr.GetCache().WaitForCacheSync(ctx) {
			d.is(nil)
		}
		return nil
	})); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// known returns an error if cert-manager's API or ours is not installed. controller-runtime would
// wait for it, and say so each ten seconds.
func known(mgr manager.Manager) error {
	for kind, version := range map[string]schema.GroupVersion{
		"CertificateRequest": cmapi.SchemeGroupVersion, "CountersignIssuer": v1alpha1.GroupVersion, "CountersignClusterIssuer": v1alpha1.GroupVersion,
	} {
		if _, err := mgr.GetRESTMapper().RESTMapping(version.WithKind(kind).GroupKind(), version.Version); err != nil {
			return err
		}
	}
	return nil
}

// manager returns a manager without servers and leader election: the caller of Run is the leader.
func (d *Door) manager(config *rest.Config) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{cmapi.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	config = rest.CopyConfig(config)
	config.QPS = -1                                      // the slots bound the calls under way
	config.WarningHandlerWithContext = rest.NoWarnings{} // they would go to the process log
	again := true
	return ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Logger: logr.FromSlogHandler(quiet{d.cfg.Log.Handler()}), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: ctrlconfig.Controller{SkipNameValidation: &again, CacheSyncTimeout: syncWithin, ReconciliationTimeout: checkWithin},
		Cache:      cache.Options{ByObject: map[client.Object]cache.ByObject{&cmapi.CertificateRequest{}: {Transform: trim}}},
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&cmapi.CertificateRequest{}}}},
		NewClient: func(config *rest.Config, options client.Options) (client.Client, error) {
			all, err := client.New(config, options)
			return fairClient{all, d, signing.NewSlots()}, err
		},
	})
}

// combined returns issuer-lib's controllers. The one for requests queues nothing: work has a request
// reconciled in its turn, and its waits have no bound but those of each call.
func (h *hooks) combined(mgr manager.Manager, work *signing.Work[*cmapi.CertificateRequest]) *controllers.CombinedController {
	forRequests := func(kind schema.GroupVersionKind) bool { return kind.Group == cmapi.SchemeGroupVersion.Group }
	return &controllers.CombinedController{
		IssuerTypes:        []issuerapi.Issuer{&v1alpha1.CountersignIssuer{}},
		ClusterIssuerTypes: []issuerapi.Issuer{&v1alpha1.CountersignClusterIssuer{}},
		FieldOwner:         owner, EventRecorder: mgr.GetEventRecorder(owner),
		Check: h.check, Sign: h.sign, IgnoreCertificateRequest: h.ignore,
		// There is no other way to give the roots to those who verify with a Secret's ca.crt.
		SetCAOnCertificateRequest:      true, //nolint:staticcheck // see above
		DisableKubernetesCSRController: true, // package csr signs those
		ControllerOptions:              controller.Options{RateLimiter: limiter()},
		PreSetupWithManager: func(_ context.Context, kind schema.GroupVersionKind, _ ctrl.Manager, b *builder.Builder) error {
			if forRequests(kind) {
				b.WithOptions(controller.Options{NewQueue: h.noQueue(work), ReconciliationTimeout: -1})
			}
			return nil
		},
		PostSetupWithManager: func(_ context.Context, kind schema.GroupVersionKind, _ ctrl.Manager, c controller.Controller) error {
			if forRequests(kind) {
				h.reconcile = c.Reconcile
			}
			return nil
		},
	}
}

// events is a queue that passes on what its controller's watches add, above all the requests of an
// issuer that has changed.
type events struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	add func(reconcile.Request)
}

func (e events) Add(r reconcile.Request) { e.add(r) }

// noQueue returns a queue that stays empty. A request whose issuer has changed is looked at again.
func (h *hooks) noQueue(work *signing.Work[*cmapi.CertificateRequest]) func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(_ string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		return events{workqueue.NewTypedRateLimitingQueue(limiter), func(r reconcile.Request) {
			var cr cmapi.CertificateRequest
			if h.cached.Get(h.ctx, r.NamespacedName, &cr) == nil {
				work.Again(cr.UID)
			}
		}}
	}
}

func limiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](soonest, latest)
}
