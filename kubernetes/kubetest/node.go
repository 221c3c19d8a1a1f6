//go:build linux

package kubetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// Node is a hollow node: a kubelet with its real code over a container runtime that only
// pretends. The files of volumes are real, containers are not.
type Node struct {
	Name string
	UID  types.UID

	cluster *Cluster
	log     string
	kubelet *proctest.Process
}

// HollowNode starts a node and returns when it is ready. A pod must name its node, as
// there is no scheduler. It requires [Options].Nodes.
func (c *Cluster) HollowNode(name string) *Node {
	c.t.Helper()
	return c.HollowNodes(name)[0]
}

// HollowNodes starts several nodes at once, each in a process of its own.
func (c *Cluster) HollowNodes(names ...string) []*Node {
	c.t.Helper()
	if !c.opts.Nodes {
		c.t.Fatal("HollowNodes: Options.Nodes is not set")
	}
	nodes := make([]*Node, len(names))
	for i, name := range names {
		nodes[i] = c.startNode(name)
	}
	for _, n := range nodes {
		n.awaitReady()
	}
	return nodes
}

func (c *Cluster) startNode(name string) *Node {
	c.t.Helper()
	n := &Node{Name: name, cluster: c, log: c.log("kubelet-" + name)}
	c.t.Cleanup(n.remove)
	kubeconfig := c.writeKubeconfig("kubelet-"+name, c.Kubeconfig(c.NodeUser(name)))
	n.kubelet = run(c.t, n.log, filepath.Join(c.binaries, "kubemark"),
		"--morph=kubelet", "--name="+name, "--kubeconfig="+kubeconfig, "--use-host-image-service=false",
		"--kubelet-port=0", "--kubelet-read-only-port=0", // any port, and none
		// Its defaults, 10 requests a second and 110 pods, would limit tests of many pods.
		"--kube-api-qps=1000", "--kube-api-burst=1000", "--max-pods=1000",
		"--v=3") // names what it creates below /tmp
	return n
}

// Node creates the object of a node that no kubelet runs, and returns its UID.
func (c *Cluster) Node(name string) types.UID {
	c.t.Helper()
	node, err := c.admin.CoreV1().Nodes().Create(context.Background(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(c.t, err)
	return node.UID
}

// NodeUser returns the user as whom a node's kubelet acts.
func (c *Cluster) NodeUser(name string) *clientcmdapi.AuthInfo {
	c.t.Helper()
	return c.User("system:node:"+name, "system:nodes")
}

func (n *Node) awaitReady() {
	c := n.cluster
	c.t.Helper()
	c.await("node "+n.Name+" is not ready", func(ctx context.Context) (bool, error) {
		if state := n.kubelet.Ended(); state != nil {
			c.t.Fatalf("%s ended: %s", n.kubelet, state)
		}
		node, err := c.admin.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		n.UID = node.UID
		return slices.ContainsFunc(node.Status.Conditions, ready), fmt.Errorf("conditions: %v", node.Status.Conditions)
	})
}

func ready(c corev1.NodeCondition) bool {
	return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
}

// Kill kills the kubelet. Its node and the files of its pods remain.
func (n *Node) Kill() { n.kubelet.Kill() }

// ReadFile reads a file of a projected volume of a pod.
func (n *Node) ReadFile(pod *corev1.Pod, volume, name string) ([]byte, error) {
	path, err := n.Volume(pod, volume)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(path, name))
}

// Volume returns the folder of a projected volume of a pod.
func (n *Node) Volume(pod *corev1.Pod, volume string) (string, error) {
	roots, err := n.made(folder)
	if err != nil {
		return "", err
	}
	if len(roots) != 1 {
		return "", fmt.Errorf("the log of kubelet %s names %d folders, want 1", n.Name, len(roots))
	}
	return filepath.Join(roots[0], "pods", string(pod.UID), "volumes", "kubernetes.io~projected", volume), nil
}

// What kubemark creates in /tmp, whatever TMPDIR is, and leaves there.
var (
	folder = regexp.MustCompile(`/tmp/hollow-kubelet\.[0-9]+`)
	socket = regexp.MustCompile(`/tmp/kubelet_remote_[0-9]+\.sock`)
)

// Log returns what the kubelet has logged. A hollow one sends no events.
func (n *Node) Log() (string, error) {
	text, err := os.ReadFile(n.log)
	return string(text), err
}

// made returns the paths that the kubelet's log names.
func (n *Node) made(what *regexp.Regexp) ([]string, error) {
	text, err := n.Log()
	if err != nil {
		return nil, err
	}
	paths := what.FindAllString(text, -1)
	slices.Sort(paths)
	return slices.Compact(paths), nil
}

// remove removes what the ended kubelet left.
func (n *Node) remove() {
	for _, what := range []*regexp.Regexp{folder, socket} {
		paths, err := n.made(what)
		if err != nil {
			n.cluster.t.Error(err)
		}
		for _, path := range paths {
			if err := os.RemoveAll(path); err != nil {
				n.cluster.t.Error(err)
			}
		}
	}
}
