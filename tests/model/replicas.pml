/* Leaders and workers. A worker holds one claim at a time; its beats, start and finish are calls of their own. */

#define IDLE 0
#define HELD 1          /* named; its start is not answered yet */
#define EXECUTING 2
#define OVER 3          /* the handler has ended; its finish is not answered yet */
#define DEAD 4
#define LEFT 5

byte ws[WORKERS], wc[WORKERS], wr[WORKERS], wep[WORKERS], how[WORKERS];
byte age[WORKERS];              /* since the send of the start, or of the last beat that listed the claim */
byte bno[WORKERS];              /* the last list that was built */
byte sa[WORKERS], sage[WORKERS];        /* answer to a start on its way, and the age of its send */
byte ba[WORKERS], bage[WORKERS];        /* answer to a beat on its way, and the age of its send */
bool revoked[WORKERS], draining[WORKERS], paused[WORKERS];
byte cut[WORKERS];              /* 0 no, 1 requests are lost, 2 answers are lost, 3 both */
byte late_start[WORKERS], late_row[WORKERS], late_sbn[WORKERS];
byte late_beat[WORKERS], late_named[WORKERS];   /* late_beat: its number; 0 = none */
byte limbo = LIMBO, ambiguous = AMBIGUOUS, overtimes = OVERTIMES;
#if RELEASES
byte releases = RELEASES;
#endif

byte lep[LEADERS];              /* the epoch this process believes in; 0 = it follows */
byte seen[LEADERS];             /* the highest epoch it ever saw */
bool deaf[LEADERS];
byte losses = LOSSES;

#if R6_START
#define EXECUTES(w) (ws[w] == EXECUTING)
#else
#define EXECUTES(w) (ws[w] == EXECUTING || ws[w] == HELD)
#endif
#define no_overlap() HOLDS(OVERLAP, !(EXECUTES(0) && EXECUTES(1)))
#define UP(w) (!paused[w] && ws[w] != DEAD && ws[w] != LEFT)
#define REACHES(w) (UP(w) && cut[w] % 2 == 0)
#define HEARS(w) (UP(w) && cut[w] == 0)
#if R7_NAMED
#define NAMED(w) ((ws[w] == HELD || ws[w] == EXECUTING || ws[w] == OVER) -> wc[w] : 0)
#else
#define NAMED(w) ((ws[w] == EXECUTING || ws[w] == OVER) -> wc[w] : 0)
#endif

/* Where workers are always heard only a beat that changes something is worth a state. */
#define UNNAMED(w, i) (row[i].claim != NAMED(w) && row[i].sbn < BEATS)
#define TELLS_ROW(w, i) (row[i].own == (w) && ((row[i].st == ASSIGNED && draining[w]) \
    || (row[i].st == RUNNING && (row[i].conf != NONE || row[i].cancel || UNNAMED(w, i))) || (ENDED_STATE(row[i].st) && UNNAMED(w, i))))
#if ROWS == 1
#define TELLS_ROWS(w) TELLS_ROW(w, 0)
#elif ROWS == 2
#define TELLS_ROWS(w) (TELLS_ROW(w, 0) || TELLS_ROW(w, 1))
#else
#define TELLS_ROWS(w) (TELLS_ROW(w, 0) || TELLS_ROW(w, 1) || TELLS_ROW(w, 2))
#endif
#define TELLS(w) (FRESH -> TELLS_ROWS(w) : TELLS_ROWS(w) || NAMED(w) != 0)

inline idle(w) {
    ws[w] = IDLE; wc[w] = 0; wr[w] = 0; wep[w] = 0; how[w] = 0; age[w] = 0; sa[w] = 0; sage[w] = 0; ba[w] = 0; bage[w] = 0;
    revoked[w] = false
}
inline over(w, as) { ws[w] = OVER; how[w] = as; age[w] = 0; ba[w] = 0; bage[w] = 0; sa[w] = 0; sage[w] = 0; revoked[w] = false }

