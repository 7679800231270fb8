-- Functions only, and what is read; the worker's columns come from the lease contracts.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA dedup FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA dedup FROM tenure_control, tenure_worker, tenure_maintenance, tenure_console, tenure_client;
GRANT USAGE ON SCHEMA dedup TO tenure_control, tenure_worker, tenure_console;
GRANT SELECT ON ALL TABLES IN SCHEMA dedup TO tenure_control;
-- for reports: facts, and no claim
GRANT SELECT ON dedup.library_roots, dedup.scan_sessions, dedup.scan_errors TO tenure_console;
GRANT SELECT (id, library_id, relative_path, size_bytes, mtime_ns, inode, device, is_missing, needs_hash, hash_algorithm,
    content_hash, hashed_size, hashed_mtime_ns, hashed_at, prefix_hash, hash_status, hash_error_count, hash_error_code,
    hash_error_message, hash_retry_after, worker_id, first_session_id, missing_session_id, trashed_by, trashed_at, trash_path,
    created_at, updated_at) ON dedup.library_files TO tenure_console;
GRANT SELECT ON dedup.library_roots, dedup.scan_sessions, dedup.io_rate_limits TO tenure_worker;
GRANT INSERT (bucket_key, next_available_at_ms), UPDATE (next_available_at_ms, updated_at) ON dedup.io_rate_limits TO tenure_worker;

GRANT EXECUTE ON FUNCTION
    dedup.add_library(text, text, text),
    dedup.remove_library(text, text),
    dedup.empty_library(text, integer),
    dedup.request_job(text, text, text, jsonb, boolean),
    dedup.request_delete(text, text, bytea, bigint, bigint[], boolean),
    dedup.cancel_job(text, uuid),
    dedup.reset_job(text, uuid),
    dedup.return_retryable(bigint),
    dedup.cancel_for_ended_runs(bigint),
    dedup.drop_unwanted_hashes(bigint),
    dedup.retry_thumbnails(bigint),
    dedup.purge(bigint),
    dedup.request_thumbnail(bigint, text, integer),
    dedup.request_thumbnail(text, bigint, text, integer),
    dedup.note_work(text, text, uuid, jsonb),
    dedup.schedule_cleanup(text, text, double precision),
    dedup.request_checkpoint(text, text, text, timestamptz)
    TO tenure_control;

GRANT EXECUTE ON FUNCTION
    dedup.request_for_run(bigint, uuid, text, text, jsonb),
    dedup.cancel_for_run(bigint, uuid),
    dedup.begin_scan(uuid, uuid),
    dedup.record_scan(uuid, uuid, bigint, integer, text, text, boolean, text[], bigint[], bigint[], bigint[], bigint[],
        text[], text[], text[], bigint, bigint),
    dedup.record_scan(uuid, uuid, bigint, integer, text, text, boolean, text[], bigint[], bigint[], bigint[], bigint[], bytea[],
        text[], text[], text[], bigint, bigint),
    dedup.find_known(uuid, uuid, text),
    dedup.fold_moves(uuid, uuid, bigint, bigint, integer),
    dedup.end_scan(uuid, uuid, bigint, text, text),
    dedup.plan_hash(uuid, uuid, bigint, integer, integer, bigint),
    dedup.read_hash_batch(bigint, uuid, bigint),
    dedup.record_hashes(bigint, uuid, text, bigint[], bigint[], bigint[], bigint[], bytea[], bytea[], text[]),
    dedup.read_deletion(uuid, uuid),
    dedup.trash_file(uuid, uuid, bigint, text),
    dedup.untrash_file(uuid, uuid, bigint),
    dedup.request_thumbnails(uuid, uuid, bigint, integer),
    dedup.read_cleanup(bigint, uuid, integer),
    dedup.remove_thumbnails(bigint, uuid, bigint[])
    TO tenure_worker;
