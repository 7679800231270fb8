-- Who people are, whatever a repository calls them. These tables are the authority; files are read into them.
CREATE SCHEMA identity;

CREATE TABLE identity.users (
    user_id       text        PRIMARY KEY CHECK (user_id ~ '^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$'),
    display_name  text        NOT NULL DEFAULT '',
    aliases       text[]      NOT NULL DEFAULT '{}',
    is_active     boolean     NOT NULL DEFAULT true,
    meta_json     jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(meta_json) = 'object'),
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A name in one kind of place belongs to one person. Mail addresses are in lower case.
CREATE TABLE identity.accounts (
    account_id  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id     text        NOT NULL REFERENCES identity.users ON DELETE CASCADE,
    type        text        NOT NULL CHECK (type IN ('svn', 'gitlab', 'git', 'email')),
    name        text        NOT NULL CHECK (name <> '' AND (type <> 'email' OR name = lower(name))),
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (type, name)
);
CREATE INDEX accounts_user ON identity.accounts (user_id);

-- The roles of a person, and the text of each profile as it stood in its file.
CREATE TABLE identity.role_profiles (
    user_id       text        NOT NULL REFERENCES identity.users ON DELETE CASCADE,
    role          text        NOT NULL CHECK (length(role) BETWEEN 1 AND 200),
    labels        text[]      NOT NULL DEFAULT '{}',
    profile       text        NOT NULL DEFAULT '',
    sha256        text        NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    source        text        NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (user_id, role)
);
