// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"hash/fnv"
	"math/bits"
)

// Protobuf as Kubernetes writes it. Field numbers: k8s.io/api v0.37 core/v1/generated.proto,
// k8s.io/apimachinery v0.37 pkg/apis/meta/v1 and pkg/runtime.
type encoder struct{ b []byte }

func (e *encoder) varint(v uint64) {
	for ; v > 0x7f; v >>= 7 {
		e.b = append(e.b, byte(v)|0x80)
	}
	e.b = append(e.b, byte(v))
}

func (e *encoder) number(field int, v uint64) {
	e.varint(uint64(field) << 3)
	e.varint(v)
}

func (e *encoder) text(field int, s string) {
	e.varint(uint64(field)<<3 | 2)
	e.varint(uint64(len(s)))
	e.b = append(e.b, s...)
}

// Writes a message. Its length is known only afterwards, so its bytes are moved to make room for the length.
func (e *encoder) message(field int, write func()) {
	e.varint(uint64(field)<<3 | 2)
	at := len(e.b)
	write()
	n := len(e.b) - at
	size := (max(bits.Len(uint(n)), 1) + 6) / 7
	e.b = append(e.b, make([]byte, size)...)
	copy(e.b[at+size:], e.b[at:at+n])
	tail := encoder{e.b[at : at : at+size]}
	tail.varint(uint64(n))
}

func (e *encoder) pair(field int, key, value string) {
	e.message(field, func() {
		e.text(1, key)
		e.text(2, value)
	})
}

// "k8s\0" and Unknown{1 TypeMeta 2 raw 3 contentEncoding 4 contentType}.
func (e *encoder) object(version, kind string, write func()) {
	e.b = append(e.b, 'k', '8', 's', 0)
	e.message(1, func() {
		e.text(1, version)
		e.text(2, kind)
	})
	e.message(2, write)
	e.text(3, "")
	e.text(4, "")
}

func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// As Kubernetes makes random names.
func letters(seed uint64, n int) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	out := make([]byte, n)
	for i := range out {
		seed = mix(seed + uint64(i) + 1)
		out[i] = alphabet[seed%uint64(len(alphabet))]
	}
	return string(out)
}

func hex64(seed uint64) string {
	a := mix(seed + 1)
	b := mix(a + 2)
	c := mix(b + 3)
	return fmt.Sprintf("%016x%016x%016x%016x", a, b, c, mix(c+4))
}

func uuid(seed uint64) string {
	a := mix(seed + 77)
	b := mix(a + seed)
	return fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", uint32(a), uint16(a>>48), a>>36&0xfff, b>>48&0xfff, b&0xffffffffffff)
}

// The cluster: WORKLOADS of about the same number of pods, four fifths Deployments, the rest
// StatefulSets, DaemonSets and Jobs, every one with its own names, images and digests.
type cluster struct{ pods, nodes, workloads, teams int }

// A pod of the cluster, how often its place was taken before, and how far it has come:
// 0 created, 1 scheduled, 2 its init container ran, 3 started, 4 ready.
type pod struct{ n, incarnation, step int }

const steps = 5

// The fields that the server adds to a created pod. SENT (nanoseconds of the clock) is written into the id of a
// container, so that a client that receives the pod knows how late it is.
type stored struct {
	version uint64
	status  bool
	sent    int64
}

func (c *cluster) workload(p pod) int { return int(uint64(p.n) * uint64(c.workloads) / uint64(c.pods)) }
func (c *cluster) seed(p pod) uint64  { return mix(uint64(p.n)<<24 + uint64(p.incarnation)) }
func team(n int) string               { return fmt.Sprintf("team-%d", n) }
func node(n int) string               { return fmt.Sprintf("node-%d.example.internal", n) }
func (c *cluster) namespace(p pod) string {
	return team(c.workload(p) % c.teams)
}

func (c *cluster) owner(w int) (kind, name, hash string) {
	hash = letters(uint64(w), 10)
	name = fmt.Sprintf("service-%d-api", w)
	switch at := w % 20; {
	case at < 16:
		return "ReplicaSet", name + "-" + hash, hash
	case at < 18:
		return "StatefulSet", name, hash
	case at < 19:
		return "DaemonSet", name, hash
	}
	return "Job", name, hash
}

// Pods of a StatefulSet keep their name when they are replaced; other names have a random part.
func (c *cluster) name(p pod) string {
	w := c.workload(p)
	kind, owner, _ := c.owner(w)
	if kind == "StatefulSet" {
		return fmt.Sprintf("%s-%d", owner, p.n)
	}
	return owner + "-" + letters(c.seed(p), 5)
}

