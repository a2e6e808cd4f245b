package queue_test

import (
	"context"
	"errors"
	"math"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// offline returns a client that fails the test when it is used.
func offline(t *testing.T) redis.UniversalClient {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1, MaintNotificationsConfig: plain,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			t.Error("bad input reached the network")
			return nil, errors.New("test: offline")
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// badTexts are texts that no name may be. Their lengths and what else is
// forbidden depend on the name.
var badTexts = map[string]string{
	"NUL": "a\x00b", "CR LF": "a\r\nb", "tab": "\t", "DEL": "\x7f", "C1 control": "a\u0085", "not UTF-8": "a\xff",
	"half a surrogate": "\xed\xa0\x80", "cut": "é"[:1],
}

// refused fails the test unless err is a clear ErrInvalid.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, queue.ErrInvalid) || errors.Is(err, queue.ErrUnknownOutcome) {
		t.Errorf("%s: got error %v, want ErrInvalid", what, err)
		return
	}
	if strings.ContainsFunc(err.Error(), unicode.IsControl) || !utf8.ValidString(err.Error()) {
		t.Errorf("%s: the error shows raw bytes: %q", what, err)
	}
	if len(err.Error()) > 4096 {
		t.Errorf("%s: an error of %d bytes", what, len(err.Error()))
	}
}

func TestNewRefusesBadNamesAndSettings(t *testing.T) {
	t.Parallel()
	client := offline(t)
	names := map[string]string{
		"empty": "", "long": strings.Repeat("x", queue.MaxName+1), "huge": strings.Repeat("x", 1<<20),
		"{": "a{", "}": "}a", "{}": "{}", "tagged": "a{b}c",
	}
	for what, name := range badTexts {
		names[what] = name
	}
	for what, name := range names {
		_, err := queue.New(client, name, queue.Config{})
		refused(t, "name "+what, err)
		if name == "" {
			continue // an empty prefix is the default
		}
		_, err = queue.New(client, "orders", queue.Config{Prefix: name})
		refused(t, "prefix "+what, err)
	}
	for what, cfg := range map[string]queue.Config{
		"MaxPayload -1":      {MaxPayload: -1},
		"MaxPayload 64M+1":   {MaxPayload: 64<<20 + 1},
		"MaxPayload max int": {MaxPayload: math.MaxInt},
		"MaxCrashes -1":      {MaxCrashes: -1},
		"ReplicaAcks -1":     {ReplicaAcks: -1},
		"ReplicaAcks 17":     {ReplicaAcks: 17},
	} {
		_, err := queue.New(client, "orders", cfg)
		refused(t, what, err)
		if err != nil && !strings.Contains(err.Error(), strings.Fields(what)[0]) {
			t.Errorf("%s: the error does not name the field: %v", what, err)
		}
	}
	var none *redis.Client
	for _, rdb := range []redis.UniversalClient{nil, none} {
		_, err := queue.New(rdb, "orders", queue.Config{})
		refused(t, "nil client", err)
	}
}

func TestNewTakesNamesUpToTheirLimits(t *testing.T) {
	t.Parallel()
	client := offline(t)
	for _, name := range []string{
		"a", strings.Repeat("x", queue.MaxName), strings.Repeat("é", queue.MaxName/2), "a b:c/d\"'\\%s*?[x]", "\u2028",
	} {
		q, err := queue.New(client, name, queue.Config{Prefix: name, MaxPayload: 64 << 20, MaxCrashes: math.MaxInt32})
		must(t, err)
		equal(t, "name", q.Name(), name)
	}
}

