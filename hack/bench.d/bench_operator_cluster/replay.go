// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Answers requests for pods, nodes and namespaces itself, and passes all others on to a real API server. HTTP/2 and TLS
// are Go's, and each watch event is one write, as in the API server. Of a pod only its incarnation is stored: its bytes
// are made when they are sent.
type replay struct {
	cluster
	kiln        string // its namespace
	noWatchList bool

	mu          sync.Mutex
	version     uint64
	incarnation []uint32
	watches     map[chan []byte]string // of which kind
}

const (
	protobuf  = "application/vnd.kubernetes.protobuf"
	startTick = 250 * time.Millisecond // from one step of a pod's start to the next
)

func (r *replay) resources(path string) (kind, list string, count int) {
	switch path {
	case "/api/v1/pods":
		return "Pod", "PodList", r.pods
	case "/api/v1/nodes":
		return "Node", "NodeList", r.nodes
	case "/api/v1/namespaces":
		return "Namespace", "NamespaceList", r.teams + 1
	}
	return "", "", 0
}

func (r *replay) encodeItem(e *encoder, kind string, n int, incarnation uint32) {
	switch {
	case kind == "Pod":
		r.encode(e, pod{n, int(incarnation), steps - 1}, stored{version: uint64(n + 1), status: true})
	case kind == "Node":
		encodeNamed(e, kind, node(n), uint64(n+1))
	case n == r.teams:
		encodeNamed(e, kind, r.kiln, uint64(n+1))
	default:
		encodeNamed(e, kind, team(n), uint64(n+1))
	}
}

// A frame: length, then WatchEvent{1 type 2 RawExtension{1 raw}}.
func frame(e *encoder, event, version, kind string, object func()) {
	at := len(e.b)
	e.b = append(e.b, 0, 0, 0, 0)
	e.text(1, event)
	e.message(2, func() {
		e.message(1, func() { e.object(version, kind, object) })
	})
	binary.BigEndian.PutUint32(e.b[at:], uint32(len(e.b)-at-4))
}

func bookmark(e *encoder, api, kind string, version uint64, end bool) {
	frame(e, "BOOKMARK", api, kind, func() {
		e.message(1, func() {
			e.text(6, fmt.Sprint(version))
			if end {
				e.pair(12, "k8s.io/initial-events-end", "true")
			}
		})
	})
}

func (r *replay) list(w http.ResponseWriter, q url.Values, api, kind, list string, count int) {
	first, _ := strconv.Atoi(q.Get("continue"))
	last := count
	if limit, _ := strconv.Atoi(q.Get("limit")); limit > 0 && first+limit < count {
		last = first + limit
	}
	var items, head encoder
	for n := first; n < last; n++ {
		items.message(2, func() { r.encodeItem(&items, kind, n, r.incarnation[n%len(r.incarnation)]) })
	}
	head.object(api, list, func() {
		head.message(1, func() {
			head.text(2, fmt.Sprint(r.version))
			if last < count {
				head.text(3, fmt.Sprint(last))
				head.number(4, uint64(count-last))
			}
		})
		head.b = append(head.b, items.b...)
	})
	w.Header().Set("Content-Type", protobuf)
	_, _ = w.Write(head.b)
}

func (r *replay) watch(w http.ResponseWriter, request *http.Request, api, kind string, count int) {
	q, events := request.URL.Query(), make(chan []byte, 1<<14)
	w.Header().Set("Content-Type", protobuf+";stream=watch")
	r.mu.Lock()
	version, incarnation := r.version, append([]uint32(nil), r.incarnation...)
	r.watches[events] = kind
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.watches, events)
		r.mu.Unlock()
	}()
	if q.Get("sendInitialEvents") == "true" {
		var e encoder
		for n := 0; n < count; n++ {
			e.b = e.b[:0]
			frame(&e, "ADDED", api, kind, func() { r.encodeItem(&e, kind, n, incarnation[n%len(incarnation)]) })
			if _, err := w.Write(e.b); err != nil {
				return
			}
		}
		e.b = e.b[:0]
		bookmark(&e, api, kind, version, true)
		_, _ = w.Write(e.b)
	}
	flush := w.(http.Flusher)
	flush.Flush()
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	timeout := time.After(time.Duration(seconds) * time.Second)
	for {
		select {
		case b := <-events:
			if _, err := w.Write(b); err != nil {
				return
			}
			flush.Flush()
		case <-request.Context().Done():
			return
		case <-timeout:
			return
		}
	}
}

func (r *replay) send(event string, p pod) {
	sent := time.Now().UnixNano()
	if event == "DELETED" {
		sent = 0
	}
	r.tell(event, "v1", "Pod", func(e *encoder, version uint64) { r.encode(e, p, stored{version, true, sent}) })
}

