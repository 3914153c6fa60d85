// SPDX-License-Identifier: Apache-2.0

// An HTTPS server on loopback that misbehaves on demand: what the client of the API server is tested
// against. It speaks HTTP/2 with the library that kube-apiserver uses. It writes its CA and a client's
// certificate to the directory of its first argument and "ready PORT HTTP1PORT GARBAGEPORT PROXYPORT
// PLAINPORT" to standard output; then it takes one command a line and answers each with one line.
// It ends when its standard input does.
package main

import (
	"bufio"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

var (
	dir                         string
	serial                      int64
	accepted, requests, tunnels atomic.Int64
	mu                          sync.Mutex // guards what follows
	serverCert                  *tls.Certificate
	clientCAs                   = x509.NewCertPool()
	token                       = "first"
	conns                       = map[net.Conn]bool{}
	counters                    = map[string]int{}
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func template(name string) *x509.Certificate {
	serial++
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

func newAuthority(name string) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	t := template(name)
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	must(err)
	cert, err := x509.ParseCertificate(der)
	must(err)
	return &authority{cert, key, encode("CERTIFICATE", der)}
}

func (a *authority) issue(t *x509.Certificate) (certPEM, keyPEM []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, &key.PublicKey, a.key)
	must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", keyDER)
}

func write(name string, data []byte) {
	path := filepath.Join(dir, name)
	must(os.WriteFile(path+".new", data, 0o600))
	must(os.Rename(path+".new", path))
}

// A new CA, a new certificate of the server, and one of a client called CN.
func newPKI(cn string) {
	ca := newAuthority("ca of " + cn)
	t := template("server")
	t.DNSNames = []string{"localhost", "kubernetes.default.svc"}
	if cn != "named" {
		t.IPAddresses = []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP("::1")}
	}
	certPEM, keyPEM := ca.issue(t)
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	must(err)
	clientCert, clientKey := ca.issue(template(cn))
	mu.Lock()
	serverCert = &cert
	clientCAs.AddCert(ca.cert)
	mu.Unlock()
	write("ca.pem", ca.pem)
	write("client.pem", clientCert)
	write("client.key", clientKey)
}

func tlsConfig(protocols ...string) *tls.Config {
	return &tls.Config{
		NextProtos: protocols, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clientCAs,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			mu.Lock()
			defer mu.Unlock()
			return serverCert, nil
		},
	}
}

func listen(address string) net.Listener {
	l, err := net.Listen("tcp", address)
	must(err)
	return l
}

func port(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

func track(c net.Conn, state http.ConnState) {
	mu.Lock()
	defer mu.Unlock()
	switch state {
	case http.StateNew:
		accepted.Add(1)
		conns[c] = true
	case http.StateClosed, http.StateHijacked:
		delete(conns, c)
	}
}

// Every connection ends with a reset, as when a load balancer forgets it.
func resetAll() {
	mu.Lock()
	defer mu.Unlock()
	for c := range conns {
		under := c
		if t, ok := c.(*tls.Conn); ok {
			under = t.NetConn()
		}
		if t, ok := under.(*net.TCPConn); ok {
			t.SetLinger(0)
			t.Close()
		}
	}
}

func number(r *http.Request, key string, otherwise int) int {
	if n, err := strconv.Atoi(r.URL.Query().Get(key)); err == nil {
		return n
	}
	return otherwise
}

func field(number int, data []byte) []byte {
	out := []byte{byte(number<<3 | 2)}
	n := len(data)
	for ; n >= 0x80; n >>= 7 {
		out = append(out, byte(n)|0x80)
	}
	return append(append(out, byte(n)), data...)
}

func status(w http.ResponseWriter, r *http.Request, code int, reason, message string) {
	if strings.Contains(r.Header.Get("Accept"), "protobuf") {
		object := append(field(2, []byte("Failure")), field(3, []byte(message))...)
		object = append(append(object, field(4, []byte(reason))...), 6<<3, byte(code&0x7f|0x80), byte(code>>7))
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		w.WriteHeader(code)
		w.Write(append([]byte("k8s\x00"), append(field(1, []byte("\x0a\x02v1")), field(2, object)...)...))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
		"message": message, "reason": reason, "code": code})
}

func count(key string) int {
	mu.Lock()
	defer mu.Unlock()
	counters[key]++
	return counters[key]
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	answer := map[string]any{"method": r.Method, "uri": r.RequestURI, "host": r.Host, "proto": r.Proto,
		"header": r.Header, "body": string(body), "remote": r.RemoteAddr}
	if r.TLS != nil {
		answer["sni"] = r.TLS.ServerName
		if len(r.TLS.PeerCertificates) > 0 {
			answer["client"] = r.TLS.PeerCertificates[0].Subject.CommonName
		}
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer)
}

func stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json;stream=watch")
	if ms := number(r, "reset", 0); ms > 0 {
		time.AfterFunc(time.Duration(ms)*time.Millisecond, resetAll)
	}
	for i := 0; i < number(r, "n", 1); i++ {
		fmt.Fprintf(w, "line %d%s\n", i, strings.Repeat(".", number(r, "pad", 0)))
		w.(http.Flusher).Flush()
		select {
		case <-time.After(time.Duration(number(r, "gap", 0)) * time.Millisecond):
		case <-r.Context().Done():
			count("gone")
			return
		}
	}
	if r.URL.Query().Get("end") == "reset" {
		resetAll()
		<-r.Context().Done()
	}
	if r.URL.Query().Get("end") == "abort" {
		panic(http.ErrAbortHandler)
	}
	if r.URL.Query().Get("end") == "hang" {
		<-r.Context().Done()
		count("gone")
	}
}