proctype Worker(byte w) {
    byte i, a, n;
    do
    :: atomic { HEARS(w) && ws[w] == IDLE && !draining[w] && !(WEDGE && w == 0) &&
            row[cur].st == ASSIGNED && row[cur].own == w && !row[cur].cancel && !DONE && (!FRESH || STARTABLE(cur, w, row[cur].claim)) ->
        ws[w] = HELD; wc[w] = row[cur].claim; wr[w] = cur;
        printf("worker %d holds claim %d\n", w, wc[w]); no_overlap() }

    /* start */
    :: atomic { REACHES(w) && ws[w] == HELD && sa[w] == 0 && !DONE ->
        db_start(w, wc[w], wr[w], bno[w], a); rest();
        printf("worker %d start of claim %d: %d (2 yes, 3 refused), answer lost: %d\n", w, wc[w], a, cut[w] != 0);
        if :: cut[w] == 0 -> sa[w] = a; wep[w] = row[wr[w]].lep :: else fi;
        a = 0 }
#if LIMBO
    :: atomic { UP(w) && ws[w] == HELD && sa[w] == 0 && late_start[w] == 0 && limbo > 0 && !DONE ->
        limbo--; late_start[w] = wc[w]; late_row[w] = wr[w]; late_sbn[w] = bno[w];
        printf("worker %d start of claim %d is in limbo\n", w, wc[w]) }
    :: atomic { late_start[w] != 0 && !DONE ->
        db_start(w, late_start[w], late_row[w], late_sbn[w], a); rest();
        printf("worker %d late start of claim %d is carried out: %d\n", w, late_start[w], a);
        a = 0; late_start[w] = 0; late_row[w] = 0; late_sbn[w] = 0 }
#endif
    :: atomic { UP(w) && ws[w] == HELD && sa[w] == 0 && (cut[w] != 0 || late_start[w] != 0 || draining[w]) && !DONE ->
        printf("worker %d gives up the start of claim %d\n", w, wc[w]); idle(w) }
    :: atomic { HEARS(w) && sa[w] == 3 && !DONE -> idle(w) }
    :: atomic { HEARS(w) && sa[w] == 2 && !DONE ->
        if
        :: revoked[w] || sage[w] >= S -> over(w, TIMED_OUT)
        :: else ->
            ws[w] = EXECUTING; age[w] = sage[w]; sa[w] = 0; sage[w] = 0;
            printf("worker %d executes claim %d\n", w, wc[w]); no_overlap()
        fi }
    :: atomic { sa[w] != 0 && cut[w] != 0 && !DONE -> sa[w] = 0; sage[w] = 0; wep[w] = 0 }

    /* beat */
    :: atomic { REACHES(w) && ba[w] == 0 && bno[w] < BEATS && TELLS(w) && !DONE ->
        bno[w]++;
        n = NAMED(w);
        db_beat(w, bno[w], n, draining[w], a); rest();
        printf("worker %d beat %d names claim %d: %d (2 listed, 3 not, 4 cancel), answer lost: %d\n", w, bno[w], n, a, cut[w] != 0);
        HOLDS(SPURIOUS, a != 3 || ws[w] != EXECUTING || excused || age[w] >= S || ENDED_STATE(row[wr[w]].st) ||
            row[wr[w]].conf == NO_LEADER);
        if :: cut[w] == 0 && n != 0 -> ba[w] = a :: else fi;
        a = 0; n = 0 }
#if LIMBO
    :: atomic { UP(w) && ba[w] == 0 && bno[w] < BEATS && late_beat[w] == 0 && limbo > 0 && !DONE ->
        limbo--; bno[w]++; late_beat[w] = bno[w]; late_named[w] = NAMED(w);
        printf("worker %d beat %d naming claim %d is in limbo\n", w, bno[w], late_named[w]) }
    :: atomic { late_beat[w] != 0 && !DONE ->
        db_beat(w, late_beat[w], late_named[w], draining[w], a); rest();
        printf("worker %d late beat %d naming claim %d is carried out\n", w, late_beat[w], late_named[w]);
        HOLDS(SPURIOUS, ws[w] != EXECUTING || excused || row[wr[w]].st == RUNNING || row[wr[w]].claim != wc[w] ||
            row[wr[w]].st != FAILED);
        a = 0; late_beat[w] = 0; late_named[w] = 0 }
#endif
    :: atomic { HEARS(w) && ba[w] != 0 && !DONE ->
        if
        :: ba[w] == 3 && ws[w] == EXECUTING -> printf("worker %d was not listed and stops\n", w); over(w, TIMED_OUT)
        :: ba[w] == 3 && ws[w] == HELD -> revoked[w] = true
        :: ba[w] == 4 && ws[w] == EXECUTING -> over(w, CANCELED)
        :: ba[w] == 2 && ws[w] == EXECUTING && age[w] < S ->
#if R7_SEND
            age[w] = bage[w]
#else
            age[w] = 0
#endif
        :: else
        fi;
        ba[w] = 0; bage[w] = 0 }
    :: atomic { ba[w] != 0 && cut[w] != 0 && !DONE -> ba[w] = 0; bage[w] = 0 }

    /* release, by the thread of the beats: the rest of the replica does not see to it */
#if RELEASES
    :: atomic { REACHES(w) && ws[w] == IDLE && releases > 0 && row[cur].st == ASSIGNED && row[cur].own == w && !DONE ->
        releases--; printf("worker %d gives back claim %d\n", w, row[cur].claim); orphaned(cur); rest() }
#endif

    /* execute */
    :: atomic { UP(w) && ws[w] == EXECUTING && age[w] < S && !DONE ->
        printf("worker %d is done\n", w); over(w, SUCCEEDED) }
    :: atomic { UP(w) && ws[w] == EXECUTING && age[w] >= S && R7_STOP && !DONE ->
        printf("worker %d stops by itself\n", w); over(w, TIMED_OUT) }
    :: atomic { UP(w) && ws[w] == EXECUTING && draining[w] && !DONE -> over(w, FAILED) }
    :: atomic { HEARS(w) && ws[w] == EXECUTING && !LIVE_LEADER && LOSSES + DEAF > 0 && row[wr[w]].conf == NONE && !DONE ->
        printf("worker %d sees no leader\n", w); db_confirm_self(w, wc[w], wr[w]) }

    /* finish */
    :: atomic { REACHES(w) && ws[w] == OVER && !DONE ->
        db_finish(w, wc[w], wr[w], wep[w], how[w]); rest();
        printf("worker %d finish of claim %d as %d, row %d is %d\n", w, wc[w], how[w], wr[w], row[wr[w]].st);
        if
        :: cut[w] == 0 -> idle(w)
        :: cut[w] != 0 -> skip
        :: ambiguous > 0 -> ambiguous--
        fi }
    :: atomic { HEARS(w) && ws[w] == IDLE && draining[w] && !DONE -> printf("worker %d leaves\n", w); db_leave(w); rest(); ws[w] = LEFT }
    :: DONE -> break
    od
}

