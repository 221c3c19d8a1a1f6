package guard_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/countersign-dev/countersign/kubernetes/signing/guard"
)

const byNode = `request.userInfo.username == "system:node:" + object.spec.nodeName`

func policy() *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: guard.DefaultPolicy},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{"certificates.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"podcertificaterequests"}},
			}}}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "ours", Expression: "object.spec.signerName in ['example.com/a', 'example.com/b']"}},
			Validations:     []admissionv1.Validation{{Expression: byNode}},
		},
	}
}

func binding() *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: guard.DefaultPolicy},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: guard.DefaultPolicy, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
}

type (
	policySpec  = admissionv1.ValidatingAdmissionPolicySpec
	bindingSpec = admissionv1.ValidatingAdmissionPolicyBindingSpec
)

func newAdmission(t *testing.T, c *cluster) *guard.Admission {
	t.Helper()
	a, err := guard.NewAdmission(guard.AdmissionConfig{Cluster: "home", Client: c.Client(), Signers: []string{"example.com/a", "example.com/b"}, Log: c.log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func validation(expression string) func(*policySpec, *bindingSpec) {
	return func(p *policySpec, _ *bindingSpec) { p.Validations[0].Expression = expression }
}

func condition(expression string) func(*policySpec, *bindingSpec) {
	return func(p *policySpec, _ *bindingSpec) { p.MatchConditions[0].Expression = expression }
}

func rule(change func(*admissionv1.NamedRuleWithOperations)) func(*policySpec, *bindingSpec) {
	return func(p *policySpec, _ *bindingSpec) { change(&p.MatchConstraints.ResourceRules[0]) }
}

func TestWhatProtectsPodCertificateRequests(t *testing.T) {
	ignore, exact := admissionv1.Ignore, admissionv1.Exact
	for name, test := range map[string]struct {
		change func(*policySpec, *bindingSpec)
		why    string // empty if it protects
	}{
		"as shipped":                {func(*policySpec, *bindingSpec) {}, ""},
		"for all signers":           {func(p *policySpec, _ *bindingSpec) { p.MatchConditions = nil }, ""},
		"the other way round":       {validation(`('system:node:' + object.spec.nodeName) == request.userInfo.username`), ""},
		"signers in the validation": {validation(`!(object.spec.signerName in ["example.com/a","example.com/b"]) || ` + byNode), ""},
		"any version, exactly": {func(p *policySpec, b *bindingSpec) {
			rule(func(r *admissionv1.NamedRuleWithOperations) { r.APIVersions = []string{"*"} })(p, b)
			p.MatchConstraints.MatchPolicy = &exact
		}, ""},
		"bound to all": {func(_ *policySpec, b *bindingSpec) { b.MatchResources = &admissionv1.MatchResources{} }, ""},

		"failure is ignored": {func(p *policySpec, _ *bindingSpec) { p.FailurePolicy = &ignore }, "failurePolicy"},
		"parameters":         {func(p *policySpec, _ *bindingSpec) { p.ParamKind = &admissionv1.ParamKind{} }, "parameters"},
		"no constraints":     {func(p *policySpec, _ *bindingSpec) { p.MatchConstraints = nil }, "no matchConstraints"},
		"namespaces chosen": {func(p *policySpec, _ *bindingSpec) {
			p.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, "selector"},
		"objects chosen": {func(p *policySpec, _ *bindingSpec) {
			p.MatchConstraints.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, "selector"},
		"excludes": {func(p *policySpec, _ *bindingSpec) {
			p.MatchConstraints.ExcludeResourceRules = p.MatchConstraints.ResourceRules
		}, "exclude"},
		"updates only": {rule(func(r *admissionv1.NamedRuleWithOperations) {
			r.Operations = []admissionv1.OperationType{admissionv1.Update}
		}), "CREATE"},
		"other resource":            {rule(func(r *admissionv1.NamedRuleWithOperations) { r.Resources = []string{"certificatesigningrequests"} }), "podcertificaterequests"},
		"names":                     {rule(func(r *admissionv1.NamedRuleWithOperations) { r.ResourceNames = []string{"a"} }), "podcertificaterequests"},
		"v1 exactly":                {func(p *policySpec, _ *bindingSpec) { p.MatchConstraints.MatchPolicy = &exact }, "all versions"},
		"one signer left out":       {condition("object.spec.signerName == 'example.com/a'"), "example.com/b"},
		"condition on the user":     {condition("request.userInfo.username != 'bob'"), "not let in"},
		"validation for one":        {validation("object.spec.signerName != 'example.com/a' || " + byNode), "example.com/b"},
		"validation with a way out": {validation(byNode + " || request.userInfo.username == 'bob'"), "no validation"},
		"validation of any node":    {validation("request.userInfo.username.startsWith('system:node:')"), "no validation"},
		"space in the user":         {validation(`request.userInfo.username == "system:node: " + object.spec.nodeName`), "no validation"},
		"signer within a string":    {condition(`object.spec.signerName in ["a,'example.com/a','example.com/b',b"]`), "not let in"},
		"one string in two quotes":  {condition(`object.spec.signerName in ["example.com/a','example.com/b"]`), "not let in"},
		"signers in a comment":      {condition("object.spec.signerName in ['a', // 'b','example.com/a','example.com/b',\n 'c']"), "not let in"},
		"escaped quotes":            {condition(`object.spec.signerName in ['a\',\'example.com/a\',\'example.com/b']`), "not let in"},
		"string in the validation":  {validation(`!(object.spec.signerName in ["a,'example.com/a','example.com/b',b"]) || ` + byNode), "no validation"},
		"no validation":             {func(p *policySpec, _ *bindingSpec) { p.Validations = nil }, "no validation"},
		"warns only": {func(_ *policySpec, b *bindingSpec) {
			b.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
		}, "use Deny"},
		"binds another":         {func(_ *policySpec, b *bindingSpec) { b.PolicyName = "other" }, "binds the policy"},
		"bound with parameters": {func(_ *policySpec, b *bindingSpec) { b.ParamRef = &admissionv1.ParamRef{} }, "parameters"},
		"bound to some": {func(_ *policySpec, b *bindingSpec) {
			b.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		}, "selector"},
		"bound to other resources": {func(_ *policySpec, b *bindingSpec) {
			b.MatchResources = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{}}}
		}, "resource rule"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, b := policy(), binding()
				test.change(&p.Spec, &b.Spec)
				c := newCluster(p, b)
				a := newAdmission(t, c)
				run(t, a.Run)
				got := a.Protection()
				if (got.State == guard.Protected) != (test.why == "") || !strings.Contains(got.Why, test.why) {
					t.Errorf("%+v, want %q", got, test.why)
				}
			})
		})
	}
}

