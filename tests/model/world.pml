/* Time and faults. A tick ages everything together, and waits for whoever has to stop before it. */

byte cuts = CUTS, crashes = CRASHES, pauses = PAUSES, jumps = JUMPS, drains = DRAINS, cancels = CANCELS, deafs = DEAF;

#if FAILOVERS
/* the state of the standby: what was committed up to some moment */
Row k_row[ROWS];
byte k_cur, k_hb[WORKERS], k_wst[WORKERS], k_epoch, k_first, k_etl, k_quar, k_last;
bool k_lease;
byte failover = 0;              /* 1 a standby lags behind, 2 it was promoted */
#define LAGS (failover == 1)
#else
#define LAGS false
#endif

#define LATE(w) (R7_STOP && ws[w] == EXECUTING && !paused[w] && age[w] >= S)
#define HEARD(w) (FRESH && HEARS(w))
#define AGES_WORKER(w) ((hb[w] < D && !HEARD(w)) || (sil[w] < D && !HEARD(w) && LED) || (ws[w] == EXECUTING && age[w] < S + K && !HEARD(w)) \
    || (sa[w] == 2 && sage[w] < S) || (ba[w] != 0 && bage[w] < S))
#define LED ((lep[0] == epoch && epoch != 0 && !deaf[0]) || (lep[1] == epoch && epoch != 0 && !deaf[1]))
#define AGES (AGES_WORKER(0) || AGES_WORKER(1) || row[cur].left > 0 || (row[cur].cancel && row[cur].cage < D && !ENDED_STATE(row[cur].st)) \
    || quar > 0 || lquar > 0 || ((row[cur].conf != NONE || row[cur].cancel) && vst < D && LED))

inline grow(x, cap) { if :: x < (cap) -> x++ :: else fi }
inline shrink(x) { if :: x > 0 -> x-- :: else fi }

inline copy_row(to, from) {
    to.st = from.st; to.att = from.att; to.own = from.own; to.claim = from.claim; to.aep = from.aep; to.lep = from.lep;
    to.conf = from.conf; to.left = from.left; to.sbn = from.sbn; to.cage = from.cage; to.fruit = from.fruit;
    to.started = from.started; to.stopped = from.stopped; to.retry = from.retry; to.cancel = from.cancel
}

inline die(x) {
    printf("worker %d dies\n", x); idle(x); ws[x] = DEAD; paused[x] = false; draining[x] = false
}

inline clear_row(r) {
    r.st = 0; r.att = 0; r.own = 0; r.claim = 0; r.aep = 0; r.lep = 0; r.conf = 0; r.left = 0; r.sbn = 0; r.cage = 0; r.fruit = 0;
    r.started = false; r.stopped = false; r.retry = false; r.cancel = false
}