#define ASSIGN 1
#define ORPHAN 2
#define CONFIRM 3
#define EXPIRE 4
#define CANCEL 5
#define EXHAUST 6
#define NEXT 7
#define OVERTIME 8

#define FENCED(l) (lep[l] == epoch && TIMELINE_KNOWN)
#if R3_FENCE
#define DECIDES(l) (lep[l] != 0 && !deaf[l] && FENCED(l))
#else
#define DECIDES(l) (lep[l] != 0 && !deaf[l])
#endif
#define ANYTHING (CAN_ASSIGN || CAN_ORPHAN || CAN_CONFIRM || CAN_EXPIRE || CAN_CANCEL || CAN_EXHAUST || CAN_MAKE_NEXT || CAN_OVERTIME)

inline acquire(l, answered) {
#if R22_EPOCH
    if :: epoch < tl * EPOCHS_A_TIMELINE -> epoch = tl * EPOCHS_A_TIMELINE :: else fi;
    if :: epoch < seen[l] -> epoch = seen[l] :: else fi;
#endif
    epoch++;
    HOLDS(EPOCHS, epoch > epoch_given);
    epoch_given = epoch;
    if
    :: etl != tl ->
        first_epoch = epoch; etl = tl;
#if R22_QUARANTINE
        quar = D;
#endif
    :: else
    fi;
    lquar = quar;
#if FAILOVERS && JUMPS && R22_WATCH && R22_QUARANTINE
    if :: tl > 0 && lquar < D - known -> lquar = D - known :: else fi;
#endif
    lease = true; sil[0] = 0; sil[1] = 0; vst = 0; rest();
#if R5_TOKEN == 2
    if :: row[cur].st == RUNNING -> row[cur].lep = epoch; moved() :: else fi;
#endif
    printf("leader %d acquires epoch %d on timeline %d, answered: %d\n", l, epoch, tl, answered);
    if :: answered -> lep[l] = epoch; seen[l] = epoch :: else fi
}

#if R3_VERSION
#define STILL_EXPIRED CAN_EXPIRE
#else
#define STILL_EXPIRED true
#endif

