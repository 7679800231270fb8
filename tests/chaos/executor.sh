# What a command does: `bash executor.sh HUNDREDTHS HOW [HUNDREDTHS OF FURTHER ATTEMPTS]`, with its token in TENURE_ and its place in CHAOS_; it takes
# CHAOS_STRETCH percent of that time.
# It writes begin, a sign of life every tenth of a second, and end to the unfenced file; it offers its token to
# the sink before and after the work, as an effect would, and fails when the sink refuses. No process is forked
# for any of that: bash waits on a pipe of its own and speaks TCP itself. /proc/uptime is CLOCK_BOOTTIME, and no
# faked clock touches it; it is cut to hundredths, so a beginning is noted by the next one, never too early.
: "${CHAOS_STRETCH:=100}"
[ -z "$3" ] || [ "$TENURE_ATTEMPT" = 1 ] || set -- "$3" "$2"
[ "$2" != stubborn ] || trap '' TERM
note() {
    read -r now _ </proc/uptime
    if [ "$1" = begin ]; then
        now=$(( 10#${now/./} + 1 ))
        now=${now::-2}.${now: -2}
    fi
    printf '{"t":%s,"what":"%s","run":%s,"root":%s,"attempt":%s,"epoch":%s,"claim":"%s","pid":%s,"host":"%s"}\n' \
        "$now" "$1" "$TENURE_RUN_ID" "$CHAOS_ROOT" "$TENURE_ATTEMPT" "$TENURE_EPOCH" "$TENURE_CLAIM" $$ \
        "$CHAOS_HOST" >>"$CHAOS_EFFECTS"
}
offer() {
    [ -n "$CHAOS_SINK" ] || return 0
    exec 3<>"/dev/tcp/${CHAOS_SINK%:*}/${CHAOS_SINK#*:}" || exit 8
    echo "$CHAOS_ROOT $TENURE_RUN_ID $TENURE_ATTEMPT $TENURE_EPOCH $TENURE_CLAIM $$" >&3
    read -r -t "$(( 5 * CHAOS_STRETCH / 100 ))" answer <&3 || exit 8
    exec 3>&-
    [ "$answer" = accepted ] || exit 9
}
note begin
offer
exec 9<> <(:)
read -r now _ </proc/uptime
until=$(( 10#${now/./} + 10#$1 * CHAOS_STRETCH / 100 ))
while read -r now _ </proc/uptime && [ $(( 10#${now/./} )) -lt $until ]; do
    read -r -t 0.1 -u 9
    note alive
done
case $2 in
    fail) note end; exit 3 ;;
    fail-first) [ "$TENURE_ATTEMPT" -gt 1 ] || { note end; exit 3; } ;;
    segfault) kill -SEGV $$ ;;
    brood) ( setsid sleep 600 & ) ; note end; exit 4 ;;
esac
offer
note end
