/* Every rule that can be taken out, every fault's budget, every property. -D overrides; the defaults are the rules in force. */

/* time, in ticks: confirm-after, self-stop, kill, two heartbeats, stop bound */
#ifndef C
#define C 1
#endif
#ifndef S
#define S 2
#endif
#ifndef K
#define K 0
#endif
#ifndef HH
#define HH 1
#endif
#ifndef D
#define D 3
#endif

/* sizes: rows of the root (= starts it may have), lists a worker may build, fruitless assignments until it is exhausted */
#ifndef ROWS
#define ROWS 2
#endif
#ifndef BEATS
#define BEATS 1
#endif
#ifndef FRUIT
#define FRUIT 1
#endif

/* budgets of faults */
#ifndef LOSSES
#define LOSSES 0        /* tenures lost: leader crashed, paused, cut off, or an acquire whose answer was lost */
#endif
#ifndef DEAF
#define DEAF 0          /* a leader whose answers are lost from now on */
#endif
#ifndef CUTS
#define CUTS 0          /* both ways, requests only, answers only */
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef PAUSES
#define PAUSES 0
#endif
#ifndef LIMBO
#define LIMBO 0         /* a call given up by its caller that the server still carries out, at any later time */
#endif
#ifndef AMBIGUOUS
#define AMBIGUOUS 0     /* a finish that was carried out and not answered */
#endif
#ifndef JUMPS
#define JUMPS 0         /* the database's clock jumps forward by D or more */
#endif
#ifndef FAILOVERS
#define FAILOVERS 0     /* an older state is promoted on a new timeline */
#endif
#ifndef DRAINS
#define DRAINS 0
#endif
#ifndef CANCELS
#define CANCELS 0
#endif
#ifndef OVERTIMES
#define OVERTIMES 0     /* the leader ends a healthy attempt that is over its own time */
#endif
#ifndef OPRETRY
#define OPRETRY 0       /* an operator wants a canceled run again */
#endif
#ifndef WEDGE
#define WEDGE 0         /* worker 0 beats and never starts what it is given */
#endif
#ifndef RELEASES
#define RELEASES 0      /* a worker gives back what it has not started */
#endif
#ifndef FRESH
#define FRESH 0         /* 1: a worker that is up is always heard in time; its beats are shown where they change something */
#endif

/* the rules: 1 = in force */
#ifndef R3_FENCE
#define R3_FENCE 2      /* 2 in the writing call, 1 by an earlier read, 0 none */
#endif
#ifndef R3_VERSION
#define R3_VERSION 1    /* the call compares the version it decided on */
#endif
#ifndef R4_DEAF
#define R4_DEAF 1       /* a leader without answers stops renewing */
#endif
#ifndef R5_TOKEN
#define R5_TOKEN 0      /* finish: 0 token against row, 1 against the current epoch, 2 the row is stamped again by a take-over */
#endif
#ifndef R6_START
#define R6_START 1      /* executes only after the start was answered */
#endif
#ifndef R7_SEND
#define R7_SEND 1       /* the stop counts from the send; 0: from the receipt of the answer */
#endif
#ifndef R7_STOP
#define R7_STOP 1       /* a worker stops itself after S */
#endif
#ifndef R7_ORDER
#define R7_ORDER 1      /* only a list built after the start proves that a claim is not executed */
#endif
#ifndef R7_ALREADY
#define R7_ALREADY 1    /* a repeated start moves start_beat_no */
#endif
#ifndef R7_NAMED
#define R7_NAMED 1      /* named from before the start is sent; 0: from its answer on */
#endif
#ifndef R7_DROP
#define R7_DROP 1       /* a list that does not name a RUNNING row ends it */
#endif
#ifndef R8_CLEAR
#define R8_CLEAR 1      /* a beat before the deadline clears CONFIRMING */
#endif
#ifndef R8_ALREADY
#define R8_ALREADY 1    /* a repeated start before the deadline clears CONFIRMING too, as a beat does */
#endif
#ifndef R8_DEADLINE
#define R8_DEADLINE 1   /* D after the last contact; 0: two heartbeats from now */
#endif
#ifndef R9_WATCH
#define R9_WATCH 1      /* expiry needs the leader's own watch */
#endif
#ifndef R9_RECORD
#define R9_RECORD 1     /* the leader records for a worker that cannot */
#endif
#ifndef R10_QUIESCE
#define R10_QUIESCE 1   /* the next attempt waits until the last one certainly stopped */
#endif
#ifndef R10_WATCH
#define R10_WATCH 1     /* ... by the leader's own watch too */
#endif
#ifndef R11_DEADMAN
#define R11_DEADMAN 1   /* the kernel kills a paused executor at S + K */
#endif
#ifndef R12_ONCE
#define R12_ONCE 1      /* a repeated next_attempts makes nothing */
#endif
#ifndef R22_EPOCH
#define R22_EPOCH 1     /* the timeline is in the epoch */
#endif
#ifndef R22_FENCE
#define R22_FENCE 1     /* the timeline is in the fence and makes the next leader acquire anew */
#endif
#ifndef R22_QUARANTINE
#define R22_QUARANTINE 1
#endif
#ifndef R22_WATCH
#define R22_WATCH 1     /* ... by the leader's own watch of the timeline too */
#endif
#ifndef R22_START
#define R22_START 1     /* an assignment of an older timeline cannot start */
#endif
#ifndef R22_ORPHAN
#define R22_ORPHAN 1    /* ... and is orphaned after the quarantine */
#endif
#ifndef R22_LISTED
#define R22_LISTED 1    /* a beat does not list an ASSIGNED claim of an older timeline */
#endif
#ifndef EXHAUSTED
#define EXHAUSTED 1     /* an orphan that used up its assignments is ended */
#endif
#ifndef INFLIGHT
#define INFLIGHT 0      /* 1: between a leader's decision and its call anything may happen */
#endif

/* properties, a bit each; a wrong end (no run stuck) is pan's own and switched off by its -E */
#define OVERLAP 1
#define SPURIOUS 2
#define KILLED 4
#define STALE 8
#define HISTORY 16
#define EPOCHS 32
#define SUCCESSES 64
#define ATTEMPTS 128
#ifndef PROPERTIES
#define PROPERTIES 255
#endif
#define HOLDS(property, fact) assert(!((PROPERTIES) & (property)) || (fact))
