-- What the leader reads. Functions, because their joins need the same planner switches as the moves.

-- Every worker that counts: not gone, or still named by a run that has not quiesced. held_by: domain to count.
-- Dropped first, because what a function returns cannot be replaced; the grants follow in this transaction.
DROP FUNCTION IF EXISTS supervisor.read_workers();
CREATE OR REPLACE FUNCTION supervisor.read_workers()
RETURNS TABLE (worker_id text, state text, domains text[], slots integer, beat_seq bigint,
               stop_bound_seconds double precision, silent_seconds double precision, held bigint, running bigint,
               held_by jsonb, counted_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
    WITH claims AS MATERIALIZED (
        SELECT g.assigned_worker_id, sum(g.held)::bigint AS held, sum(g.running)::bigint AS running,
            jsonb_object_agg(g.domain, g.held) AS held_by
        FROM (SELECT r.assigned_worker_id, r.domain, count(*) AS held,
                  count(*) FILTER (WHERE r.state = 'RUNNING') AS running
              FROM supervisor.job_run r WHERE r.state IN ('ASSIGNED', 'RUNNING') GROUP BY 1, 2) g
        GROUP BY 1
    ), lingering AS MATERIALIZED (
        SELECT DISTINCT r.assigned_worker_id FROM supervisor.job_run r
        WHERE r.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED')
          AND r.started_at IS NOT NULL AND r.executor_stopped_at IS NULL
    )
    SELECT w.worker_id, w.state, w.domains, w.slots, w.beat_seq, w.stop_bound_seconds,
        extract(epoch FROM clock_timestamp() - supervisor.heard_at(w.heartbeat_at))::double precision,
        coalesce(c.held, 0), coalesce(c.running, 0), coalesce(c.held_by, '{}'), clock_timestamp()
    FROM supervisor.worker w
    LEFT JOIN claims c ON c.assigned_worker_id = w.worker_id
    LEFT JOIN lingering g ON g.assigned_worker_id = w.worker_id
    WHERE w.state <> 'gone' OR c.held IS NOT NULL OR g.assigned_worker_id IS NOT NULL
$$;

-- What has ended since the leader counted what its workers hold (crowd.py). Not those with another attempt owed or
-- made, which no index has by time, and not those that were never started: until the next count they only look as
-- if they were still held.
CREATE OR REPLACE FUNCTION supervisor.read_ended(p_since timestamptz)
RETURNS TABLE (worker_id text, domain text, ended bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
    SELECT r.assigned_worker_id, r.domain, count(*) FROM supervisor.job_run r
    WHERE r.finished_at > p_since AND r.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED')
      AND r.next_attempt_id IS NULL AND r.retry_at IS NULL AND r.started_at IS NOT NULL
    GROUP BY 1, 2
$$;

-- Due runs in claim order, as many a domain as there is room for. Full definitions are passed by, and so are
-- attempts whose predecessor may still be executing, so that nothing due waits behind something that cannot go.
-- p_after: by domain, the run behind which to begin (skim.py says why); NULL, or one that is gone: the beginning.
DROP FUNCTION IF EXISTS supervisor.read_due(text[], integer[], text[], bigint[], double precision);
CREATE OR REPLACE FUNCTION supervisor.read_due(
    p_domains text[], p_limits integer[], p_silent_workers text[], p_silent_seqs bigint[],
    p_stop_bound_seconds double precision, p_after bigint[] DEFAULT NULL)
RETURNS TABLE (id bigint, version integer, domain text, job_definition_id bigint, room bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
    WITH taken AS MATERIALIZED (
        SELECT d.id, d.concurrency - count(o.id) AS room
        FROM supervisor.job_definition d
        LEFT JOIN supervisor.job_run o ON o.job_definition_id = d.id AND o.state IN ('ASSIGNED', 'RUNNING')
        WHERE d.concurrency IS NOT NULL AND d.removed_at IS NULL
        GROUP BY d.id
    ), lingering AS MATERIALIZED (
        SELECT o.job_definition_id AS id, count(*) AS lingering FROM supervisor.job_run o
        WHERE o.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED')
          AND o.started_at IS NOT NULL AND o.executor_stopped_at IS NULL
          AND NOT supervisor.quiesced(o.id, p_silent_workers, p_silent_seqs, p_stop_bound_seconds)
        GROUP BY 1
    ), rooms AS MATERIALIZED (
        SELECT t.id, t.room - coalesce(g.lingering, 0) AS room FROM taken t LEFT JOIN lingering g ON g.id = t.id
    ), closed AS MATERIALIZED (
        SELECT coalesce(array_agg(x.id), '{}') AS ids FROM (
            SELECT id FROM rooms WHERE room <= 0
            UNION ALL SELECT d.id FROM supervisor.job_definition d WHERE NOT d.enabled) x
    )
    SELECT r.id, r.version, r.domain, r.job_definition_id, rooms.room
    FROM (SELECT m.domain, m.room, a.not_before, a.id,
              -- none has a larger one, so that all are behind it
              coalesce(a.priority, 2147483648) AS priority
          FROM unnest(p_domains, p_limits, p_after) AS m(domain, room, after)
          LEFT JOIN supervisor.job_run a ON a.id = m.after
          WHERE NOT EXISTS (SELECT FROM supervisor.domain_pause p WHERE p.domain = m.domain)) d
    CROSS JOIN closed
    CROSS JOIN LATERAL (
        -- two steps, because no index is entered by an OR
        (SELECT r.id, r.version, r.domain, r.job_definition_id, r.priority, r.not_before
         FROM supervisor.job_run r
         WHERE r.domain = d.domain AND r.state IN ('PENDING', 'ORPHANED') AND r.not_before <= statement_timestamp()
           AND r.priority = d.priority AND (r.not_before, r.id) > (d.not_before, d.id)
           AND r.cancel_requested_at IS NULL AND NOT r.job_definition_id = ANY (closed.ids)
           AND (r.retry_of_id IS NULL
                OR supervisor.root_quiesced(r.root_id, p_silent_workers, p_silent_seqs, p_stop_bound_seconds))
         ORDER BY r.not_before, r.id
         LIMIT d.room)
        UNION ALL
        (SELECT r.id, r.version, r.domain, r.job_definition_id, r.priority, r.not_before
         FROM supervisor.job_run r
         WHERE r.domain = d.domain AND r.state IN ('PENDING', 'ORPHANED') AND r.not_before <= statement_timestamp()
           AND r.priority < d.priority
           AND r.cancel_requested_at IS NULL AND NOT r.job_definition_id = ANY (closed.ids)
           AND (r.retry_of_id IS NULL
                OR supervisor.root_quiesced(r.root_id, p_silent_workers, p_silent_seqs, p_stop_bound_seconds))
         ORDER BY r.priority DESC, r.not_before, r.id
         LIMIT d.room)
        LIMIT d.room) r
    LEFT JOIN rooms ON rooms.id = r.job_definition_id
    ORDER BY r.priority DESC, r.not_before, r.id
$$;

-- Live runs that ask for a decision, each with why. Small partial indexes; what is merely running is not read.
CREATE OR REPLACE FUNCTION supervisor.read_attention(p_stop_bound_seconds double precision)
RETURNS TABLE (why text, id bigint, version integer, state text, worker_id text, seconds double precision)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
    SELECT 'CONFIRMING', r.id, r.version, r.state, r.assigned_worker_id,
        extract(epoch FROM r.continuation_check_deadline_at - clock_timestamp())::double precision
    FROM supervisor.job_run r WHERE r.continuation_state = 'CONFIRMING'
    UNION ALL
    SELECT 'CANCEL', r.id, r.version, r.state, r.assigned_worker_id,
        extract(epoch FROM clock_timestamp() - r.cancel_requested_at)::double precision
    FROM supervisor.job_run r
    WHERE r.cancel_requested_at IS NOT NULL AND r.state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED')
    UNION ALL
    SELECT 'UNSTARTED', r.id, r.version, r.state, r.assigned_worker_id,
        extract(epoch FROM clock_timestamp() - r.assigned_at)::double precision
    FROM supervisor.job_run r, supervisor.setting s, supervisor.leader_epoch e
    WHERE r.state = 'ASSIGNED' AND s.name = 'reassign_after_seconds'
      AND (r.assigned_at + make_interval(secs => s.value::text::double precision) <= clock_timestamp()
           OR r.assigned_epoch < e.first_epoch)
    UNION ALL
    SELECT 'OVERDUE', r.id, r.version, r.state, r.assigned_worker_id, r.timeout_seconds
    FROM supervisor.job_run r
    WHERE r.state = 'RUNNING' AND r.started_at
        + make_interval(secs => r.timeout_seconds + p_stop_bound_seconds) <= clock_timestamp()
    UNION ALL
    SELECT 'ABANDONED', r.id, r.version, r.state, r.assigned_worker_id, 0
    FROM supervisor.job_run r
    WHERE r.state = 'RUNNING' AND r.continuation_state = 'NONE'
      AND NOT EXISTS (SELECT FROM supervisor.worker w WHERE w.worker_id = r.assigned_worker_id)
    UNION ALL
    SELECT 'EXHAUSTED', r.id, r.version, r.state, NULL, r.fruitless_assignments
    FROM supervisor.job_run r, supervisor.setting s
    WHERE r.state = 'ORPHANED' AND s.name = 'max_assignments'
      AND r.fruitless_assignments >= s.value::text::double precision
$$;
