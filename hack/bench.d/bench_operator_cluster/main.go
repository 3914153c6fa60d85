// SPDX-License-Identifier: Apache-2.0

// The other side of hack/bench operator and stream: pods of a synthetic cluster (about 8.8 KB each in protobuf, three managers,
// two containers and an init container), written to a real API server or replayed in its place.
//
//	bench_operator_cluster load|churn|replay [FLAG...]
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Writes to a real API server, as the cluster's own clients do.
type writer struct {
	cluster
	url    string
	client *http.Client
}

func (w *writer) request(method, path, agent, contentType string, body []byte, fine ...int) error {
	request, err := http.NewRequest(method, w.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", agent+"/v1.37 (linux/amd64)")
	request.Header.Set("Accept", protobuf)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	answer, err := w.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	for _, code := range append(fine, 200, 201) {
		if answer.StatusCode == code {
			return nil
		}
	}
	return fmt.Errorf("%s %s: %s: %.500q", method, path, answer.Status, said)
}

func (w *writer) create(kind, path, name string, encode func(e *encoder)) error {
	var e encoder
	e.object("v1", kind, func() { encode(&e) })
	return w.request("POST", path, "kube-controller-manager", protobuf, e.b, http.StatusConflict)
}

func (w *writer) path(p pod) string {
	return "/api/v1/namespaces/" + w.namespace(p) + "/pods"
}

func (w *writer) createPod(p pod) error {
	return w.create("Pod", w.path(p), w.name(p), func(e *encoder) { w.encode(e, p, stored{}) })
}

func (w *writer) putStatus(p pod) error {
	var e encoder
	e.object("v1", "Pod", func() { w.encode(&e, p, stored{status: true}) })
	return w.request("PUT", w.path(p)+"/"+w.name(p)+"/status", "kubelet", protobuf, e.b)
}

// Deletes a pod and starts another one in its place: six events.
func (w *writer) start(n, incarnation int) error {
	was := w.path(pod{n, incarnation, 0}) + "/" + w.name(pod{n, incarnation, 0})
	if err := w.request("DELETE", was+"?gracePeriodSeconds=0", "kubelet", "", nil); err != nil {
		return err
	}
	p := pod{n, incarnation + 1, 1}
	if err := w.createPod(p); err != nil {
		return err
	}
	for p.step = 2; p.step < steps; p.step++ {
		time.Sleep(startTick)
		if err := w.putStatus(p); err != nil {
			return err
		}
	}
	return w.request("PATCH", w.path(p)+"/"+w.name(p), "cni", "application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"cni.example.com/ready":"true"}}}`))
}

func (w *writer) parallel(count int, f func(n int) error) error {
	var next atomic.Int64
	var all sync.WaitGroup
	failed := make(chan error, 1)
	for i := 0; i < 24; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for n := next.Add(1) - 1; n < int64(count); n = next.Add(1) - 1 {
				if err := f(int(n)); err != nil {
					select {
					case failed <- err:
					default:
					}
					return
				}
			}
		}()
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func (w *writer) load() error {
	err := w.parallel(w.teams, func(n int) error {
		return w.create("Namespace", "/api/v1/namespaces", team(n), func(e *encoder) { encodeNamed(e, "Namespace", team(n), 0) })
	})
	if err != nil {
		return err
	}
	err = w.parallel(w.nodes, func(n int) error {
		return w.create("Node", "/api/v1/nodes", node(n), func(e *encoder) { encodeNamed(e, "Node", node(n), 0) })
	})
	if err != nil {
		return err
	}
	return w.parallel(w.pods, func(n int) error {
		p := pod{n, 0, steps - 1}
		if err := w.createPod(p); err != nil {
			return err
		}
		return w.putStatus(p)
	})
}

// Replaces STARTS pods a second. ROUND: the number of the call; each call replaces other pods.
func (w *writer) churn(starts, seconds, round int) error {
	var failed atomic.Int64
	each(starts, seconds, func(i int) {
		n := (i + round*starts*seconds) * 7919 % w.pods
		if err := w.start(n, 0); err != nil && failed.Add(1) == 1 {
			log.Print(err)
		}
	})
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d of %d starts failed", n, starts*seconds)
	}
	return nil
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("load, churn or replay?")
	}
	var c cluster
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.IntVar(&c.pods, "pods", 150000, "")
	flags.IntVar(&c.nodes, "nodes", 5000, "")
	flags.IntVar(&c.workloads, "workloads", 7600, "")
	flags.IntVar(&c.teams, "teams", 400, "namespaces")
	pki := flags.String("pki", "", "the API server's folder of keys")
	server := flags.String("server", "", "the API server")
	kiln := flags.String("namespace", "kiln-system", "Kiln's own namespace")
	paged := flags.Bool("no-watch-list", false, "refuse WatchLists, as older servers do")
	starts := flags.Int("starts", 20, "pods that start in a second")
	seconds := flags.Int("seconds", 30, "")
	round := flags.Int("round", 0, "how often churn was called before")
	_ = flags.Parse(os.Args[2:])
	roots, err := os.ReadFile(*pki + "/ca.crt")
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(roots)
	if os.Args[1] == "replay" {
		log.Fatal(serve(c, *server, config, *pki+"/apiserver.crt", *pki+"/apiserver.key", *kiln, *paged))
	}
	admin, err := tls.LoadX509KeyPair(*pki+"/admin.crt", *pki+"/admin.key")
	if err != nil {
		log.Fatal(err)
	}
	config.Certificates = []tls.Certificate{admin}
	w := &writer{c, *server, &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}}
	began := time.Now()
	switch strings.TrimSpace(os.Args[1]) {
	case "load":
		err = w.load()
	case "churn":
		err = w.churn(*starts, *seconds, *round)
	default:
		err = fmt.Errorf("load, churn or replay, not %s", os.Args[1])
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.1f\n", time.Since(began).Seconds())
}
