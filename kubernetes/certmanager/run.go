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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/certmanager/v1alpha1"
	"github.com/countersign-dev/countersign/kubernetes/signing"
)

const (
	// owner is the field manager of what is written, and the reporter of events.
	owner = "countersign-ra"
	// workers look at requests, each at one.
	workers = 32
	// soonest and latest bound the waits after a call of the API server that fails, and after an
	// issuer that was not ready.
	soonest, latest = 200 * time.Millisecond, 10 * time.Second
	// startAgain is the wait after a run that ended, such as that of a cluster without our CRDs.
	startAgain = 15 * time.Second
	// lookWithin bounds one look at a request or an issuer: an API server that does not answer must
	// not keep the workers. It is longer than hold.
	lookWithin = time.Minute
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
	notices := make(chan event.GenericEvent)
	desk := newDesk(ctx, d, notify(notices))
	defer desk.close()
	defer cancel()
	if err := follow(ctx, mgr, desk); err != nil {
		return err
	}
	h := &hooks{Door: d, desk: desk, live: mgr.GetAPIReader(), cached: mgr.GetCache(), troubles: troubles{all: map[string]trouble{}}}
	if err := h.combined(mgr, notices).SetupWithManager(ctx, mgr); err != nil {
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

// manager has no server, and no leader election: whoever calls Run leads.
func (d *Door) manager(config *rest.Config) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{cmapi.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	config = rest.CopyConfig(config)
	config.QPS = -1                                      // as many calls are under way as there are workers
	config.WarningHandlerWithContext = rest.NoWarnings{} // they would go to the process log
	again := true
	return ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Logger: logr.FromSlogHandler(quiet{d.cfg.Log.Handler()}), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: ctrlconfig.Controller{SkipNameValidation: &again, CacheSyncTimeout: syncWithin, ReconciliationTimeout: lookWithin},
		Cache:      cache.Options{ByObject: map[client.Object]cache.ByObject{&cmapi.CertificateRequest{}: {Transform: trim}}},
	})
}

// combined returns issuer-lib's controllers.
func (h *hooks) combined(mgr manager.Manager, notices <-chan event.GenericEvent) *controllers.CombinedController {
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
			if kind.Group == cmapi.SchemeGroupVersion.Group {
				b.WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: limiter()})
				b.WatchesRawSource(source.Channel(notices, &handler.EnqueueRequestForObject{}))
			}
			return nil
		},
	}
}

func limiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](soonest, latest)
}

// notify returns a function that has a request looked at again.
func notify(notices chan<- event.GenericEvent) func(context.Context, types.NamespacedName) {
	return func(ctx context.Context, name types.NamespacedName) {
		cr := &cmapi.CertificateRequest{}
		cr.Namespace, cr.Name = name.Namespace, name.Name
		select {
		case notices <- event.GenericEvent{Object: cr}:
		case <-ctx.Done():
		}
	}
}

// follow has the desk drop the requests that are gone or finished.
func follow(ctx context.Context, mgr manager.Manager, desk *desk) error {
	informer, err := mgr.GetCache().GetInformer(ctx, &cmapi.CertificateRequest{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(ends(desk))
	return err
}

func ends(desk *desk) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			old, known := before.(*cmapi.CertificateRequest)
			cr, ok := after.(*cmapi.CertificateRequest)
			if known && ok && old.UID != cr.UID { // made anew under the same name while the watch was broken
				desk.drop(old.UID, false)
			}
			if ok && finished(cr) {
				desk.drop(cr.UID, issued(cr))
			}
		},
		DeleteFunc: func(object any) {
			if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if cr, ok := object.(*cmapi.CertificateRequest); ok {
				desk.drop(cr.UID, issued(cr))
			}
		},
	}
}

// trim leaves of requests what tells whether there is anything to do, and of open ones of ours all
// that the certificate depends on. A cluster may have many of other issuers.
func trim(object any) (any, error) {
	cr, ok := object.(*cmapi.CertificateRequest)
	if !ok {
		return object, nil
	}
	cr.ManagedFields, cr.Labels, cr.Annotations, cr.OwnerReferences, cr.Finalizers = nil, nil, nil, nil, nil
	if cr.Spec.IssuerRef.Group != v1alpha1.GroupVersion.Group || finished(cr) {
		cr.Spec.Request, cr.Spec.Extra, cr.Spec.Groups = nil, nil, nil
		cr.Status.Certificate, cr.Status.CA = nil, nil
	}
	return cr, nil
}
