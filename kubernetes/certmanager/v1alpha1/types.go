// Package v1alpha1 has the Kubernetes API of Countersign's issuers for cert-manager: a
// [CountersignIssuer] for the requests of its own namespace, and a [CountersignClusterIssuer] for
// those of all. Both name an authority of countersign-ra. Call [AddToScheme] to use them with a
// client.
package v1alpha1

import (
	issuerapi "github.com/cert-manager/issuer-lib/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of the API.
var GroupVersion = schema.GroupVersion{Group: "countersign.dev", Version: "v1alpha1"}

// AddToScheme makes the types known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &CountersignIssuer{}, &CountersignIssuerList{}, &CountersignClusterIssuer{}, &CountersignClusterIssuerList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// IssuerSpec says who signs.
type IssuerSpec struct {
	// Authority is the name of an authority of countersign-ra whose configuration lets this issuer
	// use it. Required.
	Authority string `json:"authority"`
}

// CountersignIssuer is an issuer for the CertificateRequests of its own namespace.
type CountersignIssuer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec IssuerSpec `json:"spec"`
	// Status has the condition Ready, with what is wrong.
	Status issuerapi.IssuerStatus `json:"status,omitzero"`
}

// CountersignIssuerList is a list of them.
type CountersignIssuerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CountersignIssuer `json:"items"`
}

// CountersignClusterIssuer is an issuer for the CertificateRequests of all namespaces.
type CountersignClusterIssuer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec IssuerSpec `json:"spec"`
	// Status has the condition Ready, with what is wrong.
	Status issuerapi.IssuerStatus `json:"status,omitzero"`
}

// CountersignClusterIssuerList is a list of them.
type CountersignClusterIssuerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CountersignClusterIssuer `json:"items"`
}

// GetConditions returns the conditions of the status.
func (i *CountersignIssuer) GetConditions() []metav1.Condition { return i.Status.Conditions }

// GetIssuerTypeIdentifier returns the resource and group.
func (*CountersignIssuer) GetIssuerTypeIdentifier() string {
	return "countersignissuers." + GroupVersion.Group
}

// GetConditions returns the conditions of the status.
func (i *CountersignClusterIssuer) GetConditions() []metav1.Condition { return i.Status.Conditions }

// GetIssuerTypeIdentifier returns the resource and group.
func (*CountersignClusterIssuer) GetIssuerTypeIdentifier() string {
	return "countersignclusterissuers." + GroupVersion.Group
}
