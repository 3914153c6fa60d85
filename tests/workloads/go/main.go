// SPDX-License-Identifier: Apache-2.0

// Goroutines, inlined calls, a method value, a closure and an interface call. usage: go SECONDS
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

var sink uint64

type shape interface{ area(n int) }

type square struct{ side int }

// Inlined into (*square).area: a frame of its own all the same.
func inlined(n int) {
	for i := 0; ; i++ {
		sink += uint64(i)
		if i < n {
			return
		}
		work()
	}
}

//go:noinline
func work() {
	for i := uint64(0); i < 1000000; i++ {
		sink += i
	}
}

func twice(n int) { inlined(n); sink++ }

//go:noinline
func (s *square) area(n int) {
	twice(n - s.side)
	sink++
}

//go:noinline
func call(s shape, n int) {
	s.area(n)
	sink++
}

//go:noinline
func recurse(s shape, n int) {
	if n == 0 {
		call(s, n)
	} else {
		recurse(s, n-1)
	}
	sink++
}

type runner struct{ s shape }

//go:noinline
func (r runner) run() {
	recurse(r.s, 20)
	sink++
}

//go:noinline
func mainLeaf() {
	for {
		work()
	}
}

func main() {
	seconds := 1
	if len(os.Args) > 1 {
		seconds, _ = strconv.Atoi(os.Args[1])
	}
	time.AfterFunc(time.Duration(seconds)*time.Second, func() { os.Exit(0) })
	// The runtime's own threads and its preemption of the spinning goroutines are allowed for a little.
	fmt.Printf(`{"pid":%d,"name":"go","chains":[`+
		`{"frames":["?main.work","main.inlined","main.twice","main.(*square).area","main.call",`+
		`{"n":21,"of":["main.recurse"]},"main.runner.run","?/main\\.runner\\.run-fm|main\\.main\\.(gowrap|func).*/",`+
		`"runtime.goexit"],"min_share":0.25},`+
		`{"frames":["?main.work","main.mainLeaf","/main\\.main\\.func.*/","runtime.goexit"],"min_share":0.25},`+
		`{"frames":["+/(internal/)?runtime[./].*/"],"max_share":0.05},`+
		`{"frames":["+/(internal/)?runtime[./].*/","*/main\\..*/","runtime.goexit"],"max_share":0.05}`+
		`]}`+"\n", os.Getpid())
	value := runner{&square{3}}.run
	go value()
	go func() {
		mainLeaf()
		sink++
	}()
	select {}
}