func TestEnqueueRefusesBadTasksBeforeTheNetwork(t *testing.T) {
	t.Parallel()
	q := newQueue(t, offline(t), "orders", queue.Config{})
	headers := make(map[string]string)
	for i := range queue.MaxHeaders + 1 {
		headers[strings.Repeat("h", i)] = ""
	}
	bad := map[string]duly.Task{
		"no kind":           {ID: "x"},
		"long kind":         {Kind: strings.Repeat("k", queue.MaxKind+1)},
		"long ID":           {Kind: "k", ID: strings.Repeat("x", queue.MaxID+1)},
		"huge ID":           {Kind: "k", ID: strings.Repeat("x", 1<<20)},
		"long lock key":     {Kind: "k", LockKey: strings.Repeat("x", 513)},
		"brace in lock key": {Kind: "k", LockKey: "a{b}"},
		"large payload":     {Kind: "k", Payload: make([]byte, 1<<20+1)},
		"huge header name":  {Kind: "k", Headers: map[string]string{strings.Repeat("h", 1<<20) + "\xff": ""}},
		"large header":      {Kind: "k", Headers: map[string]string{"h": strings.Repeat("v", 1<<20)}},
		"large together":    {Kind: "k", Headers: map[string]string{"h": "v"}, Payload: make([]byte, 1<<20-1)},
		"many headers":      {Kind: "k", Headers: headers},
		"header name":       {Kind: "k", Headers: map[string]string{"\xff": "v"}},
		"header value":      {Kind: "k", Headers: map[string]string{"h": "\xff"}},
		"MaxAttempts":       {Kind: "k", MaxAttempts: -1},
		"Timeout":           {Kind: "k", Timeout: -1},
		"Expires":           {Kind: "k", Expires: time.UnixMicro(queue.MaxDue).AddDate(1, 0, 0)},
		"Expires of old":    {Kind: "k", Expires: time.Date(-400_000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"Expires in 1970":   {Kind: "k", Expires: time.Unix(0, 0)},
		"OnExpiry":          {Kind: "k", OnExpiry: duly.Retried},
		"long Every":        {Kind: "k", ID: "x", Every: strings.Repeat("e", queue.MaxEvery+1)},
		"control in Every":  {Kind: "k", ID: "x", Every: "@hourly\n"},
		"Every without ID":  {Kind: "k", Every: "@hourly"},
		"Grace":             {Kind: "k", ID: "x", Every: "@hourly", Grace: -1},
		"Grace alone":       {Kind: "k", ID: "x", Grace: 1},
		"negative Retain":   {Kind: "k", Retain: -1},
		"Retain":            {Kind: "k", Retain: queue.MaxRetain + 1},
		"Retain with Every": {Kind: "k", ID: "x", Every: "@hourly", Retain: 1},
		"no ID from Kind":   duly.Kind[int]{Name: "k", ID: func(int) string { return "" }}.Task(1),
		"arguments":         duly.Kind[float64]{Name: "k"}.Task(math.NaN()),
	}
	for what, text := range badTexts {
		bad["ID "+what] = duly.Task{Kind: "k", ID: text}
		bad["kind "+what] = duly.Task{Kind: text}
		bad["lock key "+what] = duly.Task{Kind: "k", LockKey: text}
	}
	for what, task := range bad {
		receipt, err := q.Enqueue(t.Context(), task)
		refused(t, what, err)
		equal(t, what+": receipt", receipt, queue.Receipt{ID: task.ID})
	}
}

func TestEnqueueTakesTasksUpToTheirLimits(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		headers := make(map[string]string)
		for i := range queue.MaxHeaders {
			headers[strings.Repeat("h", i)] = ""
		}
		for _, want := range []duly.Task{
			{ID: strings.Repeat("é", queue.MaxID/2), Kind: strings.Repeat("k", queue.MaxKind), LockKey: strings.Repeat("l", 512)},
			{ID: "{a}:1:2:", Kind: "k\"'\\", Payload: make([]byte, 1<<20), MaxAttempts: math.MaxInt, Timeout: math.MaxInt64},
			{ID: "headers", Kind: "k", Headers: headers},
			{ID: "recurs", Kind: "k", Every: strings.Repeat("é", queue.MaxEvery/2), Grace: math.MaxInt64},
			{ID: "kept", Kind: "k", Retain: queue.MaxRetain},
		} {
			_, err := r.q.Enqueue(t.Context(), want)
			must(t, err)
			got := r.popOne(t, want.ID)
			if !reflect.DeepEqual(got.Task, want) {
				t.Errorf("the task with ID %q came back changed", want.ID)
			}
			r.settle(t, duly.Acked, got)
		}
	})
}

func TestBadTimesAndConflictsAreRefusedBeforeTheNetwork(t *testing.T) {
	t.Parallel()
	q := newQueue(t, offline(t), "orders", queue.Config{})
	for what, opt := range map[string]queue.EnqueueOption{
		"in over 200 years":   queue.In(queue.MaxDelay + 1),
		"in the longest":      queue.In(math.MaxInt64),
		"at the first beyond": queue.At(time.UnixMicro(queue.MaxDue + 1)),
		"at the year 2256":    queue.At(time.Date(2256, 1, 1, 0, 0, 0, 0, time.UTC)),
		"at the year 9999":    queue.At(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)),
		"at an overflow":      queue.At(time.Unix(math.MaxInt64/1_000_000, 0)),
		"at a larger one":     queue.At(time.Unix(1<<55, 0)),
		"nil option":          nil,
	} {
		_, err := q.Enqueue(t.Context(), task("x"), opt)
		refused(t, what, err)
		_, err = q.Enqueue(t.Context(), task("x"), opt, queue.In(0))
		refused(t, what+", then a good one", err)
		_, err = q.EnqueueMany(t.Context(), many(2), opt)
		refused(t, what, err)
		_, err = q.Reschedule(t.Context(), "x", opt)
		refused(t, what, err)
	}
	for _, conflict := range []queue.Conflict{"", "KEEP", "keep ", "latest"} {
		_, err := q.Enqueue(t.Context(), task("x"), queue.OnConflict(conflict))
		refused(t, "conflict "+string(conflict), err)
	}
	_, err := q.Reschedule(t.Context(), "x", queue.OnConflict(queue.Replace))
	refused(t, "reschedule without a time", err)
}