func TestMissingPolicyIsLoggedHourly(t *testing.T) {
	for name, objects := range map[string][]runtime.Object{"nothing": nil, "no binding": {policy()}, "no policy": {binding()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(objects...)
				a := newAdmission(t, c)
				run(t, a.Run)
				if got := a.Protection(); got.State != guard.Unprotected || !strings.Contains(got.Why, "there is no ValidatingAdmissionPolicy") {
					t.Errorf("%+v", got)
				}
				pass(5*time.Hour - time.Minute)
				if n := strings.Count(c.log.String(), "kubectl apply -k deploy/kustomize/ra"); n != 5 {
					t.Errorf("logged %d times in 5 hours:\n%s", n, &c.log)
				}
			})
		})
	}
}

func TestPolicyThatComesAndGoesIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.Fail(errAway)
		a := newAdmission(t, c)
		run(t, a.Run)
		pass(30 * time.Minute)
		if got := a.Protection(); got.State != guard.Unknown || !strings.Contains(got.Why, "refused") {
			t.Errorf("away from the start: %+v", got)
		}
		c.Fail(nil)
		c.Put(policy())
		c.Put(binding())
		pass(6 * time.Minute)
		if got := a.Protection(); got.State != guard.Protected || got.Checked.IsZero() {
			t.Errorf("%+v", got)
		}
		c.Fail(errAway)
		pass(time.Hour)
		if got := a.Protection(); got.State != guard.Protected {
			t.Errorf("away: %+v", got)
		}
		c.Fail(nil)
		c.Remove("validatingadmissionpolicybindings", "", guard.DefaultPolicy)
		pass(6 * time.Minute)
		if got := a.Protection(); got.State != guard.Unprotected {
			t.Errorf("deleted: %+v", got)
		}
		if n := strings.Count(c.log.String(), "level=WARN"); n != 2 {
			t.Errorf("%d warnings:\n%s", n, &c.log)
		}
	})
}
