/* The database: rows, and the functions of schemas/functions as atomic steps. Time is kept as ages and as time left. */

#define PENDING 0
#define ASSIGNED 1
#define RUNNING 2
#define ORPHANED 3
#define SUCCEEDED 4
#define FAILED 5
#define TIMED_OUT 6
#define CANCELED 7
#define ENDED_STATE(st) ((st) >= SUCCEEDED)

#define NONE 0
#define SILENT 1
#define NO_LEADER 2

#define ACTIVE 0
#define DRAINING 1
#define GONE 2

#define NOBODY 2
#define WORKERS 2
#define LEADERS 2
#define EPOCHS_A_TIMELINE 8

typedef Row {
    byte st; byte att; byte own; byte claim; byte aep; byte lep; byte conf; byte left; byte sbn; byte cage; byte fruit;
    bool started; bool stopped; bool retry; bool cancel
};

Row row[ROWS];
byte cur;                       /* the newest row */
byte hb[WORKERS];               /* age of heartbeat_at */
byte wst[WORKERS];
byte epoch, first_epoch, etl;   /* leader_epoch; etl: the timeline it was taken on */
bool lease;
byte quar;                      /* quarantine left */
byte tl;                        /* the server's timeline */
byte assigned_last;             /* the highest attempt given out */

/* the leader's own watch, of the tenure that is current: workers' beat_seq, the version of the newest row */
byte sil[WORKERS];
byte vst;
byte lquar;                     /* its own measure of the quarantine */
#if FAILOVERS && JUMPS
byte known;                     /* for how long, at most, any of them has known this timeline */
#endif
byte ver;                       /* kept only where calls are in flight */

/* what the properties need to know */
byte claims_given, epoch_given;
bool excused;                   /* a failover or a jump happened: lost attempts have a cause */

/* -- what the world needs to see */
#define DONE (ENDED_STATE(row[cur].st) && !(row[cur].retry && cur < ROWS - 1))
#define TIMELINE_KNOWN (!R22_FENCE || etl == tl)
#define LIVE_LEADER (lease && TIMELINE_KNOWN)

#if INFLIGHT
#define moved() vst = 0; ver = (ver + 1) % 16
#else
#define moved() vst = 0
#endif

#if ROWS == 1
#define successes() (row[0].st == SUCCEEDED)
#elif ROWS == 2
#define successes() ((row[0].st == SUCCEEDED) + (row[1].st == SUCCEEDED))
#else
#define successes() ((row[0].st == SUCCEEDED) + (row[1].st == SUCCEEDED) + (row[2].st == SUCCEEDED))
#endif

inline contact(w) { hb[w] = 0; sil[w] = 0 }

/* Of a worker that no row names nothing is asked; should it be given something, it counts as silent for long. */
#if ROWS == 1
#define OWNS(w) (row[0].own == (w))
#elif ROWS == 2
#define OWNS(w) (row[0].own == (w) || row[1].own == (w))
#else
#define OWNS(w) (row[0].own == (w) || row[1].own == (w) || row[2].own == (w))
#endif
inline rest() {
    if :: OWNS(0) -> skip :: else -> hb[0] = D; sil[0] = D fi;
    if :: OWNS(1) -> skip :: else -> hb[1] = D; sil[1] = D fi
}

inline forget_stopped(i) {
    /* nothing is ever asked again of an ended row whose executor has stopped */
    if
    :: ENDED_STATE(row[i].st) && (row[i].stopped || !row[i].started) ->
        row[i].own = NOBODY; row[i].claim = 0; row[i].aep = 0; row[i].lep = 0; row[i].sbn = 0; row[i].stopped = true
    :: else
    fi
}

inline end_row(i, how, again) {
    HOLDS(HISTORY, !ENDED_STATE(row[i].st));
    HOLDS(SUCCESSES, (how) != SUCCEEDED || successes() == 0);
    row[i].st = how; row[i].conf = NONE; row[i].left = 0; row[i].cage = 0; row[i].fruit = 0;
    row[i].retry = (again) && !row[i].cancel; moved();
    forget_stopped(i)
}

inline orphaned(i) { row[i].st = ORPHANED; row[i].own = NOBODY; row[i].claim = 0; row[i].aep = 0; moved() }

/* supervisor.start: answer 2 = RECORDED or ALREADY, 3 = REFUSED */
#define STARTABLE(i, w, c) (row[i].st == ASSIGNED && row[i].claim == (c) && row[i].own == (w) && !row[i].cancel \
    && TIMELINE_KNOWN && (!R22_START || row[i].aep >= first_epoch))
inline db_start(w, c, i, no, answer) {
    answer = 3;
    if
    :: wst[w] == GONE -> skip
    :: else ->
        contact(w);
        if
        :: STARTABLE(i, w, c) ->
            row[i].st = RUNNING; row[i].lep = epoch; row[i].sbn = no; row[i].started = true; row[i].fruit = 0; moved();
            answer = 2
        :: row[i].st == RUNNING && row[i].claim == (c) && row[i].own == (w) ->
            if :: R7_ALREADY && row[i].sbn < (no) -> row[i].sbn = no :: else fi;
            if
            :: !row[i].cancel && !(row[i].conf != NONE && row[i].left == 0) ->
                answer = 2;
                if :: R8_ALREADY && row[i].conf == SILENT -> row[i].conf = NONE; row[i].left = 0; moved() :: else fi
            :: else
            fi
        :: else
        fi
    fi
}

