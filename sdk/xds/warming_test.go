package xds

import (
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// another has a client that has all of clusters x and y and a route, and is sent one more
// cluster, with its endpoints, when the route changes, too.
func (a *aggregate) another() (c *client, clusters, endpoints *discovery.DiscoveryResponse) {
	c = a.started()
	endpoints = c.last
	a.routes.set("r", "1")
	c.subscribe("routes", "r")
	c.getsOf("routes", "r=1")
	c.ack("r")
	a.endpoints.set("z", "1")
	a.cluster("z", "1")
	a.clusters.list("x", "y", "z")
	c.getsOf("clusters", "x=1", "y=1", "z=1")
	a.routes.set("r", "2")
	return c, c.last, endpoints
}

// Envoy asks for the endpoints first, then acknowledges the clusters.
func TestRouteDoesNotOvertakeEndpointsOfNewCluster(t *testing.T) {
	withAggregate(t, func(_ *testing.T, a *aggregate) {
		c, clusters, endpoints := a.another()
		c.last = endpoints
		c.ack("x", "y", "z")
		c.getsOf("endpoints", "z=1")
		c.silentFor(time.Second)
		c.last = clusters
		c.ack()
		c.getsOf("routes", "r=2")
	})
}

func TestRouteIsSentWhenClustersAreRefused(t *testing.T) {
	withAggregate(t, func(_ *testing.T, a *aggregate) {
		c, _, _ := a.another()
		c.silentFor(time.Second)
		c.nack("no such filter")
		c.getsOf("routes", "r=2")
	})
}

func TestRouteWaitForSilentClientIsBounded(t *testing.T) {
	withAggregate(t, func(_ *testing.T, a *aggregate) {
		c, _, _ := a.another()
		c.silentFor(3 * time.Second)
		a.cluster("z", "2") // begins no new wait
		c.getsOf("clusters", "x=1", "y=1", "z=2")
		c.silentFor(2*time.Second - time.Nanosecond)
		time.Sleep(time.Nanosecond)
		c.getsOf("routes", "r=2")
	})
}

func TestRouteDoesNotWaitForClusterWithoutEndpoints(t *testing.T) {
	withAggregate(t, func(_ *testing.T, a *aggregate) {
		c := a.started()
		a.routes.set("r", "1")
		a.clusters.put(&Resource{Name: "x", Version: "2"})
		c.getsOf("clusters", "x=2", "y=1")
		c.subscribe("routes", "r")
		c.getsOf("routes", "r=1")
	})
}
