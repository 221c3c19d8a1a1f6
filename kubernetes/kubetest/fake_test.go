package kubetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

func configMap(namespace, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m"}, Data: map[string]string{"k": value}}
}

func TestFakeTellsWatchersWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := kubetest.NewFake()
		f.Put(configMap("shop", "1"))
		maps, ctx := f.Client().CoreV1().ConfigMaps("shop"), t.Context()
		list, err := maps.List(ctx, metav1.ListOptions{})
		must(t, err)
		f.Put(configMap("shop", "2"))
		f.Put(configMap("bank", "3"))
		w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		must(t, err)
		f.Remove("configmaps", "shop", "m")
		for _, want := range []watch.EventType{watch.Modified, watch.Deleted} {
			if e := <-w.ResultChan(); e.Type != want || e.Object.(*corev1.ConfigMap).Data["k"] != "2" {
				t.Errorf("%+v", e)
			}
		}
		f.Cut()
		if e, more := <-w.ResultChan(); more {
			t.Errorf("after the end: %+v", e)
		}
	})
}

func TestFakeRefusesOldVersionsAndFailsAsItIsSet(t *testing.T) {
	f := kubetest.NewFake()
	maps, ctx := f.Client().CoreV1().ConfigMaps("shop"), t.Context()
	first, err := maps.Create(ctx, configMap("shop", "1"), metav1.CreateOptions{})
	must(t, err)
	if _, err := maps.Create(ctx, configMap("shop", "1"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Error(err)
	}
	_, err = maps.Update(ctx, first, metav1.UpdateOptions{})
	must(t, err)
	if _, err := maps.Update(ctx, first, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Error(err)
	}
	away := errors.New("away")
	for _, want := range []error{apierrors.NewForbidden(corev1.Resource("configmaps"), "m", away), away, nil} {
		f.Fail(want)
		if _, err := maps.Get(ctx, "m", metav1.GetOptions{}); apierrors.IsForbidden(err) != apierrors.IsForbidden(want) || (err == nil) != (want == nil) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	f.Hang()
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := maps.Get(ctx, "m", metav1.GetOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

var must = fatal.If
