-- After the clean slate of 90_grants.sql. Nobody reads the tables; a worker, the console's role and a client have no part in this.
GRANT EXECUTE ON FUNCTION
    supervisor.create_token(text, text, text, text, double precision),
    supervisor.revoke_token(text, text),
    supervisor.list_tokens(),
    supervisor.find_token(bigint),
    supervisor.has_token(),
    supervisor.note_token_use(bigint),
    supervisor.open_session(bytea, bigint, bytea, text, bytea),
    supervisor.use_session(bytea),
    supervisor.close_session(bytea)
    TO tenure_control;
