------------------------------ MODULE PdLedger ------------------------------
(***************************************************************************)
(* The page ledger of prefill/decode serving with one-sided writes.        *)
(*                                                                         *)
(* Decode owns pages that prefill writes into without asking it.  Who may  *)
(* write a page is kept beside its state, as a set of grants.  Prefill's   *)
(* source pages are on a ledger of the same rules: there the NIC is the    *)
(* one with the grant.                                                     *)
(*                                                                         *)
(* A request is submitted, waits for pages, has prefill fill them chunk by *)
(* chunk, is committed when there is news of every chunk, answers, and     *)
(* ends; or it times out, is aborted or fails at any moment before.  An    *)
(* ended request may be submitted again, as a new attempt.                 *)
(*                                                                         *)
(* PageLedger has the rules of one pool, PdState the variables, PdDecode   *)
(* and PdPrefill what each side does, PdPull what they do where decode     *)
(* reads the pages itself, and this module what happens between them, the  *)
(* next step, and the properties.                                          *)
(*                                                                         *)
(* Each guard of racelab's reference engine can be taken away by its name  *)
(* in Without.  {} is policy `ledger`, all of Guards is `eager`.  What may *)
(* happen beyond serving is in May, and what a lab need not have in Has:   *)
(* a configuration that leaves them out stays small.                       *)
(*                                                                         *)
(* `act` names each step with its arguments, so that a counterexample says *)
(* what happened in any version of TLC.  It is no part of the VIEW.        *)
(*                                                                         *)
(* racelab/model/spec has the same transitions in Python; a test compares  *)
(* the numbers of reachable states.                                        *)
(***************************************************************************)
EXTENDS PdPull

-----------------------------------------------------------------------------
(* What nobody decides.                                                    *)

Handle(m, left) ==
  CASE m.type = "reserve" -> ReceiveReserve(m, left)
    [] m.type = "abort" -> ReceiveAbort(m, left)
    [] m.type = "complete" -> IF Pulls THEN ReceiveReadersEnd(m, left) ELSE ReceiveComplete(m, left)
    [] m.type = "claim" -> ReceiveClaim(m, left)
    [] m.type = "claimed" -> ReceiveClaimed(m, left)
    [] m.type = "release-source" -> ReceiveReadersEnd(m, left)
    [] m.type = "written" -> ReceiveWritten(m, left)
    [] m.type = "failed" -> ReceiveFailed(m, left)
    [] m.type = "abort-ack" -> ReceiveAck(m, left)
    [] m.type = "hello" -> ReceiveHello(m, left)

(* Bad news of writes is an action of another name than good news.         *)
Name(m) == IF m.type = "written" /\ ~m.ok THEN "failure" ELSE m.type
Happened(name, m) == DidPart(name \o Name(m), m.request, m.attempt, Part(m.request, m.attempt, m.chunk), m.rank, 0)

Receive(m) == m \in net /\ Handle(m, net \ {m}) /\ Happened("Receive-", m)
ReceiveCopy(m) ==               \* it arrives, and will once more
  m \in net /\ "copy" \in May /\ Handle(m, net) /\ Happened("ReceiveCopy-", m)

Lose(m) ==
  /\ m \in net /\ "lose" \in May
  /\ net' = net \ {m}
  /\ Happened("Lose-", m)
  /\ UNCHANGED <<decode, prefill, attempts, jobs, cache, queue, waiting, wire, strays>>

Flying(w) ==                    \* the writes of the same rank's part of a chunk that have not landed
  {v \in wire : /\ v.request = w.request /\ v.attempt = w.attempt /\ ChunkOf(v.index) = ChunkOf(w.index)
                /\ RankOf(v.layer) = RankOf(w.layer) /\ ~IsSlot(v)}
IsFirstToLand(w) ==
  Cardinality(Flying(w)) =
    Cardinality({l \in LayerSet : RankOf(l) = RankOf(w.layer)})
      * (IF Pulls THEN Cardinality(OfChunk(w.request, ChunkOf(w.index), attempts[w.request][w.attempt].hits))
         ELSE Cardinality(Indices(w.request, jobs[w.request][w.attempt], ChunkOf(w.index))))
DidTo(name, w) == DidPart(name, w.request, w.attempt, Part(w.request, w.attempt, ChunkOf(w.index)), RankOf(w.layer), w.page)

(* A write lands wherever its address points, with whatever its source     *)
(* holds by then: nobody is asked.  What a prefill that is dead has posted *)
(* left it before.  A schedule lets all writes of a rank's part of a chunk *)
(* go where the first lands, so that the others have a name of their own.  *)
(* A read takes what is there from a prefill that lives.                   *)
HasFailed(w) ==
  LET job == jobs[w.request][w.attempt]
      attempt == attempts[w.request][w.attempt]
  IN <<w.index, w.layer>> \notin
       (IF Pulls THEN attempt.reading \cup attempt.got ELSE job.outstanding \cup job.done)
Land(w) ==
  LET source == prefill.pages[w.source]
      target == decode.pages[w.page]
      alive == w.epoch = prefill.epoch
      bytes == IF alive THEN prefill.content[w.source][w.layer] ELSE Own(w.request, w.attempt, w.index)
      late(what, page, gen) == IF page.gen = gen /\ page.state # "FREE" THEN {}
                               ELSE {Stray(what, w.request, w.attempt, page.request)}
  IN /\ w \in wire /\ ("ghost" \in May \/ ~alive \/ ~HasFailed(w)) /\ ~IsSlot(w) /\ (Pulls => alive)
     /\ wire' = wire \ {w}
     /\ decode' = [decode EXCEPT !.content[w.page][w.layer] = bytes]
     /\ strays' = strays \cup late("write", target, w.gen)
                        \cup (IF alive THEN late("source", source, w.sourceGen) ELSE {})
     /\ DidTo(IF IsFirstToLand(w) THEN "Land" ELSE "LandPart", w)
     /\ UNCHANGED <<prefill, attempts, jobs, cache, queue, waiting, net>>

LandSlot(w) ==                  \* nothing keeps what comes late out of a slot that has another owner by now
  /\ w \in wire /\ IsSlot(w) /\ ("ghost" \in May \/ w.epoch # prefill.epoch \/ ~HasFailed(w))
  /\ wire' = wire \ {w}
  /\ decode' = [decode EXCEPT !.slots[w.page] = [request |-> w.request, attempt |-> w.attempt]]
  /\ DidTo("LandSlot", w)
  /\ UNCHANGED <<prefill, attempts, jobs, cache, queue, waiting, net, strays>>

Vanish(w) ==                    \* a write whose completion was an error, or whose prefill died, never lands after all
  /\ w \in wire /\ (w.epoch # prefill.epoch \/ HasFailed(w))
  /\ wire' = wire \ {w}
  /\ DidTo(IF IsSlot(w) THEN "VanishSlot" ELSE "Vanish", w)
  /\ UNCHANGED <<decode, prefill, attempts, jobs, cache, queue, waiting, net, strays>>

ExpireDecode(p) ==
  /\ decode.pages[p].state = "DRAINING"
  /\ decode' = Expired(decode, p)
  /\ Did("Expire", decode.pages[p].request, decode.pages[p].attempt, 0, p)
  /\ UNCHANGED <<prefill, attempts, jobs, cache, queue, waiting, wire, net, strays>>

ExpirePrefill(p) ==
  /\ prefill.pages[p].state = "DRAINING"
  /\ prefill' = Expired(prefill, p)
  /\ Did(IF Pulls THEN "ExpirePinned" ELSE "ExpireSource", prefill.pages[p].request, prefill.pages[p].attempt, 0, p)
  /\ UNCHANGED <<decode, attempts, jobs, cache, queue, waiting, wire, net, strays>>

-----------------------------------------------------------------------------
(* Every request has ended, and no page drains.                            *)
Terminal ==
  /\ \A r \in Requests : \A a \in DOMAIN attempts[r] : attempts[r][a].ended # Nobody /\ ~attempts[r][a].running
  /\ \A p \in DOMAIN decode.pages : decode.pages[p].state # "DRAINING"
  /\ \A p \in DOMAIN prefill.pages : prefill.pages[p].state # "DRAINING"

Outstanding(r, a, chunk, rank) ==
  {w \in jobs[r][a].outstanding : ChunkOf(w[1]) = chunk /\ RankOf(w[2]) = rank /\ w[2] # SlotLayer}
OutstandingSlot(r, a) == {w \in jobs[r][a].outstanding : w[2] = SlotLayer}

Progress ==         \* what happens some day if it stays possible
  \/ \E r \in Requests : \E a \in DOMAIN attempts[r] :
       \/ Join(r, a) \/ Unjoin(r, a) \/ Admit(r, a) \/ Fill(r, a) \/ Register(r, a) \/ Accept(r, a)
       \/ Enter(r, a) \/ TimeOut(r, a) \/ Finish(r, a) \/ GiveUp(r, a) \/ GiveUpSource(r, a) \/ Orphan(r, a)
       \/ Offer(r, a) \/ GiveUpOffer(r, a) \/ Refer(r, a) \/ Forward(r, a) \/ Lapse(r, a) \/ TimeOutAway(r, a)
       \/ \E ok \in BOOLEAN : Complete(r, a, OutstandingSlot(r, a), ok) \/ CompleteRead(r, a, attempts[r][a].reading, ok)
       \/ \E chunk \in 0..(ChunkCount(r) - 1) :
            \/ Compute(r, a, chunk) \/ Post(r, a, chunk)
            \/ \E ok \in BOOLEAN : \E rank \in RankSet : Complete(r, a, Outstanding(r, a, chunk, rank), ok)
  \/ \E m \in net : Receive(m)
  \/ \E w \in wire : Land(w) \/ LandSlot(w) \/ Vanish(w)
  \/ \E p \in DOMAIN decode.pages : Evict(p) \/ ExpireDecode(p)
  \/ \E p \in DOMAIN prefill.pages : ExpirePrefill(p)

Chance ==           \* what may never happen
  \/ \E r \in Requests : Submit(r) \/ Request(r) \/ \E of \in Requests : Present(r, of)
  \/ \E r \in Requests : \E a \in DOMAIN attempts[r] : Abort(r, a) \/ AbortAway(r, a) \/ Retract(r, a) \/ Retry(r, a)
  \/ Restart
  \/ \E m \in net : ReceiveCopy(m) \/ Lose(m)

Rest == Terminal /\ UNCHANGED vars     \* all work may be done: that is no deadlock

Next == Progress \/ Chance \/ Rest
Spec == Init /\ [][Next]_vars
FairSpec == Init /\ [][Next \/ UNCHANGED vars]_vars /\ WF_vars(Progress)    \* a dead end is no end

-----------------------------------------------------------------------------
(* Nothing takes effect after the generation or the attempt that it was    *)
(* for has ended.  What is still in the network is exposure, no violation. *)
Isolation == strays = {}

(* The graver half: no write lands on a page that is another request's.    *)
NoLateWriteOnReusedPage == \A s \in strays : s.what = "write" => s.owner = Nobody

(* The same of what a pull reads: no page that is another request's.       *)
NoReadOfReusedPage == \A s \in strays : s.what = "source" => s.owner = Nobody

KeyOf(content) ==
  IF content = Nobody THEN Nobody
  ELSE IF content.index >= 0 /\ content.index < Len(Keys[content.request]) THEN Keys[content.request][content.index + 1] ELSE Nobody

(* Whoever reads holds the pages, and they have its own bytes or, where    *)
(* they were found in the cache, bytes of the same key.                    *)
RightReads == \A r \in Requests : \A a \in DOMAIN attempts[r] : attempts[r][a].running =>
  \A i \in 1..Granted[r] :
    LET t == attempts[r][a].tickets[i]
        page == decode.pages[t.page]
    IN /\ page.gen = t.gen
       /\ page.state \in {"PRIVATE", "SHARED", "DUP"}
       /\ \A l \in LayerSet :
            \/ decode.content[t.page][l] = [request |-> r, attempt |-> a, index |-> i - 1]
            \/ i <= attempts[r][a].hits /\ KeyOf(decode.content[t.page][l]) = Keys[r][i]

(* What is found in the cache is alive and has the bytes of its key.       *)
RightCache == \A e \in cache :
  LET page == decode.pages[e.ticket.page]
  IN /\ page.gen = e.ticket.gen
     /\ page.state = "SHARED"
     /\ \A l \in LayerSet : KeyOf(decode.content[e.ticket.page][l]) = e.key

Integrity == RightReads /\ RightCache

(* No page is free while an access under its last grant can take effect.   *)
NoneExposed == \A w \in {v \in wire : ~IsSlot(v)} :
  /\ decode.pages[w.page].gen = w.gen => decode.pages[w.page].state # "FREE"
  /\ w.epoch = prefill.epoch /\ prefill.pages[w.source].gen = w.sourceGen => prefill.pages[w.source].state # "FREE"

(* When nothing is under way any more, nobody holds a page.  Where a word  *)
(* can be lost a side may never hear that it can let go: then it takes the *)
(* watchdogs, or the lease.                                                *)
AtRest ==
  /\ Terminal /\ net = {} /\ wire = {} /\ ~CanAccept
  /\ \A r \in Requests : \A a \in DOMAIN jobs[r] : LET job == jobs[r][a] IN
       /\ job.outstanding = {}
       /\ job.stage = "accepted" /\ ~job.released => ~Pulls /\ job.posted = Chunks(r)
       /\ ~(Pulls /\ job.stage = "referenced" /\ ~job.released /\ "lease" \in May)
  /\ \A r \in Requests : \A a \in DOMAIN jobs[r] : ~WillGiveUp(r, a)
NoneLeaked == AtRest =>
  /\ waiting = <<>>
  /\ \A p \in DOMAIN prefill.pages : prefill.pages[p].state \in {"FREE", "QUARANTINED"}
  /\ \A p \in DOMAIN decode.pages :
       \/ decode.pages[p].state \in {"FREE", "QUARANTINED"}
       \/ decode.pages[p].state = "SHARED" /\ decode.pages[p].readers = {}

HeardOrWatched == "lose" \notin May \/ (IF Pulls THEN "lease" ELSE "receive-time-out") \in May
Conservation == OneBook(decode) /\ OneBook(prefill) /\ NoneExposed /\ (HeardOrWatched => NoneLeaked)

(* Of FairSpec: from wherever things stand, all of it ends.                *)
Finality == []<>Terminal
=============================================================================
