-- Deletion of duplicates: decided here, carried out by a worker file by file, each with leave from the database.

CREATE OR REPLACE FUNCTION dedup.request_delete(
    p_actor text, p_algorithm text, p_hash bytea, p_keep bigint, p_remove bigint[], p_dry_run boolean)
RETURNS SETOF dedup.jobs
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    members bigint[];
    keep    bigint := p_keep;
    remove  bigint[];
    made    dedup.jobs;
BEGIN
    -- without a choice the oldest stays
    SELECT array_agg(f.id ORDER BY f.mtime_ns, f.id) INTO members FROM dedup.library_files f
     WHERE NOT f.is_missing AND NOT f.needs_hash AND f.hash_algorithm = p_algorithm AND f.content_hash = p_hash;
    IF coalesce(cardinality(members), 0) < 2 THEN
        RAISE EXCEPTION 'no group %', p_algorithm || ':' || encode(p_hash, 'hex') USING ERRCODE = 'TN020';
    END IF;
    keep := coalesce(keep, members[1]);
    remove := ARRAY(SELECT DISTINCT r FROM unnest(coalesce(p_remove, array_remove(members, keep))) AS r ORDER BY r);
    IF NOT keep = ANY (members) OR NOT remove <@ members OR keep = ANY (remove) OR cardinality(remove) = 0 THEN
        RAISE EXCEPTION 'the file to keep and those to remove are different members of the group' USING ERRCODE = 'TN022';
    END IF;
    made := dedup.make_job(p_actor, 'delete', NULL, jsonb_build_object('group_key', p_algorithm || ':' || encode(p_hash, 'hex'),
        'keep', keep, 'remove', remove), coalesce(p_dry_run, true), NULL);
    UPDATE dedup.jobs j SET total_items = cardinality(remove) WHERE j.id = made.id RETURNING j.* INTO made;
    PERFORM supervisor.note_audit(p_actor, 'dedup.delete', 'dedup-job:' || made.id, NULL,
        made.payload || jsonb_build_object('dry_run', made.dry_run));
    RETURN NEXT made;
END $$;

-- The keeper first, then what is to go; also what this job has been given leave to move and may not have moved yet.
CREATE OR REPLACE FUNCTION dedup.read_deletion(p_job uuid, p_claim uuid)
RETURNS TABLE (id bigint, keep boolean, library text, root_path text, relative_path text, size_bytes bigint, mtime_ns bigint,
    hash_algorithm text, content_hash bytea, trash_path text, gone boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    job dedup.jobs := dedup.claimed_job(p_job, p_claim, 'delete');
BEGIN
    RETURN QUERY
    SELECT f.id, f.id = (job.payload ->> 'keep')::bigint, l.name, l.root_path, f.relative_path::text, f.size_bytes, f.mtime_ns,
           split_part(job.payload ->> 'group_key', ':', 1), decode(split_part(job.payload ->> 'group_key', ':', 2), 'hex'),
           CASE WHEN f.trashed_by = p_job THEN f.trash_path END, f.is_missing AND f.trashed_by IS DISTINCT FROM p_job
      FROM dedup.library_files f JOIN dedup.library_roots l ON l.id = f.library_id
     WHERE f.id IN (SELECT (job.payload ->> 'keep')::bigint UNION ALL
                    SELECT r::bigint FROM jsonb_array_elements_text(job.payload -> 'remove') AS r)
     ORDER BY 2 DESC, f.id;
END $$;

-- Leave to move one file to the trash, given when real deletion is allowed now and another file of the group stays.
CREATE OR REPLACE FUNCTION dedup.trash_file(p_job uuid, p_claim uuid, p_file bigint, p_trash_path text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job  dedup.jobs := dedup.claimed_job(p_job, p_claim, 'delete');
    keep bigint := (job.payload ->> 'keep')::bigint;
    file dedup.library_files;
BEGIN
    IF job.dry_run OR NOT (dedup.setting('dedup_allow_real_delete'))::boolean THEN
        RAISE EXCEPTION 'real deletion is switched off (setting dedup_allow_real_delete)' USING ERRCODE = 'TN021';
    END IF;
    IF NOT job.payload -> 'remove' @> to_jsonb(p_file) OR keep = p_file THEN
        RAISE EXCEPTION 'file % is not to be removed by this job', p_file USING ERRCODE = 'TN021';
    END IF;
    -- the one that goes and the one that stays, in one order: whichever file of a group goes last, the one kept for it is there,
    -- so two jobs cannot each count on the other's
    PERFORM FROM dedup.library_files f WHERE f.id IN (p_file, keep) ORDER BY f.id FOR UPDATE;
    SELECT f.* INTO file FROM dedup.library_files f WHERE f.id = p_file;
    IF file.trashed_by = p_job AND file.is_missing THEN
        RETURN true;
    END IF;
    -- both are still of the group
    IF 2 <> (SELECT count(*) FROM dedup.library_files f
              WHERE f.id IN (p_file, keep) AND NOT f.is_missing AND NOT f.needs_hash
                AND f.hash_algorithm || ':' || encode(f.content_hash, 'hex') = job.payload ->> 'group_key') THEN
        RETURN false;
    END IF;
    UPDATE dedup.library_files f SET is_missing = true, trashed_by = p_job, trashed_at = clock_timestamp(),
           trash_path = p_trash_path, updated_at = clock_timestamp() WHERE f.id = p_file;
    RETURN true;
END $$;

-- It could not be moved after all: it is where it was.
CREATE OR REPLACE FUNCTION dedup.untrash_file(p_job uuid, p_claim uuid, p_file bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job dedup.jobs := dedup.claimed_job(p_job, p_claim, 'delete');
BEGIN
    UPDATE dedup.library_files f SET is_missing = false, trashed_by = NULL, trashed_at = NULL, trash_path = NULL,
           updated_at = clock_timestamp() WHERE f.id = p_file AND f.trashed_by = job.id;
    RETURN FOUND;
END $$;
