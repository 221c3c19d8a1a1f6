package v1alpha1

import "k8s.io/apimachinery/pkg/runtime"

// DeepCopyObject returns a copy that shares nothing.
func (i *CountersignIssuer) DeepCopyObject() runtime.Object {
	out := i.deepCopy()
	return &out
}

func (i *CountersignIssuer) deepCopy() CountersignIssuer {
	out := *i
	meta := i.ObjectMeta
	meta.DeepCopyInto(&out.ObjectMeta)
	i.Status.DeepCopyInto(&out.Status)
	return out
}

// DeepCopyObject returns a copy that shares nothing.
func (l *CountersignIssuerList) DeepCopyObject() runtime.Object {
	out := *l
	meta := l.ListMeta
	meta.DeepCopyInto(&out.ListMeta)
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, l.Items[i].deepCopy())
	}
	return &out
}

// DeepCopyObject returns a copy that shares nothing.
func (i *CountersignClusterIssuer) DeepCopyObject() runtime.Object {
	out := i.deepCopy()
	return &out
}

func (i *CountersignClusterIssuer) deepCopy() CountersignClusterIssuer {
	out := *i
	meta := i.ObjectMeta
	meta.DeepCopyInto(&out.ObjectMeta)
	i.Status.DeepCopyInto(&out.Status)
	return out
}

// DeepCopyObject returns a copy that shares nothing.
func (l *CountersignClusterIssuerList) DeepCopyObject() runtime.Object {
	out := *l
	meta := l.ListMeta
	meta.DeepCopyInto(&out.ListMeta)
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, l.Items[i].deepCopy())
	}
	return &out
}
