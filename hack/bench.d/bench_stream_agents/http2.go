// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
)

// One gRPC call on an HTTP/2 connection of its own, with as little work as the protocol allows, because thousands of
// these share the machine with the server that is measured. The peer's headers are not decoded (RFC 9113, RFC 7541).
type call struct {
	conn     *tls.Conn
	in       *bufio.Reader
	sent     atomic.Int64 // bytes of DATA that the peer's windows still take
	received int          // since the windows were given back
	message  []byte       // of the gRPC message that is arriving
}

const (
	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	frameSettings     = 4
	framePing         = 6
	frameGoAway       = 7
	frameWindowUpdate = 8

	flagEndStream  = 1
	flagAck        = 1
	flagEndHeaders = 4
	flagPadded     = 8

	window      = 1 << 20 // as much as the operator sends without an Ack
	firstWindow = 65535
	messageMax  = 4 << 20
)

var errNoWindow = errors.New("the peer takes no more now")

func appendFrame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

func appendString(b []byte, s string) []byte {
	if len(s) < 127 {
		return append(append(b, byte(len(s))), s...)
	}
	b = append(b, 127)
	return append(binary.AppendUvarint(b, uint64(len(s)-127)), s...)
}

// Literals without indexing; names of the static table (RFC 7541, appendix A) by number.
func appendHeader(b []byte, name int, value string) []byte {
	if name < 15 {
		b = append(b, byte(name))
	} else {
		b = append(b, 15, byte(name-15))
	}
	return appendString(b, value)
}

func open(address string, config *tls.Config, path, authorization string) (*call, error) {
	raw, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	c := &call{conn: tls.Client(raw, config)}
	c.in = bufio.NewReaderSize(c.conn, 4096)
	c.sent.Store(firstWindow)
	headers := []byte{0x80 | 3, 0x80 | 7} // :method POST, :scheme https
	headers = appendHeader(headers, 4, path)
	headers = appendHeader(headers, 1, address)
	headers = appendHeader(headers, 31, "application/grpc")
	headers = appendHeader(headers, 23, authorization)
	headers = append(headers, 0)
	headers = appendString(appendString(headers, "te"), "trailers")
	hello := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	settings := []byte{0, 2, 0, 0, 0, 0} // no push
	settings = append(settings, 0, 4)
	settings = binary.BigEndian.AppendUint32(settings, window)
	hello = appendFrame(hello, frameSettings, 0, 0, settings)
	hello = appendFrame(hello, frameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, window-firstWindow))
	hello = appendFrame(hello, frameHeaders, flagEndHeaders, 1, headers)
	if _, err := c.conn.Write(hello); err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

// MESSAGE is one gRPC message. Any goroutine.
func (c *call) send(message []byte) error {
	n := len(message) + 5
	if c.sent.Add(-int64(n)) < 0 {
		c.sent.Add(int64(n))
		return errNoWindow
	}
	b := make([]byte, 0, n+9)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), frameData, 0, 0, 0, 0, 1, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(message)))
	_, err := c.conn.Write(append(b, message...))
	return err
}

func (c *call) close() { c.conn.NetConn().Close() }

// Reads until the end, and gives each message to F.
func (c *call) read(f func(message []byte) error) error {
	var head [9]byte
	var payload []byte
	for {
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			return err
		}
		n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		if n > 1<<14 {
			return fmt.Errorf("a frame of %d bytes", n)
		}
		if cap(payload) < n {
			payload = make([]byte, n)
		}
		payload = payload[:n]
		if _, err := io.ReadFull(c.in, payload); err != nil {
			return err
		}
		if err := c.frame(head[3], head[4], binary.BigEndian.Uint32(head[5:]), payload, f); err != nil {
			return err
		}
	}
}

func (c *call) frame(kind, flags byte, stream uint32, payload []byte, f func([]byte) error) error {
	switch {
	case kind == frameData && flags&flagPadded == 0:
		return c.data(payload, f)
	case kind == frameHeaders && flags&flagEndStream != 0:
		return errors.New("the call has ended")
	case kind == frameReset && len(payload) == 4:
		return fmt.Errorf("reset, %d", binary.BigEndian.Uint32(payload))
	case kind == frameGoAway && len(payload) >= 8:
		return fmt.Errorf("going away, %d %q", binary.BigEndian.Uint32(payload[4:]), payload[8:])
	case kind == frameSettings && flags&flagAck == 0:
		_, err := c.conn.Write(appendFrame(nil, frameSettings, flagAck, 0, nil))
		return err
	case kind == framePing && flags&flagAck == 0:
		_, err := c.conn.Write(appendFrame(nil, framePing, flagAck, 0, payload))
		return err
	case kind == frameWindowUpdate && len(payload) == 4 && stream == 1:
		c.sent.Add(int64(binary.BigEndian.Uint32(payload))) // the stream's is the narrower one
	}
	return nil
}

func (c *call) data(payload []byte, f func([]byte) error) error {
	c.received += len(payload)
	if c.received > window/4 {
		n := binary.BigEndian.AppendUint32(nil, uint32(c.received))
		b := appendFrame(nil, frameWindowUpdate, 0, 0, n)
		if _, err := c.conn.Write(appendFrame(b, frameWindowUpdate, 0, 1, n)); err != nil {
			return err
		}
		c.received = 0
	}
	c.message = append(c.message, payload...)
	rest := c.message
	for len(rest) >= 5 {
		n := int(binary.BigEndian.Uint32(rest[1:]))
		if rest[0] != 0 || n > messageMax {
			return fmt.Errorf("a message of %d bytes, compressed: %d", n, rest[0])
		}
		if len(rest) < 5+n {
			break
		}
		if err := f(rest[5 : 5+n]); err != nil {
			return err
		}
		rest = rest[5+n:]
	}
	c.message = append(c.message[:0], rest...)
	return nil
}
