// SPDX-License-Identifier: Apache-2.0

// Goroutines with pprof labels, many more than threads, that give their thread up all the time: workA runs only under
// tenant=A and with the labels that go with it, workB under tenant=B, workNone without labels, workMany with more than
// one bucket of Go's old maps holds.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"time"
)

var sink uint64

//go:noinline
func spin(n uint64) {
	for i := uint64(0); i < n; i++ {
		sink = i
	}
}

//go:noinline
func workA() { spin(20000) }

//go:noinline
func workB() { spin(20000) }

//go:noinline
func workNone() { spin(20000) }

//go:noinline
func workMany() { spin(20000) }

func loop(work func(), yield func()) {
	for i := 0; i < 20; i++ {
		work()
		yield()
	}
}

func main() {
	pass := make(chan int)
	yields := []func(){
		runtime.Gosched,
		func() { time.Sleep(time.Microsecond) },
		func() {
			go func() { pass <- 1 }()
			<-pass
		},
	}
	many := []string{}
	for i := 0; i < 12; i++ {
		many = append(many, fmt.Sprintf("key%d", i), fmt.Sprintf("value%d", i))
	}
	for i := 0; i < 12; i++ {
		yield := yields[i%len(yields)]
		go func() {
			for {
				pprof.Do(context.Background(), pprof.Labels("tenant", "A", "function", "workA"), func(ctx context.Context) {
					loop(workA, yield)
					pprof.Do(ctx, pprof.Labels("tenant", "B", "function", "workB"), func(context.Context) { loop(workB, yield) })
					loop(workA, yield)
				})
				loop(workNone, yield)
				pprof.Do(context.Background(), pprof.Labels(many...), func(context.Context) { loop(workMany, yield) })
			}
		}()
	}
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
}
