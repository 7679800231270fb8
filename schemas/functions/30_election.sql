-- Election. A tenure is an epoch; its lease is a hint to the others when they may try, the fence is the safety.

CREATE OR REPLACE FUNCTION supervisor.acquire(
    p_worker text, p_lease_seconds double precision, p_stop_bound_seconds double precision,
    p_epoch_seen bigint, p_system_seen bigint, p_timeline_seen integer)
RETURNS TABLE (epoch bigint, system_identifier bigint, timeline integer, quarantine_seconds double precision)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    here  record;
    lease record;
    term  record;
    moved boolean;
BEGIN
    here := supervisor.server_identity();
    IF p_system_seen = here.system_identifier AND p_timeline_seen > here.timeline THEN
        RAISE EXCEPTION 'this server is on timeline %, timeline % was seen before', here.timeline, p_timeline_seen
            USING ERRCODE = 'TN003', HINT = 'it was left behind by a failover; connect to the new primary';
    END IF;
    IF current_setting('fsync') = 'off' OR current_setting('synchronous_commit') = 'off' THEN
        RAISE EXCEPTION 'fsync and synchronous_commit must be on: an epoch could be given out twice'
            USING ERRCODE = 'TN002';
    END IF;

    SELECT e.epoch, e.system_identifier, e.timeline, e.first_epoch, e.quarantine_until INTO term
        FROM supervisor.leader_epoch e;
    -- another server or timeline, or one that has lost commits: an epoch was seen that it does not know
    moved := (term.system_identifier, term.timeline) IS DISTINCT FROM (here.system_identifier, here.timeline)
        OR (p_system_seen = here.system_identifier AND p_epoch_seen > term.epoch);
    SELECT l.expires_at > clock_timestamp()
           -- a clock that was set back must not leave a dead leader's lease standing
           AND l.expires_at <= clock_timestamp() + make_interval(secs => 2 * l.lease_seconds) AS live
        INTO lease FROM supervisor.leader_lease l;
    IF lease.live AND NOT moved THEN
        RETURN;
    END IF;
    -- of several candidates one goes on; the others look again later
    PERFORM FROM supervisor.leader_lease l FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- with the lock held, look again: another may have been through here
    SELECT e.epoch, e.system_identifier, e.timeline, e.first_epoch, e.quarantine_until INTO term
        FROM supervisor.leader_epoch e;
    -- another server or timeline, or one that has lost commits: an epoch was seen that it does not know
    moved := (term.system_identifier, term.timeline) IS DISTINCT FROM (here.system_identifier, here.timeline)
        OR (p_system_seen = here.system_identifier AND p_epoch_seen > term.epoch);
    SELECT l.expires_at > clock_timestamp()
           -- a clock that was set back must not leave a dead leader's lease standing
           AND l.expires_at <= clock_timestamp() + make_interval(secs => 2 * l.lease_seconds) AS live,
           -- of one that did not resign this is the last that anybody knows
           CASE WHEN l.holder IS NOT NULL THEN l.renewed_at END AS renewed_at
        INTO lease FROM supervisor.leader_lease l;
    IF lease.live AND NOT moved THEN
        RETURN;
    END IF;

    RETURN QUERY UPDATE supervisor.leader_epoch e SET
        epoch = greatest(e.epoch, (here.timeline - 1)::bigint << 32, p_epoch_seen) + 1,
        first_epoch = CASE WHEN moved THEN greatest(e.epoch, (here.timeline - 1)::bigint << 32, p_epoch_seen) + 1
                           ELSE e.first_epoch END,
        system_identifier = here.system_identifier,
        timeline = here.timeline,
        holder = p_worker,
        since = clock_timestamp(),
        -- commits of the old timeline may be lost: give what it started the time to stop by itself
        -- (the very first term is preceded by none, unless it was itself lost)
        quarantine_until = CASE WHEN moved AND (term.timeline IS NOT NULL OR p_epoch_seen > term.epoch)
                                THEN clock_timestamp() + make_interval(secs => greatest(p_stop_bound_seconds,
                                    (SELECT max(w.stop_bound_seconds) FROM supervisor.worker w)))
                                ELSE e.quarantine_until END
    RETURNING e.epoch, e.system_identifier, e.timeline,
        greatest(0, extract(epoch FROM e.quarantine_until - clock_timestamp()))::double precision;

    UPDATE supervisor.leader_lease l SET epoch = e.epoch, holder = p_worker, renewed_at = clock_timestamp(),
        lease_seconds = p_lease_seconds, expires_at = clock_timestamp() + make_interval(secs => p_lease_seconds), resign_requested_epoch = NULL
    FROM supervisor.leader_epoch e;
    INSERT INTO supervisor.tenure_log (epoch, holder, what, system_identifier, timeline, before_renewed_at)
        SELECT e.epoch, e.holder, 'ACQUIRED', e.system_identifier, e.timeline, lease.renewed_at
        FROM supervisor.leader_epoch e;
END $$;

-- No row = lost: too late, another leads, or the server is not the one the epoch was taken on.
CREATE OR REPLACE FUNCTION supervisor.renew(p_epoch bigint, p_worker text, p_lease_seconds double precision)
RETURNS TABLE (resign_requested boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here record;
BEGIN
    here := supervisor.server_identity();
    RETURN QUERY UPDATE supervisor.leader_lease l SET renewed_at = clock_timestamp(), lease_seconds = p_lease_seconds,
        expires_at = clock_timestamp() + make_interval(secs => p_lease_seconds)
    FROM supervisor.leader_epoch e
    WHERE l.epoch = p_epoch AND l.holder = p_worker AND l.expires_at > clock_timestamp()
      AND e.epoch = p_epoch AND e.system_identifier = here.system_identifier AND e.timeline = here.timeline
    RETURNING coalesce(l.resign_requested_epoch = p_epoch, false);
END $$;

CREATE OR REPLACE FUNCTION supervisor.resign(p_epoch bigint, p_worker text, p_reason text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE supervisor.leader_lease l SET expires_at = clock_timestamp(), holder = NULL
        WHERE l.epoch = p_epoch AND l.holder = p_worker;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO supervisor.tenure_log (epoch, holder, what, reason) VALUES (p_epoch, p_worker, 'RESIGNED', p_reason);
    PERFORM pg_notify('tenure', 'leader');
    RETURN true;
END $$;
