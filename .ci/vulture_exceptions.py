"""Names that are used although vulture sees no use: other code finds each of them by its name."""

# Libraries call or read these.
_.settings_customise_sources, _.dotenv_settings, _.file_secret_settings, _.init_kwargs  # pydantic-settings
_.capture_signals, _.should_exit, _.send_400_response  # uvicorn
_.route_class  # FastAPI
_.autocompletion  # typer
_.globals  # Jinja
_.socket_timeout  # redis
_.follow_redirects  # httpx
_.do_GET, _.do_POST, _.log_message, _.protocol_version, _.close_connection, _.daemon_threads  # http.server
_.handle_starttag  # html.parser
_.buffer_text, _.StartElementHandler, _.EndElementHandler, _.CharacterDataHandler  # expat
_.StartDoctypeDeclHandler, _.EntityDeclHandler  # expat
_.MAX_IMAGE_PIXELS  # Pillow
_.DECODE_THREADS  # pillow-heif
_.thread_count, _.skip_frame, _.pix_fmt, _.pts  # PyAV
_._run_once  # asyncio: the simulator's event loop overrides it
_.scoped  # Linux: a field of Landlock's structure

# Templates of the console read these.
_.within_seconds, _.next_before, _.lag_seconds, _.is_late

# These fields are used together with the others of their class.
_.memory_bytes, _.output_bytes  # the limits of a sandbox, sent to its process
_.display_name, _.aliases, _.is_active  # a person's file, stored
_.run_history_days, _.max_lag_seconds  # settings of a sync, checked here and applied by SQL

# pytest finds these: fixtures with autouse, and parameters that only name a case.
_._no_pauses, _.longer_on_a_slow_machine, _.no_settings_from_outside, _.open_umask, _.unhurried
_.requirement, _.round_

# Strings hold these names.
_.obey  # the task of a sandbox
_._coma, _._deaf, _._delayed, _._exile, _._jump, _._lossy, _._mute, _._sigterm  # faults that the simulator draws
_.beat_partly, _.finish_stale, _.give_out, _.old_leader, _.take_over  # steps that a property test draws