inline decide(l) {
    if
    :: call == ASSIGN && CAN_ASSIGN ->
        if :: row[cur].st == ORPHANED -> row[cur].att++ :: else fi;
        HOLDS(ATTEMPTS, row[cur].att == assigned_last + 1);
        assigned_last = row[cur].att; claims_given++;
        row[cur].st = ASSIGNED; row[cur].own = w; row[cur].claim = claims_given; row[cur].aep = lep[l]; moved();
        if :: FRESH && HEARS(w) -> contact(w) :: else fi
    :: call == ORPHAN && CAN_ORPHAN -> orphaned(cur); row[cur].fruit++
    :: call == CONFIRM && CAN_CONFIRM ->
        row[cur].conf = SILENT;
#if R8_DEADLINE
        row[cur].left = ((D - hb[row[cur].own] > HH) -> D - hb[row[cur].own] : HH);
#else
        row[cur].left = HH;
#endif
        moved()
    :: call == EXPIRE && STILL_EXPIRED ->
        HOLDS(KILLED, !(ws[row[cur].own] == EXECUTING && wc[row[cur].own] == row[cur].claim));
        if :: row[cur].cancel -> end_row(cur, CANCELED, false) :: else -> end_row(cur, TIMED_OUT, true) fi
    :: call == CANCEL && CAN_CANCEL ->
        if
        :: row[cur].st == PENDING || row[cur].st == ORPHANED ->
            if :: row[cur].st == ORPHANED -> row[cur].att++ :: else fi;
            HOLDS(ATTEMPTS, row[cur].att == assigned_last + 1); assigned_last = row[cur].att
        :: else
        fi;
        end_row(cur, CANCELED, false); row[cur].retry = OPRETRY
    :: call == EXHAUST && CAN_EXHAUST ->
        row[cur].att++; HOLDS(ATTEMPTS, row[cur].att == assigned_last + 1); assigned_last = row[cur].att;
        end_row(cur, CANCELED, false)
    :: call == NEXT && (CAN_MAKE_NEXT && r == cur || !R12_ONCE) ->
        HOLDS(ATTEMPTS, r == cur);
        row[r].retry = false; cur++; row[cur].st = PENDING; row[cur].att = row[r].att + 1; row[cur].own = NOBODY; moved()
    :: call == OVERTIME && CAN_OVERTIME -> overtimes--; end_row(cur, TIMED_OUT, true)
    :: else
    fi
}

proctype Leader(byte l) {
    byte call, w, v, r;
    do
    /* with a tenure in force nobody gets another; the timeline of another server ends it */
    :: atomic { lep[l] == 0 && !deaf[l] && (!lease || !TIMELINE_KNOWN) && (l == 0 || epoch_given > 0) && !DONE ->
        if :: acquire(l, true) :: losses > 0 -> losses--; acquire(l, false) fi }
    /* refused by the fence, or by its own doubt */
    :: atomic { lep[l] != 0 && !FENCED(l) && R3_FENCE == 2 && call == 0 && !DONE -> printf("leader %d is fenced off\n", l); lep[l] = 0 }
    :: atomic { lep[l] != 0 && losses > 0 && call == 0 && !DONE -> losses--; printf("leader %d loses its tenure\n", l); lep[l] = 0 }
#if INFLIGHT
    /* it never learns: stopped for long, and then goes on as if nothing had been */
    :: atomic { lep[l] != 0 && lease && losses > 0 && !DONE -> losses--; lease = false }
#endif
    :: atomic { deaf[l] && lep[l] != 0 && R4_DEAF && !DONE -> lep[l] = 0; deaf[l] = false }
    :: atomic { DECIDES(l) && call == 0 && ANYTHING && !DONE ->
        if
        /* by then a worker that does not start anything says that it takes nothing */
        :: CAN_ASSIGN && wst[0] == ACTIVE && !(WEDGE && claims_given > 0) -> call = ASSIGN; w = 0
        :: CAN_ASSIGN && wst[1] == ACTIVE && (claims_given > 0 || wst[0] != ACTIVE) -> call = ASSIGN; w = 1
        :: CAN_ORPHAN -> call = ORPHAN
        :: CAN_CONFIRM -> call = CONFIRM
        :: CAN_EXPIRE -> call = EXPIRE
        :: CAN_CANCEL -> call = CANCEL
        :: CAN_EXHAUST -> call = EXHAUST
        :: CAN_MAKE_NEXT -> call = NEXT
        :: CAN_OVERTIME -> call = OVERTIME
        fi;
        r = cur; v = ver;
#if INFLIGHT
    }
    :: atomic { call != 0 && !DONE ->
#endif
        if
#if R3_FENCE == 2
        :: !FENCED(l) -> lep[l] = 0
#endif
#if R3_VERSION
        :: v != ver && !(call == NEXT && !R12_ONCE) -> skip
#endif
        :: else -> printf("leader %d (epoch %d, current %d): call %d on row %d, worker %d (1 assign, 2 orphan, 3 confirm, 4 expire, 5 cancel, 6 exhaust, 7 next, 8 overtime)\n", l, lep[l], epoch, call, cur, w);
            HOLDS(STALE, FENCED(l)); decide(l); rest()
        fi;
        /* a next_attempts that was not answered is sent again */
        if :: true -> call = 0; w = 0; v = 0; r = 0 :: call == NEXT && !R12_ONCE && INFLIGHT -> skip fi }
    :: DONE -> break
    od
}