func TestBadArgumentsOfTheOtherVerbsAreRefusedBeforeTheNetwork(t *testing.T) {
	t.Parallel()
	q := newQueue(t, offline(t), "orders", queue.Config{})
	ctx := t.Context()
	for _, n := range []int{0, -1, math.MinInt, queue.MaxBatch + 1, math.MaxInt} {
		_, _, err := q.Pop(ctx, n, time.Second)
		refused(t, "pop n", err)
	}
	for _, n := range []int{0, -1, math.MinInt, queue.MaxPage + 1, math.MaxInt} {
		_, err := q.Peek(ctx, n)
		refused(t, "peek n", err)
	}
	for _, lease := range []time.Duration{0, -1, math.MinInt64, queue.MinLease - 1, queue.MaxLease + 1, math.MaxInt64} {
		_, _, err := q.Pop(ctx, 1, lease)
		refused(t, "pop lease", err)
		_, _, err = q.Extend(ctx, nil, lease)
		refused(t, "extend lease", err)
	}
	d := &duly.Delivery{Task: task("x")}
	for what, s := range map[string]duly.Settlement{
		"no delivery":     {Action: duly.Acked},
		"no action":       {Delivery: d},
		"unknown action":  {Delivery: d, Action: "acked"},
		"negative In":     {Delivery: d, Action: duly.Retried, In: -1},
		"In over 200 y":   {Delivery: d, Action: duly.Released, In: queue.MaxDelay + 1},
		"negative of ack": {Delivery: d, Action: duly.Acked, In: math.MinInt64},
		"large result":    {Delivery: d, Action: duly.Acked, Result: make([]byte, duly.MaxResult+1)},
	} {
		_, err := q.Settle(ctx, []duly.Settlement{{Delivery: d, Action: duly.Acked}, s})
		refused(t, what, err)
	}
	_, _, err := q.Extend(ctx, []*duly.Delivery{d, nil}, time.Second)
	refused(t, "extend of nil", err)
	refused(t, "progress of nil", q.Progress(ctx, nil, []byte("1")))
	refused(t, "no progress", q.Progress(ctx, d, nil))
	refused(t, "large progress", q.Progress(ctx, d, make([]byte, duly.MaxResult+1)))

	idVerbs := map[string]func(string) error{
		"cancel":     func(id string) error { _, err := q.Cancel(ctx, id); return err },
		"remove":     func(id string) error { _, err := q.Remove(ctx, id, time.Now()); return err },
		"get":        func(id string) error { _, err := q.Get(ctx, id); return err },
		"wait":       func(id string) error { _, err := q.Wait(ctx, id); return err },
		"reschedule": func(id string) error { _, err := q.Reschedule(ctx, id, queue.In(0)); return err },
		"revive":     func(id string) error { _, err := q.Revive(ctx, "good", id); return err },
	}
	for verb, call := range idVerbs {
		refused(t, verb+" empty", call(""))
		refused(t, verb+" long", call(strings.Repeat("x", queue.MaxID+1)))
		refused(t, verb+" huge", call(strings.Repeat("x", 1<<20)))
		for what, id := range badTexts {
			refused(t, verb+" "+what, call(id))
		}
	}
	for _, state := range []queue.State{"", "running", queue.Missing, "DUE"} {
		_, err := q.List(ctx, state, 0, 1)
		refused(t, "list state", err)
	}
	_, err = q.List(ctx, queue.Due, -1, 1)
	refused(t, "list offset", err)
	_, err = q.Purge(ctx, -1)
	refused(t, "purge age", err)
	refused(t, "lock TTL", func() error {
		return q.Lock(ctx, 0, func(context.Context) error { t.Error("ran"); return nil })
	}())
}