func handle(w http.ResponseWriter, r *http.Request) {
	requests.Add(1)
	q := r.URL.Query()
	switch r.URL.Path {
	case "/stream":
		stream(w, r)
	case "/bytes":
		w.Header().Set("Content-Type", "application/json")
		w.Write(make([]byte, number(r, "n", 0)))
	case "/status":
		if t := q.Get("text"); t != "" {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(number(r, "code", 500))
			io.WriteString(w, t)
			return
		}
		status(w, r, number(r, "code", 500), q.Get("reason"), q.Get("message"))
	case "/storm":
		if count("storm"+q.Get("id")) <= number(r, "n", 1) {
			if q.Get("after") != "" {
				w.Header().Set("Retry-After", q.Get("after"))
			}
			status(w, r, number(r, "code", 429), "TooManyRequests", "slow down")
			return
		}
		io.WriteString(w, "through")
	case "/slow":
		select {
		case <-time.After(time.Duration(number(r, "ms", 1000)) * time.Millisecond):
		case <-r.Context().Done():
			count("gone")
		}
		io.WriteString(w, "late")
	case "/half":
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		if q.Get("how") == "reset" {
			resetAll()
		}
		panic(http.ErrAbortHandler)
	case "/auth":
		mu.Lock()
		want := "Bearer " + token
		mu.Unlock()
		if r.Header.Get("Authorization") != want {
			status(w, r, 401, "Unauthorized", "Unauthorized")
			return
		}
		io.Copy(io.Discard, r.Body) // as the API server does with who may write
		io.WriteString(w, "known")
	case "/gzip":
		w.Header().Set("Content-Type", "application/json")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			io.WriteString(w, "plain"+strings.Repeat(" ", 100))
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, "packed"+strings.Repeat(" ", number(r, "n", 100)))
		z.Close()
	default:
		echo(w, r)
	}
}

// A forward proxy that knows CONNECT only.
func proxy(l net.Listener) {
	for {
		c, err := l.Accept()
		must(err)
		go func() {
			defer c.Close()
			in := bufio.NewReader(c)
			r, err := http.ReadRequest(in)
			if err != nil || r.Method != "CONNECT" {
				io.WriteString(c, "HTTP/1.1 405 no\r\nContent-Length: 0\r\n\r\n")
				return
			}
			to, err := net.Dial("tcp", r.Host)
			if err != nil {
				io.WriteString(c, "HTTP/1.1 502 no\r\nContent-Length: 0\r\n\r\n")
				return
			}
			tunnels.Add(1)
			io.WriteString(c, "HTTP/1.1 200 fine\r\n\r\n")
			go func() { io.Copy(to, in); to.Close() }()
			io.Copy(c, to)
		}()
	}
}

func garbage(l net.Listener) {
	for {
		c, err := l.Accept()
		must(err)
		go func() {
			defer c.Close()
			io.ReadAtLeast(c, make([]byte, 4096), 1)
			noise := make([]byte, 8192)
			rand.Read(noise)
			c.Write(noise)
		}()
	}
}

func command(line string) string {
	words := append(strings.Fields(line), "", "")
	switch words[0] {
	case "accepted":
		return fmt.Sprint(accepted.Load())
	case "requests":
		return fmt.Sprint(requests.Load())
	case "tunnels":
		return fmt.Sprint(tunnels.Load())
	case "gone":
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprint(counters["gone"])
	case "pki":
		newPKI(words[1])
	case "token":
		mu.Lock()
		defer mu.Unlock()
		token = words[1]
	case "reset":
		resetAll()
	default:
		return "what?"
	}
	return "ok"
}

func main() {
	log.SetOutput(io.Discard)
	dir = os.Args[1]
	newPKI("first-client")
	both, v6 := listen("127.0.0.1:0"), net.Listener(nil)
	if l, err := net.Listen("tcp", fmt.Sprintf("[::1]:%d", port(both))); err == nil {
		v6 = l
	}
	old, noise, tunnel := listen("127.0.0.1:0"), listen("127.0.0.1:0"), listen("127.0.0.1:0")
	plain := listen("127.0.0.1:0")
	new2 := &http.Server{Handler: http.HandlerFunc(handle), TLSConfig: tlsConfig("h2", "http/1.1"), ConnState: track}
	new1 := &http.Server{Handler: http.HandlerFunc(handle), TLSConfig: tlsConfig("http/1.1"), ConnState: track,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}
	new0 := &http.Server{Handler: http.HandlerFunc(handle), ConnState: track}
	go new2.ServeTLS(both, "", "")
	if v6 != nil {
		go new2.ServeTLS(v6, "", "")
	}
	go new1.ServeTLS(old, "", "")
	go new0.Serve(plain)
	go garbage(noise)
	go proxy(tunnel)
	fmt.Println("ready", port(both), port(old), port(noise), port(tunnel), port(plain))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(command(in.Text()))
	}
}