proctype World() {
    byte w;
    do
    :: d_step { !DONE && AGES && !LATE(0) && !LATE(1) ->
        printf("-- tick\n"); w = 0;
        do
        :: w < WORKERS ->
            if :: HEARD(w) :: else -> grow(hb[w], D); if :: LED -> grow(sil[w], D) :: else fi;
                if :: ws[w] == EXECUTING -> grow(age[w], S + K) :: else fi fi;
            if :: sa[w] == 2 -> grow(sage[w], S) :: else fi;
            if :: ba[w] != 0 -> grow(bage[w], S) :: else fi;
#if PAUSES && R11_DEADMAN
            if :: paused[w] && ws[w] == EXECUTING && age[w] >= S + K -> die(w) :: else fi;
#endif
#if FAILOVERS
            if :: LAGS -> grow(k_hb[w], D) :: else fi;
#endif
            w++
        :: else -> break
        od;
        w = 0;
        shrink(row[cur].left); shrink(quar); shrink(lquar);
        if :: row[cur].cancel && !ENDED_STATE(row[cur].st) -> grow(row[cur].cage, D) :: else fi;
        if :: (row[cur].conf != NONE || row[cur].cancel) && LED -> grow(vst, D) :: else fi;
#if FAILOVERS
        if :: LAGS -> shrink(k_row[k_cur].left); shrink(k_quar) :: else fi;
#endif
#if FAILOVERS && JUMPS
        if :: tl > 0 -> grow(known, D) :: else fi;
#endif
    }
    /* nobody renews: the lease runs out */
    :: atomic { lease && lep[0] != epoch && lep[1] != epoch && !DONE -> lease = false; printf("the lease runs out\n") }
#if CUTS
    :: atomic { cuts > 0 && !DONE -> cuts--;
        if :: w = 0 :: w = 1 fi;
        if :: cut[w] = 1 :: cut[w] = 2 :: cut[w] = 3 fi; printf("worker %d is cut (1 requests, 2 answers, 3 both): %d\n", w, cut[w]); w = 0 }
    :: atomic { cut[0] != 0 && !DONE -> cut[0] = 0; printf("worker 0 is heard again\n") }
    :: atomic { cut[1] != 0 && !DONE -> cut[1] = 0; printf("worker 1 is heard again\n") }
#endif
#if PAUSES
    :: atomic { pauses > 0 && !DONE -> pauses--; if :: UP(0) -> paused[0] = true :: UP(1) -> paused[1] = true fi; printf("paused: %d %d\n", paused[0], paused[1]) }
    :: atomic { paused[0] && !DONE -> paused[0] = false; printf("worker 0 goes on\n") }
    :: atomic { paused[1] && !DONE -> paused[1] = false; printf("worker 1 goes on\n") }
#endif
#if CRASHES
    :: atomic { crashes > 0 && !DONE && (UP(0) || UP(1)) -> crashes--; if :: UP(0) -> w = 0 :: UP(1) -> w = 1 fi; die(w); w = 0 }
#endif
#if DEAF
    :: atomic { deafs > 0 && lep[0] != 0 && !DONE -> deafs--; deaf[0] = true }
    :: atomic { deafs > 0 && lep[1] != 0 && !DONE -> deafs--; deaf[1] = true }
#endif
#if DRAINS
    :: atomic { drains > 0 && UP(0) && !draining[0] && !DONE -> drains--; draining[0] = true; printf("worker 0 drains\n") }
    :: atomic { drains > 0 && UP(1) && !draining[1] && !DONE -> drains--; draining[1] = true; printf("worker 1 drains\n") }
#endif
#if CANCELS
    :: atomic { cancels > 0 && !ENDED_STATE(row[cur].st) && !row[cur].cancel && !DONE -> cancels--; row[cur].cancel = true; printf("somebody asks to cancel\n") }
#endif
#if JUMPS
    :: atomic { jumps > 0 && !DONE -> jumps--; printf("the clock of the database jumps\n"); excused = true; hb[0] = D; hb[1] = D; row[cur].left = 0; quar = 0;
        if :: row[cur].cancel -> row[cur].cage = D :: else fi }
#endif
#if FAILOVERS
    :: atomic { failover == 0 && !DONE -> failover = 1; printf("the standby stops following\n");
        k_cur = cur; k_epoch = epoch; k_first = first_epoch; k_etl = etl; k_quar = quar; k_lease = lease; k_last = assigned_last;
        w = 0; do :: w < ROWS -> copy_row(k_row[w], row[w]); w++ :: else -> break od;
        w = 0; do :: w < WORKERS -> k_hb[w] = hb[w]; k_wst[w] = wst[w]; w++ :: else -> break od; w = 0 }
    :: atomic { failover == 1 && !DONE -> failover = 2; printf("the standby is promoted\n"); excused = true; tl++;
        cur = k_cur; epoch = k_epoch; first_epoch = k_first; etl = k_etl; quar = k_quar; lease = k_lease; assigned_last = k_last;
#if !R22_FENCE
        etl = tl;
#endif
        w = 0; do :: w < ROWS -> copy_row(row[w], k_row[w]); clear_row(k_row[w]); w++ :: else -> break od;
        w = 0; do :: w < WORKERS -> hb[w] = (HEARD(w) -> 0 : k_hb[w]); wst[w] = k_wst[w]; k_hb[w] = 0; k_wst[w] = 0;
            late_start[w] = 0; late_row[w] = 0; late_sbn[w] = 0; late_beat[w] = 0; late_named[w] = 0; w++ :: else -> break od;
        w = 0; vst = 0; rest(); k_cur = 0; k_epoch = 0; k_first = 0; k_etl = 0; k_quar = 0; k_lease = false; k_last = 0 }
#endif
    :: DONE -> break
    od
}
