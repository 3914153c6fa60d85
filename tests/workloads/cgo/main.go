// SPDX-License-Identifier: Apache-2.0

// C below Go: the C part runs on the thread's system stack. usage: cgo SECONDS
package main

/*
#include <stdint.h>
#include <unistd.h>
static volatile uint64_t c_sink;
__attribute__((noipa)) static void c_leaf(void)
{
	for (;;)
		c_sink++;
}
__attribute__((noipa)) static void c_entry(void)
{
	c_leaf();
	__asm__ volatile("" ::: "memory");
}
static void c_alarm(unsigned seconds) { alarm(seconds); }
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
)

var sink int

//go:noinline
func intoC() {
	C.c_entry()
	sink++
}

func main() {
	seconds := 1
	if len(os.Args) > 1 {
		seconds, _ = strconv.Atoi(os.Args[1])
	}
	C.c_alarm(C.uint(seconds))
	// asmcgocall changes to the system stack; Go's own chain goes on above it.
	fmt.Printf(`{"pid":%d,"name":"cgo","chains":[`+
		`{"frames":["c_leaf","c_entry","?/_cgo_[0-9a-f]+_Cfunc_c_entry/","/runtime\\.asmcgocall(\\.abi0)?/",`+
		`"runtime.cgocall","main._Cfunc_c_entry","main.intoC","main.main","runtime.main","runtime.goexit"],"min_share":0.9},`+
		`{"frames":["+/(internal/)?runtime[./].*/"],"max_share":0.05}]}`+"\n", os.Getpid())
	intoC()
}
