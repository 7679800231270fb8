-- The ledger of facts: what was worked on, what happened, and where the evidence is. An address in it is an artifact key,
-- a relative path without a scheme, so that another store needs no change here.
CREATE SCHEMA logbook;

CREATE TABLE logbook.items (
    item_id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item_type      text        NOT NULL CHECK (item_type ~ '^[a-z][a-z0-9_.]{0,99}$'),
    title          text        NOT NULL DEFAULT '',
    status         text        NOT NULL DEFAULT 'open',
    project_key    text,
    owner_user_id  text        REFERENCES identity.users ON DELETE SET NULL,
    meta_json      jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(meta_json) = 'object'),
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX items_type ON logbook.items (item_type, item_id);

-- Only added to, by anybody, ever. An event is about an item, so the item is written first.
CREATE TABLE logbook.events (
    event_id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item_id       bigint      NOT NULL REFERENCES logbook.items,
    event_type    text        NOT NULL CHECK (event_type ~ '^[a-z][a-z0-9_.]{0,99}$'),
    status_from   text,
    status_to     text,
    payload_json  jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(payload_json) = 'object'),
    source        text        NOT NULL DEFAULT session_user,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX events_item ON logbook.events (item_id, event_id);

CREATE TABLE logbook.attachments (
    attachment_id  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item_id        bigint      NOT NULL REFERENCES logbook.items,
    kind           text        NOT NULL CHECK (kind ~ '^[a-z][a-z0-9_.-]{0,99}$'),
    uri            text        NOT NULL,
    sha256         text        NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    size_bytes     bigint      NOT NULL CHECK (size_bytes >= 0),
    meta_json      jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(meta_json) = 'object'),
    evidence_uri   text        GENERATED ALWAYS AS ('memory://attachments/' || attachment_id::text || '/' || sha256) STORED,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (item_id, kind, sha256),
    CONSTRAINT attachment_key CHECK (uri !~* '^[a-z][a-z0-9+.-]*:' AND uri !~ '^/' AND uri !~ '(^|/)\.\.?(/|$)'
        AND uri !~ '\\' AND uri <> '')
);

CREATE TABLE logbook.kv (
    namespace   text        NOT NULL CHECK (namespace <> ''),
    key         text        NOT NULL CHECK (key <> ''),
    value       jsonb       NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, key)
);

-- What others are to hear of; whoever delivers it holds the row for a minute at a time.
CREATE TABLE logbook.outbox (
    outbox_id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item_id          bigint      REFERENCES logbook.items,
    target           text        NOT NULL CHECK (length(target) BETWEEN 1 AND 200),
    payload_json     jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(payload_json) = 'object'),
    dedupe_key       text        UNIQUE,
    status           text        NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'sent', 'dead')),
    retry_count      integer     NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
    next_attempt_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    locked_by        text,
    locked_at        timestamptz,
    lock_token       uuid,
    last_error       text,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT outbox_lock CHECK ((locked_by IS NULL) = (locked_at IS NULL) AND (locked_by IS NULL) = (lock_token IS NULL))
);
CREATE INDEX outbox_due ON logbook.outbox (next_attempt_at, outbox_id) WHERE status = 'pending';

INSERT INTO supervisor.setting (name, value, least, most) VALUES
    ('logbook_outbox_lease_seconds', '60', 1, 3600),
    ('logbook_outbox_retries', '10', 0, 1000);

-- What can be read as a table of contents; made of joins, so nothing can be written through it.
CREATE VIEW logbook.index AS
SELECT i.item_id, i.item_type, i.title, i.status, i.project_key, i.created_at, i.updated_at,
       e.events, e.last_event_at, a.attachments
  FROM logbook.items AS i
 CROSS JOIN LATERAL (SELECT count(*) AS events, max(v.created_at) AS last_event_at
                       FROM logbook.events AS v WHERE v.item_id = i.item_id) AS e
 CROSS JOIN LATERAL (SELECT count(*) AS attachments FROM logbook.attachments AS t WHERE t.item_id = i.item_id) AS a;
