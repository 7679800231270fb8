-- Arguments: what callers give to a run. Whoever may ask for work never chooses the program, so a caller's payload holds
-- arguments for declared parameters and nothing else. A declaration maps names to objects:
--   type         text | integer | number | boolean | object | array | any
--   required     true: a caller must give it; `default` stands in where none is given
--   choices, minimum, maximum, max_length, nullable
--   leading_dash true: as an element of argv, the value may begin with '-' and so be read as an option
--   description  for people
-- job_definition.parameters is what the definition declares, job_definition.takes what callers may give: those, else
-- what the task type declares. `takes` is computed when the definition or the task type changes, not for each run.

-- PostgreSQL keeps numbers that no reader takes: 1e100000 is five characters of a call and 100,001 of its JSON. NULL, or that
-- one of the numbers in it has more than 300 digits before or behind its point, which is also what fits a double.
-- Cheap for what is short (nothing) and for what has no long row of digits (5 us each KiB); only then each number is looked at.
CREATE OR REPLACE FUNCTION supervisor.number_fault(p_value jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF octet_length(p_value::text) <= 300 OR p_value::text !~ '[0-9]{100}' THEN
        RETURN NULL;
    END IF;
    BEGIN
        RETURN (SELECT 'holds a number of more than 300 digits before or behind its point'
                FROM jsonb_path_query(p_value, 'strict $.** ? (@.type() == "number")') n
                WHERE abs(n::numeric) >= 1e300 OR scale(n::numeric) > 300 LIMIT 1);
    EXCEPTION WHEN statement_too_complex THEN
        RETURN 'is nested too deep';
    END;
END $$;

-- What is wrong with a declaration, or NULL.
CREATE OR REPLACE FUNCTION supervisor.declaration_fault(p_parameters jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name  text;
    spec  jsonb;
    fault text;
BEGIN
    IF jsonb_typeof(p_parameters) <> 'object' THEN
        RETURN 'parameters must be an object of names, such as {"order": {"type": "integer", "required": true}}';
    END IF;
    IF (SELECT count(*) FROM jsonb_object_keys(p_parameters)) > 100 OR octet_length(p_parameters::text) > 65536 THEN
        RETURN 'a job has at most 100 parameters, in at most 65536 bytes';
    END IF;
    IF supervisor.number_fault(p_parameters) IS NOT NULL THEN
        RETURN 'the declaration of parameters ' || supervisor.number_fault(p_parameters);
    END IF;
    FOR name, spec IN SELECT e.key, e.value FROM jsonb_each(p_parameters) e LOOP
        fault := CASE
            WHEN name !~ '^[A-Za-z_][A-Za-z0-9_]{0,62}$' THEN
                'a parameter''s name has 1 to 63 letters, digits and _, of which the first is no digit'
            WHEN jsonb_typeof(spec) <> 'object' THEN 'must be an object, such as {"type": "text", "required": true}'
            WHEN spec - '{type,required,default,choices,minimum,maximum,max_length,nullable,leading_dash,description}'::text[]
                <> '{}' THEN
                'knows type, required, default, choices, minimum, maximum, max_length, nullable, leading_dash, description'
            WHEN coalesce(spec ->> 'type', '') NOT IN ('text', 'integer', 'number', 'boolean', 'object', 'array', 'any') THEN
                'type must be one of text, integer, number, boolean, object, array, any'
            WHEN name = 'event' AND (spec ->> 'type' <> 'object' OR spec ? 'default') THEN
                'is what made the run: an object without a default'
            WHEN jsonb_typeof(coalesce(spec -> 'required', 'true')) <> 'boolean'
              OR jsonb_typeof(coalesce(spec -> 'nullable', 'true')) <> 'boolean'
              OR jsonb_typeof(coalesce(spec -> 'leading_dash', 'true')) <> 'boolean' THEN
                'required, nullable and leading_dash are true or false'
            WHEN spec @> '{"required": true}' AND spec ? 'default' THEN 'is required or has a default, not both'
            WHEN jsonb_typeof(coalesce(spec -> 'description', '""')) <> 'string'
              OR length(spec ->> 'description') > 1000 THEN 'description must be a text of at most 1000 characters'
            WHEN spec ? 'choices' AND (jsonb_typeof(spec -> 'choices') <> 'array' OR spec -> 'choices' = '[]'
              OR spec ->> 'type' NOT IN ('text', 'integer', 'number')) THEN
                'choices must be a list of at least one text or number'
            WHEN spec ?| '{minimum,maximum}' AND (spec ->> 'type' NOT IN ('integer', 'number')
              OR jsonb_typeof(coalesce(spec -> 'minimum', '0')) <> 'number'
              OR jsonb_typeof(coalesce(spec -> 'maximum', '0')) <> 'number') THEN
                'minimum and maximum are numbers, and bound an integer or a number'
            WHEN spec ? 'max_length' AND (spec ->> 'type' NOT IN ('text', 'array')
              OR jsonb_typeof(spec -> 'max_length') <> 'number' OR spec ->> 'max_length' !~ '^[1-9][0-9]{0,8}$') THEN
                'max_length is a whole number from 1 on, and bounds a text or an array'
            END;
        fault := coalesce(fault, (
            SELECT format('choice %s %s', c.value, supervisor.value_fault(spec - 'choices', c.value))
            FROM jsonb_array_elements(coalesce(spec -> 'choices', '[]')) c
            WHERE supervisor.value_fault(spec - 'choices', c.value) IS NOT NULL LIMIT 1));
        IF fault IS NULL AND spec ? 'default' AND spec -> 'default' <> 'null' THEN
            fault := 'default ' || supervisor.value_fault(spec, spec -> 'default');
        END IF;
        IF fault IS NOT NULL THEN
            RETURN format('parameter %s: %s', left(name, 100), left(fault, 500));
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- Why a value does not fit this parameter, or NULL.
CREATE OR REPLACE FUNCTION supervisor.value_fault(p_spec jsonb, p_value jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kind text := p_spec ->> 'type';
    has  text := jsonb_typeof(p_value);
BEGIN
    IF has = 'null' THEN
        RETURN CASE WHEN kind <> 'any' AND NOT p_spec @> '{"nullable": true}' THEN 'must be ' || kind || ', not null' END;
    END IF;
    IF NOT (CASE kind
        WHEN 'text' THEN has = 'string'
        WHEN 'integer' THEN has = 'number' AND scale(trim_scale((p_value #>> '{}')::numeric)) = 0
        WHEN 'any' THEN true
        ELSE has = kind END) THEN
        RETURN 'must be ' || kind;
    END IF;
    IF p_spec ? 'choices' THEN
        RETURN CASE WHEN NOT p_spec -> 'choices' @> p_value THEN 'must be one of '
            || left((SELECT string_agg(c, ', ') FROM jsonb_array_elements_text(p_spec -> 'choices') c), 500) END;
    END IF;
    IF has = 'number' AND (p_value #>> '{}')::numeric NOT BETWEEN coalesce((p_spec ->> 'minimum')::numeric, '-Infinity')
        AND coalesce((p_spec ->> 'maximum')::numeric, 'Infinity') THEN
        RETURN 'must be ' || concat_ws(' and ', 'at least ' || (p_spec ->> 'minimum'), 'at most ' || (p_spec ->> 'maximum'));
    END IF;
    IF p_spec ? 'max_length' AND (p_spec ->> 'max_length')::integer
        < (CASE has WHEN 'string' THEN length(p_value #>> '{}') WHEN 'array' THEN jsonb_array_length(p_value) END) THEN
        RETURN format('is longer than %s', p_spec ->> 'max_length');
    END IF;
    IF p_spec @> '{"in_argv": true}' AND left(p_value #>> '{}', 1) = '-' THEN
        RETURN 'must not begin with "-": the program could read it as an option (the definition allows it with leading_dash)';
    END IF;
    RETURN NULL;
END $$;

-- The task type of an action, else the one for all actions ('*'); NULL where no code declared it.
CREATE OR REPLACE FUNCTION supervisor.task_type_of(p_domain text, p_action text) RETURNS supervisor.task_type
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT t FROM supervisor.task_type t WHERE t.domain = p_domain AND t.action IN (coalesce(p_action, ''), '*')
    ORDER BY t.action = '*' LIMIT 1
$$;

-- The parameters whose values become elements of argv: {"argument": NAME} stands there.
CREATE OR REPLACE FUNCTION supervisor.marked_in_argv(p_payload jsonb) RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(m ->> 'argument'), '{}')
    FROM jsonb_array_elements(CASE WHEN jsonb_typeof(p_payload -> 'argv') = 'array' THEN p_payload -> 'argv' ELSE '[]' END) m
    WHERE jsonb_typeof(m) = 'object'
$$;

-- What callers may give to a job: as it declares; else as its task type does, less what its payload has fixed; else
-- nothing. NULL (anything, but nothing that belongs to the definition) only for definitions older than parameters.
CREATE OR REPLACE FUNCTION supervisor.parameters_of(p_job supervisor.job_definition) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kind   supervisor.task_type := supervisor.task_type_of(p_job.domain, p_job.action);
    marked text[];
BEGIN
    IF p_job.parameters IS NOT NULL THEN
        marked := CASE WHEN kind.names_program THEN supervisor.marked_in_argv(p_job.payload) ELSE '{}' END;
        RETURN coalesce((SELECT jsonb_object_agg(e.key, CASE
                WHEN e.key = ANY (marked) AND NOT e.value @> '{"leading_dash": true}' THEN e.value || '{"in_argv": true}'
                ELSE e.value END) FROM jsonb_each(p_job.parameters) e), '{}');
    END IF;
    IF kind.parameters IS NOT NULL THEN
        RETURN kind.parameters - ARRAY(SELECT jsonb_object_keys(p_job.payload));
    END IF;
    RETURN CASE WHEN p_job.takes IS NOT NULL THEN '{}'::jsonb END;
END $$;

-- For people: what a job takes.
CREATE OR REPLACE FUNCTION supervisor.describe_parameters(p_parameters jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(left(string_agg(format('%s (%s)', e.key, concat_ws(', ', e.value ->> 'type',
        CASE WHEN e.value @> '{"required": true}' THEN 'required' END, 'by default ' || (e.value -> 'default')::text)), ', '
        ORDER BY coalesce(e.value -> 'required', 'false') DESC, e.key), 1500), 'no arguments')
    FROM jsonb_each(p_parameters) e WHERE e.key <> 'event'
$$;

-- Why a job does not take these arguments, or NULL.
CREATE OR REPLACE FUNCTION supervisor.argument_fault(p_job supervisor.job_definition, p_arguments jsonb) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name  text;
    value jsonb;
    fault text;
BEGIN
    IF p_arguments ? 'event' THEN
        RETURN 'event is reserved: a run has it from the event that made it';
    END IF;
    IF octet_length(p_arguments::text) > 300 THEN
        fault := supervisor.number_fault(p_arguments);
        IF fault IS NOT NULL THEN
            RETURN 'the payload ' || fault;
        END IF;
    END IF;
    IF p_job.takes IS NULL THEN
        SELECT k INTO name FROM unnest((supervisor.task_type_of(p_job.domain, p_job.action)).own_keys) k
            WHERE p_arguments ? k ORDER BY k LIMIT 1;
        RETURN CASE WHEN FOUND THEN format('%s of job %s belongs to its definition: a caller cannot give it. '
            'Declare parameters for what callers may give', name, p_job.name) END;
    END IF;
    FOR name, value IN SELECT e.key, e.value FROM jsonb_each(p_arguments) e LOOP
        IF NOT p_job.takes ? name THEN
            RETURN format('job %s has no parameter %s; it takes %s', p_job.name, left(to_json(name)::text, 100),
                supervisor.describe_parameters(p_job.takes));
        END IF;
        fault := supervisor.value_fault(p_job.takes -> name, value);
        IF fault IS NOT NULL THEN
            RETURN format('argument %s of job %s %s', name, p_job.name, fault);
        END IF;
    END LOOP;
    SELECT e.key INTO name FROM jsonb_each(p_job.takes) e
        WHERE e.value @> '{"required": true}' AND NOT p_arguments ? e.key ORDER BY e.key LIMIT 1;
    RETURN CASE WHEN NOT FOUND THEN NULL
        WHEN name = 'event' THEN format('job %s runs on events only: emit one of type %s', p_job.name,
            coalesce(p_job.event_type, '(it has none yet)'))
        ELSE format('job %s needs the argument %s; it takes %s', p_job.name, name,
            supervisor.describe_parameters(p_job.takes)) END;
END $$;

-- The payload of a run to which nobody gives arguments.
CREATE OR REPLACE FUNCTION supervisor.base_payload(p_job supervisor.job_definition) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(e.key, e.value -> 'default'), '{}') || p_job.payload
    FROM jsonb_each(coalesce(p_job.parameters, '{}')) e WHERE e.value ? 'default'
$$;

-- Why a definition cannot be saved as it is, or NULL.
CREATE OR REPLACE FUNCTION supervisor.definition_fault(p_job supervisor.job_definition) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kind  supervisor.task_type := supervisor.task_type_of(p_job.domain, p_job.action);
    key   text;
    fault text := supervisor.declaration_fault(p_job.parameters);
BEGIN
    IF fault IS NOT NULL THEN
        RETURN fault;
    END IF;
    IF kind.domain IS NULL AND EXISTS (SELECT FROM supervisor.task_type t WHERE t.domain = p_job.domain) THEN
        RETURN (SELECT format('the action must be one of %s', string_agg(t.action, ', ' ORDER BY t.action))
                FROM supervisor.task_type t WHERE t.domain = p_job.domain AND t.action <> '');
    END IF;
    -- an event or a schedule gives no arguments
    SELECT e.key INTO key FROM jsonb_each(supervisor.parameters_of(p_job)) e
        WHERE e.value @> '{"required": true}'
          AND (p_job.cron IS NOT NULL OR p_job.event_type IS NOT NULL AND e.key <> 'event') ORDER BY e.key LIMIT 1;
    RETURN coalesce(
        'the payload ' || supervisor.number_fault(p_job.payload),
        supervisor.own_payload_fault(p_job, kind),
        supervisor.own_parameters_fault(p_job, kind),
        CASE WHEN key IS NOT NULL THEN
            format('%s is required, and %s gives none: fix it in the payload, or give it a default', key,
                CASE WHEN p_job.cron IS NOT NULL THEN 'a schedule' ELSE 'an event' END) END);
END $$;

-- Why the payload that a definition fixes does not suit its task type, or NULL.
CREATE OR REPLACE FUNCTION supervisor.own_payload_fault(p_job supervisor.job_definition, p_kind supervisor.task_type)
RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known text[] := p_kind.own_keys || ARRAY(SELECT jsonb_object_keys(p_kind.parameters));
    fault text;
BEGIN
    IF p_kind.names_program AND jsonb_typeof(p_job.payload -> 'argv' -> 0) = 'object' THEN
        RETURN 'the first element of argv is the program: it cannot be an argument';
    END IF;
    IF p_job.payload ? 'event' THEN
        RETURN 'event is reserved: a run has it from the event that made it';
    END IF;
    IF p_kind.parameters IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT format('the payload does not suit %s: ', concat_ws(' ', p_job.domain, p_job.action)) || CASE
            WHEN e.key <> ALL (known) THEN
                format('unknown key %s; known are %s', left(to_json(e.key)::text, 100), array_to_string(known, ', '))
            ELSE format('%s %s', e.key, supervisor.value_fault(p_kind.parameters -> e.key, e.value)) END INTO fault
        FROM jsonb_each(p_job.payload) e
        WHERE e.key <> ALL (known) OR supervisor.value_fault(p_kind.parameters -> e.key, e.value) IS NOT NULL LIMIT 1;
    RETURN fault;
END $$;

-- Why the parameters that a definition declares do not suit its payload or its task type, or NULL.
CREATE OR REPLACE FUNCTION supervisor.own_parameters_fault(p_job supervisor.job_definition, p_kind supervisor.task_type)
RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own   jsonb := coalesce(p_job.parameters, '{}');
    fault text;
BEGIN
    SELECT format('argv names the argument %s, which no parameter declares', left(to_json(m)::text, 100)) INTO fault
        FROM unnest(CASE WHEN p_kind.names_program THEN supervisor.marked_in_argv(p_job.payload) ELSE '{}' END) m
        WHERE m IS NULL OR NOT own ? m LIMIT 1;
    IF FOUND THEN
        RETURN fault;
    END IF;
    SELECT format('parameter %s: %s', e.key, CASE
            WHEN e.key = ANY (p_kind.own_keys) THEN 'that key belongs to the definition alone'
            WHEN p_job.payload ? e.key THEN 'the payload fixes it; take it out of one of them'
            ELSE format('%s takes %s', concat_ws(' ', p_job.domain, p_job.action),
                supervisor.describe_parameters(p_kind.parameters)) END) INTO fault
        FROM jsonb_each(own) e
        WHERE p_job.payload ? e.key OR e.key = ANY (p_kind.own_keys)
           OR p_kind.parameters IS NOT NULL AND e.key <> 'event'
              AND p_kind.parameters -> e.key ->> 'type' IS DISTINCT FROM e.value ->> 'type'
        LIMIT 1;
    IF FOUND OR p_job.parameters IS NULL THEN
        RETURN fault;
    END IF;
    SELECT format('%s needs %s: fix it in the payload, or declare it as required or with a default',
            concat_ws(' ', p_job.domain, p_job.action), e.key) INTO fault
        FROM jsonb_each(p_kind.parameters) e
        WHERE e.value @> '{"required": true}' AND NOT p_job.payload ? e.key
          AND NOT coalesce(own -> e.key ?| '{required,default}', false) LIMIT 1;
    RETURN fault;
END $$;

-- The task types of the code that migrates: whether anything changed. Definitions take what they say from now on.
CREATE OR REPLACE FUNCTION supervisor.declare_task_types(p_types jsonb) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    fault   text;
    changed boolean;
BEGIN
    SELECT format('task type %s: %s', concat_ws(' ', w.domain, w.action), supervisor.declaration_fault(w.parameters))
        INTO fault FROM jsonb_populate_recordset(NULL::supervisor.task_type, p_types) w
        WHERE supervisor.declaration_fault(w.parameters) IS NOT NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%', fault USING ERRCODE = 'TN022';
    END IF;
    DELETE FROM supervisor.task_type t WHERE NOT EXISTS (
        SELECT FROM jsonb_populate_recordset(NULL::supervisor.task_type, p_types) w WHERE w IS NOT DISTINCT FROM t);
    changed := FOUND;
    INSERT INTO supervisor.task_type
        SELECT w.* FROM jsonb_populate_recordset(NULL::supervisor.task_type, p_types) w ON CONFLICT DO NOTHING;
    changed := FOUND OR changed;
    UPDATE supervisor.job_definition d SET takes = supervisor.parameters_of(d)
        WHERE d.removed_at IS NULL AND d.takes IS DISTINCT FROM supervisor.parameters_of(d);
    RETURN changed;
END $$;
