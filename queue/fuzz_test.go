package queue_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

func FuzzDecodeRecord(f *testing.F) {
	for _, stored := range badRecords {
		f.Add(stored)
	}
	whole := duly.Task{
		Kind: "k", Payload: []byte("\x00\xff"), LockKey: "l", Headers: map[string]string{"a": "b", "": ""},
		MaxAttempts: math.MaxInt, Timeout: math.MaxInt64, Every: "@hourly", Grace: 1,
	}
	for _, task := range []duly.Task{{Kind: "k"}, whole} {
		stored, err := queue.EncodeRecord(&task)
		must(f, err)
		f.Add(string(stored))
		f.Add(string(stored[:len(stored)-1]))
	}
	f.Fuzz(func(t *testing.T, stored string) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		task, err := queue.DecodeRecord("id", stored)
		runtime.ReadMemStats(&after)
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 64<<10+8*uint64(len(stored)) {
			t.Errorf("%d bytes allocated for %d", spent, len(stored))
		}
		if task.ID != "id" {
			t.Errorf("the ID is %q", task.ID)
		}
		if err != nil {
			wants(t, err, queue.ErrCorrupt)
			return
		}
		again, err := queue.EncodeRecord(&task)
		must(t, err)
		same, err := queue.DecodeRecord("id", string(again))
		must(t, err)
		if fmt.Sprint(same) != fmt.Sprint(task) {
			t.Errorf("%+v became %+v", task, same)
		}
	})
}

func FuzzRecordRoundTrip(f *testing.F) {
	f.Add("k", []byte(nil), "", "", "", 0, int64(0))
	f.Add("order.cancel", []byte("\x00\r\n\xff{}:"), "order:42", "traceparent", "00-ab", math.MaxInt, int64(math.MaxInt64))
	f.Add("é", make([]byte, 1<<16), "é", "", "é\u2028", 1, int64(1))
	f.Fuzz(func(t *testing.T, kind string, payload []byte, lockKey, header, value string, attempts int, timeout int64) {
		for _, text := range []string{kind, lockKey, header, value} {
			if !utf8.ValidString(text) {
				t.Skip("refused before it is encoded")
			}
		}
		want := duly.Task{
			ID: "id", Kind: kind, LockKey: lockKey, Headers: map[string]string{header: value},
			MaxAttempts: attempts, Timeout: time.Duration(timeout),
		}
		if len(payload) > 0 {
			want.Payload = payload
		}
		stored, err := queue.EncodeRecord(&want)
		must(t, err)
		got, err := queue.DecodeRecord("id", string(stored))
		if kind == "" {
			wants(t, err, queue.ErrCorrupt)
			return
		}
		must(t, err)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v became %+v", want, got)
		}
	})
}

func FuzzCheckName(f *testing.F) {
	for _, text := range badTexts {
		f.Add(text)
	}
	for _, text := range []string{"", "a", "a{b}", "é", "\u2028", "a b:c", strings.Repeat("x", queue.MaxName), strings.Repeat("x", queue.MaxName+1)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, s string) {
		good := len(s) >= 1 && len(s) <= queue.MaxName
		for _, r := range s {
			good = good && !unicode.IsControl(r)
		}
		good = good && strings.ToValidUTF8(s, "") == s
		for what, check := range map[string]struct {
			err  error
			good bool
		}{
			"text": {queue.CheckText("text", s, queue.MaxName), good},
			"name": {queue.CheckName("name", s, queue.MaxName), good && !strings.ContainsAny(s, "{}")},
		} {
			if (check.err == nil) != check.good {
				t.Errorf("%s %q: good is %v, error %v", what, s, check.good, check.err)
			}
			if check.err != nil {
				refused(t, what, check.err)
			}
		}
	})
}

func FuzzDecodeFailure(f *testing.F) {
	for _, stored := range []string{"", "x", ":", "1:x", "-1:x", "+1:x", "1:2:\n\xff", "2147483648:", "9223372036854775807:x", "0x1:", "1e3:", " 1:"} {
		f.Add(stored, 1)
	}
	f.Fuzz(func(t *testing.T, stored string, failures int) {
		n, text := queue.DecodeFailure(stored)
		if n < 0 || n > math.MaxInt32 || !strings.HasSuffix(stored, text) {
			t.Errorf("%q is %d, %q", stored, n, text)
		}
		failures &= math.MaxInt32
		n, text = queue.DecodeFailure(queue.EncodeFailure(failures, errors.New(stored)))
		want := strings.ToValidUTF8(stored[:min(len(stored), queue.MaxError)], "")
		if n != failures || text != want || len(text) > queue.MaxError {
			t.Errorf("%d, %q became %d, %q", failures, stored, n, text)
		}
	})
}
