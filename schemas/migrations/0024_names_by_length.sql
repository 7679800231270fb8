-- The names of commits and diffs are checked as before, their length by itself: a count in a pattern is a state for each sign, made
-- anew for each row, and took as long as storing the row.
ALTER TABLE scm.git_commits
    DROP CONSTRAINT git_commits_commit_sha_check,
    ADD CONSTRAINT git_commits_commit_sha_check CHECK (length(commit_sha) IN (40, 64) AND commit_sha ~ '^[0-9a-f]*$');

ALTER TABLE scm.patch_blobs
    DROP CONSTRAINT patch_blobs_sha256_check,
    DROP CONSTRAINT patch_source,
    ADD CONSTRAINT patch_blobs_sha256_check CHECK (length(sha256) = 64 AND sha256 ~ '^[0-9a-f]*$'),
    ADD CONSTRAINT patch_source CHECK (CASE source_type
        WHEN 'svn' THEN source_id ~ '^[0-9]+:[0-9]+$'
        ELSE source_id ~ '^[0-9]+:[0-9a-f]+$' AND length(split_part(source_id, ':', 2)) IN (40, 64) END
        AND split_part(source_id, ':', 1) = repo_id::text);
