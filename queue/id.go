package queue

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// newID mints a time-ordered UUID, version 7 of RFC 9562: 48 bits of ms since
// 1970, then random ones. The clock only sorts them for people who look.
func newID(now time.Time) string {
	var u [16]byte
	_, _ = rand.Read(u[6:]) // never fails
	ms := uint64(max(now.UnixMilli(), 0))
	binary.BigEndian.PutUint16(u[0:], uint16(ms>>32)) //nolint:gosec // the upper 16 of 48 bits
	binary.BigEndian.PutUint32(u[2:], uint32(ms))     //nolint:gosec // the lower 32
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	var text [36]byte
	hex.Encode(text[0:], u[0:4])
	hex.Encode(text[9:], u[4:6])
	hex.Encode(text[14:], u[6:8])
	hex.Encode(text[19:], u[8:10])
	hex.Encode(text[24:], u[10:])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}
