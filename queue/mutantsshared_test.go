package queue_test

import "github.com/dulyhq/duly/internal/mutant"

// sharedMutants are those of what tasks and callers share.
var sharedMutants = []mutant.Mutant{
	// Lock keys.
	{
		"a key is taken from its holder", "lua/grant.lua",
		"if left or behind then", "if behind then",
		"TestTasksOfOneLockKeyRunOneAtATime",
	},
	{
		"newcomers overtake what waits for the key", "lua/grant.lua",
		"if left or behind then", "if left then",
		"TestANewcomerIsBehind",
	},
	{
		"a settled task keeps its key", "lua/land.lua",
		"for i = 1, #keys, 2 do lockKeys.free(keys[i], keys[i + 1]) end", "",
		"TestSettlingHandsALockKeyOver",
	},
	{
		"a crashed task keeps its key", "lua/reclaim.lua",
		"if key then locks().free(key, holding(fence, was, id)) end", "",
		"TestATaskWhoseLeaseRanOutGives",
	},
	{
		"an extension leaves the key to end", "lua/extend.lua",
		"return not key or lockKeys.keep(", "return true or lockKeys.keep(",
		"TestAnExtendedLeaseKeepsItsLockKey|TestAnExtensionIsRefused",
	},
	{
		"nothing is unparked", "lua/park.lua",
		"if left or unpark(k, key) then", "if left then",
		"TestTasksOfOneLockKeyRunOneAtATime",
	},
	{
		"one that was parked is cancelled in its turn, and the next forgotten", "lua/cancel.lua",
		"yield(blocked, wake, key)", "",
		"TestATaskThatIsGoneBeforeItsTurn",
	},
	{
		"a cancelled task leaves its turn", "lua/waiting.lua",
		"if score and key then redis.call('ZREM', turns, turn(key, score, id)) end", "",
		"TestAParkedTaskIsCancelled",
	},
	{
		"a pop looks at any number of keys", "lua/park.lua",
		"us(now), 'BYSCORE', 'LIMIT', 0, 200)) do", "us(now), 'BYSCORE')) do",
		"TestAPopLooksAt",
	},

	// Limits.
	{
		"one more runs than may", "lua/room.lua",
		"running - redis.call('ZCARD', KEYS[3])", "running + 1 - redis.call('ZCARD', KEYS[3])",
		"TestNeverMoreAreLeasedThanMayRun",
	},
	{
		"the interval of a rate is rounded down", "lua/room.lua",
		"math.ceil(1e9 / rate)", "math.floor(1e9 / rate)",
		"TestARateIsNotExceeded",
	},
	{
		"a rate is not charged", "lua/answer.lua",
		"if fresh and n > 0 then charge(n) end", "",
		"TestNoWindowHasMore",
	},
	{
		"a repeated pop is charged again", "lua/answer.lua",
		"if fresh and n > 0 then charge(n) end", "if n > 0 then charge(n) end",
		"TestAPopThatIsRepeated",
	},
	{
		"a burst is not refilled", "lua/room.lua",
		"ahead = math.max((whole - now) * 1000 + tonumber(part, 10), 0)",
		"ahead = math.max((whole - now) * 1000 + tonumber(part, 10), bucket - interval)",
		"TestAPollerThatComesWhenItWasTold",
	},
	{
		"what a rate has not used is saved up", "lua/room.lua",
		"ahead = math.max((whole - now) * 1000 + tonumber(part, 10), 0)",
		"ahead = (whole - now) * 1000 + tonumber(part, 10)",
		"TestNoWindowHasMore",
	},
	{
		"a clock stepped back stops a rate", "lua/room.lua",
		"if ahead > bucket then", "if false then",
		"TestAClockSteppedBackCosts",
	},
	{
		"a paused queue is popped", "lua/room.lua",
		"if paused then return {'paused'} end", "",
		"TestPausedQueueHandsOutNothing",
	},
	{
		"a pop does not ask for the queue's lock", "script.go",
		`lock.Guarded(source("clock", "poll") + lock.Locks`, `lock.NewScript(source("clock", "poll") + lock.Locks`,
		"TestNoPopSucceedsWhileAJobHolds",
	},

	// Hints and waits.
	{
		"enqueueing hints nobody", "lua/enqueue.lua",
		"if earlier == 0 then redis.pcall('PUBLISH', wake, us(math.max(first - now, 0))) end", "",
		"TestWatchHintsWhenTheHead",
	},
	{
		"settling hints nobody", "lua/schedule.lua",
		"if earlier == 0 then redis.pcall('PUBLISH', wake, us(math.max(first - now, 0))) end", "",
		"TestWatchHintsWhenTheHead|TestAHintTells",
	},
	{
		"room under a limit is hinted to nobody", "lua/land.lua",
		"if first then redis.pcall('PUBLISH', wake, us(math.max(first - now, 0))) end", "",
		"TestRoomThatIsMadeIsHinted",
	},
	{
		"hints that a broken connection has lost are not made up for", "watch.go",
		"func(bool) { hint(0) })", "func(bool) {})",
		"TestWatchHintsAndListensAgain",
	},
	{
		"a wait does not look after a reconnect", "waits.go",
		"ws.hears = hears\n	ws.mu.Unlock()\n	ws.askAll(ctx)", "ws.hears = hears\n	ws.mu.Unlock()",
		"TestWaitOutlastsItsConnections",
	},
	{
		"a wait that is not told looks too rarely", "waits.go",
		"lookEvery  = 5 * time.Second ", "lookEvery  = 50 * time.Second ",
		"TestAWaitIsToldByAMessage",
	},
	{
		"those who wait are not told", "lua/traces.lua",
		"redis.pcall('PUBLISH', k.ended, table.concat(names, '\\n'))", "",
		"TestAWaitIsToldByAMessage",
	},
	{
		"the end of an earlier task is that of a new one", "lua/wait.lua",
		"if at and before ~= 'first' and before ~= at then", "if at and before ~= at then",
		"TestTheEndOfAnEarlierTask",
	},
	{
		"what is kept for waiters stays", "lua/traces.lua",
		"for _, key in ipairs({k.wanted, k.ended}) do redis.call('PEXPIRE', key, 2 * patience / 1000) end", "",
		"TestWhatIsKeptForWaiters",
	},

	// Shared calls.
	{
		"what its caller gave up is sent", "coalesce.go",
		"if !p.abandoned {", "if true {",
		"TestACallerThatGivesUpTakesNobodyAlong",
	},
	{
		"who gives up takes others along", "coalesce.go",
		"if t.callers--; t.callers == 0 {", "if t.callers--; true {",
		"TestACallerThatGivesUpTakesNobodyAlong",
	},
}
