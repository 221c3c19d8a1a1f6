package guard

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The expressions that are understood, without spaces and with single quotes: who creates a
// request is its node, for all signers or for those named.
var (
	byNode = regexp.MustCompile(`^(?:object\.spec\.signerName!='([^']+)'\|\||!\(object\.spec\.signerNamein\[` + literals + `\]\)\|\|)?` +
		`\(?(?:request\.userInfo\.username==\(?'system:node:'\+object\.spec\.nodeName\)?|\(?'system:node:'\+object\.spec\.nodeName\)?==request\.userInfo\.username)\)?$`)
	forSigners = regexp.MustCompile(`^object\.spec\.signerName(?:=='([^']+)'|in\[` + literals + `\])$`)
)

// literals are the elements of a list: strings without escapes, and nothing else, such as a comment.
const literals = `('[^'\\]+'(?:,'[^'\\]+')*)`

// covers returns why a policy does not keep others than nodes from creating a signer's
// PodCertificateRequests, or nil. What it does not understand may do so all the same.
func covers(policy *admissionv1.ValidatingAdmissionPolicy, signer string) error {
	spec := policy.Spec
	if spec.FailurePolicy != nil && *spec.FailurePolicy != admissionv1.Fail {
		return fmt.Errorf("has failurePolicy %.32q: use Fail", *spec.FailurePolicy)
	}
	if spec.ParamKind != nil {
		return errors.New("has parameters, which are not understood here")
	}
	if err := matchesAll(spec.MatchConstraints, true); err != nil {
		return err
	}
	for _, condition := range spec.MatchConditions {
		if !names(forSigners, condition.Expression, signer) {
			return fmt.Errorf("has the match condition %.64q, which does not let in the signer %.64q as far as is understood here", condition.Expression, signer)
		}
	}
	for _, validation := range spec.Validations {
		if names(byNode, validation.Expression, signer) {
			return nil
		}
	}
	return fmt.Errorf("has no validation for the signer %.64q that is understood here: use request.userInfo.username == 'system:node:' + object.spec.nodeName", signer)
}

// binds returns why a binding has the policy not enforced everywhere, or nil.
func binds(policy *admissionv1.ValidatingAdmissionPolicy, binding *admissionv1.ValidatingAdmissionPolicyBinding) error {
	spec := binding.Spec
	switch {
	case spec.PolicyName != policy.Name:
		return fmt.Errorf("binds the policy %.64q: use %q", spec.PolicyName, policy.Name)
	case !slices.Contains(spec.ValidationActions, admissionv1.Deny):
		return fmt.Errorf("has the validationActions %q: use Deny", spec.ValidationActions)
	case spec.ParamRef != nil:
		return errors.New("has parameters, which are not understood here")
	case spec.MatchResources == nil:
		return nil
	}
	return matchesAll(spec.MatchResources, false)
}

// matchesAll returns why not all creations of PodCertificateRequests match, or nil. A binding
// without rules matches all that its policy does.
func matchesAll(match *admissionv1.MatchResources, needRules bool) error {
	switch {
	case match == nil:
		return errors.New("has no matchConstraints")
	case selects(match.NamespaceSelector) || selects(match.ObjectSelector):
		return errors.New("has a selector, so it does not cover all requests")
	case len(match.ExcludeResourceRules) > 0:
		return errors.New("has excludeResourceRules, so it may not cover all requests")
	case len(match.ResourceRules) == 0 && !needRules:
		return nil
	}
	exact := match.MatchPolicy != nil && *match.MatchPolicy == admissionv1.Exact
	for _, rule := range match.ResourceRules {
		if len(rule.ResourceNames) == 0 && creates(rule.RuleWithOperations, exact) {
			return nil
		}
	}
	return errors.New("has no resource rule for CREATE of podcertificaterequests in all versions of certificates.k8s.io")
}

func selects(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}

// creates reports whether a rule matches all creations. A request may be made through an older
// version of the API, which an exact rule for v1 alone would not see.
func creates(rule admissionv1.RuleWithOperations, exact bool) bool {
	return has(rule.APIGroups, "certificates.k8s.io") && has(rule.Resources, "podcertificaterequests") &&
		(has(rule.APIVersions) || !exact && has(rule.APIVersions, "v1")) &&
		(slices.Contains(rule.Operations, admissionv1.Create) || slices.Contains(rule.Operations, admissionv1.OperationAll)) &&
		(rule.Scope == nil || *rule.Scope != admissionv1.ClusterScope)
}

func has(list []string, any ...string) bool {
	return slices.Contains(list, "*") || slices.ContainsFunc(any, func(one string) bool { return slices.Contains(list, one) })
}

// names reports whether an expression is one that is understood, and for the signer: it names it,
// or none.
func names(form *regexp.Regexp, expression, signer string) bool {
	found := form.FindStringSubmatch(compact(expression))
	if found == nil {
		return false
	}
	one, several := found[1], found[2]
	return one == "" && several == "" || one == signer || slices.Contains(strings.Split(several, ","), "'"+signer+"'")
}

// compact drops the spaces of an expression outside of its strings, and has all quotes single. A
// quote of the other kind within a string makes that string one that matches nothing.
func compact(expression string) string {
	var open rune
	return strings.Map(func(r rune) rune {
		quote := r == '\'' || r == '"'
		switch {
		case quote && open == 0:
			open = r
			return '\''
		case r == open:
			open = 0
			return '\''
		case quote:
			return unicode.ReplacementChar
		case open == 0 && unicode.IsSpace(r):
			return -1
		}
		return r
	}, expression)
}
