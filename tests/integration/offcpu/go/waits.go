// SPDX-License-Identifier: Apache-2.0

// What threads of a Go program wait for, as tests/workloads/waits.c does in C: each goroutine keeps its thread and
// waits by system calls, so that the thread does. usage: waits SECONDS
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

var end time.Time
var ends [2]int

type result struct {
	Tid int   `json:"tid"`
	Off int64 `json:"off"`
}

//go:noinline
func waitSleep() {
	t := syscall.Timespec{Nsec: 4000000}
	for time.Now().Before(end) {
		syscall.Nanosleep(&t, nil)
	}
}

//go:noinline
func waitPipe() {
	var b [1]byte
	for {
		if n, err := syscall.Read(ends[0], b[:]); n == 0 && err == nil {
			return
		}
	}
}

//go:noinline
func waitWriting() {
	t := syscall.Timespec{Nsec: 10000000}
	for time.Now().Before(end) {
		syscall.Nanosleep(&t, nil)
		syscall.Write(ends[1], []byte{'x'})
	}
	syscall.Close(ends[1])
}

func ran(tid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/schedstat", tid))
	ns, _ := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
	return ns
}

func main() {
	seconds, _ := strconv.Atoi(os.Args[1])
	in := bufio.NewReader(os.Stdin)
	fmt.Printf("{\"pid\":%d}\n", os.Getpid())
	if _, err := in.ReadString('\n'); err != nil {
		return
	}
	syscall.Pipe(ends[:])
	end = time.Now().Add(time.Duration(seconds) * time.Second)
	results := map[string]result{}
	var lock sync.Mutex
	var all sync.WaitGroup
	for name, wait := range map[string]func(){"main.waitSleep": waitSleep, "main.waitPipe": waitPipe, "main.waitWriting": waitWriting} {
		name, wait := name, wait
		all.Add(1)
		go func() {
			runtime.LockOSThread()
			tid := syscall.Gettid()
			began, before := time.Now(), ran(tid)
			wait()
			off := int64(time.Since(began)) - (ran(tid) - before)
			lock.Lock()
			results[name] = result{tid, off}
			lock.Unlock()
			all.Done() // still locked: the thread ends
		}()
	}
	all.Wait()
	text, _ := json.Marshal(results)
	fmt.Println(string(text))
	in.ReadString('\n')
}
