package lock_test

import (
	"testing"

	"github.com/dulyhq/duly/internal/mutant"
)

var mutants = []mutant.Mutant{
	{
		"acquiring is not idempotent by token", "lua/acquire.lua",
		"if owner(value) == token then", "if false then",
		"LostReplyOfAcquire|RepeatedRequests",
	},
	{
		"an acquisition that is asked again shortens the lock", "lua/acquire.lua",
		"if left < tonumber(ttl) then redis.call('PEXPIRE', l.lock, ttl) end", "redis.call('PEXPIRE', l.lock, ttl)",
		"RepeatedRequests",
	},
	{
		"a prefix of the token passes for it in acquire", "lua/acquire.lua",
		"if owner(value) == token then", "if owner(value) and token:sub(1, #owner(value)) == owner(value) then",
		"AskingAgainComparesTheWholeToken",
	},
	{
		"release compares no token", "lua/release.lua",
		"if value and owner(value) == token then", "if value then",
		"WholeToken|ReleaseAfterTheEnd",
	},
	{
		"extend compares no token", "lua/extend.lua",
		"if owner ~= ARGV[1] then return {'foreign'} end", "",
		"WholeToken|LossIsReported",
	},
	{
		"extend shortens", "lua/extend.lua",
		"if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end",
		"redis.call('PEXPIRE', KEYS[1], ARGV[2])",
		"ExtendNeverShortens|RepeatedRequests",
	},
	{
		"the fence is a counter alone", "lua/line.lua",
		"math.max(last + 1, micros())", "last + 1",
		"FencesRise",
	},
	{
		"the fence is the clock alone", "lua/line.lua",
		"math.max(last + 1, micros())", "micros()",
		"FencesRise",
	},
	{
		"the fence loses digits", "lua/line.lua",
		"us(math.max(last + 1, micros()))", "tostring(math.max(last + 1, micros()))",
		"TryAcquireTakes|FencesRise",
	},
	{
		"a lock without a TTL stays", "lua/acquire.lua",
		"redis.call('PEXPIRE', l.lock, adopt)", "",
		"KeyWithoutTTL",
	},
	{
		"a lock without a TTL is stolen", "lua/acquire.lua",
		"if not value then", "if not value or redis.call('PTTL', l.lock) == -1 then",
		"KeyWithoutTTL",
	},
	{
		"the guard lets everybody pass", "lua/guard.lua",
		"if value and", "if false and",
		"Guard|WholeToken",
	},
	{
		"a newcomer overtakes who waits", "lua/acquire.lua",
		"local waiter = l.unfair ~= '1' and head(l)", "local waiter = nil",
		"NewcomersDoNotOvertake",
	},
	{
		"the dead keep their place in line", "lua/line.lua",
		"if ends and tonumber(ends) > micros() / 1000 then return waiter end", "do return waiter end",
		"DeadWaiters|ManyDead",
	},
	{
		"who gives up stays in line", "lua/release.lua",
		"redis.call('ZREM', l.line, token)", "",
		"CancelledWaiter|TakesNone",
	},
	{
		"what is published decides: a waiter does not look", "wait.go",
		"	ls.arm(l)\n}\n\n// heard", "}\n\n// heard",
		"WaiterLooks|LiveWaiterAcquires",
	},
	{
		"a release does not follow the request that it may have overtaken", "node.go",
		"	if n.landed(token) != closed {", "	if false {",
		"ReleaseDoesNotOvertake|LeavesNoLock",
	},
	{
		"a lease does not end by the local clock", "lease.go",
		"lease.expiry = time.AfterFunc(time.Until(lease.until), func() { _ = lease.Err() })", "lease.expiry = time.AfterFunc(1<<62, func() {})",
		"LocalDeadline|BlackHoled",
	},
	{
		"validity counts from the reply", "lease.go",
		"until: validUntil(g.sent, a.ttl),", "until: validUntil(time.Now(), a.ttl),",
		"LeaseCountsFromBefore",
	},
	{
		"validity allows for no drift", "lease.go",
		"return sent.Add(ttl - ttl/100 - 2*time.Millisecond)", "return sent.Add(ttl)",
		"LocalDeadline|TryAcquireTakes",
	},
	{
		"clean-up rides on the caller's context", "lease.go",
		"	ctx, cancel := outlive(ctx)\n	defer cancel()\n", "",
		"ReleaseIsSent|ReleaseOutlives",
	},
	{
		"go-redis retries", "script.go",
		"func (once) NoRetry() bool { return true }", "func (once) NoRetry() bool { return false }",
		"Retr",
	},
	{
		"a renewal error is a loss", "lease.go",
		"case errors.Is(err, ErrExpired), errors.Is(err, ErrLost):", "case err != nil:",
		"LostReplyOfExtend|KeepAliveOutlasts",
	},
	{
		"a renewal that finds another holder is no loss", "lease.go",
		"case errors.Is(err, ErrExpired), errors.Is(err, ErrLost):", "case errors.Is(err, ErrExpired):",
		"LossIsReported",
	},
	{
		"what was resumed late is released", "locker.go",
		"err = fmt.Errorf(\"%w: the answer took longer than %v\", ErrUnknownOutcome, ttl)",
		"l.store.abandon(name, token)\n			err = fmt.Errorf(\"%w: the answer took longer than %v\", ErrUnknownOutcome, ttl)",
		"LateResume",
	},
	{
		"a lease that was handed over can be released", "lease.go",
		"if errors.Is(was, ErrHandedOver) {", "if false {",
		"ResumeGoesOn",
	},
	{
		"an older fence passes", "lua/fence.lua",
		"if new < old then return {'stale', seen} end", "",
		"FenceCheck",
	},
	{
		"a minority is a quorum", "quorum.go",
		"majority: len(nodes)/2 + 1", "majority: len(nodes) / 2",
		"TestQuorumWithoutAMajority|TestQuorumSplit|TestQuorumLocks",
	},
	{
		"a quorum does not agree on its fence", "quorum.go",
		"fence, missing, err := q.agree(ctx, a, fences)", "fence, missing, err := slices.Max(slices.Collect(maps.Values(fences))), func() []*node { return nil }, error(nil)",
		"QuorumFencesRise",
	},
	{
		"a failed election is not cleaned up", "quorum.go",
		"		if held[n] == nil {\n			n.abandon(a.name, a.token)", "		if held[n] == nil {",
		"TestQuorumWithoutAMajority",
	},
}

func TestMutants(t *testing.T) { mutant.Run(t, mutants) }
