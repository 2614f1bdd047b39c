--------------------------- MODULE PageLifecycle ---------------------------
(***************************************************************************)
(* The life of KV pages on the decode side while prefill fills them with   *)
(* one-sided writes.                                                       *)
(*                                                                         *)
(* Decode takes a page for a request under a fresh generation and tells    *)
(* prefill its address; from then on prefill can write into the page       *)
(* without asking anybody.  A request that times out or is aborted lets    *)
(* its page go while that write may still be in the network.  What happens *)
(* to the page then is decided by three guards, each a constant here:      *)
(*                                                                         *)
(*   DrainBeforeFree           without evidence that the writer stopped, a *)
(*                             released page drains; else it is free       *)
(*   QuarantineOnExpiry        a drain that runs out puts the page into    *)
(*                             quarantine for good; else it is free        *)
(*   ControlCarriesGeneration  a notification acts on the attempt that it  *)
(*                             was sent for; else on whatever attempt of   *)
(*                             the request there is                        *)
(*                                                                         *)
(* All three off is policy `eager`, all three on is policy `ledger` of     *)
(* racelab's reference engine.  `act` names each step with its arguments,  *)
(* so that a counterexample says what happened in any version of TLC.      *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  PageCount,                 \* pages in decode's pool
  Requests,                  \* names of requests
  AttemptsMax,               \* how often a request may be submitted
  DrainBeforeFree, QuarantineOnExpiry, ControlCarriesGeneration,
  Nobody                     \* a model value: no request

VARIABLES
  page,      \* each page: state, generation, the owner and its attempt, the bytes that landed last
  free,      \* the allocator: a stack of free pages, taken and put back at its head
  request,   \* each request: state, attempt, and the page and generation of that attempt
  wire,      \* writes that are posted and have not landed
  notes,     \* notifications `written` that are sent and have not arrived
  strays,    \* history: what took effect after the generation or attempt it was for had ended
  act        \* the step just taken

state == <<page, free, request, wire, notes, strays>>    \* what makes two states differ

Pages == 1..PageCount
NoBytes == [request |-> Nobody, attempt |-> 0]

Init ==
  /\ page = [p \in Pages |-> [state |-> "FREE", gen |-> 0, owner |-> Nobody, attempt |-> 0, bytes |-> NoBytes]]
  /\ free = [i \in Pages |-> i]
  /\ request = [r \in Requests |-> [state |-> "idle", attempt |-> 0, page |-> 0, gen |-> 0]]
  /\ wire = {}
  /\ notes = {}
  /\ strays = {}
  /\ act = [name |-> "Init", request |-> Nobody, attempt |-> 0]

Did(name, r, attempt) == act' = [name |-> name, request |-> r, attempt |-> attempt]

-----------------------------------------------------------------------------
(* The client submits a request, or an ended one again.  Decode takes a    *)
(* page, grants it to prefill, and prefill posts its write.                *)

Submit(r) ==
  /\ request[r].state \in {"idle", "timed-out", "aborted"}
  /\ request[r].attempt < AttemptsMax
  /\ free # <<>>
  /\ LET p == Head(free)
         gen == page[p].gen + 1
         attempt == request[r].attempt + 1
     IN /\ free' = Tail(free)
        /\ page' = [page EXCEPT ![p] =
             [state |-> "PRIVATE", gen |-> gen, owner |-> r, attempt |-> attempt, bytes |-> NoBytes]]
        /\ request' = [request EXCEPT ![r] =
             [state |-> "waiting", attempt |-> attempt, page |-> p, gen |-> gen]]
        /\ wire' = wire \cup {[request |-> r, attempt |-> attempt, page |-> p, gen |-> gen]}
        /\ Did("Submit", r, attempt)
  /\ UNCHANGED <<notes, strays>>

(* A write lands wherever its address points: nobody is asked.  Its        *)
(* completion makes prefill send the notification.                         *)

Land(w) ==
  /\ wire' = wire \ {w}
  /\ notes' = notes \cup {w}
  /\ page' = [page EXCEPT ![w.page].bytes = [request |-> w.request, attempt |-> w.attempt]]
  /\ strays' = IF page[w.page].gen = w.gen /\ page[w.page].state # "FREE"
               THEN strays
               ELSE strays \cup {[what |-> "write", of |-> w, owner |-> page[w.page].owner]}
  /\ Did("Land", w.request, w.attempt)
  /\ UNCHANGED <<free, request>>

(* The notification arrives.  It is stop evidence for the grant that it    *)
(* names, and it lets a waiting attempt read its page.                     *)

Draining(n) == page[n.page].state = "DRAINING" /\ page[n.page].gen = n.gen