/* supervisor.beat: answer 2 = listed, 3 = not listed; 4 = listed and to be canceled */
#define NEWER(i, no) (!R7_ORDER || row[i].sbn < (no))
#define OLD_ASSIGNMENT(i) (row[i].st == ASSIGNED && R22_LISTED && (!TIMELINE_KNOWN || row[i].aep < first_epoch))
#define LISTED(i, w, c) (row[i].own == (w) && row[i].claim == (c) && (c) != 0 && (row[i].st == ASSIGNED || row[i].st == RUNNING) \
    && !(row[i].conf != NONE && row[i].left == 0) && !OLD_ASSIGNMENT(i))
inline db_beat(w, no, c, draining, answer) {
    contact(w);
    if :: draining && wst[w] == ACTIVE -> wst[w] = DRAINING :: else fi;
    answer = 3; i = 0;
    do
    :: i < ROWS ->
        if
        :: row[i].own != (w) -> skip
        :: row[i].own == (w) && row[i].st == ASSIGNED && wst[w] != ACTIVE -> orphaned(i)
        :: row[i].own == (w) && row[i].st == RUNNING && row[i].claim != (c) && NEWER(i, no) && R7_DROP ->
            row[i].stopped = true; end_row(i, FAILED, true)
        :: row[i].own == (w) && row[i].st == RUNNING && row[i].claim == (c) && row[i].conf != NONE && row[i].left > 0 &&
            (row[i].conf == SILENT || LIVE_LEADER) && R8_CLEAR -> row[i].conf = NONE; row[i].left = 0; moved()
        :: row[i].own == (w) && ENDED_STATE(row[i].st) && row[i].claim != (c) && NEWER(i, no) ->
            row[i].stopped = true; forget_stopped(i)
        :: else
        fi;
        if
        :: LISTED(i, w, c) -> answer = 2; if :: row[i].cancel -> answer = 4 :: else fi
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0
}

inline db_confirm_self(w, c, i) {
    if
    :: row[i].st == RUNNING && row[i].own == (w) && row[i].claim == (c) && row[i].conf == NONE ->
        row[i].conf = NO_LEADER; row[i].left = D; moved()
    :: else
    fi
}

/* supervisor.finish: whatever it answers, the executor has stopped */
#if R5_TOKEN == 1
#define TOKEN(i, e) (row[i].lep == (e) && (e) == epoch)
#else
#define TOKEN(i, e) (row[i].lep == (e))
#endif
inline db_finish(w, c, i, e, how) {
    if
    :: row[i].st == RUNNING && row[i].claim == (c) && row[i].own == (w) ->
        if
        :: TOKEN(i, e) -> row[i].stopped = true; end_row(i, how, how == TIMED_OUT || how == FAILED)
        :: else -> HOLDS(SPURIOUS, false)
        fi
    :: ENDED_STATE(row[i].st) && row[i].claim == (c) && row[i].own == (w) -> row[i].stopped = true; forget_stopped(i)
    :: else
    fi
}

inline db_leave(w) {
    wst[w] = GONE; contact(w); i = 0;
    do
    :: i < ROWS -> if :: row[i].st == ASSIGNED && row[i].own == (w) -> orphaned(i) :: else fi; i++
    :: else -> break
    od;
    i = 0
}

/* supervisor.quiesced and root_quiesced */
#if R10_WATCH
#define SILENT_FOR(w, bound) (hb[w] >= (bound) && sil[w] >= (bound))
#else
#define SILENT_FOR(w, bound) (hb[w] >= (bound))
#endif
#define ROW_QUIET(i) (!row[i].started || row[i].stopped || (row[i].own < WORKERS && SILENT_FOR(row[i].own, D)))
#if !R10_QUIESCE || ROWS == 1
#define ROOT_QUIET true
#elif ROWS == 2
#define ROOT_QUIET (ROW_QUIET(0) && ROW_QUIET(1))
#else
#define ROOT_QUIET (ROW_QUIET(0) && ROW_QUIET(1) && ROW_QUIET(2))
#endif

/* the leader's calls: when each is decided, and (with the fence) what the call itself looks at again */
#define CAN_ASSIGN ((row[cur].st == PENDING || (row[cur].st == ORPHANED && row[cur].fruit < FRUIT)) && !row[cur].cancel \
    && quar == 0 && lquar == 0 && ROOT_QUIET && (wst[0] == ACTIVE || wst[1] == ACTIVE))
#define CAN_ORPHAN (row[cur].st == ASSIGNED && ((R22_ORPHAN && row[cur].aep < first_epoch && quar == 0) \
    || wst[row[cur].own] == GONE || (hb[row[cur].own] >= C && sil[row[cur].own] >= C)))
#define CAN_CONFIRM (row[cur].st == RUNNING && row[cur].conf == NONE && hb[row[cur].own] >= C && sil[row[cur].own] >= C)
#if R9_WATCH
#define WATCHED ((hb[row[cur].own] >= D && sil[row[cur].own] >= D) || vst >= D)
#else
#define WATCHED true
#endif
#define CAN_EXPIRE (R9_RECORD && row[cur].st == RUNNING && row[cur].conf != NONE && row[cur].left == 0 && WATCHED)
#define CAN_CANCEL (row[cur].cancel && (row[cur].st < RUNNING || row[cur].st == ORPHANED \
    || (row[cur].st == RUNNING && row[cur].cage >= D && vst >= D)))
#define CAN_EXHAUST (EXHAUSTED && row[cur].st == ORPHANED && row[cur].fruit >= FRUIT && !row[cur].cancel)
#define CAN_MAKE_NEXT (ENDED_STATE(row[cur].st) && row[cur].retry && cur < ROWS - 1)
#define CAN_OVERTIME (overtimes > 0 && row[cur].st == RUNNING && row[cur].conf == NONE && !row[cur].cancel)
