package queue_test

import (
	"slices"
	"testing"

	"github.com/dulyhq/duly/internal/mutant"
)

// mutants are those of what becomes of one task.
var mutants = []mutant.Mutant{
	// Times and fences.
	{
		"a score loses digits", "lua/clock.lua",
		"return string.format(digits, tonumber(time))", "return tostring(tonumber(time))",
		"TestAtIsKeptToTheMicrosecond",
	},
	{
		"a score that is shown loses digits", "lua/clock.lua",
		"return string.format('%.0f', tonumber(score))", "return tostring(tonumber(score))",
		"TestAtIsKeptToTheMicrosecond",
	},
	{
		"a delay counts from the client's clock", "enqueue.go",
		"return -max(d.Microseconds(), 0), nil", "return time.Now().Add(d).UnixMicro(), nil",
		"TestNoTaskIsPoppedBeforeItIsDueByTheServersClock",
	},
	{
		"a retry counts from the client's clock", "settle.go",
		"return -s.In.Microseconds()", "return time.Now().Add(s.In).UnixMicro()",
		"TestNoTaskIsPoppedBeforeItIsDueByTheServersClock",
	},
	{
		"the fence is the clock alone", "lua/grant.lua",
		"us(math.max((tonumber(fence) or 0) + 1, now))", "us(now)",
		"TestFencesRiseStrictly",
	},
	{
		"the fence is a counter alone", "lua/grant.lua",
		"us(math.max((tonumber(fence) or 0) + 1, now))", "us((tonumber(fence) or 0) + 1)",
		"TestFencesRiseStrictly",
	},
	{
		"a pop does not look at the clock", "lua/head.lua",
		"local ids = redis.call('ZRANGE', due, '-inf', us(now), 'BYSCORE', 'LIMIT', 0, most)",
		"local ids = redis.call('ZRANGE', due, '-inf', '+inf', 'BYSCORE', 'LIMIT', 0, most)",
		"TestNoTaskIsPoppedBeforeItIsDueByTheServersClock|TestForeignDueScores",
	},
	{
		"a task is not popped in the µs in which it is due", "lua/head.lua",
		"if most <= 4 then return redis.call('ZRANGE', due, '-inf', us(now),", "if most <= 4 then return redis.call('ZRANGE', due, '-inf', us(now - 1),",
		"TestNoTaskIsPoppedBeforeItIsDueByTheServersClock",
	},
	{
		"of many none is popped in the µs in which it is due", "lua/head.lua",
		"local ids = redis.call('ZRANGE', due, '-inf', us(now),", "local ids = redis.call('ZRANGE', due, '-inf', us(now - 1),",
		"TestAPopOfManyTakesWhatIsDue",
	},
	{
		"a pop takes tasks by their ID, not by their due time", "lua/head.lua",
		"local head, i, scores = {}, 1, 0", "table.sort(ids)\n  local head, i, scores = {}, 1, 0",
		"TestPopTakesTheEarliestDueFirst|TestAPopOfManyTakesThemInDueOrder",
	},
	{
		"a pop of one uses what it read before others came back", "lua/deal.lua",
		"starts <= now and reached and plain and front", "starts <= now and front",
		"TestAPopOfOneTakesWhatComesBack",
	},

	// Leases.
	{
		"settling asks for no lease", "lua/plan.lua",
		"if not there[member] then", "if false then",
		"TestOnlyTheNewestLeaseSettlesOrExtends",
	},
	{
		"a delivery is settled twice in a batch", "lua/plan.lua",
		"ended[#ended + 1], there[member] = member, false -- a lease ends once", "ended[#ended + 1] = member -- a lease ends once",
		"TestADeliverySettledTwiceInOneBatchCountsOnce",
	},
	{
		"a lease that is gone is found among others of its time", "lua/held.lua",
		"there[ARGV[i + j]] = stop and true", "there[ARGV[i + j]] = true",
		"TestALargeBatchOfManyPopsJudgesEachLease|TestSettleReportsStale",
	},
	{
		"extending asks for no lease", "lua/extend.lua",
		"if old and keep(", "if keep(",
		"TestOnlyTheNewestLeaseSettlesOrExtends",
	},
	{
		"progress asks for no lease", "lua/progress.lua",
		"if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 'lost' end", "",
		"TestProgressOfAStaleDelivery",
	},
	{
		"a lease ends before its time", "lua/reclaim.lua",
		"redis.call('ZRANGE', k.leased, '-inf', us(now), 'BYSCORE', 'LIMIT', 0, share)",
		"redis.call('ZRANGE', k.leased, 0, share - 1)",
		"TestALeaseThatEndsTakesNoOther",
	},
	{
		"a lease lasts a µs too long", "lua/pop.lua",
		"local over = lapses <= now and", "local over = lapses < now and",
		"TestALeaseKeepsOthersOutUntilItEndsAndNoLonger",
	},
	{
		"a pop ends any number of leases", "lua/reclaim.lua",
		"us(now), 'BYSCORE', 'LIMIT', 0, share)", "us(now), 'BYSCORE')",
		"TestReclaimOfMoreLeases",
	},
	{
		"a task that comes back is due anew", "lua/reclaim.lua",
		"  else\n    redis.call('ZADD', k.due, was, id)", "  else\n    redis.call('ZADD', k.due, us(now), id)",
		"TestATaskThatComesBackAfterACrashKeepsItsPlace",
	},

	// Crashes and attempts.
	{
		"a crash is not counted", "lua/reclaim.lua",
		"+ 1 -- HINCRBY", "+ 0 -- HINCRBY",
		"TestATaskThatKillsItsWorkerThreeTimesIsBuried|TestTasksOfADeadWorker",
	},
	{
		"one crash more buries", "lua/reclaim.lua",
		"if crashes >= limit then", "if crashes > limit then",
		"TestATaskThatKillsItsWorkerThreeTimesIsBuried",
	},
	{
		"crashes are not forgotten when a task settles", "lua/land.lua",
		"if crashing then redis.call('HDEL', crash, unpack(clear)) end", "",
		"TestATaskThatSettlesInBetween",
	},
	{
		"a release burns an attempt", "settle.go",
		"case duly.Retried, duly.Buried:", "case duly.Retried, duly.Buried, duly.Released:",
		"TestAttemptsCountFailuresAlone",
	},
	{
		"an expired task burns an attempt", "settle.go",
		"failures-- // no attempt was made", "",
		"TestAnAttemptThatWasNotMade",
	},
	{
		"a last chance has company", "lua/grant.lua",
		"elseif last and busy then", "elseif false then",
		"TestTasksThatCrashedTogether",
	},
	{
		"a trial lasts as long as its lease", "lua/grant.lua",
		"us(now + lease / 3) .. ':' .. member", "us(now + lease) .. ':' .. member",
		"TestATrialEndsWithAThird",
	},
	{
		"a pop puts off any number of last chances", "lua/grant.lua",
		"while n < may and putBy < 200 do", "while n < may do",
		"TestAPopPutsOffABoundedNumber",
	},

	// Replies that are lost.
	{
		"go-redis retries", "../lock/script.go",
		"func (once) NoRetry() bool { return true }", "func (once) NoRetry() bool { return false }",
		"TestALostReplyToSettleIsReported|TestALostReplyToEnqueueIsUnknown",
	},
	{
		"a pop is not repeated", "lua/again.lua",
		"if not reached and over < share then", "if false then",
		"TestALostReplyToPopIsRepeated",
	},
	{
		"a late pop leases", "lua/poll.lua",
		"if last and tonumber(last) >= tonumber(ARGV[6]) then return {'stale'} end", "",
		"TestADelayedDuplicateOfAnOldPop|TestAPopThatArrivesLate",
	},
	{
		"a repeated pop brings more than it was asked for", "lua/again.lua",
		"if i <= most then", "if true then",
		"TestARepeatedPopForFewer",
	},
	{
		"a repeated pop is in the order of the lock keys", "lua/again.lua",
		"table.sort(found, function(a, b)", "local _ = (function(a, b)",
		"TestARepeatedPopIsInDueOrder",
	},
	{
		"a pop does not note what it leased", "lua/answer.lua",
		"redis.call('SET', k.pop, ARGV[6] .. ':' .. token .. ':' .. stop, 'PX', math.ceil(lease / 1000))", "",
		"TestALostReplyToPopIsRepeated",
	},

	// Half-written state, and full memory.
	{
		"a pop writes before all keys are read", "lua/pop.lua",
		"for _, set in ipairs({k.dead, k.parked, k.turns}) do redis.call('ZCARD', set) end", "",
		"TestACrashThatBuriesIsRefusedWhole",
	},
	{
		"settling writes before all keys are read", "lua/land.lua",
		"for _, set in ipairs({due, dead}) do redis.call('ZCARD', set) end", "",
		"TestAKeyOfAnotherTypeIsAClearError",
	},
	{
		"enqueueing writes before all keys are read", "lua/conflict.lua",
		"for _, key in ipairs({k.fail, k.crash, k.result, k.progress}) do redis.call('HLEN', key) end", "",
		"TestAKeyOfAnotherTypeIsAClearError",
	},
	{
		"cancelling writes before all keys are read", "lua/cancel.lua",
		"for _, key in ipairs({fail, crash}) do redis.call('HLEN', key) end", "",
		"TestAKeyOfAnotherTypeIsAClearError",
	},
	{
		"reviving writes before all keys are read", "lua/revive.lua",
		"for _, key in ipairs({fail, crash}) do redis.call('HLEN', key) end", "",
		"TestAKeyOfAnotherTypeIsAClearError",
	},
	{
		"purging writes before all keys are read", "lua/purge.lua",
		"for _, key in ipairs({task, fail, crash, progress}) do redis.call('HLEN', key) end", "",
		"TestAKeyOfAnotherTypeIsAClearError",
	},
	{
		"cancelling a parked task writes before all keys are read", "lua/cancel.lua",
		"for _, set in ipairs({turns, blocked}) do redis.call('ZCARD', set) end", "",
		"TestWhatIsDoneToAParkedTask",
	},
	{
		"replacing a parked task writes before all keys are read", "lua/enqueue.lua",
		"for _, set in ipairs({turns, blocked}) do redis.call('ZCARD', set) end", "",
		"TestWhatIsDoneToAParkedTask",
	},
	{
		"rescheduling writes before all keys are read", "lua/reschedule.lua",
		"for _, set in ipairs({due, turns, blocked}) do redis.call('ZCARD', set) end", "",
		"TestWhatIsDoneToAParkedTask",
	},
	{
		"a pop adds before it removes", "lua/grant.lua",
		"redis.call('ZREMRANGEBYRANK', k.due, 0, #head / 2 - 1)",
		"redis.call('SET', k.fence, fence or 0) redis.call('ZREMRANGEBYRANK', k.due, 0, #head / 2 - 1)",
		"TestAFullRedisRefusesNewTasksAndDrains",
	},
	{
		"extending adds before it removes", "lua/extend.lua",
		"redis.call('ZREM', leased, unpack(held)) -- first", "-- first",
		"TestAFullRedisRefusesNewTasksAndDrains",
	},
	{
		"pausing adds before it removes", "lua/pause.lua",
		"redis.call('HDEL', KEYS[1], 'paused') -- first", "-- first",
		"TestAFullRedisCanBePaused",
	},
	{
		"a pop that counts against a rate adds before it removes", "lua/room.lua",
		"redis.call('HDEL', KEYS[13], 'tat') -- first", "-- first",
		"TestAFullRedisCutsARate",
	},

	// What takes the place of a task, and what ends it.
	{
		"a replacement is lost when the run settles", "lua/plan.lua",
		"    if score then\n      add(entries", "    if false then\n      add(entries",
		"TestAReplacementTakesTheRunningTasksPlace",
	},
	{
		"a replacement is lost when the run crashes", "lua/reclaim.lua",
		"if cut(k, fence, id, now) or replace(k, id) then return end", "if cut(k, fence, id, now) then return end",
		"TestAReplacementTakesTheRunningTasksPlace",
	},
	{
		"a cancelled run is retried", "lua/plan.lua",
		"local over = arg and cancels and cancelled(cancel, fence, id)", "local over = false",
		"TestACancelledRunIsNeitherRetried",
	},
	{
		"the mark of a cancelled run stays", "lua/land.lua",
		"if cancels then redis.call('HDEL', cancel, unpack(clear)) end", "",
		"TestACancelledRunIsNeitherRetried|TestACancellationHitsNoLaterRun",
	},
	{
		"a cancellation hits later runs", "lua/cancelled.lua",
		"return last and tonumber(fence) <= (tonumber(last) or 0)", "return last",
		"TestACancellationHitsNoLaterRun|TestAMarkThatWasLeftBehind",
	},
	{
		"a cancellation misses the run of its own fence", "lua/cancelled.lua",
		"tonumber(fence) <= (", "tonumber(fence) < (",
		"TestACancelledRunIsNeitherRetried",
	},
	{
		"Remove takes a task that was moved", "lua/cancel.lua",
		"if at ~= '' and tonumber(at) ~= tonumber(score) then return {'changed'} end", "",
		"TestRemoveTakesATaskOnlyIf|TestRemoveLeaves",
	},
	{
		"what is kept is never forgotten by pops", "lua/soon.lua",
		"not plain and forget(traces(traced), now, 100)", "not plain and traces(traced) and false",
		"TestPopsForgetWhatWasKept",
	},
	{
		"what is kept is never forgotten by settlements", "lua/land.lua",
		"forget(traced, now, math.max(100, #kept))", "",
		"TestSettlementsForgetAsMany",
	},
	{
		"a pop forgets any number of records", "lua/traces.lua",
		"'BYSCORE', 'LIMIT', 0, most) or {}", "'BYSCORE') or {}",
		"TestPopsForgetWhatWasKept",
	},
	{
		"what is forgotten leaves its result", "lua/traces.lua",
		"for _, hash in ipairs({k.task, k.result, k.progress}) do redis.call('HDEL', hash, unpack(ids)) end",
		"redis.call('HDEL', k.task, unpack(ids))",
		"TestPopsForgetWhatWasKept|TestWhenItsTimeIsOver",
	},
}

func TestMutants(t *testing.T) { mutant.Run(t, slices.Concat(mutants, sharedMutants)) }