Deliver(n) ==
  LET r == n.request
      own == request[r].attempt = n.attempt /\ request[r].state = "waiting"
      acts == own \/ (~ControlCarriesGeneration /\ request[r].state # "idle")
  IN /\ notes' = notes \ {n}
     /\ request' = IF acts THEN [request EXCEPT ![r].state = "reading"] ELSE request
     /\ page' = IF Draining(n) THEN [page EXCEPT ![n.page].state = "FREE", ![n.page].owner = Nobody] ELSE page
     /\ free' = IF Draining(n) THEN <<n.page>> \o free ELSE free
     /\ strays' = IF acts /\ ~own THEN strays \cup {[what |-> "note", of |-> n, owner |-> r]} ELSE strays
     /\ Did("Deliver", r, n.attempt)
     /\ UNCHANGED wire

Lose(n) ==
  /\ notes' = notes \ {n}
  /\ Did("Lose", n.request, n.attempt)
  /\ UNCHANGED <<page, free, request, wire, strays>>

-----------------------------------------------------------------------------
(* The ends of a request, and what becomes of its page.                    *)

Release(r) ==    \* of a request whose write is not known to have landed
  LET p == request[r].page
  IN IF DrainBeforeFree
     THEN /\ page' = [page EXCEPT ![p].state = "DRAINING"]
          /\ free' = free
     ELSE /\ page' = [page EXCEPT ![p].state = "FREE", ![p].owner = Nobody]
          /\ free' = <<p>> \o free

End(r, name, ended) ==
  /\ request[r].state = "waiting"
  /\ request' = [request EXCEPT ![r].state = ended]
  /\ Release(r)
  /\ Did(name, r, request[r].attempt)
  /\ UNCHANGED <<wire, notes, strays>>

TimeOut(r) == End(r, "TimeOut", "timed-out")
Abort(r) == End(r, "Abort", "aborted")

Expire(p) ==     \* a drain runs out, and there is still no evidence
  /\ page[p].state = "DRAINING"
  /\ IF QuarantineOnExpiry
     THEN /\ page' = [page EXCEPT ![p].state = "QUARANTINED"]
          /\ free' = free
     ELSE /\ page' = [page EXCEPT ![p].state = "FREE", ![p].owner = Nobody]
          /\ free' = <<p>> \o free
  /\ Did("Expire", page[p].owner, page[p].attempt)
  /\ UNCHANGED <<request, wire, notes, strays>>

Finish(r) ==     \* the answer is complete; no grant is open
  /\ request[r].state = "reading"
  /\ LET p == request[r].page
         held == page[p].state = "PRIVATE" /\ page[p].gen = request[r].gen
     IN /\ page' = IF held THEN [page EXCEPT ![p].state = "FREE", ![p].owner = Nobody] ELSE page
        /\ free' = IF held THEN <<p>> \o free ELSE free
  /\ request' = [request EXCEPT ![r].state = "finished"]
  /\ Did("Finish", r, request[r].attempt)
  /\ UNCHANGED <<wire, notes, strays>>

Rest == UNCHANGED <<state, act>>    \* all work may be done: that is no deadlock

Next ==
  \/ \E r \in Requests : Submit(r) \/ TimeOut(r) \/ Abort(r) \/ Finish(r)
  \/ \E w \in wire : Land(w)
  \/ \E n \in notes : Deliver(n) \/ Lose(n)
  \/ \E p \in Pages : Expire(p)
  \/ Rest

Spec == Init /\ [][Next]_<<state, act>>

-----------------------------------------------------------------------------
(* No write takes effect after the generation that it was granted has      *)
(* ended, and no notification acts on another attempt than its own.  A     *)
(* write that is still in the network is exposure, not yet a violation.    *)
Isolation == strays = {}

(* The graver half of it: no write lands on a page whose generation is     *)
(* another request's.                                                      *)
NoLateWriteOnReusedPage == \A stray \in strays : stray.what = "write" => stray.owner = Nobody

(* Whoever reads holds the page, and the bytes in it are those of its own  *)
(* attempt.                                                                *)
Integrity == \A r \in Requests : request[r].state = "reading" =>
  LET p == page[request[r].page]
  IN /\ p.gen = request[r].gen
     /\ p.state = "PRIVATE"
     /\ p.bytes = [request |-> r, attempt |-> request[r].attempt]

(* Every page is in one place, once; and none is free without evidence     *)
(* that the write under its last grant has stopped.                        *)
Conservation ==
  /\ \A i, j \in 1..Len(free) : i # j => free[i] # free[j]
  /\ \A p \in Pages : page[p].state = "FREE" <=> \E i \in 1..Len(free) : free[i] = p
  /\ \A w \in wire : page[w.page].gen = w.gen => page[w.page].state # "FREE"
=============================================================================
