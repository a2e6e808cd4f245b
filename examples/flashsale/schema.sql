-- The shop's tables. Times are µs since 1970.

-- No CHECK keeps stock from falling under zero. The shop's own statement does,
-- and if it were wrong the audit is to see it.
CREATE TABLE items (
	id    TEXT PRIMARY KEY,
	goods BIGINT NOT NULL, -- pieces there were at first
	stock BIGINT NOT NULL  -- pieces on sale now
);

CREATE TABLE orders (
	id     TEXT PRIMARY KEY,
	buyer  TEXT NOT NULL,
	item   TEXT NOT NULL REFERENCES items (id),
	state  TEXT NOT NULL,           -- reserved, then paid and shipped, or cancelled
	pay_by BIGINT NOT NULL,
	fence  BIGINT NOT NULL DEFAULT 0, -- the highest that changed this order
	owes   TEXT NOT NULL            -- outbox: the tasks that are yet to be enqueued, or ''
);

-- One piece for each buyer, and an order that is sent twice is one order.
CREATE UNIQUE INDEX one_each ON orders (buyer, item) WHERE state <> 'cancelled';
CREATE INDEX owing ON orders (pay_by) WHERE owes <> '';

-- Shipped once: the key is the guard.
CREATE TABLE shipments (
	order_id TEXT PRIMARY KEY,
	tracking TEXT NOT NULL,
	at       BIGINT NOT NULL
);

-- The stock audits, one for each tick of their schedule.
CREATE TABLE audits (
	tick     BIGINT PRIMARY KEY,
	breaches BIGINT NOT NULL -- items of which pieces were too many or missing
);

-- What happened in the world, appended by whoever made it happen: a piece was
-- reserved, a buyer was reminded, money was taken, a piece came back, a parcel left. No constraint
-- holds here, so that a mistake is counted and not hidden.
CREATE TABLE ledger (
	seq      {{serial}},
	order_id TEXT NOT NULL,
	item     TEXT NOT NULL,
	entry    TEXT NOT NULL,
	fence    BIGINT NOT NULL,
	at       BIGINT NOT NULL
);
