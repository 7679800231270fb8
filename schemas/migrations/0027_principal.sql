-- Who wrote media, as they authenticated, beside the name on whose behalf they say they wrote; NULL for events of releases
-- that did not tell.
ALTER TABLE public.media_write_events ADD COLUMN principal text;
