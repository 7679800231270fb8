#!/usr/bin/env bash
# Makes a bucket fit for artifacts: versions, encryption at rest, TLS only, access logs, lifecycle, no public access.
# Prints what it would do; --execute does it. Credentials come from the environment of aws or mc, never from here.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
tool=aws bucket='' base='' logs='' kms='' endpoint='' alias='' lock_days='' execute=no

usage() {
    cat <<'TEXT'
s3_hardening.sh --bucket NAME --base PREFIX/PROJECT [options]

  --tool aws|mc          which client (default aws); mc for MinIO
  --base engram/proj_a   what stands before the keys: <prefix><project_key>
  --log-bucket NAME      where server access logs go (aws)
  --kms-key ID           encrypt with this key instead of the store's own (SSE-KMS instead of SSE-S3)
  --endpoint URL         an S3 server that is not AWS; https
  --alias NAME           the alias of the server in mc (with --tool mc)
  --lock-days N          also: default retention in GOVERNANCE mode; the bucket must have been made with Object Lock
  --execute              do it
TEXT
}

while (($#)); do
    case $1 in
        --tool) tool=$2; shift 2 ;;
        --bucket) bucket=$2; shift 2 ;;
        --base) base=${2%/}; shift 2 ;;
        --log-bucket) logs=$2; shift 2 ;;
        --kms-key) kms=$2; shift 2 ;;
        --endpoint) endpoint=$2; shift 2 ;;
        --alias) alias=$2; shift 2 ;;
        --lock-days) lock_days=$2; shift 2 ;;
        --execute) execute=yes; shift ;;
        -h | --help) usage; exit 0 ;;
        *) echo "unknown option $1" >&2; usage >&2; exit 2 ;;
    esac
done

[[ $bucket =~ ^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$ ]] || { echo "--bucket is missing, or no name of a bucket" >&2; exit 2; }
[[ $base =~ ^[A-Za-z0-9_/.-]+$ && $base != *..* ]] || { echo "--base is missing, or no plain path" >&2; exit 2; }
[[ -z $endpoint || $endpoint == https://* ]] || { echo "--endpoint must begin with https://" >&2; exit 2; }
[[ -z $lock_days || $lock_days =~ ^[1-9][0-9]*$ ]] || { echo "--lock-days is a number of days" >&2; exit 2; }
[[ $tool == aws || $tool == mc ]] || { echo "--tool is aws or mc" >&2; exit 2; }
[[ $tool == aws || -n $alias ]] || { echo "--tool mc needs --alias" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() {
    printf '+'; printf ' %q' "$@"; printf '\n'
    if [[ $execute == yes ]]; then "$@"; fi
}

# The files have @BUCKET@ and @BASE@ for what differs. A prefix of a lifecycle rule is literal: no wildcards.
fill() {
    sed -e "s|@BUCKET@|$bucket|g" -e "s|@BASE@|$base|g" "$here/$1" >"$work/${1##*/}"
    printf '%s' "$work/${1##*/}"
}

api() { run aws ${endpoint:+--endpoint-url "$endpoint"} s3api "$@" --bucket "$bucket"; }

with_aws() {
    local encryption='{"Rules":[{"ApplyServerSideEncryptionByDefault":{"SSEAlgorithm":"AES256"}}]}'
    if [[ -n $kms ]]; then
        encryption='{"Rules":[{"ApplyServerSideEncryptionByDefault":{"SSEAlgorithm":"aws:kms","KMSMasterKeyID":"'$kms'"},"BucketKeyEnabled":true}]}'
    fi
    api put-public-access-block --public-access-block-configuration \
        BlockPublicAcls=true,IgnorePublicAcls=true,BlockPublicPolicy=true,RestrictPublicBuckets=true
    api put-bucket-versioning --versioning-configuration Status=Enabled
    api put-bucket-encryption --server-side-encryption-configuration "$encryption"
    api put-bucket-policy --policy "file://$(fill policies/bucket-tls-only.json)"
    api put-bucket-lifecycle-configuration --lifecycle-configuration "file://$(fill lifecycle.json)"
    if [[ -n $logs ]]; then
        api put-bucket-logging --bucket-logging-status \
            '{"LoggingEnabled":{"TargetBucket":"'"$logs"'","TargetPrefix":"'"$bucket"'/"}}'
    fi
    if [[ -n $lock_days ]]; then
        api put-object-lock-configuration --object-lock-configuration \
            '{"ObjectLockEnabled":"Enabled","Rule":{"DefaultRetention":{"Mode":"GOVERNANCE","Days":'"$lock_days"'}}}'
    fi
    check_conditions
}

# A store that ignores If-None-Match overwrites silently: a put on that condition must fail where the key is taken.
check_conditions() {
    local key="$base/tmp/condition-check" answer
    api put-object --key "$key"
    answer=$(api put-object --key "$key" --if-none-match '*' 2>&1 || true)
    printf '%s\n' "$answer"
    if [[ $execute == yes && $answer != *PreconditionFailed* ]]; then
        echo "this store does not honour If-None-Match: do not keep artifacts in it" >&2
        exit 1
    fi
}

with_mc() {
    local place="$alias/$bucket"
    run mc version enable "$place"
    if [[ -n $kms ]]; then run mc encrypt set sse-kms "$kms" "$place"; else run mc encrypt set sse-s3 "$place"; fi
    run mc anonymous set none "$place"
    run mc ilm rule add "$place" --prefix "$base/tmp/" --expire-days 7
    run mc ilm rule add "$place" --prefix "$base/exports/" --expire-days 90
    run mc ilm rule add "$place" --prefix "$base/.trash/" --expire-days 90
    run mc admin policy create "$alias" tenure-app "$(fill policies/minio-app.json)"
    run mc admin policy create "$alias" tenure-ops "$(fill policies/minio-ops.json)"
    if [[ -n $lock_days ]]; then
        run mc retention set --default GOVERNANCE "${lock_days}d" "$place"
    fi
}

"with_$tool"
[[ $execute == yes ]] || echo "nothing was changed: --execute does it"
