-- Media are written by functions only, whoever asks; the worker's columns of the queues come from the lease contracts. Nobody but
-- the owner makes anything in the schema public.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA media FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA media FROM tenure_control, tenure_worker, tenure_maintenance, tenure_console, tenure_client;
REVOKE ALL ON public.media_blobs, public.media_refs, public.media_write_events
    FROM PUBLIC, tenure_control, tenure_worker, tenure_maintenance, tenure_console, tenure_client;
GRANT USAGE ON SCHEMA media TO tenure_control, tenure_worker, tenure_console;
GRANT SELECT ON public.media_blobs, public.media_refs, public.media_write_events TO tenure_control, tenure_console;
GRANT SELECT ON ALL TABLES IN SCHEMA media TO tenure_control;

GRANT EXECUTE ON FUNCTION
    media.write(uuid, text, text, text, text, text, text, integer, bigint, jsonb, text),
    media.write(uuid, text, text, text, boolean, text, text, text, text, integer, bigint, jsonb, text),
    media.save_role(text, text, integer, text[], boolean, boolean),
    media.remove_role(text, text),
    media.save_rendition(text, text, integer, text, integer),
    media.remove_rendition(text, text),
    media.save_writers(text, text, text[]),
    media.request_collection(text),
    media.tend(bigint)
    TO tenure_control;

GRANT EXECUTE ON FUNCTION
    media.read_rendition(bigint, uuid),
    media.put_rendition(bigint, uuid, uuid, jsonb),
    media.withdraw_renditions(bigint, uuid),
    media.collect(bigint, uuid)
    TO tenure_worker;
