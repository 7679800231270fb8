-- Who wrote media, as they authenticated, beside the name on whose behalf they say they wrote; NULL for events of releases
-- that did not tell.
ALTER TABLE public.media_write_events ADD COLUMN principal text;

-- The login of the database that called: its functions take the actor as an argument, and a caller could name anybody. NULL for
-- the rows from before.
ALTER TABLE supervisor.audit ADD COLUMN login text;
ALTER TABLE supervisor.audit ALTER COLUMN login SET DEFAULT session_user;
