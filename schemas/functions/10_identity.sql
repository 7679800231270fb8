-- Who this server is. The system identifier tells one cluster from another, the timeline one promotion from the
-- next. Where a server hides them, 0 and timeline 1 stand in, and `tenure doctor` says that failover detection is off.
CREATE OR REPLACE FUNCTION supervisor.server_identity(OUT system_identifier bigint, OUT timeline integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    BEGIN
        SELECT s.system_identifier INTO server_identity.system_identifier FROM pg_control_system() s;
    EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
        system_identifier := 0;
    END;
    BEGIN
        IF pg_is_in_recovery() THEN  -- a standby: nothing can be written, so nothing is decided by it
            SELECT c.timeline_id INTO server_identity.timeline FROM pg_control_checkpoint() c;
        ELSE
            -- pg_control_checkpoint() would lag a promotion by up to a checkpoint
            timeline := ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer;
        END IF;
    EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
        timeline := 1;
    END;
END $$;

-- The fence: every function of the leader begins with it. FOR SHARE is what makes it one: a take-over updates this
-- row and so waits for every call in flight under the old epoch, and every later call under it fails here.
CREATE OR REPLACE FUNCTION supervisor.fence(p_epoch bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    term record;
    here record;
BEGIN
    SELECT e.epoch, e.system_identifier, e.timeline INTO term FROM supervisor.leader_epoch e FOR SHARE;
    here := supervisor.server_identity();
    IF term.epoch IS DISTINCT FROM p_epoch
       OR term.system_identifier IS DISTINCT FROM here.system_identifier
       OR term.timeline IS DISTINCT FROM here.timeline THEN
        RAISE EXCEPTION 'the tenure of epoch % is over', p_epoch USING ERRCODE = 'TN001',
            DETAIL = format('current epoch %s, taken on %s/%s, server is %s/%s', term.epoch, term.system_identifier,
                            term.timeline, here.system_identifier, here.timeline);
    END IF;
END $$;

-- Who acts, under which epoch and why, for the history rows of the moves that follow in this transaction.
CREATE OR REPLACE FUNCTION supervisor.acting(p_actor text, p_epoch bigint, p_reason text) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT set_config('tenure.actor', p_actor, true),
           set_config('tenure.epoch', coalesce(p_epoch::text, ''), true),
           set_config('tenure.reason', coalesce(p_reason, ''), true);
$$;

-- A time that every reader's calendar has: PostgreSQL's goes from 4713 BC to the year 294276, and is not finite at its ends.
-- NULL for NULL.
CREATE OR REPLACE FUNCTION supervisor.in_calendar(p_at timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p_at BETWEEN timestamptz '0001-01-02 00:00+00' AND timestamptz '9999-12-31 00:00+00'
$$;

-- When a worker was last heard. A beat that is yet to come shows that the clock was set back: it says nothing then, and
-- the leader's own watch, which every decision about silence needs as well, decides alone.
CREATE OR REPLACE FUNCTION supervisor.heard_at(p_heartbeat_at timestamptz) RETURNS timestamptz
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN p_heartbeat_at > clock_timestamp() THEN 'epoch' ELSE p_heartbeat_at END
$$;
