-- Partitions of the history for the coming months.
CREATE OR REPLACE FUNCTION supervisor.make_partitions(p_months integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first date;
    part  text;
    made  integer := 0;
BEGIN
    -- bounded, because the leader's login may call this
    FOR n IN 0..least(p_months, 24) LOOP
        first := (date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC') + make_interval(months => n))::date;
        part := format('job_run_history_%s', to_char(first, 'YYYYMM'));
        CONTINUE WHEN to_regclass('supervisor.' || part) IS NOT NULL;
        -- rows of that month already in the default partition keep their place: attaching would have to move them
        CONTINUE WHEN EXISTS (SELECT FROM supervisor.job_run_history_default d
            WHERE d.at >= first::timestamp AT TIME ZONE 'UTC'
              AND d.at < (first + interval '1 month') AT TIME ZONE 'UTC');
        EXECUTE format('CREATE TABLE supervisor.%I (LIKE supervisor.job_run_history INCLUDING ALL)', part);
        EXECUTE format('ALTER TABLE supervisor.job_run_history ATTACH PARTITION supervisor.%I FOR VALUES FROM (%L) TO (%L)',
            part, first::timestamp AT TIME ZONE 'UTC', (first + interval '1 month') AT TIME ZONE 'UTC');
        EXECUTE format('CREATE OR REPLACE TRIGGER append_only_all BEFORE TRUNCATE ON supervisor.%I
            FOR EACH STATEMENT EXECUTE FUNCTION supervisor.refuse_rewrite()', part);
        made := made + 1;
    END LOOP;
    RETURN made;
EXCEPTION WHEN duplicate_table THEN
    RETURN 0;
END $$;
