-- People and their names in repositories.

-- name: save_user
-- $1 actor, $2 user, $3 what its file says
SELECT u.user_id, u.display_name, u.aliases, u.is_active FROM identity.save_user($1::text, $2::text, $3::text::jsonb) AS u;

-- name: save_role_profile
-- $1 actor, $2 user, $3 role, $4 labels, $5 text of the profile, $6 where it stands
SELECT r.user_id, r.role, r.labels, r.sha256 FROM identity.save_role($1::text, $2::text, $3::text, $4::text[], $5::text, $6::text) AS r;

-- name: remap_authors
-- $1 actor: facts whose author was not known when they were written
SELECT identity.remap_authors($1::text);

-- name: list_users
-- with the names that stand for them
SELECT u.user_id, u.display_name, u.aliases, u.is_active, u.meta_json,
       coalesce((SELECT jsonb_agg(jsonb_build_object('type', a.type, 'name', a.name) ORDER BY a.type, a.name)
                   FROM identity.accounts AS a WHERE a.user_id = u.user_id), '[]') AS accounts
  FROM identity.users AS u ORDER BY u.user_id;