func (e *encoder) container(field int, name, image string) {
	e.message(field, func() {
		e.text(1, name)
		e.text(2, image)
		e.message(6, func() { // ports
			e.text(1, "http")
			e.number(2, 0)
			e.number(3, 8080)
			e.text(4, "TCP")
		})
		for i := 0; i < 8; i++ {
			e.pair(7, fmt.Sprintf("SETTING_NUMBER_%d", i), "a value of the length that is usual")
		}
		e.message(8, func() { // resources: limits, requests
			for _, field := range []int{1, 2} {
				for _, q := range [][2]string{{"cpu", []string{"1", "250m"}[field-1]}, {"memory", "256Mi"}} {
					e.message(field, func() {
						e.text(1, q[0])
						e.message(2, func() { e.text(1, q[1]) })
					})
				}
			}
		})
		e.text(13, "/dev/termination-log")
		e.text(14, "IfNotPresent")
		e.text(20, "File")
	})
}

func (c *cluster) images(p pod) [3]string {
	w := c.workload(p)
	own := fmt.Sprintf("registry.example.com/%s/service-%d:v1.%d", team(w%c.teams), w, w%90)
	return [3]string{own, own, "registry.example.com/mesh/proxy:1.9"}
}

var containers = [3]string{"init-schema", "api", "proxy"}

func (c *cluster) metadata(e *encoder, p pod, s stored) {
	w := c.workload(p)
	kind, owner, hash := c.owner(w)
	name := c.name(p)
	e.text(1, name)
	e.text(3, c.namespace(p))
	if s.version > 0 {
		e.text(5, uuid(c.seed(p)))
		e.text(6, fmt.Sprint(s.version))
		e.message(8, func() {
			e.number(1, 1700000000+uint64(p.n))
			e.number(2, 0)
		})
	}
	e.pair(11, "app", fmt.Sprintf("service-%d-api", w))
	e.pair(11, "app.kubernetes.io/instance", fmt.Sprintf("service-%d", w))
	e.pair(11, "app.kubernetes.io/version", fmt.Sprintf("1.%d.3", w%90))
	switch kind {
	case "ReplicaSet":
		e.pair(11, "pod-template-hash", hash)
	case "StatefulSet":
		e.pair(11, "apps.kubernetes.io/pod-index", fmt.Sprint(p.n))
		e.pair(11, "controller-revision-hash", hash)
		e.pair(11, "statefulset.kubernetes.io/pod-name", name)
	}
	e.pair(11, "team", team(w%c.teams))
	e.pair(12, "cni.example.com/pod-ips", fmt.Sprintf("10.%d.%d.%d/32", p.n>>16, p.n>>8&255, p.n&255))
	if w%3 == 0 {
		e.pair(12, "resource.opentelemetry.io/service.name", fmt.Sprintf("service-%d", w))
	}
	e.message(13, func() {
		e.text(1, kind)
		e.text(3, owner)
		e.text(4, uuid(uint64(w)<<32))
		e.text(5, "apps/v1")
		e.number(6, 1)
		e.number(7, 1)
	})
	managers := []string{"cni"}
	if s.version > 0 {
		managers = []string{"kube-controller-manager", "cni", "kubelet"}
	}
	for _, m := range managers {
		e.message(17, func() {
			e.text(1, m)
			e.text(2, "Update")
			e.text(3, "v1")
			e.message(4, func() { e.number(1, 1700000000) })
			e.text(6, "FieldsV1")
			e.message(7, func() { e.text(1, managed[m]) })
			if m == "kubelet" {
				e.text(8, "status")
			}
		})
	}
}

func (c *cluster) nodeOf(p pod) string { return node(int(c.seed(p) % uint64(c.nodes))) }

// The bytes of the Pod itself, appended.
func (c *cluster) encode(e *encoder, p pod, s stored) {
	images := c.images(p)
	e.message(1, func() { c.metadata(e, p, s) })
	e.message(2, func() {
		e.container(2, containers[1], images[1])
		e.container(2, containers[2], images[2])
		e.text(3, "Always")
		e.number(4, 30)
		e.text(6, "ClusterFirst")
		if p.step >= 1 {
			e.text(10, c.nodeOf(p))
		}
		e.text(19, "default-scheduler")
		e.container(20, containers[0], images[0])
	})
	if s.status {
		e.message(3, func() { c.status(e, p, images, s.sent) })
	}
}

