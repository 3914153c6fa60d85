// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// One node's agent: sends Hello, Acks and Reports, and notes when messages came. It stores none of their contents.
// Field numbers: proto/kiln/node/v1/node.proto.
type agent struct {
	fleet *fleet
	token string

	mu         sync.Mutex
	call       *call // nil: none
	generation int   // of fleet.connect
	epoch      uint64
	revision   uint64
	snapshot   bool
	ready      time.Time // when the snapshot of this generation was whole
	marks      map[int64]bool
	arrivals   []time.Duration // of marked events since mark()

	updates, bytes, last atomic.Int64 // since mark(); last: nanoseconds of the clock
}

// The first half of the id of the container that bench_operator_cluster marks; the time follows.
var magic = []byte("kiln-bench-mark:")

var errMalformed = errors.New("malformed message")

func field(b []byte, number int, value []byte) []byte {
	b = binary.AppendUvarint(b, uint64(number)<<3|2)
	return append(binary.AppendUvarint(b, uint64(len(value))), value...)
}

func number(b []byte, number int, value uint64) []byte {
	b = binary.AppendUvarint(b, uint64(number)<<3)
	return binary.AppendUvarint(b, value)
}

// walk calls F for the fields of one message: VALUE of numbers, BYTES of the rest.
func walk(b []byte, f func(number int, value uint64, bytes []byte)) error {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 {
			return errMalformed
		}
		b = b[n:]
		switch tag & 7 {
		case 0:
			value, n := binary.Uvarint(b)
			if n <= 0 {
				return errMalformed
			}
			f(int(tag>>3), value, nil)
			b = b[n:]
		case 1:
			if len(b) < 8 {
				return errMalformed
			}
			f(int(tag>>3), binary.LittleEndian.Uint64(b), nil)
			b = b[8:]
		case 2:
			size, n := binary.Uvarint(b)
			if n <= 0 || size > uint64(len(b)-n) {
				return errMalformed
			}
			f(int(tag>>3), 0, b[n:n+int(size)])
			b = b[n+int(size):]
		default:
			return errMalformed
		}
	}
	return nil
}

// A token as long as an API server's. It is not signed: the replay does not verify it.
func makeToken(node string) string {
	encode := base64.RawURLEncoding.EncodeToString
	claims, _ := json.Marshal(map[string]any{"exp": time.Now().Add(2 * time.Hour).Unix(), "node": node,
		"aud": []string{"kiln.dev/node-stream"}, "sub": "system:serviceaccount:kiln-system:kiln-agent",
		"jti": strings.Repeat("0", 300)})
	return encode([]byte(`{"alg":"RS256","kid":"x"}`)) + "." + encode(claims) + "." + encode(make([]byte, 256))
}

func (a *agent) hello() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := number(nil, 1, 1)
	m = field(m, 2, []byte("bench"))
	m = number(m, 3, a.epoch)
	m = number(m, 4, a.revision)
	m = field(m, 5, []byte("6.1.0-56-amd64"))
	m = field(m, 6, []byte("v2"))
	m = field(m, 7, []byte("containerd"))
	m = number(m, 9, 1) // understands Update.pod_policies
	return field(nil, 1, m)
}

func (a *agent) ack(c *call) error {
	a.mu.Lock()
	m := number(number(nil, 1, a.epoch), 2, a.revision)
	a.mu.Unlock()
	return c.send(field(nil, 2, m))
}

// The Report of a busy agent, some 250 bytes.
func makeReport() []byte {
	m := number(nil, 1, 1700000000)
	for i := 2; i <= 5; i++ {
		m = number(m, i, 1234567+rand.Uint64N(1e6))
	}
	for _, name := range []string{"python", "ruby", "php", "perl", "v8", "hotspot", "dotnet", "beam", "luajit"} {
		m = field(m, 6, number(field(nil, 1, []byte(name)), 2, 1))
	}
	m = field(m, 7, number(field(nil, 1, []byte("main")), 2, 1))
	for range 2 {
		m = field(m, 8, number(append(binary.AppendUvarint(nil, 1<<3|1), make([]byte, 8)...), 2, 30))
	}
	return field(nil, 3, field(m, 9, bytes.Repeat([]byte("0"), 64)))
}

func (a *agent) report() {
	a.mu.Lock()
	c, ready := a.call, !a.ready.IsZero()
	a.mu.Unlock()
	if c == nil || !ready {
		return
	}
	if err := c.send(makeReport()); err != nil {
		a.fleet.problem(fmt.Errorf("report: %w", err))
	}
}

// run keeps one generation's stream, until the next one or fleet.stop.
func (a *agent) run(generation int, delay time.Duration) {
	time.Sleep(delay)
	for try := 0; ; try++ {
		err := a.connect(generation)
		a.mu.Lock()
		a.call = nil
		current := a.generation == generation
		a.mu.Unlock()
		if !current {
			return
		}
		a.fleet.problem(err)
		time.Sleep(time.Duration(rand.Int64N(int64(time.Second) << min(try, 3))))
	}
}

func (a *agent) connect(generation int) error {
	c, err := open(a.fleet.address, a.fleet.config, "/kiln.node.v1.NodeService/Connect", "Bearer "+a.token)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.send(a.hello()); err != nil {
		return err
	}
	a.mu.Lock()
	current := a.generation == generation
	a.call = c // for reports, which may not come before the Hello
	a.mu.Unlock()
	if !current {
		return nil
	}
	return c.read(func(message []byte) error {
		now := time.Now()
		a.bytes.Add(int64(len(message)))
		var said error
		err := walk(message, func(n int, _ uint64, body []byte) { said = a.take(c, now, n, body) })
		return errors.Join(err, said)
	})
}

func (a *agent) take(c *call, now time.Time, kind int, body []byte) error {
	switch kind {
	case 1: // Welcome
		return walk(body, func(n int, value uint64, _ []byte) {
			if n == 6 {
				a.fleet.interval.Store(int64(value))
			}
		})
	case 2: // SnapshotBegin
		a.snapshot = true
	case 3: // Update
		if a.snapshot {
			return nil
		}
		a.note(now, body)
		a.mu.Lock()
		err := walk(body, func(n int, value uint64, _ []byte) {
			if n == 1 {
				a.revision = value
			}
		})
		a.mu.Unlock()
		if err != nil {
			return err
		}
		return a.ack(c)
	case 4: // SnapshotEnd
		a.snapshot = false
		a.mu.Lock()
		err := walk(body, func(n int, value uint64, _ []byte) {
			switch n {
			case 1:
				a.epoch = value
			case 2:
				a.revision = value
			}
		})
		a.ready = now
		a.mu.Unlock()
		a.fleet.ready <- struct{}{}
		if err != nil {
			return err
		}
		return a.ack(c)
	}
	return nil
}

// note finds marked events. One pod may be sent twice with the same mark: the first one counts.
func (a *agent) note(now time.Time, body []byte) {
	a.updates.Add(1)
	a.last.Store(now.UnixNano())
	for at := bytes.Index(body, magic); at >= 0 && len(body) >= at+24; at = bytes.Index(body, magic) {
		sent := int64(binary.BigEndian.Uint64(body[at+16:]))
		body = body[at+24:]
		a.mu.Lock()
		if !a.marks[sent] {
			a.marks[sent] = true
			a.arrivals = append(a.arrivals, time.Duration(now.UnixNano()-sent))
		}
		a.mu.Unlock()
	}
}
