package worker_test

import (
	"testing"

	"github.com/dulyhq/duly/internal/mutant"
)

var mutants = []mutant.Mutant{
	// Leases.
	{
		"a lease counts from the reply", "fetch.go",
		"leaseEnd(sent, f.lease), sent.Add(f.lease/3)", "leaseEnd(now, f.lease), now.Add(f.lease/3)",
		"TestDeliveryThatComesTooLateIsNotBegun",
	},
	{
		"an extension counts from the reply", "keeper.go",
		"leaseEnd(sent, k.lease), sent.Add(k.lease/3)", "leaseEnd(time.Now(), k.lease), sent.Add(k.lease/3)",
		"TestAnExtensionCountsFromBefore",
	},
	{
		"a lease allows for no drift", "flight.go",
		"return sent.Add(lease - lease/100 - 2*time.Millisecond)", "return sent.Add(lease)",
		"TestLostLeaseEndsTheContextFirst",
	},
	{
		"leases are not extended", "keeper.go",
		"case !now.Before(renewal):", "case false:",
		"TestLeaseIsExtendedWhileTheHandlerRuns",
	},
	{
		"an extension ignores that a lease is lost", "keeper.go",
		"		f.lose()\n		k.remove([]*flight{f})", "		_ = f",
		"TestLostLeaseEndsTheContextFirst|TestLostLeaseFreesItsSlot|TestWorkerThatSlept",
	},
	{
		"an extension ignores that a run is cancelled", "keeper.go",
		"if f := byDelivery[d]; f != nil { // else", "if f := byDelivery[d]; false { // else",
		"TestACancellationWhoseMessageIsLost",
	},
	{
		"an extension that failed is not tried again", "keeper.go",
		"f.renewal = time.Now().Add(min(k.lease/10, time.Second))", "f.renewal = f.until",
		"TestExtensionIsTriedAgainInsideTheLease",
	},
	{
		"a lease does not end by the local clock", "keeper.go",
		"case !now.Before(until):\n			k.drop(f)", "case false:\n			k.drop(f)",
		"TestLostLeaseEndsTheContextFirst|TestLostLeaseFreesItsSlot",
	},
	{
		"what came too late is begun", "flight.go",
		"f.cancelled || !now.Before(f.until) {", "f.cancelled {",
		"TestDeliveryThatComesTooLateIsNotBegun",
	},
	{
		"what is lost is settled", "settle.go",
		"if f.held(now) {", "if f.held(now) || true {",
		"TestSettlementIsKeptForAsLongAsItsLease|TestSettlementsBehindLostOnes",
	},
	{
		"a settlement that failed is not sent again", "settle.go",
		"s.pending = append(batch, s.pending...)", "",
		"TestSettlementIsTriedAgain|TestSettlementWithoutReply",
	},
	{
		"a retry far off blocks its batch", "settle.go",
		"f.verdict.Delivery, f.verdict.In = f.Delivery, min(verdict.In, longest)", "f.verdict.Delivery = f.Delivery",
		"TestAbsurdDelayDoesNotBlockOthers",
	},

	// Verdicts.
	{
		"a handler that ends its goroutine is done", "execute.go",
		"answer := errGoexit", "var answer error",
		"TestOutcomes",
	},
	{
		"a panic is not caught", "execute.go",
		"if value := recover(); value != nil {\n			err = x.panicked(value)", "if value := any(nil); value != nil {\n			err = x.panicked(value)",
		"TestOutcomes",
	},
	{
		"one attempt more than allowed", "execute.go",
		"if d.Attempt >= x.attempts(d) {\n		verdict.Action", "if d.Attempt > x.attempts(d) {\n		verdict.Action",
		"TestLastAttemptBuries",
	},
	{
		"an interrupted run burns an attempt", "execute.go",
		"case !asked && errors.Is(cause, duly.ErrStopping):", "case false:",
		"TestDrainTimeoutStopsHandlers",
	},
	{
		"a kind without a handler burns attempts", "execute.go",
		"case !asked && errors.Is(err, duly.ErrNoHandler):", "case false:",
		"TestUnknownKindIsGivenBack",
	},
	{
		"expired tasks run", "execute.go",
		"if verdict, useless := x.useless(f); useless {", "if verdict, useless := x.useless(f); useless && false {",
		"TestATaskThatCannotStartInTime",
	},
	{
		"a cancelled run is retried", "execute.go",
		"verdict.Action != duly.Acked && f.wasCancelled() {", "false {",
		"TestACancelledRunIsDropped",
	},
	{
		"a task that was done is dropped for its cancellation", "execute.go",
		"verdict.Action != duly.Acked && f.wasCancelled() {", "f.wasCancelled() {",
		"TestACancelledRunIsDropped",
	},
	{
		"what is cancelled before it begins is begun", "flight.go",
		"if f.lost || f.cancelled || ", "if f.lost || ",
		"TestARunThatIsCancelledBeforeItBegins|TestWhatIsCancelledInTheBacklog",
	},
	{
		"a cancellation that overtakes its pop is missed", "keeper.go",
		"		k.early[id] = fence\n", "",
		"TestARunThatIsCancelledBeforeItBegins",
	},
	{
		"a late cancellation ends a later run", "keeper.go",
		"if f.ID == id && f.Fence <= fence {", "if f.ID == id {",
		"TestALateMessageEndsNoLaterRun",
	},
	{
		"backoff is without bound", "backoff.go",
		"for ; n > 0 && d < most; n-- {\n		if d > most/2 {\n			return most\n		}", "for ; n > 0; n-- {",
		"TestExponentialHasFullJitter",
	},
	{
		"backoff is without jitter", "backoff.go",
		"return rand.N(doubled(base, most, attempt-1)) //", "return doubled(base, most, attempt-1) //",
		"TestExponentialHasFullJitter",
	},

	// Ticks.
	{
		"a tick is repeated twice", "tick.go",
		"if d.Due.After(now) {", "if false {",
		"TestNoTickIsRepeatedByAClockThatIsBehind",
	},
	{
		"each tick that was missed is made up for", "tick.go",
		"if d.Due.After(now) {", "if true {",
		"TestAMissedTickRunsOnceAndLate",
	},
	{
		"a tick runs later than its grace", "tick.go",
		"d.Grace > 0 && now.Sub(d.Due) > d.Grace", "false",
		"TestATickLaterThanItsGraceIsSkipped",
	},
	{
		"a failed tick ends its schedule", "tick.go",
		"if d.Every == \"\" || verdict.Action == duly.Released {", "if d.Every == \"\" || verdict.Action != duly.Acked {",
		"TestTicksComeWhenTheScheduleSays",
	},
	{
		"a retry goes past the next tick", "tick.go",
		"verdict.Action == duly.Retried && now.Add(verdict.In).Before(next)", "verdict.Action == duly.Retried",
		"TestTicksComeWhenTheScheduleSays",
	},
	{
		"a cancelled tick is repeated", "execute.go",
		"if f.Every != \"\" && !f.wasCancelled() {", "if f.Every != \"\" {",
		"TestACancelledRunIsDropped",
	},
	{
		"registering a schedule is not tried again", "recur.go",
		"		failing.wait(ctx)\n", "		return\n",
		"TestRecurringTasksWaitForTheirRedis",
	},

	// Pops and hints.
	{
		"a hint during a pop is forgotten", "fetch.go",
		"deliveries, wait, err := f.source.Pop(ctx, n, f.lease)", "deliveries, wait, err := f.source.Pop(ctx, n, f.lease)\n	f.hints.clear()",
		"TestAHintDuringAPopIsNotForgotten",
	},
	{
		"a lost hint is not made up for", "fetch.go",
		"min(wait, pollMost, f.lease)", "wait",
		"TestLostHintCosts5Seconds",
	},
	{
		"a source that is away is asked in a hot loop", "backoff.go",
		"return d*3/4 + rand.N(d/4) //", "return d * 0 //",
		"TestNoHotLoopWhileTheSourceIsAway",
	},
	{
		"one more is held than there are slots", "slots.go",
		"free := s.size + s.ahead - s.out\n", "free := s.size + s.ahead - s.out + 1\n",
		"TestFetchingAheadIsBounded|TestConcurrencyIsNeverExceeded",
	},
	{
		"fetching ahead is without bound", "slots.go",
		"s.ahead = min(s.done*int(aheadTime)/int(window), aheadMost)", "s.ahead = s.done * int(aheadTime) / int(window)",
		"TestFetchingAheadIsBounded",
	},
	{
		"a slot is not given back", "settle.go",
		"s.slots.free(len(flights), done)", "s.slots.free(len(flights)-1, done)",
		"TestConcurrencyIsNeverExceededAndFullyUsed",
	},
	{
		"a strict source is overtaken", "slots.go",
		"case s.strict:\n			return sh", "case false:\n			return sh",
		"TestStrictSourcesAreServedInTheirOrder",
	},
	{
		"a task waits for a busy worker while another is free", "backlog.go",
		"if len(b.items) > b.idle {", "if false {",
		"TestTaskDoesNotWaitWhileAnotherWorkerIsFree",
	},
	{
		"one more of a kind runs than may", "kinds.go",
		"if k.running == k.most {", "if k.running == k.most+1 {",
		"TestNeverMoreHandlersOfAKind",
	},
	{
		"a kind's place is not given up", "backlog.go",
		"	k.running--\n", "",
		"TestAKindAtItsLimitUsesAllOfIt|TestNeverMoreHandlersOfAKind",
	},

	// Stops.
	{
		"a drain does not give back what has not begun", "backlog.go",
		"b.filled.Broadcast()\n	b.mu.Unlock()\n	b.all(left)", "b.filled.Broadcast()\n	b.mu.Unlock()\n	_ = left",
		"TestDrainGivesBackWhatHasNotBegun",
	},
	{
		"a drain abandons the pop on its way", "fetch.go",
		"got, wait, err := f.pop(lasting, n)", "got, wait, err := f.pop(ctx, n)",
		"TestADrainDoesNotCancelThePop",
	},
	{
		"a drain goes on popping", "fetch.go",
		"if n == 0 || ctx.Err() != nil {", "if n == 0 {",
		"TestDrainStopsPopping|TestRunWithEndedContext",
	},
	{
		"a drain does not wait for settlements", "worker.go",
		"	f.settling.Wait()\n	f.cancel()", "	f.cancel()\n	f.settling.Wait()",
		"TestDrainLetsHandlersFinish",
	},
	{
		"a drain ends handlers at once", "worker.go",
		"if !waitFor(p.done, cfg.DrainTimeout) {", "if true {",
		"TestDrainLetsHandlersFinish",
	},
	{
		"a drain waits for handlers without end", "worker.go",
		"		waitFor(p.done, cfg.CancelTimeout)\n", "		<-p.done\n",
		"TestStuckHandlerIsReported",
	},
}

func TestMutants(t *testing.T) { mutant.Run(t, mutants) }
