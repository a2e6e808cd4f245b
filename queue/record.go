package queue

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock"
)

// ErrCorrupt means that the stored bytes of a task do not decode. They are kept.
var ErrCorrupt = errors.New("corrupt record")

// recordVersion is the first byte of a record.
const recordVersion = 1

// record is what is stored of a task, beside its ID.
type record struct {
	Kind        string            `cbor:"1,keyasint"`
	Payload     []byte            `cbor:"2,keyasint,omitempty"`
	LockKey     string            `cbor:"3,keyasint,omitempty"`
	Headers     map[string]string `cbor:"4,keyasint,omitempty"`
	MaxAttempts int               `cbor:"5,keyasint,omitempty"`
	Timeout     time.Duration     `cbor:"6,keyasint,omitempty"` // ns
	Expires     int64             `cbor:"7,keyasint,omitempty"` // µs since 1970
	OnExpiry    duly.Action       `cbor:"8,keyasint,omitempty"`
	Retain      time.Duration     `cbor:"11,keyasint,omitempty"` // ns
}

var encoding, decoding = modes()

func modes() (cbor.UserBufferEncMode, cbor.DecMode) {
	enc, err := cbor.CoreDetEncOptions().UserBufferEncMode()
	if err != nil {
		panic(err)
	}
	dec, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		MaxNestedLevels: 4, MaxMapPairs: 16 + MaxHeaders, ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return enc, dec
}

// records encodes tasks one behind the other.
type records struct {
	buf  bytes.Buffer
	next record
}

func (r *records) add(t *duly.Task) error {
	r.next = record{t.Kind, t.Payload, t.LockKey, t.Headers, t.MaxAttempts, t.Timeout, micros(t.Expires), t.OnExpiry, t.Retain}
	_ = r.buf.WriteByte(recordVersion) // never fails
	return encoding.MarshalToBuffer(&r.next, &r.buf)
}

func decodeRecord(id, stored string) (duly.Task, error) {
	if stored == "" {
		return duly.Task{ID: id}, fmt.Errorf("%w: no bytes", ErrCorrupt)
	}
	if stored[0] != recordVersion {
		return duly.Task{ID: id}, fmt.Errorf("%w: version %d, not %d", ErrCorrupt, stored[0], recordVersion)
	}
	var r record
	if err := decoding.Unmarshal([]byte(stored[1:]), &r); err != nil {
		return duly.Task{ID: id}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if r.Kind == "" {
		return duly.Task{ID: id}, fmt.Errorf("%w: no kind", ErrCorrupt)
	}
	if r.Expires < 0 {
		return duly.Task{ID: id}, fmt.Errorf("%w: expires before 1970", ErrCorrupt)
	}
	if !isExpiry(r.OnExpiry) {
		return duly.Task{ID: id}, fmt.Errorf("%w: on expiry %q", ErrCorrupt, r.OnExpiry)
	}
	if r.Retain < 0 || r.Retain > MaxRetain {
		return duly.Task{ID: id}, fmt.Errorf("%w: kept for %v", ErrCorrupt, r.Retain)
	}
	task := duly.Task{
		ID: id, Kind: r.Kind, Payload: r.Payload, LockKey: r.LockKey,
		Headers: r.Headers, MaxAttempts: r.MaxAttempts, Timeout: r.Timeout, OnExpiry: r.OnExpiry,
		Retain: r.Retain,
	}
	if r.Expires != 0 {
		task.Expires = time.UnixMicro(r.Expires)
	}
	return task, nil
}

// micros are those since 1970, 0 for the zero time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// checkTask reports why a queue does not take a task.
func (q *Queue) checkTask(t *duly.Task) error {
	if err := t.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if t.ID != "" {
		if err := checkText("task ID", t.ID, MaxID); err != nil {
			return err
		}
	}
	if err := checkText("kind", t.Kind, MaxKind); err != nil {
		return err
	}
	if t.LockKey != "" {
		if err := lock.CheckName(t.LockKey); err != nil {
			return fmt.Errorf("lock key: %w", err)
		}
	}
	size := len(t.Payload)
	for k, v := range t.Headers {
		size += len(k) + len(v)
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("%w: header %.512q is not UTF-8", ErrInvalid, k)
		}
	}
	switch {
	case size > q.cfg.MaxPayload:
		return fmt.Errorf("%w: payload and headers of %d bytes, over %d", ErrInvalid, size, q.cfg.MaxPayload)
	case len(t.Headers) > MaxHeaders:
		return fmt.Errorf("%w: %d headers, over %d", ErrInvalid, len(t.Headers), MaxHeaders)
	case t.MaxAttempts < 0:
		return fmt.Errorf("%w: MaxAttempts %d is negative", ErrInvalid, t.MaxAttempts)
	case t.Timeout < 0:
		return fmt.Errorf("%w: Timeout %v is negative", ErrInvalid, t.Timeout)
	case !t.Expires.IsZero() && (t.Expires.Year() < 1970 || t.Expires.Year() > 2255 || t.Expires.UnixMicro() <= 0):
		return fmt.Errorf("%w: Expires %v is not between the years 1970 and 2255", ErrInvalid, t.Expires)
	case !isExpiry(t.OnExpiry):
		return fmt.Errorf("%w: OnExpiry %q", ErrInvalid, t.OnExpiry)
	case t.Retain < 0 || t.Retain > MaxRetain:
		return fmt.Errorf("%w: Retain %v is not between 0 and %v", ErrInvalid, t.Retain, MaxRetain)
	}
	return nil
}

// isExpiry reports whether an action is one for a task that has expired.
func isExpiry(a duly.Action) bool { return a == "" || a == duly.Buried || a == duly.Dropped }

// encodeFailure and decodeFailure are the codec of the fail hash.
func encodeFailure(failures int, err error) string {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if len(text) > MaxError {
		text = text[:MaxError]
	}
	return strconv.Itoa(failures) + ":" + strings.ToValidUTF8(text, "")
}

func decodeFailure(stored string) (failures int, text string) {
	digits, text, _ := strings.Cut(stored, ":")
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil {
		return 0, stored
	}
	return int(n), text
}
