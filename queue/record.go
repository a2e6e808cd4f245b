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

// The first byte of a record. One of a task with a lock key has that next, and a
// line feed, for scripts to read.
const (
	plainRecord = 1
	keyedRecord = 2
)

// record is what is stored of a task, beside its ID and its lock key.
type record struct {
	Kind        string            `cbor:"1,keyasint"`
	Payload     []byte            `cbor:"2,keyasint,omitempty"`
	Headers     map[string]string `cbor:"4,keyasint,omitempty"`
	MaxAttempts int               `cbor:"5,keyasint,omitempty"`
	Timeout     time.Duration     `cbor:"6,keyasint,omitempty"` // ns
	Expires     int64             `cbor:"7,keyasint,omitempty"` // µs since 1970
	OnExpiry    duly.Action       `cbor:"8,keyasint,omitempty"`
	Every       string            `cbor:"9,keyasint,omitempty"`
	Grace       time.Duration     `cbor:"10,keyasint,omitempty"` // ns
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
	r.next = record{
		t.Kind, t.Payload, t.Headers, t.MaxAttempts, t.Timeout, micros(t.Expires), t.OnExpiry,
		t.Every, t.Grace, t.Retain,
	}
	if t.LockKey == "" {
		_ = r.buf.WriteByte(plainRecord) // never fails
	} else {
		_, _ = fmt.Fprintf(&r.buf, "%c%s\n", keyedRecord, t.LockKey)
	}
	return encoding.MarshalToBuffer(&r.next, &r.buf)
}

// decodeRecord returns as much of a corrupt record as its delivery needs to be
// settled: the ID and the lock key.
func decodeRecord(id, stored string) (duly.Task, error) {
	task := duly.Task{ID: id}
	if stored == "" {
		return task, fmt.Errorf("%w: no bytes", ErrCorrupt)
	}
	body := stored[1:]
	switch stored[0] {
	case plainRecord:
	case keyedRecord:
		key, rest, found := strings.Cut(body, "\n")
		if !found || key == "" {
			return task, fmt.Errorf("%w: no lock key", ErrCorrupt)
		}
		task.LockKey, body = key, rest
	default:
		return task, fmt.Errorf("%w: version %d, not %d or %d", ErrCorrupt, stored[0], plainRecord, keyedRecord)
	}
	var r record
	err := decoding.Unmarshal([]byte(body), &r)
	switch {
	case err != nil:
		return task, fmt.Errorf("%w: %w", ErrCorrupt, err)
	case r.Kind == "":
		return task, fmt.Errorf("%w: no kind", ErrCorrupt)
	case r.Expires < 0:
		return task, fmt.Errorf("%w: expires before 1970", ErrCorrupt)
	case !isExpiry(r.OnExpiry):
		return task, fmt.Errorf("%w: on expiry %q", ErrCorrupt, r.OnExpiry)
	case r.Retain < 0 || r.Retain > MaxRetain:
		return task, fmt.Errorf("%w: kept for %v", ErrCorrupt, r.Retain)
	}
	task.Kind, task.Payload, task.Headers = r.Kind, r.Payload, r.Headers
	task.MaxAttempts, task.Timeout, task.OnExpiry, task.Retain = r.MaxAttempts, r.Timeout, r.OnExpiry, r.Retain
	task.Every, task.Grace = r.Every, r.Grace
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
	case t.Grace < 0 || t.Grace > 0 && t.Every == "":
		return fmt.Errorf("%w: Grace %v is negative, or without Every", ErrInvalid, t.Grace)
	case t.Every != "" && t.ID == "":
		return fmt.Errorf("%w: Every without an ID", ErrInvalid)
	case t.Retain < 0 || t.Retain > MaxRetain:
		return fmt.Errorf("%w: Retain %v is not between 0 and %v", ErrInvalid, t.Retain, MaxRetain)
	case t.Retain > 0 && t.Every != "":
		return fmt.Errorf("%w: Retain with Every: what recurs is never done", ErrInvalid)
	case t.Every != "":
		return checkText("Every", t.Every, MaxEvery)
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
