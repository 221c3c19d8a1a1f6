package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/internal/text"
)

// DefaultPolicy is the name of the ValidatingAdmissionPolicy, and of its binding, that our
// manifests apply.
const DefaultPolicy = "countersign-ra-pod-certificates"

// remind is how often a missing policy is logged.
const remind = time.Hour

// AdmissionConfig configures an [Admission].
type AdmissionConfig struct {
	// Cluster is the name of the cluster in messages.
	Cluster string
	// Client reaches its API server. It needs get on the validatingadmissionpolicies and
	// validatingadmissionpolicybindings of that name. Required.
	Client kubernetes.Interface
	// Name is of both objects. Default: [DefaultPolicy].
	Name string
	// Signers are the signer names whose PodCertificateRequests must be covered.
	Signers []string
	// Remedy is the command that applies the policy, for the log. Default: kubectl apply -k
	// deploy/kustomize/ra.
	Remedy string
	// Log is for operators. Default: [slog.Default].
	Log *slog.Logger
}

// Protection is whether nodes alone can create PodCertificateRequests.
type Protection struct {
	// State is "protected", "unprotected", or "unknown" before the API server has answered.
	State string
	// Why says what is missing, or why it is unknown; empty if protected.
	Why string
	// Checked is when the API server last answered.
	Checked time.Time
}

// The states of a [Protection].
const (
	Protected   = "protected"
	Unprotected = "unprotected"
	Unknown     = "unknown"
)

// Admission looks whether a cluster's PodCertificateRequests are protected. Our own account cannot
// create any, not even for trial, so it reads the policy and its binding, and accepts what it
// understands: see [covers]. Another policy, or a webhook, may protect as well; that it cannot
// tell. It is safe for concurrent use.
type Admission struct {
	cfg AdmissionConfig

	mu     sync.Mutex
	last   Protection
	logged time.Time
}

// NewAdmission checks the settings. It asks nothing.
func NewAdmission(cfg AdmissionConfig) (*Admission, error) {
	if cfg.Client == nil {
		return nil, errors.New("guard: AdmissionConfig.Client is required")
	}
	cfg.Name = cmp.Or(cfg.Name, DefaultPolicy)
	cfg.Remedy = cmp.Or(cfg.Remedy, "kubectl apply -k deploy/kustomize/ra")
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Admission{cfg: cfg, last: Protection{State: Unknown, Why: "the API server was not asked yet"}}, nil
}

// Run looks until ctx ends: each 5 minutes, and sooner while the API server does not answer. It
// warns at once and then hourly while the policy is missing.
func (a *Admission) Run(ctx context.Context) { repeat(ctx, a.look) }

// Protection returns what was found last. While the API server is away, that is what it said
// before.
func (a *Admission) Protection() Protection {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

func (a *Admission) look(ctx context.Context) error {
	missing, err := a.missing(ctx)
	if ctx.Err() != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.last.State
	switch {
	case err != nil && before == Unknown:
		a.last.Why = text.Clean(err.Error())
	case err == nil && missing == nil:
		a.last = Protection{State: Protected, Checked: time.Now()}
	case err == nil:
		a.last = Protection{State: Unprotected, Why: text.Clean(missing.Error()), Checked: time.Now()}
	}
	a.tell(before, err)
	return err
}

// tell logs what an operator must know. The lock is held.
func (a *Admission) tell(before string, err error) {
	log := a.cfg.Log.With("cluster", a.cfg.Cluster)
	now := time.Now()
	changed := a.last.State != before
	if !changed && (a.last.State == Protected || !a.logged.IsZero() && now.Sub(a.logged) < remind) {
		return
	}
	a.logged = now
	switch a.last.State {
	case Protected:
		log.Info("only nodes can create PodCertificateRequests for our signers", "policy", a.cfg.Name)
	case Unprotected:
		log.Warn("anyone who can create PodCertificateRequests can obtain any pod's certificate: apply the admission policy",
			"missing", a.last.Why, "command", a.cfg.Remedy)
	default:
		log.Warn("cannot tell whether PodCertificateRequests are protected", "error", text.Clean(err.Error()))
	}
}

// missing returns what keeps the policy from protecting each signer, or nil. An err means that
// nobody knows.
func (a *Admission) missing(ctx context.Context) (missing, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	policy, err := a.cfg.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, a.cfg.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no ValidatingAdmissionPolicy %q", a.cfg.Name), nil
	}
	if err != nil {
		return nil, err
	}
	binding, err := a.cfg.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, a.cfg.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no ValidatingAdmissionPolicyBinding %q", a.cfg.Name), nil
	}
	if err != nil {
		return nil, err
	}
	if missing := binds(policy, binding); missing != nil {
		return fmt.Errorf("the ValidatingAdmissionPolicyBinding %q %w", a.cfg.Name, missing), nil
	}
	for _, signer := range a.cfg.Signers {
		if missing := covers(policy, signer); missing != nil {
			return fmt.Errorf("the ValidatingAdmissionPolicy %q %w", a.cfg.Name, missing), nil
		}
	}
	return nil, nil
}
