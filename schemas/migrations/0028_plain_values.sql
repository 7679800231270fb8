-- What a worker says of itself is read by the leader and shown on pages, so it is plain whoever says it: names of domains, one
-- after the other, as many slots as a machine can use, and a stop bound that ends. 0.1.0 took anything: what no replica has
-- said is corrected here, without which no leader could read it.
UPDATE supervisor.worker w SET
    domains = ARRAY(SELECT DISTINCT d FROM unnest(w.domains) d WHERE d ~ '^[a-z][a-z0-9_]{0,62}$' ORDER BY d LIMIT 64),
    slots = least(w.slots, 10000),
    stop_bound_seconds = CASE WHEN w.stop_bound_seconds <= 3600 THEN w.stop_bound_seconds ELSE 3600 END
WHERE w.domains::text !~ '^\{([a-z][a-z0-9_]{0,62}(,[a-z][a-z0-9_]{0,62})*)?\}$' OR cardinality(w.domains) > 64
   OR w.slots > 10000 OR w.stop_bound_seconds > 3600;

-- the text of an array shows every form that is not a plain list: dimensions, bounds, NULL, and what has to be quoted
ALTER TABLE supervisor.worker
    ADD CONSTRAINT worker_domains CHECK (domains::text ~ '^\{([a-z][a-z0-9_]{0,62}(,[a-z][a-z0-9_]{0,62})*)?\}$'
        AND cardinality(domains) <= 64),
    ADD CONSTRAINT worker_slots CHECK (slots <= 10000),
    ADD CONSTRAINT worker_stop_bound CHECK (stop_bound_seconds <= 3600);

-- A run can be due in any year that Python's calendar has; until now in every year of PostgreSQL's, and a list with one of the
-- others could not be read.
UPDATE supervisor.job_run r SET
    not_before = greatest('0001-01-02 00:00+00', least('9999-12-30 00:00+00', r.not_before))
WHERE r.not_before NOT BETWEEN '0001-01-02 00:00+00' AND '9999-12-31 00:00+00';
