//go:build linux

package kubetest

import (
	"context"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Namespace creates namespaces that do not exist.
func (c *Cluster) Namespace(names ...string) {
	c.t.Helper()
	for _, name := range names {
		_, err := c.admin.CoreV1().Namespaces().Create(context.Background(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		c.made(err)
	}
}

func (c *Cluster) made(err error) {
	c.t.Helper()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		c.t.Fatal(err)
	}
}

// ServiceAccount creates an account and its namespace if they do not exist. It returns
// the account's user name, system:serviceaccount:NAMESPACE:NAME.
func (c *Cluster) ServiceAccount(namespace, name string) string {
	c.t.Helper()
	c.Namespace(namespace)
	_, err := c.admin.CoreV1().ServiceAccounts(namespace).Create(context.Background(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	c.made(err)
	return "system:serviceaccount:" + namespace + ":" + name
}

// Token returns a token of an existing account, valid for an hour and these audiences.
// Without audiences it is for the API server itself.
func (c *Cluster) Token(namespace, account string, audiences ...string) string {
	c.t.Helper()
	if len(audiences) == 0 {
		audiences = []string{Issuer}
	}
	seconds := int64(time.Hour / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds}}
	reply, err := c.admin.CoreV1().ServiceAccounts(namespace).CreateToken(context.Background(), account, request, metav1.CreateOptions{})
	must(c.t, err)
	return reply.Status.Token
}

// Account returns a user with the token of an existing account.
func (c *Cluster) Account(namespace, name string) *clientcmdapi.AuthInfo {
	c.t.Helper()
	return &clientcmdapi.AuthInfo{Token: c.Token(namespace, name)}
}

// Bind grants a user rights in a namespace, or in all if it is empty. It returns when
// the server grants them, and revoke when it no longer does: nothing else may grant the
// first rule meanwhile.
func (c *Cluster) Bind(namespace, user string, rules ...rbacv1.PolicyRule) (revoke func()) {
	c.t.Helper()
	var unbind func()
	if namespace == "" {
		unbind = c.bindEverywhere(user, rules)
	} else {
		unbind = c.bindIn(namespace, user, rules)
	}
	c.awaitRights(namespace, user, rules, true)
	return func() {
		c.t.Helper()
		unbind()
		c.awaitRights(namespace, user, rules[:1], false)
	}
}

func (c *Cluster) bindEverywhere(user string, rules []rbacv1.PolicyRule) (unbind func()) {
	c.t.Helper()
	rbac := c.admin.RbacV1()
	role, err := rbac.ClusterRoles().Create(context.Background(), &rbacv1.ClusterRole{ObjectMeta: generated, Rules: rules}, metav1.CreateOptions{})
	must(c.t, err)
	binding, err := rbac.ClusterRoleBindings().Create(context.Background(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: generated, Subjects: subjects(user), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}, metav1.CreateOptions{})
	must(c.t, err)
	return func() {
		must(c.t, rbac.ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{}))
	}
}

func (c *Cluster) bindIn(namespace, user string, rules []rbacv1.PolicyRule) (unbind func()) {
	c.t.Helper()
	rbac := c.admin.RbacV1()
	role, err := rbac.Roles(namespace).Create(context.Background(), &rbacv1.Role{ObjectMeta: generated, Rules: rules}, metav1.CreateOptions{})
	must(c.t, err)
	binding, err := rbac.RoleBindings(namespace).Create(context.Background(), &rbacv1.RoleBinding{
		ObjectMeta: generated, Subjects: subjects(user), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	}, metav1.CreateOptions{})
	must(c.t, err)
	return func() {
		must(c.t, rbac.RoleBindings(namespace).Delete(context.Background(), binding.Name, metav1.DeleteOptions{}))
	}
}

var generated = metav1.ObjectMeta{GenerateName: "kubetest-"}

// An account is also a user of that name.
func subjects(user string) []rbacv1.Subject {
	return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
}

func (c *Cluster) awaitRights(namespace, user string, rules []rbacv1.PolicyRule, want bool) {
	c.t.Helper()
	if c.opts.AllowAll {
		return
	}
	for _, rule := range rules {
		asked := authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: attributes(namespace, rule)}
		c.await("the rights of "+user, func(context.Context) (bool, error) { return c.Allowed(asked) == want, nil })
	}
}

// Allowed returns the server's answer to a SubjectAccessReview.
func (c *Cluster) Allowed(asked authorizationv1.SubjectAccessReviewSpec) bool {
	c.t.Helper()
	reply, err := c.admin.AuthorizationV1().SubjectAccessReviews().Create(context.Background(),
		&authorizationv1.SubjectAccessReview{Spec: asked}, metav1.CreateOptions{})
	must(c.t, err)
	return reply.Status.Allowed
}

// attributes returns a request for the first action a rule allows.
func attributes(namespace string, rule rbacv1.PolicyRule) *authorizationv1.ResourceAttributes {
	asked := &authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0],
	}
	if len(rule.ResourceNames) > 0 {
		asked.Name = slices.Min(rule.ResourceNames)
	}
	return asked
}