// An event for all who watch KIND.
func (r *replay) tell(event, api, kind string, object func(e *encoder, version uint64)) {
	var e encoder
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	frame(&e, event, api, kind, func() { object(&e, r.version) })
	for events, watched := range r.watches {
		if watched != kind {
			continue
		}
		select {
		case events <- e.b:
		default:
			log.Fatal("a watch does not keep up")
		}
	}
}

// /bench/relabel?team=7 changes a label of that namespace.
func (r *replay) relabel(w http.ResponseWriter, request *http.Request) {
	n, _ := strconv.Atoi(request.URL.Query().Get("team"))
	r.tell("MODIFIED", "meta.k8s.io/v1", "Namespace", func(e *encoder, version uint64) {
		encodeNamed(e, "Namespace", team(n), version, "bench", fmt.Sprint(version))
	})
	_, _ = fmt.Fprintln(w, "done")
}

// Deletes a pod and starts another one in its place, one event after the other.
func (r *replay) start(n int) {
	was := pod{n, int(r.incarnation[n]), steps - 1}
	r.send("DELETED", was)
	for step := 0; step < steps; step++ {
		event := "MODIFIED"
		if step == 0 {
			event = "ADDED"
		}
		r.send(event, pod{n, was.incarnation + 1, step})
		time.Sleep(startTick)
	}
	r.mu.Lock()
	r.incarnation[n]++
	r.mu.Unlock()
}

// /bench/churn?starts=20&seconds=30 answers when it is over.
func (r *replay) churn(w http.ResponseWriter, request *http.Request) {
	starts, _ := strconv.Atoi(request.URL.Query().Get("starts"))
	seconds, _ := strconv.Atoi(request.URL.Query().Get("seconds"))
	each(starts, seconds, func(i int) { r.start(int(mix(uint64(i)) % uint64(r.pods))) })
	_, _ = fmt.Fprintln(w, "done")
}

// each calls F STARTS times a second, the calls side by side, and returns when the last one has.
func each(starts, seconds int, f func(i int)) {
	var all sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(starts))
	defer tick.Stop()
	for i := 0; i < starts*seconds; i++ {
		<-tick.C
		all.Add(1)
		go func() {
			defer all.Done()
			f(i)
		}()
	}
	all.Wait()
}

// Answers a TokenReview with what the token claims, unverified: hack/bench stream makes thousands of tokens.
func (r *replay) review(w http.ResponseWriter, request *http.Request) {
	var asked struct {
		Spec struct {
			Token     string
			Audiences []string
		}
	}
	var claims struct{ Node string }
	err := json.NewDecoder(request.Body).Decode(&asked)
	if parts := strings.Split(asked.Spec.Token, "."); err == nil && len(parts) == 3 {
		var said []byte
		if said, err = base64.RawURLEncoding.DecodeString(parts[1]); err == nil {
			err = json.Unmarshal(said, &claims)
		}
	}
	if err != nil || claims.Node == "" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1",
		"status": map[string]any{"authenticated": true, "audiences": asked.Spec.Audiences,
			"user": map[string]any{"username": "system:serviceaccount:" + r.kiln + ":kiln-agent",
				"extra": map[string]any{"authentication.kubernetes.io/node-name": []string{claims.Node}}}}})
}

func (r *replay) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	kind, list, count := r.resources(request.URL.Path)
	q := request.URL.Query()
	api := "v1"
	if strings.Contains(request.Header.Get("Accept"), "as=PartialObjectMetadata") {
		api, list = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	watchKind := kind
	switch {
	case q.Get("watch") == "true" && r.noWatchList && q.Has("sendInitialEvents"):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,`+
			`"message":"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"}`)
	case q.Get("watch") == "true":
		r.watch(w, request, api, watchKind, count)
	default:
		r.list(w, q, api, kind, list, count)
	}
}

func serve(c cluster, behind string, roots *tls.Config, cert, key, kiln string, noWatchList bool) error {
	target, err := url.Parse(behind)
	if err != nil {
		return err
	}
	r := &replay{cluster: c, kiln: kiln, noWatchList: noWatchList, version: uint64(c.pods) + 1000,
		incarnation: make([]uint32, c.pods), watches: map[chan []byte]string{}}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	proxy.Transport = &http.Transport{TLSClientConfig: roots, ForceAttemptHTTP2: true}
	proxy.ErrorLog = log.New(os.Stderr, "proxy: ", 0)
	mux := http.NewServeMux()
	mux.Handle("/", proxy)
	for _, path := range []string{"/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces"} {
		mux.Handle("GET "+path, r)
	}
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", r.review)
	mux.HandleFunc("/bench/churn", r.churn)
	mux.HandleFunc("/bench/relabel", r.relabel)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("https://%s\n", listener.Addr())
	server := http.Server{Handler: mux, ErrorLog: log.New(os.Stderr, "", 0)}
	return server.ServeTLS(listener, cert, key)
}
