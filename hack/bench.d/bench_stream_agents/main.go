// SPDX-License-Identifier: Apache-2.0

// Agents of many nodes for hack/bench stream: each has a TLS connection and a stream of its own. It does what the
// lines of its standard input say and answers each with a line of JSON:
//
//	connect SECONDS   connects every agent anew, at some time within SECONDS; answers when all have their snapshot
//	mark              sets all counts to zero
//	events            answers how late marked watch events came
//	broadcast NS      answers how long after NS (of the clock) the last message of each agent came
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

var connectMax = flag.Duration("patience", 3*time.Minute, "for connect")

type fleet struct {
	address string
	config  *tls.Config
	agents  []*agent
	ready   chan struct{}

	interval atomic.Int64 // seconds between two reports of an agent, as the operator asks for

	mu       sync.Mutex
	problems map[string]int
}

func (f *fleet) problem(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := "none"
	if err != nil {
		text = err.Error()
	}
	if len(f.problems) < 20 || f.problems[text] > 0 {
		f.problems[text]++
	}
}

func (f *fleet) takeProblems() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.problems
	f.problems = map[string]int{}
	return was
}

// Quantiles of ALL, in milliseconds.
func distribution(all []time.Duration) map[string]any {
	if len(all) == 0 {
		return map[string]any{"n": 0}
	}
	slices.Sort(all)
	at := func(share float64) float64 {
		return float64(all[min(int(share*float64(len(all))), len(all)-1)].Microseconds()) / 1000
	}
	return map[string]any{"n": len(all), "p50": at(.5), "p90": at(.9), "p99": at(.99), "max": at(1)}
}

func (f *fleet) connect(spread float64) map[string]any {
	began := time.Now()
	for len(f.ready) > 0 {
		<-f.ready
	}
	f.mark()
	for _, a := range f.agents {
		a.mu.Lock()
		a.generation++
		a.epoch, a.revision, a.ready, a.snapshot = 0, 0, time.Time{}, false
		if a.call != nil {
			a.call.close()
		}
		go a.run(a.generation, time.Duration(rand.Float64()*spread*1e9))
		a.mu.Unlock()
	}
	timeout := time.After(*connectMax)
	for n := 0; n < len(f.agents); n++ {
		select {
		case <-f.ready:
		case <-timeout:
			return map[string]any{"error": fmt.Sprintf("%d of %d agents have a snapshot: %v", n, len(f.agents), f.takeProblems())}
		}
	}
	var took []time.Duration
	var bytes int64
	for _, a := range f.agents {
		a.mu.Lock()
		took = append(took, a.ready.Sub(began))
		a.mu.Unlock()
		bytes += a.bytes.Load()
	}
	got := distribution(took)
	got["bytes"] = bytes
	got["problems"] = f.takeProblems()
	return got
}

func (f *fleet) mark() {
	for _, a := range f.agents {
		a.mu.Lock()
		a.marks, a.arrivals = map[int64]bool{}, nil
		a.mu.Unlock()
		a.updates.Store(0)
		a.bytes.Store(0)
		a.last.Store(0)
	}
}

func (f *fleet) events() map[string]any {
	var all []time.Duration
	for _, a := range f.agents {
		a.mu.Lock()
		all = append(all, a.arrivals...)
		a.mu.Unlock()
	}
	got := distribution(all)
	got["problems"] = f.takeProblems()
	return got
}

func (f *fleet) broadcast(since int64) map[string]any {
	var all []time.Duration
	var bytes, updates int64
	for _, a := range f.agents {
		bytes += a.bytes.Load()
		updates += a.updates.Load()
		if last := a.last.Load(); last > 0 {
			all = append(all, time.Duration(last-since))
		}
	}
	got := distribution(all)
	got["bytes"], got["updates"] = bytes, updates
	got["problems"] = f.takeProblems()
	return got
}

// Every agent once in the interval.
func (f *fleet) report() {
	next, due, last := 0, 0.0, time.Now()
	for now := range time.Tick(10 * time.Millisecond) {
		if seconds := f.interval.Load(); seconds > 0 {
			due += float64(len(f.agents)) * now.Sub(last).Seconds() / float64(seconds)
		}
		last = now
		for ; next < int(due); next++ {
			f.agents[next%len(f.agents)].report()
		}
	}
}

func (f *fleet) command(line string) map[string]any {
	var word string
	var value float64
	_, _ = fmt.Sscan(line, &word, &value)
	switch word {
	case "connect":
		return f.connect(value)
	case "mark":
		f.mark()
		return map[string]any{}
	case "events":
		return f.events()
	case "broadcast":
		var since int64
		_, _ = fmt.Sscan(line, &word, &since)
		return f.broadcast(since)
	}
	return map[string]any{"error": "no such command"}
}

func main() {
	log.SetFlags(0)
	f := &fleet{problems: map[string]int{}}
	count := flag.Int("agents", 5000, "")
	ca := flag.String("ca", "", "the server's")
	flag.StringVar(&f.address, "address", "", "of the node stream")
	flag.Parse()
	roots, err := os.ReadFile(*ca)
	if err != nil {
		log.Fatal(err)
	}
	debug.SetGCPercent(400)
	f.config = &tls.Config{RootCAs: x509.NewCertPool(), NextProtos: []string{"h2"}, ServerName: "127.0.0.1",
		CurvePreferences: []tls.CurveID{tls.CurveP256}}
	f.config.RootCAs.AppendCertsFromPEM(roots)
	f.ready = make(chan struct{}, 16**count)
	for i := range *count {
		node := fmt.Sprintf("node-%d.example.internal", i)
		f.agents = append(f.agents, &agent{fleet: f, token: makeToken(node), marks: map[int64]bool{}})
	}
	go f.report()
	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		_ = out.Encode(f.command(in.Text()))
	}
}