func (c *cluster) status(e *encoder, p pod, images [3]string, sent int64) {
	phase := "Pending"
	if p.step >= 3 {
		phase = "Running"
	}
	e.text(1, phase)
	for _, t := range []string{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		e.message(2, func() {
			e.text(1, t)
			e.text(2, "True")
			e.message(3, func() {})
			e.message(4, func() { e.number(1, 1700000000) })
		})
	}
	if p.step >= 2 {
		ip := fmt.Sprintf("10.%d.%d.%d", p.n>>16, p.n>>8&255, p.n&255)
		e.text(5, "192.0.2.7")
		e.text(6, ip)
		e.message(12, func() { e.text(1, ip) })
	}
	for i, name := range containers {
		field, from := 8, 3
		if i == 0 {
			field, from = 10, 2
		}
		if p.step < from {
			continue
		}
		image := images[i]
		digest := hex64(uint64(c.workload(p)))
		if i == 2 {
			digest = hex64(99)
		}
		e.message(field, func() {
			e.text(1, name)
			e.message(2, func() {
				e.message(2, func() { e.message(1, func() { e.number(1, 1700000000) }) })
			})
			e.message(3, func() {})
			e.number(4, uint64(p.step/4))
			e.number(5, 0)
			e.text(6, image)
			e.text(7, image+"@sha256:"+digest)
			id := hex64(c.seed(p) ^ uint64(i))
			if i == 0 && sent != 0 {
				id = fmt.Sprintf("%x%016x%s", "kiln-bench-mark:", sent, id[48:])
			}
			e.text(8, "containerd://"+id)
			e.number(9, 1)
		})
	}
	e.text(9, "Burstable")
}

// managedFields, by manager, as long as in real pods: more than half of a pod's bytes.
var managed = func() map[string]string {
	own := `{"f:metadata":{"f:annotations":{".":{},"f:resource.opentelemetry.io/service.name":{}},"f:labels":{".":{},` +
		`"f:app":{},"f:app.kubernetes.io/instance":{},"f:app.kubernetes.io/version":{},"f:pod-template-hash":{},"f:team":{}},` +
		`"f:ownerReferences":{".":{},"k:{\"uid\":\"00000000-0000-0000-0000-000000000000\"}":{}}},"f:spec":{`
	for _, list := range []string{"f:containers", "f:initContainers"} {
		own += `"` + list + `":{`
		for i, name := range containers {
			if (i == 0) != (list == "f:initContainers") {
				continue
			}
			own += `"k:{\"name\":\"` + name + `\"}":{".":{},"f:env":{".":{}`
			for n := 0; n < 8; n++ {
				own += fmt.Sprintf(`,"k:{\"name\":\"SETTING_NUMBER_%d\"}":{".":{},"f:name":{},"f:value":{}}`, n)
			}
			own += `},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},` +
				`"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},` +
				`"f:terminationMessagePolicy":{}}`
			if i == 1 {
				own += ","
			}
		}
		own += "},"
	}
	own += `"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}`
	status := `{"f:status":{"f:conditions":{`
	for i, t := range []string{"ContainersReady", "Initialized", "PodReadyToStartContainers", "PodScheduled", "Ready"} {
		if i > 0 {
			status += ","
		}
		status += `"k:{\"type\":\"` + t + `\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}`
	}
	status += `},"f:containerStatuses":{},"f:hostIP":{},"f:initContainerStatuses":{},"f:phase":{},"f:podIP":{},` +
		`"f:podIPs":{".":{},"k:{\"ip\":\"10.0.0.1\"}":{".":{},"f:ip":{}}},"f:startTime":{}}}`
	return map[string]string{
		"kube-controller-manager": own,
		"cni":                     `{"f:metadata":{"f:annotations":{".":{},"f:cni.example.com/pod-ips":{}}}}`,
		"kubelet":                 status,
	}
}()

// The metadata of a node or a namespace. LABEL: the name and the value of one more label.
func encodeNamed(e *encoder, kind, name string, version uint64, label ...string) {
	e.message(1, func() {
		e.text(1, name)
		if version > 0 {
			h := fnv.New64a()
			_, _ = h.Write([]byte(name))
			e.text(5, uuid(h.Sum64()))
			e.text(6, fmt.Sprint(version))
			e.message(8, func() { e.number(1, 1700000000) })
		}
		e.pair(11, "kubernetes.io/metadata.name", name)
		if kind == "Node" {
			e.pair(11, "beta.kubernetes.io/arch", "amd64")
			e.pair(11, "kubernetes.io/arch", "amd64")
			e.pair(11, "kubernetes.io/hostname", name)
			e.pair(11, "kubernetes.io/os", "linux")
			e.pair(11, "node.kubernetes.io/instance-type", "m5.4xlarge")
			e.pair(11, "topology.kubernetes.io/region", "eu-central-1")
			e.pair(11, "topology.kubernetes.io/zone", "eu-central-1"+string('a'+rune(version%3)))
			e.pair(12, "csi.volume.kubernetes.io/nodeid", `{"ebs.csi.aws.com":"i-`+letters(version, 15)+`"}`)
		} else {
			e.pair(11, "team", name)
		}
		if len(label) == 2 {
			e.pair(11, label[0], label[1])
		}
		e.message(17, func() {
			e.text(1, "kubelet")
			e.text(2, "Update")
			e.text(3, "v1")
			e.text(6, "FieldsV1")
			e.message(7, func() {
				e.text(1, `{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/metadata.name":{}}}}`)
			})
		})
	})
}
