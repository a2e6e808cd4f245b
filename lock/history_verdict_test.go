package lock_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// at makes an op of a history, with its times in ms.
func at(call, returns int64, verb string, lease int, a answer, more op) op {
	more.Call, more.Return = call*int64(time.Millisecond), returns*int64(time.Millisecond)
	more.Verb, more.Lease, more.Answer = verb, lease, a
	more.TTL, more.Until, more.Late = more.TTL*int64(time.Millisecond), more.Until*int64(time.Millisecond), more.Late*int64(time.Millisecond)
	return more
}

// oneLease is how each of the stories begins.
func oneLease() (acquired, released, none op) {
	return at(0, 10, "acquire", 1, ok, op{Fence: 5, TTL: 100, Until: 98}), at(50, 60, "release", 1, ok, none), none
}

// What the models make of the shortest histories that tell a story.
func TestVerdictsOnHistories(t *testing.T) {
	t.Parallel()
	first, released, none := oneLease()
	for _, c := range []struct {
		story string
		legal bool
		ops   []op
	}{
		{"the next takes it during the release", true, []op{first, released, at(40, 55, "acquire", 2, ok, op{Fence: 6, TTL: 100, Until: 150})}},
		{"the next takes it before the release", false, []op{first, released, at(20, 45, "acquire", 2, ok, op{Fence: 6, TTL: 100, Until: 140})}},
		{"the next takes it when it has expired", true, []op{first, at(90, 101, "acquire", 2, ok, op{Fence: 6, TTL: 100, Until: 190})}},
		{"the next takes it before it expires", false, []op{first, at(90, 97, "acquire", 2, ok, op{Fence: 6, TTL: 100, Until: 190})}},
		{"it was extended", false, []op{
			first, at(20, 30, "extend", 1, ok, op{TTL: 100, Until: 118}), at(90, 110, "acquire", 2, ok, op{Fence: 6, TTL: 100, Until: 190}),
		}},
		{"an extension that may have failed", true, []op{
			first, at(20, 30, "extend", 1, unknown, op{TTL: 100}), at(90, 110, "acquire", 2, ok, op{Fence: 6, TTL: 100, Until: 190}),
		}},
		{"a release that may have failed", true, []op{
			first, at(20, 30, "release", 1, unknown, none), at(25, 35, "acquire", 2, ok, op{Fence: 6, TTL: 100, Until: 130}),
		}},
		{"it was extended after it had gone to another", false, []op{
			first, at(100, 105, "acquire", 2, ok, op{Fence: 6, TTL: 100, Until: 200}), at(106, 107, "extend", 1, ok, op{TTL: 100, Until: 200}),
		}},
		{"refused while it is held", true, []op{first, at(90, 95, "acquire", 2, held, none)}},
		{"refused when its key must be gone", false, []op{first, at(130, 140, "acquire", 2, held, none)}},
		{"refused when a request may have been late", true, []op{
			first, at(20, 30, "extend", 1, unknown, op{TTL: 100, Late: 50}), at(170, 175, "acquire", 2, held, none),
		}},
		{"refused after the release", false, []op{first, released, at(70, 75, "acquire", 2, held, none)}},
		{"refused for one that had it unseen", true, []op{
			first, released, at(61, 62, "acquire", 3, unknown, op{TTL: 100, Late: 100}), at(70, 75, "acquire", 2, held, none),
		}},
		{"a late release is told", true, []op{
			first, at(100, 105, "acquire", 2, ok, op{Fence: 6, TTL: 100, Until: 200}), at(106, 107, "release", 1, lost, none),
		}},
		{"a late release is not told", false, []op{
			first, at(100, 105, "acquire", 2, ok, op{Fence: 6, TTL: 100, Until: 200}), at(106, 107, "release", 1, ok, none),
		}},
		{"lost to nobody", false, []op{first, at(50, 60, "extend", 1, lost, none)}},
		{"asked again, the same fence", true, []op{first, at(0, 10, "again", 1, ok, op{Fence: 5})}},
	} {
		want := porcupine.Illegal
		if c.legal {
			want = porcupine.Ok
		}
		if m, f := verdict(mutex, c.ops), verdict(fenced, c.ops); m != want || f != want {
			t.Errorf("%s: as a mutex %s, with fences %s, want %s", c.story, m, f, want)
		}
	}
}

func TestVerdictsOnFences(t *testing.T) {
	t.Parallel()
	first, released, _ := oneLease()
	for story, ops := range map[string][]op{
		"the fence stays":              {first, released, at(61, 65, "acquire", 2, ok, op{Fence: 5, TTL: 100, Until: 160})},
		"the fence falls":              {first, released, at(61, 65, "acquire", 2, ok, op{Fence: 4, TTL: 100, Until: 160})},
		"asked again, another's fence": {first, at(0, 10, "again", 1, ok, op{Fence: 4})},
	} {
		if m, f := verdict(mutex, ops), verdict(fenced, ops); m != porcupine.Ok || f != porcupine.Illegal {
			t.Errorf("%s: as a mutex %s, with fences %s", story, m, f)
		}
	}
}
