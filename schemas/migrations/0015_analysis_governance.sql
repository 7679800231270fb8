-- Analyses and what they propose; who may write for a team, what was decided about each write, and what is to be promoted.
-- References to evidence are evidence addresses, nothing else.
CREATE SCHEMA analysis;
CREATE SCHEMA governance;

-- a list of evidence addresses; anything else, and anything nested, is refused
CREATE DOMAIN logbook.evidence_refs AS jsonb CHECK (jsonb_typeof(VALUE) = 'array' AND NOT jsonb_path_exists(VALUE,
    'strict $[*] ? (@.type() != "string" || !(@ like_regex "^memory://(patch_blobs/(svn/[0-9]+:[0-9]+|git/[0-9]+:([0-9a-f]{40}|[0-9a-f]{64}))|attachments/[0-9]+)/[0-9a-f]{64}$"))'));

CREATE TABLE analysis.runs (
    run_id              uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    item_id             bigint      REFERENCES logbook.items,
    kind                text        NOT NULL CHECK (length(kind) BETWEEN 1 AND 100),
    status              text        NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'completed', 'failed')),
    params_json         jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(params_json) = 'object'),
    evidence_refs_json  logbook.evidence_refs NOT NULL DEFAULT '[]',
    error_json          jsonb,
    started_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at         timestamptz
);

CREATE TABLE analysis.candidates (
    candidate_id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id              uuid        NOT NULL REFERENCES analysis.runs ON DELETE CASCADE,
    title               text        NOT NULL DEFAULT '',
    content             text        NOT NULL DEFAULT '',
    status              text        NOT NULL DEFAULT 'proposed' CHECK (status IN ('proposed', 'accepted', 'rejected')),
    confidence          double precision CHECK (confidence BETWEEN 0 AND 1),
    evidence_refs_json  logbook.evidence_refs NOT NULL DEFAULT '[]',
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX candidates_run ON analysis.candidates (run_id);

-- Off until somebody switches it on.
CREATE TABLE governance.settings (
    project_key         text        PRIMARY KEY,
    team_write_enabled  boolean     NOT NULL DEFAULT false,
    policy_json         jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(policy_json) = 'object'),
    updated_by          text        NOT NULL,
    updated_at          timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE governance.write_audit (
    audit_id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    actor               text        NOT NULL,
    project_key         text        NOT NULL,
    target_space        text        NOT NULL,
    written_space       text,
    action              text        NOT NULL CHECK (action IN ('allow', 'redirect', 'reject')),
    reason              text        NOT NULL DEFAULT '',
    evidence_refs_json  logbook.evidence_refs NOT NULL DEFAULT '[]',
    at                  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT audit_space CHECK ((action = 'reject') = (written_space IS NULL))
);
CREATE INDEX write_audit_at ON governance.write_audit (at);

CREATE TABLE governance.promotion_queue (
    promotion_id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    candidate_id        bigint      REFERENCES analysis.candidates ON DELETE SET NULL,
    from_space          text        NOT NULL,
    to_space            text        NOT NULL,
    status              text        NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'approved', 'rejected')),
    requested_by        text        NOT NULL,
    decided_by          text,
    reason              text        NOT NULL DEFAULT '',
    evidence_refs_json  logbook.evidence_refs NOT NULL DEFAULT '[]',
    requested_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    decided_at          timestamptz,
    CONSTRAINT promotion_decided CHECK ((status = 'pending') = (decided_at IS NULL) AND (decided_by IS NULL) = (decided_at IS NULL))
);
CREATE INDEX promotion_pending ON governance.promotion_queue (promotion_id) WHERE status = 'pending';
