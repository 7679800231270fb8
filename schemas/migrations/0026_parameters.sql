-- What a caller may give to a run: parameters that the definition declares, or the code of its task type does.

-- The task types of the code that migrated last: what their runs take, and which keys of a payload belong to the definition
-- alone. `action` is '*' for every action of the domain and '' for runs without one; `parameters` is NULL where the code
-- declares none.
CREATE TABLE supervisor.task_type (
    domain        text     NOT NULL CHECK (length(domain) BETWEEN 1 AND 63),
    action        text     NOT NULL DEFAULT '*' CHECK (length(action) <= 100),
    parameters    jsonb    CHECK (jsonb_typeof(parameters) = 'object'),
    own_keys      text[]   NOT NULL DEFAULT '{}',
    names_program boolean  NOT NULL DEFAULT false,
    PRIMARY KEY (domain, action)
);
-- before any code has declared more: no caller chooses a program
INSERT INTO supervisor.task_type (domain, own_keys, names_program)
VALUES ('command', '{argv,env,env_allow,cwd,max_output_bytes,success_exit_codes}', true);

-- `takes` is what callers may give. Definitions that exist declare nothing and go on taking what they took (NULL); new ones
-- take what they declare.
ALTER TABLE supervisor.job_definition
    ADD COLUMN parameters jsonb CHECK (jsonb_typeof(parameters) = 'object' AND octet_length(parameters::text) <= 65536),
    ADD COLUMN takes jsonb CHECK (jsonb_typeof(takes) = 'object');
ALTER TABLE supervisor.job_definition ALTER COLUMN takes SET DEFAULT '{}';

-- Which login asked for the run; NULL for the runs from before.
ALTER TABLE supervisor.job_run ADD COLUMN enqueued_by text;
ALTER TABLE supervisor.job_run ALTER COLUMN enqueued_by SET DEFAULT session_user;
